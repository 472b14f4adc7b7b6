"""Other expressions in the places of variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm import relax, tirx
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


def with_symbols_of(func: relax.Function, args: Sequence[relax.Expr]) -> relax.Function:
    """Return a function with the extents of the arguments of a call in the places of its own symbols.

    A function that shares its symbols with the caller, as the composites of a region can, is returned as it is.
    """
    found: dict[tirx.Var, tirx.PrimExpr] = {}
    for param, arg in zip(func.params, args, strict=True):
        for formal, actual in zip(_extents(param.ty), _extents(arg.ty), strict=False):
            if isinstance(formal, tirx.Var) and not formal.same_as(actual):
                found.setdefault(formal, actual)
    return func.bind_symbolic_vars(found) if found else func


def _extents(ty: relax.Type) -> list[tirx.PrimExpr]:
    if isinstance(ty, relax.TupleType):
        return [extent for item in ty.fields for extent in _extents(item)]
    values = getattr(getattr(ty, "shape", ty), "values", None)
    return list(values) if values is not None else []
