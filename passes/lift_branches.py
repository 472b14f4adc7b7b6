"""Branches of `If` moved into functions of their own, which TVM's memory planner wants.

StaticPlanBlockMemory of TVM 0.27 keeps one pool of storage for a whole function. What a branch has released is given
to the other branch and to the code after the `If`, where the storage does not exist: the virtual machine then
allocates a tensor in a null pointer. In `y = f(x) if c else g(h(x)); return k(y)` the memory of h(x) is that of k(y).
A function has a pool of its own, so a branch that is a call of one shares nothing.

This is for compilation alone: what rewrites or partitions a module should see its branches.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax.expr import _update_type
from tvm.relax.utils import copy_with_new_vars

from relax_glue.ir import map_functions
from relax_glue.ir.blocks import branches_of, map_branches, rebranched


class _Lifter:
    """Lifts the branches of one module; collects the functions."""

    def __init__(self, mod: tvm.IRModule) -> None:
        self.names = {var.name_hint for var in mod.get_global_vars()}
        self.added: list[tuple[tvm.ir.GlobalVar, relax.Function]] = []

    def function(self, var: tvm.ir.GlobalVar, func: relax.Function) -> relax.Function:
        def lift(value: relax.If) -> relax.If:
            sides = zip(branches_of(value), ("then", "else"), strict=True)
            return rebranched(value, [self.branch(b, f"{var.name_hint}_{side}", func.is_pure) for b, side in sides])

        return map_branches(func, lift)

    def branch(self, branch: relax.SeqExpr, name: str, is_pure: bool) -> relax.SeqExpr:
        """Return a branch that calls a function; one without work of its own as it is."""
        if not _works(branch):
            return branch
        func, args = _closed(branch, is_pure)
        var = tvm.ir.GlobalVar(self._fresh_name(name))
        _update_type(var, func.ty)
        self.added.append((var, func))
        ty = relax.analysis.derive_call_ret_type(func.ty, relax.Call(var, args), relax.BlockBuilder())
        result = relax.Var(name, ty)
        call = relax.Call(var, args, ret_ty=ty)
        body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(result, call)])], result)
        _update_type(body, ty)
        return body

    def _fresh_name(self, name: str) -> str:
        number = 0
        while f"{name}_{number}" in self.names:
            number += 1
        self.names.add(f"{name}_{number}")
        return f"{name}_{number}"


def _works(branch: relax.SeqExpr) -> bool:
    """Return whether a branch allocates: it calls something else than a function of the module."""
    values = [getattr(binding, "value", None) for block in branch.blocks for binding in block.bindings]
    return any(_is_work(value) for value in values)


def _is_work(value: relax.Expr) -> bool:
    return isinstance(value, relax.If) or (isinstance(value, relax.Call) and not isinstance(value.op, tvm.ir.GlobalVar))


def _closed(branch: relax.SeqExpr, is_pure: bool) -> tuple[relax.Function, list[relax.Expr]]:
    """Make a function of a branch; return it with the arguments that it is called with.

    Symbols that no argument defines come in one more argument, a shape.
    """
    params = list(relax.analysis.free_vars(branch))
    args: list[relax.Expr] = list(params)
    symbols = relax.analysis.free_symbolic_vars(relax.Function(params, branch, branch.ty, is_pure))
    if symbols:
        params.append(relax.Var("symbols", relax.ShapeType(symbols)))
        args.append(relax.ShapeExpr(symbols))
    known = {symbol: symbol for p in params for symbol in relax.analysis.definable_tir_vars_in_type(p.ty)}
    # a symbol that a match_cast of the branch defines means nothing outside
    result = relax.analysis.erase_to_well_defined(branch.ty, known)
    return copy_with_new_vars(relax.Function(params, branch, result, is_pure)), args


def LiftBranches() -> tvm.transform.Pass:
    """Make a function of every branch of an `If` that computes something.

    `relax_glue.compile` runs it last. Who compiles a module with `tvm.compile` needs it wherever an `If` is left, if
    the process is not to crash.

    Returns
    -------
    pass : tvm.transform.Pass
        Adds private functions, named after the function and the side: `main_else_0`. Branches that only name a value,
        or call a function of the module, stay.
    """

    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        lifter = _Lifter(mod)
        result = map_functions(mod, lifter.function)
        if not lifter.added:
            return mod
        result = result.clone()
        for var, func in lifter.added:
            result.update_func(var, func)
        return result

    return tvm.transform.module_pass(run, opt_level=0, name="relax_glue.LiftBranches")
