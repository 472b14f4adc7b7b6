"""Extents that values decide: how many elements are not zero, how many boxes are kept.

In Relax such an extent is a symbol that a match_cast binds while the model runs. The extents of the inputs are known
when a call begins, and a caller can say how far they range; for these nobody can, and they may be 0. TensorRT builds
for a range, so what has such an extent stays with TVM.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvm import relax, tirx

from .ir.blocks import branches_of
from .ir.node import Node
from .ir.order import symbols_of
from .tensorrt.registry import Refusal


def data_extents(func: relax.Function) -> dict[tirx.Var, str]:
    """Return the symbols that a function binds while it runs, each with the name of the value that has it.

    Those that its parameters define are not among them, nor those that a match_cast of a parameter does: the caller
    knows what it passes.
    """
    given = {symbol for p in func.params for symbol in relax.analysis.tir_vars_in_type(p.ty)}
    passed: set[relax.Expr] = set(func.params)
    found: dict[tirx.Var, str] = {}
    for binding in _bindings(func.body):
        if _reads(binding.value) in passed:
            passed.add(binding.var)
        elif isinstance(binding, relax.MatchCast):
            for symbol in relax.analysis.definable_tir_vars_in_type(binding.ty):
                if symbol not in given:
                    found.setdefault(symbol, binding.var.name)
    return found


def _reads(value: relax.Expr) -> relax.Expr | None:
    """Return the variable that an expression only names: itself, or the tuple that it is an item of."""
    while isinstance(value, relax.TupleGetItem):
        value = value.tuple_value
    return value if isinstance(value, relax.Var) else None


def _bindings(seq: relax.Expr) -> Iterator[relax.Binding]:
    if not isinstance(seq, relax.SeqExpr):
        return
    for binding in (b for block in seq.blocks for b in block.bindings[:]):
        yield binding
        if isinstance(binding.value, relax.If):
            for branch in branches_of(binding.value):
                yield from _bindings(branch)


def data_extent_refusal(node: Node, symbols: dict[tirx.Var, str]) -> Refusal | None:
    """Return why a node stays outside for an extent of its operands or its result, or None."""
    if not symbols:
        return None
    mentioned = symbols_of(node).union(*(relax.analysis.tir_vars_in_type(v.ty) for v in node.inputs))
    mine = sorted((s for s in mentioned if s in symbols), key=lambda s: str(s.name))
    if not mine:
        return None
    listed = ", ".join(f"{symbol.name} (of {symbols[symbol]})" for symbol in mine)
    return Refusal(
        f"values decide its extent {listed}, and TensorRT builds for extents whose range is known",
        "it stays with TVM, in the same executable",
    )
