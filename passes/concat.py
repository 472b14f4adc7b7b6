"""Concats: one flat `concat` of what has to be copied, or none.

The normal form has two operands or more, none empty, none a concat along the same axis that only it uses; next to
each other stand no two slices that are one slice, and no two small constants. A concat of all of something is
that thing, of copies of an extent of 1 a broadcast, of interleaved slices a transpose (see interleave). `stack` is
reshapes and a concat. (rules.md S05 to S07, S11 to S14, S16, S37, S39, S40.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relax_glue.ir import Graph, Node, Value, same
from relax_glue.ir.views import emit_movement, join, slice_of
from relax_glue.movement import Broadcast, Concat, Reshape, Slice, Stack
from relax_glue.rewrite import FOLD, Decline, Replacement, RuleSet, rule

from .base import family
from .interleave import INTERLEAVE

CONCAT = "relax.concat"
NO_VIEW = Decline("the shape of an operand is not known")
REDUCTIONS = ("relax.max", "relax.min", "relax.sum")
SMALL = 4096  # bytes of a merged constant that may repeat what other users keep alive


@rule("single-concat", CONCAT, equation="concat((x,)) -> x", kind=FOLD, source="S11")
def single_concat(node: Node, graph: Graph) -> Replacement | Decline:
    """Drop a concat of one operand."""
    if len(node.inputs) != 1:
        return Decline("there are several operands")
    return node.inputs[0]


@rule(
    "empty-concat-operand",
    CONCAT,
    equation="concat(x, y) -> concat(x), where y has extent 0 along the axis",
    source="S12",
)
def empty_concat_operand(node: Node, graph: Graph) -> Replacement | Decline:
    """Leave out operands without elements; TensorRT takes none."""
    if not isinstance(node.view, Concat):
        return NO_VIEW
    axis = node.view.axis
    kept = [x for x in node.inputs if not same((x.shape or ())[axis], 0)]
    if len(kept) == len(node.inputs):
        return Decline("no operand is empty")
    return join(graph, axis, kept)


@rule(
    "nested-concat",
    CONCAT,
    equation="concat(concat(x, y, axis), z, axis) -> concat(x, y, z, axis)",
    source="S13",
)
def nested_concat(node: Node, graph: Graph) -> Replacement | Decline:
    """Take in the operands of concats along the same axis that have no other use."""
    if not isinstance(node.view, Concat):
        return NO_VIEW
    flat: list[Value] = []
    for x in node.inputs:
        inner = x.node
        opened = inner.op == CONCAT and inner.view == node.view and graph.uses(inner) == 1
        flat += inner.inputs if opened else [x]
    if len(flat) == len(node.inputs):
        return Decline("no operand is a concat along the same axis that has one use")
    return emit_movement(graph, node.view, *flat)


@rule(
    "adjacent-slices",
    CONCAT,
    equation="concat(x[a:b], x[b:c], y) -> concat(x[a:c], y); items of a split count as slices",
    source="S05 to S07",
)
def adjacent_slices(node: Node, graph: Graph) -> Replacement | Decline:
    """Make one slice of those that lie next to each other in one operand, at one stride and cut alike elsewhere."""
    if not isinstance(node.view, Concat):
        return NO_VIEW
    axis = node.view.axis
    runs = _runs(node.inputs, axis)
    runs = [part for run in runs for part in _worth_merging(run, graph)]
    if len(runs) == len(node.inputs):
        return Decline("no two operands are adjacent slices, or the slices have other users")
    operands = [
        run.operands[0] if len(run.operands) == 1 else emit_movement(graph, run.cut, run.source) for run in runs
    ]
    return join(graph, axis, operands)


class _Run:
    """Operands next to each other that are one slice `cut` of `source`."""

    def __init__(self, operand: Value):
        found = slice_of(operand)
        whole = Slice.whole(operand.shape or ())
        self.source, self.cut = found if found else (operand, whole)
        self.operands = [operand]

    def extend(self, other: _Run, axis: int) -> bool:
        """Take in a run that follows and continues the slice; return whether it does."""
        cut = _continued(self.cut, other.cut, axis) if self.source == other.source else None
        if cut is None:
            return False
        self.cut = cut
        self.operands += other.operands
        return True

    def emit(self, graph: Graph) -> Value:
        """Return the slice; a run of one is its operand."""
        return self.operands[0] if len(self.operands) == 1 else emit_movement(graph, self.cut, self.source)


def _runs(operands: Sequence[Value], axis: int) -> list[_Run]:
    """Return the operands of a concat in runs as long as they get from left to right."""
    runs: list[_Run] = []
    for operand in operands:
        run = _Run(operand)
        if not runs or not runs[-1].extend(run, axis):
            runs.append(run)
    return runs


def _continued(first: Slice, then: Slice, axis: int) -> Slice | None:
    """Return the slice that is `first` and then `then` along `axis`, or None."""
    (b1, n1, s1), (b2, n2, s2) = [(c.begin[axis], c.size[axis], c.stride[axis]) for c in (first, then)]
    if not isinstance(n1, int) or not isinstance(n2, int):
        return None
    # a single element goes with any stride, so that x[2:3], x[1:2] continue as x[2:0:-1]
    stride = s1 if n1 > 1 else s2 if n2 > 1 else b2 - b1
    if stride == 0 or (n2 > 1 and s2 != stride) or b2 != b1 + stride * n1:
        return None
    merged = first.with_axis(axis, b1, n1 + n2, stride)
    rest = then.with_axis(axis, b1, n1 + n2, stride)
    alike = merged.begin == rest.begin and merged.stride == rest.stride and all(map(same, merged.size, rest.size))
    return merged if alike else None


def _worth_merging(run: _Run, graph: Graph) -> list[_Run]:
    """Return the run, or its operands as runs of one where other users keep all the slices alive anyway."""
    merged = len(run.operands) > 1
    whole = not run.cut.cuts(run.source.shape or ())
    if not merged or whole or all(graph.uses_of(x) == 1 for x in run.operands):
        return [run]
    return [_Run(x) for x in run.operands]


@rule(
    "repeated-operand",
    CONCAT,
    equation="concat(x, x, ..., x, axis) -> broadcast_to(x), where x has extent 1 along the axis",
    source="S14",
)
def repeated_operand(node: Node, graph: Graph) -> Replacement | Decline:
    """Broadcast one operand instead of copying it again and again."""
    if not isinstance(node.view, Concat):
        return NO_VIEW
    first, axis = node.inputs[0], node.view.axis
    if not same((first.shape or ())[axis], 1) or any(x != first for x in node.inputs):
        return Decline("the operands are not one value of extent 1 along the axis")
    shape = list(first.shape or ())
    shape[axis] = len(node.inputs)
    return emit_movement(graph, Broadcast(tuple(shape)), first)


@rule("adjacent-constants", CONCAT, equation="concat(x, c1, c2) -> concat(x, [c1, c2])", source="S16")
def adjacent_constants(node: Node, graph: Graph) -> Replacement | Decline:
    """Join constants that stand together, unless the model would grow by much."""
    if not isinstance(node.view, Concat):
        return NO_VIEW
    axis = node.view.axis
    merged: list[Value | list[Value]] = []
    for x in node.inputs:
        group = merged[-1] if merged else None
        if isinstance(group, list) and x.array is not None and _may_join(group, x, graph):
            group.append(x)
        else:
            merged.append([x] if x.array is not None else x)
    if len(merged) == len(node.inputs):
        return Decline("no two constants stand together, or they are large and have other users")
    operands = [_joined(graph, axis, part) if isinstance(part, list) else part for part in merged]
    return join(graph, axis, operands)


def _may_join(group: Sequence[Value], x: Value, graph: Graph) -> bool:
    """Return whether a constant that is joined to a group costs no memory, or little."""
    arrays = [v.array for v in (*group, x)]
    small = sum(a.nbytes for a in arrays if a is not None) <= SMALL
    return small or all(graph.uses(v.node) == 1 for v in (*group, x))


def _joined(graph: Graph, axis: int, group: Sequence[Value]) -> Value:
    if len(group) == 1:
        return group[0]
    return graph.constant(np.concatenate([v.array for v in group if v.array is not None], axis=axis))


@rule(
    "stack-to-concat", "relax.stack", equation="stack(x, y, axis) -> concat(reshape(x), reshape(y), axis)", source="S40"
)
def stack_to_concat(node: Node, graph: Graph) -> Replacement | Decline:
    """Give each operand the new axis by a reshape, which takes in a reshape that the operand is."""
    if not isinstance(node.view, Stack):
        return NO_VIEW
    if any(user.op in REDUCTIONS for user in node.users):
        return Decline("a reduction over it may be a binary operator (see stack_reduce)")
    axis = node.view.axis
    lifted: dict[Value, Value] = {}
    for x in dict.fromkeys(node.inputs):
        shape = x.shape or ()
        source = x.node.inputs[0] if isinstance(x.node.view, Reshape) else x
        lifted[x] = emit_movement(graph, Reshape((*shape[:axis], 1, *shape[axis:])), source)
    return join(graph, axis, [lifted[x] for x in node.inputs])


RULES = RuleSet.of(
    single_concat,
    empty_concat_operand,
    nested_concat,
    adjacent_slices,
    *INTERLEAVE,
    repeated_operand,
    adjacent_constants,
    stack_to_concat,
)


CanonicalizeConcat = family(
    "CanonicalizeConcat", RULES, "Bring concat and stack to one flat concat, or to what they put together again."
)
