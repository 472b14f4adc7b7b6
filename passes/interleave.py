"""Concats of interleaved slices, and of single elements, as one transpose.

The patch merging of Swin (x[:, 0::2, 0::2], x[:, 1::2, 0::2], ...) and the focus layer of YOLOv5 read a tensor in
s*s strided slices and put them together along the channels. With the strided axes cut into (extent / s, s) that is
a transpose of the s axes to the channels: one copy instead of two, and no strided reads. A stack of all the
elements of an axis (torch's unbind and stack, or split, squeeze and concat) moves that axis.
(rules.md S37, S39, S40.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from math import prod

from relax_glue.ir import Extent, Graph, Node, Value, same, same_shape
from relax_glue.ir.views import emit_movement, slice_of
from relax_glue.movement import Concat, Permute, Reshape, Slice
from relax_glue.rewrite import Decline, Replacement, rule

CONCAT = "relax.concat"
NO_SLICES = Decline("the operands are not slices of one tensor")


@rule(
    "interleaved-slices",
    CONCAT,
    equation="concat(x[i::s, j::t] for all i, j) -> reshape(permute_dims(reshape(x)))",
    source="S37",
)
def interleaved_slices(node: Node, graph: Graph) -> Replacement | Decline:
    """Transpose the phases of the strided axes to the concat axis, in the order in which the operands name them."""
    found = _common_source(node.inputs)
    if found is None or not isinstance(node.view, Concat):
        return NO_SLICES
    source, cuts = found
    shape = source.shape or ()
    steps = _steps(cuts, shape)
    order = _order(cuts, steps) if steps else None
    if order is None:
        return Decline("the slices are not each phase once, in the order of nested loops")
    if any(graph.uses_of(x) != 1 for x in node.inputs):
        return Decline("a slice has other users, so it is copied anyway")
    split, axes = _phases_to_axis(shape, steps, order, node.view.axis)
    apart = emit_movement(graph, Reshape(split), source)
    moved = emit_movement(graph, Permute(axes), apart)
    return emit_movement(graph, Reshape(node.shape_of(None) or ()), moved)


def _common_source(values: Sequence[Value]) -> tuple[Value, list[Slice]] | None:
    """Return the tensor of which all values are slices, and the slices."""
    found = [slice_of(v) for v in values]
    slices = [f for f in found if f is not None]
    if len(slices) < 2 or len(slices) != len(found) or any(source != slices[0][0] for source, _ in slices):
        return None
    return slices[0][0], [cut for _, cut in slices]


def _steps(cuts: Sequence[Slice], shape: Sequence[Extent]) -> dict[int, int]:
    """Return the stride of each axis that is cut into phases; empty where a slice is no phase."""
    steps: dict[int, int] = {}
    for axis in cuts[0].cuts(shape):
        size, extent = cuts[0].size[axis], shape[axis]
        # one element per phase has lost its stride: it is the extent
        steps[axis] = cuts[0].stride[axis] if size > 1 else extent
        if steps[axis] * size != extent:
            return {}
    for cut in cuts:
        alike = all(same(n, m) for n, m in zip(cut.size, cuts[0].size, strict=True)) and cut.stride == cuts[0].stride
        phase = all(0 <= b < steps.get(axis, 1) for axis, b in enumerate(cut.begin))
        if not alike or not phase:
            return {}
    return steps if prod(steps.values()) == len(cuts) else {}


def _order(cuts: Sequence[Slice], steps: dict[int, int]) -> tuple[int, ...] | None:
    """Return the strided axes from the slowest to the fastest in the sequence of slices, or None."""
    for axes in permutations(steps):
        if all(tuple(cut.begin[a] for a in axes) == want for cut, want in zip(cuts, _counts(axes, steps), strict=True)):
            return axes
    return None


def _counts(axes: Sequence[int], steps: dict[int, int]) -> Iterator[tuple[int, ...]]:
    """Yield the phases of nested loops over `axes`, the last the fastest."""
    sizes = [steps[a] for a in axes]
    for k in range(prod(sizes)):
        phase = []
        for size in reversed(sizes):
            k, digit = divmod(k, size)
            phase.append(digit)
        yield tuple(reversed(phase))


def _phases_to_axis(
    shape: Sequence[Extent], steps: dict[int, int], order: Sequence[int], axis: int
) -> tuple[tuple[Extent, ...], tuple[int, ...]]:
    """Return the shape with each strided axis as (extent / step, step), and the axes that bring the steps to `axis`."""
    split: list[Extent] = []
    whole, phase = [], {}
    for a, extent in enumerate(shape):
        whole.append(len(split))
        split.append(extent // steps[a] if a in steps else extent)
        if a in steps:
            phase[a] = len(split)
            split.append(steps[a])
    axes = [*whole[:axis], *(phase[a] for a in order), *whole[axis:]]
    return tuple(split), tuple(axes)


@rule(
    "stack-of-all-elements",
    CONCAT,
    equation="concat(reshape(x[k : k + 1]) for all k, axis) -> reshape(permute_dims(x))",
    source="S39, S40",
)
def stack_of_all_elements(node: Node, graph: Graph) -> Replacement | Decline:
    """Move the axis whose elements are put together, in order, before the concat axis."""
    if not isinstance(node.view, Concat) or not all(isinstance(x.node.view, Reshape) for x in node.inputs):
        return Decline("the operands are not reshapes")
    found = _common_source([x.node.inputs[0] for x in node.inputs])
    if found is None:
        return NO_SLICES
    source, cuts = found
    shape = source.shape or ()
    moved = _element_axis(cuts, shape)
    if moved is None:
        return Decline("the slices are not all the single elements of one axis, in order")
    rest = [a for a in range(len(shape)) if a != moved]
    if not _keeps_rest(node.inputs[0].shape or (), [shape[a] for a in rest], node.view.axis):
        return Decline("the reshape does more than drop the axis, or give it a new place")
    axes = (*rest[: node.view.axis], moved, *rest[node.view.axis :])
    turned = emit_movement(graph, Permute(axes), source)
    return emit_movement(graph, Reshape(node.shape_of(None) or ()), turned)


def _element_axis(cuts: Sequence[Slice], shape: Sequence[Extent]) -> int | None:
    """Return the axis of which slice k is element k, for all of its elements, or None."""
    axes = cuts[0].cuts(shape)
    if len(axes) != 1 or not same(shape[axes[0]], len(cuts)):
        return None
    whole = Slice.whole(shape)
    elements = [whole.with_axis(axes[0], k, 1) for k in range(len(cuts))]
    return axes[0] if all(_equal(c, e) for c, e in zip(cuts, elements, strict=True)) else None


def _equal(a: Slice, b: Slice) -> bool:
    return a.begin == b.begin and a.stride == b.stride and same_shape(a.size, b.size)


def _keeps_rest(operand: Sequence[Extent], rest: Sequence[Extent], axis: int) -> bool:
    """Return whether an operand has the extents `rest`, or those and a 1 at `axis`."""
    at_axis = operand[axis] if axis < len(operand) else None
    return same_shape(operand, rest) or (at_axis == 1 and same_shape([*operand[:axis], *operand[axis + 1 :]], rest))


INTERLEAVE = (interleaved_slices, stack_of_all_elements)
