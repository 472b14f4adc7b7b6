"""Other expressions in the places of variables."""

from __future__ import annotations

from collections.abc import Mapping

from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator


@mutator
class _Rename(PyExprMutator):
    def __init__(self, names: Mapping[relax.Expr, relax.Expr]) -> None:
        super().__init__()
        self.names = names

    # a variable whose value got a better type is bound anew, and the mutator knows as what

    def visit_var_(self, var: relax.Var) -> relax.Expr:
        return self.visit_expr(self.names[var]) if var in self.names else super().visit_var_(var)

    def visit_dataflow_var_(self, var: relax.Var) -> relax.Expr:
        return self.visit_expr(self.names[var]) if var in self.names else super().visit_dataflow_var_(var)


def rename(expr: relax.Expr, names: Mapping[relax.Expr, relax.Expr]) -> relax.Expr:
    """Return `expr` with the free variables that `names` maps replaced."""
    return _Rename(names).visit_expr(expr) if names else expr
