"""Permutes: `permute_dims` with axes counted from the front, as few of them as can be.

A `layout_transform` that only reorders axes is a permute; a permute of a permute is one; a permute that only moves
extents of 1 is a reshape; and a chain of permutes and reshapes is brought to its shortest form (see
`relax_glue.shuffle`). The normal form has fewer operators, or as many with fewer permutes, so it ends.
(rules.md T01, T02, R20, R23.)
"""

from __future__ import annotations

from collections.abc import Sequence

from relax_glue.ir import Extent, Graph, Node, same
from relax_glue.ir.views import emit_movement
from relax_glue.movement import Permute, Reshape, compose_permutes, permute_keeps_order
from relax_glue.rewrite import FOLD, Decline, Replacement, RuleSet, rule

from . import channel_order, shuffle
from .base import family

PERMUTES = ("relax.permute_dims", "relax.layout_transform")
NOT_PURE = Decline("it does more than reorder axes, or its shape is unknown")


@rule("nop-permute", *PERMUTES, equation="permute_dims(x, 0..r-1) -> x", kind=FOLD, source="T01")
def nop_permute(node: Node, graph: Graph) -> Replacement | Decline:
    """Drop a permute that keeps every axis in its place."""
    if not isinstance(node.view, Permute):
        return NOT_PURE
    return node.inputs[0] if node.view.is_identity else Decline("axes move")


@rule(
    "permute-of-permute",
    *PERMUTES,
    equation="permute_dims(permute_dims(x, p), q) -> permute_dims(x, p[q])",
    producers=PERMUTES,
    source="T02",
)
def permute_of_permute(node: Node, graph: Graph) -> Replacement | Decline:
    """Permute the first operand of a chain directly."""
    inner = node.inputs[0].node
    if not isinstance(node.view, Permute) or not isinstance(inner.view, Permute):
        return NOT_PURE
    return emit_movement(graph, Permute(compose_permutes(inner.view.axes, node.view.axes)), inner.inputs[0])


@rule(
    "permute-of-ones",
    *PERMUTES,
    equation="permute_dims(x, p) that moves only extents of 1 -> reshape(x)",
    source="R20",
)
def permute_of_ones(node: Node, graph: Graph) -> Replacement | Decline:
    """Spell a permute that keeps the order of the elements as a reshape."""
    if not isinstance(node.view, Permute):
        return NOT_PURE
    if not permute_keeps_order(node.view.axes, node.inputs[0].shape or ()):
        return Decline("elements change their order")
    return emit_movement(graph, Reshape(node.value.shape or ()), node.inputs[0])


@rule(
    "permute-normal-form",
    *PERMUTES,
    equation="permute_dims(x) | permute_dims(x, axes < 0) | layout_transform(x) -> permute_dims(x, axes), in order",
    source="T01",
)
def permute_normal_form(node: Node, graph: Graph) -> Replacement | Decline:
    """Spell every permute as `permute_dims` with all its axes, counted from the front.

    Axes of extent 1 are named in their order: (2, 1, 0) and (1, 2, 0) of (5, 1, 1) would be two permutes for one.
    """
    if not isinstance(node.view, Permute):
        return NOT_PURE
    given = node.attrs.axes if node.op == PERMUTES[0] else None
    axes = _with_ones_in_order(node.view.axes, node.inputs[0].shape or ())
    if given is not None and tuple(int(axis) for axis in given) == axes:
        return Decline("it has that form")
    return emit_movement(graph, Permute(axes), node.inputs[0])


def _with_ones_in_order(axes: Sequence[int], shape: Sequence[Extent]) -> tuple[int, ...]:
    """Return the axes of the same permute in which those of extent 1 stand in their order."""
    ones = iter(sorted(axis for axis in axes if same(shape[axis], 1)))
    return tuple(next(ones) if same(shape[axis], 1) else axis for axis in axes)


RULES = (
    RuleSet.of(nop_permute, permute_of_permute, permute_of_ones, permute_normal_form)
    + shuffle.RULES
    + channel_order.RULES
)


CanonicalizePermuteDims = family(
    "CanonicalizePermuteDims", RULES, "Bring permutes, and chains of permutes and reshapes, to their shortest form."
)
