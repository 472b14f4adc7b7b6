"""Splits: one `split` where every item is used, and slices of the items that are used where one is not.

A split is one kernel in TVM and one slice layer for each item in TensorRT, so it stays as it is while all of its
items are wanted. An item that nothing uses is still computed; then slices of the others take its place. Slices of
items become slices of the operand (see strided_slice), so an item that is only sliced counts as unused, and
nothing makes a split of slices again. (rules.md S09, S10, S18, S19.)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from tvm import relax

from relax_glue.ir import Graph, Node, Value, is_static
from relax_glue.ir.views import emit_movement, join, slice_of
from relax_glue.movement import Concat, Split, compose_slices
from relax_glue.rewrite import FOLD, Decline, Replacement, RuleSet, rule

from .base import family

SPLIT = "relax.split"
NO_VIEW = Decline("an extent along the axis is symbolic, or the items are not all of the operand")


def _used_items(node: Node, graph: Graph) -> list[int] | Decline:
    """Return the items that something uses, or why they cannot be replaced one by one."""
    if not isinstance(node.view, Split):
        return NO_VIEW
    if graph.uses_of(Value(node)):
        return Decline("the tuple is used as a whole")
    bounds = node.view.bounds
    used = [k for k in range(len(bounds) - 1) if graph.uses_of(Value(node, k))]
    if any(bounds[k] == bounds[k + 1] for k in used):
        return Decline("an item that is used is empty")
    return used


def _items(node: Node, found: dict[int, Value]) -> list[Value | None]:
    """Return a replacement for each item, None for those that nothing uses."""
    return [found.get(k) for k in range(len(node.view.bounds) - 1)]


@rule("nop-split", SPLIT, equation="split(x, 1) -> x", kind=FOLD, source="S10")
def nop_split(node: Node, graph: Graph) -> Replacement | Decline:
    """Drop a split into one section; TVM types it as the tensor itself, not as a tuple."""
    if not isinstance(node.ty, relax.TensorType):
        return Decline("there are several items")
    return node.inputs[0]


@rule(
    "split-of-concat",
    SPLIT,
    equation="split(concat(x, y, z, axis), axis) -> x, concat(y, z) where a cut meets the ends of operands",
    producers=("relax.concat",),
    source="S19",
)
def split_of_concat(node: Node, graph: Graph) -> Replacement | Decline:
    """Use the operands themselves for the items that they are; the other items become slices."""
    used = _used_items(node, graph)
    if isinstance(used, Decline):
        return used
    concat, axis = node.inputs[0].node, node.view.axis
    extents = [(x.shape or ())[axis] for x in concat.inputs]
    if concat.view != Concat(axis) or not is_static(extents):
        return Decline("the concat is along another axis, or of symbolic extents")
    runs = {k: _operands_between(concat.inputs, extents, *node.view.bounds[k : k + 2]) for k in used}
    if graph.uses(concat) != 1:
        # a concat of several operands for an item would be moved bytes that the split moved already
        runs = {k: run if len(run) == 1 else [] for k, run in runs.items()}
    if not any(runs.values()):
        return Decline("no item is made of whole operands, or the concat has other users")
    shape = node.inputs[0].shape or ()
    found = {}
    for k, run in runs.items():
        part = node.view.part(k, shape)
        found[k] = join(graph, axis, run) if run else emit_movement(graph, part, node.inputs[0])
    return _items(node, found)


def _operands_between(operands: Sequence[Value], extents: Sequence[int], begin: int, end: int) -> list[Value]:
    """Return the operands of a concat that fill begin..end exactly; none where they do not."""
    ends = list(accumulate(extents))
    starts = [e - n for e, n in zip(ends, extents, strict=True)]
    run = [k for k, (s, e) in enumerate(zip(starts, ends, strict=True)) if begin <= s < e <= end]
    filled = run and starts[run[0]] == begin and ends[run[-1]] == end
    return [operands[k] for k in run] if filled else []


@rule(
    "split-of-slice",
    SPLIT,
    equation="split(strided_slice(x)) | split(split(x)[k]) -> a strided_slice(x) for each item",
    producers=("relax.strided_slice", SPLIT),
    source="S18",
)
def split_of_slice(node: Node, graph: Graph) -> Replacement | Decline:
    """Cut the items from the first operand, so that what lies between is not copied."""
    used = _used_items(node, graph)
    inner = slice_of(node.inputs[0])
    if isinstance(used, Decline):
        return used
    if inner is None:
        return NO_VIEW
    if graph.uses_of(node.inputs[0]) != 1:
        return Decline("what is split has other users, so it is copied anyway")
    source, first = inner
    shape = node.inputs[0].shape or ()
    parts = {k: compose_slices(first, node.view.part(k, shape)) for k in used}
    return _items(node, {k: emit_movement(graph, part, source) for k, part in parts.items()})


@rule(
    "split-to-slices",
    SPLIT,
    equation="split(x), of which an item is not used -> a strided_slice(x) for each item used",
    source="S09",
)
def split_to_slices(node: Node, graph: Graph) -> Replacement | Decline:
    """Do not compute items that nothing uses."""
    used = _used_items(node, graph)
    if isinstance(used, Decline):
        return used
    if len(used) == len(node.view.bounds) - 1:
        return Decline("all items are used")
    shape = node.inputs[0].shape or ()
    return _items(node, {k: emit_movement(graph, node.view.part(k, shape), node.inputs[0]) for k in used})


RULES = RuleSet.of(nop_split, split_of_concat, split_of_slice, split_to_slices)


CanonicalizeSplit = family("CanonicalizeSplit", RULES, "Drop splits, or the items of splits, that are not needed.")
