"""Names that a block only gives to what has one, or is a constant: importers bind every constant of a model to one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm import relax
from tvm.relax.analysis import BaseCheckResult, type_base_check

from .operands import is_value, operands_of, substitute

Names = Mapping[relax.Expr, relax.Expr]


def without_names(block: relax.DataflowBlock) -> relax.DataflowBlock:
    """Return a block in which values stand in the places of the names that it gives them; `block` where it gives none.

    A result that is the name of what the block computes is bound to that itself. To read and write the block would do
    the same, in ten times the time. What is left are results that are names of constants, of what comes from outside,
    or of another result.
    """
    bindings = block.bindings[:]
    renamings = [b for b in bindings if isinstance(b, relax.VarBinding) and is_value(b.value)]
    inner: dict[relax.Expr, relax.Expr] = {}
    for binding in renamings:
        if isinstance(binding.var, relax.DataflowVar):  # the name of a name stands for what that names
            inner[binding.var] = inner.get(binding.value, binding.value)
    results = _results(inner, renamings)
    if not inner and not results:
        return block
    names = {**{var: results.get(value, value) for var, value in inner.items()}, **results}
    gone = {*inner, *results.values()}
    return relax.DataflowBlock([_renamed(b, names) for b in bindings if b.var not in gone], block.span)


def _results(inner: Names, renamings: Sequence[relax.VarBinding]) -> dict[relax.Expr, relax.Expr]:
    """Return the results that are names of what a block computes, by that; of two of one value it is the first."""
    found: dict[relax.Expr, relax.Expr] = {}
    for binding in renamings:
        value = inner.get(binding.value, binding.value)
        is_inner = isinstance(value, relax.DataflowVar) and not isinstance(binding.var, relax.DataflowVar)
        if is_inner and type_base_check(binding.var.ty, value.ty) == BaseCheckResult.PASS:
            found.setdefault(value, binding.var)
    return found


def _renamed(binding: relax.Binding, names: Names) -> relax.Binding:
    var, before = binding.var, binding.value
    value = substitute(before, [names.get(operand, operand) for operand in operands_of(before)])
    if var not in names and value.same_as(before):
        return binding
    var = names.get(var, var)
    is_cast = isinstance(binding, relax.MatchCast)
    return relax.MatchCast(var, value, binding.ty) if is_cast else relax.VarBinding(var, value)
