"""Slices: one `strided_slice` with bounds inside the extents, as near to the graph's inputs as it pays.

The normal form of a cut is a strided_slice that names the cut axes alone, in order, with begins and ends inside the
extents; a slice of a slice, of an item of a split, of a take or of one operand of a concat is a slice of what
that was made from. `flip` is a strided_slice with stride -1, so that the same algebra covers it; a flip of a
symbolic extent stays. Slices move towards the inputs (see slice_through) and no rule moves them back.
(rules.md S01 to S04, S17, S42.)
"""

from __future__ import annotations

from relax_glue.ir import Graph, Node, Value
from relax_glue.ir.views import emit_movement, is_normal_slice, join, moves_nothing, slice_of
from relax_glue.movement import Concat, Flip, Slice, Take, compose_slices
from relax_glue.rewrite import FOLD, Decline, Replacement, RuleSet, rule

from .base import family
from .slice_clusters import slice_before_layers
from .slice_into_conv import slice_into_conv
from .slice_layers import LAYERS
from .slice_scatter import slice_scatter_to_concat
from .slice_through import THROUGH

SLICE = "relax.strided_slice"
NO_VIEW = Decline("the bounds or the extents are not static")


@rule("nop-slice", SLICE, equation="strided_slice(x, all of x) -> x", kind=FOLD, source="S01")
def nop_slice(node: Node, graph: Graph) -> Replacement | Decline:
    """Drop a slice that cuts nothing; one with stride -1 keeps the shape but is no nop."""
    if not isinstance(node.view, Slice):
        return NO_VIEW
    if not moves_nothing(node.view, node.inputs[0].shape or ()):
        return Decline("something is cut")
    return node.inputs[0]


@rule(
    "slice-of-slice",
    SLICE,
    equation="strided_slice(strided_slice(x)) | strided_slice(split(x)[k]) -> strided_slice(x)",
    producers=(SLICE, "relax.split"),
    source="S03, S17",
)
def slice_of_slice(node: Node, graph: Graph) -> Replacement | Decline:
    """Cut the first operand of a chain directly; window counts were clamped when the views were read."""
    inner = slice_of(node.inputs[0])
    if not isinstance(node.view, Slice) or inner is None:
        return NO_VIEW
    source, first = inner
    return emit_movement(graph, compose_slices(first, node.view), source)


@rule(
    "slice-of-concat",
    SLICE,
    equation="strided_slice(concat(x, y, ...)) -> strided_slice(x) | concat of the operands that are cut into",
    producers=("relax.concat",),
    source="S04",
)
def slice_of_concat(node: Node, graph: Graph) -> Replacement | Decline:
    """Cut the operands instead: one operand always; several where the concat has no other use."""
    concat = node.inputs[0].node
    if not isinstance(node.view, Slice) or not isinstance(concat.view, Concat):
        return NO_VIEW
    axis = concat.view.axis
    pieces = _pieces(node.view, concat.inputs, axis)
    if pieces is None:
        return Decline("an extent along the concat axis is symbolic, or the slice strides over several operands")
    if len(pieces) == 1:
        operand, piece = pieces[0]
        return emit_movement(graph, piece, operand)
    if node.view.cuts(node.inputs[0].shape or ()) != [axis]:
        return Decline("several operands would each be cut along another axis")
    if graph.uses(concat) != 1:
        return Decline("the concat has other users, so nothing would be saved")
    return join(graph, axis, [emit_movement(graph, piece, x) for x, piece in pieces])


def _pieces(view: Slice, operands: list[Value], axis: int) -> list[tuple[Value, Slice]] | None:
    """Return the operands that a slice of their concat reads, each with its slice; None where it is no such list."""
    begin, size, stride = view.begin[axis], view.size[axis], view.stride[axis]
    extents = [(x.shape or ())[axis] for x in operands]
    if not all(isinstance(n, int) for n in [*extents, size]):
        return None
    first, last = sorted((begin, begin + stride * (size - 1)))
    found, start = [], 0
    for operand, extent in zip(operands, extents, strict=True):
        end = start + extent
        if start <= first and last < end:
            return [(operand, view.with_axis(axis, begin - start, size, stride))]
        low, high = max(first, start), min(last + 1, end)
        if low < high:
            found.append((operand, view.with_axis(axis, low - start, high - low)))
        start = end
    return found if stride == 1 else None


@rule(
    "slice-of-take",
    SLICE,
    equation="strided_slice(take(x, i, axis), axis) -> take(x, i[begin:end:stride], axis)",
    producers=("relax.take",),
    source="G07",
)
def slice_of_take(node: Node, graph: Graph) -> Replacement | Decline:
    """Take fewer elements; indices of rank 1 and no other axis cut, so that nothing is read twice."""
    take = node.inputs[0].node
    if not isinstance(node.view, Slice) or not isinstance(take.view, Take):
        return NO_VIEW
    axis = take.view.axis
    if len(take.view.shape) != 1 or node.view.cuts(node.inputs[0].shape or ()) != [axis]:
        return Decline("the slice cuts another axis than the one that is taken from")
    begin, size, stride = node.view.begin[axis], node.view.size[axis], node.view.stride[axis]
    kept = tuple(take.view.indices[begin + stride * k] for k in range(size))
    return emit_movement(graph, Take(axis, (size,), kept), take.inputs[0])


@rule(
    "slice-normal-form",
    SLICE,
    equation="strided_slice(x, any bounds) -> strided_slice(x, the cut axes in order, bounds inside the extents)",
    source="S02",
)
def slice_normal_form(node: Node, graph: Graph) -> Replacement | Decline:
    """Spell a slice as `emit_movement` does: no negative axis, no INT64_MAX, no whole axis, no stride of ones."""
    if not isinstance(node.view, Slice):
        return NO_VIEW
    if is_normal_slice(node):
        return Decline("it is spelled so already")
    return emit_movement(graph, node.view, node.inputs[0])


@rule(
    "flip-of-flip",
    "relax.flip",
    equation="flip(flip(x, axis), axis) -> x",
    kind=FOLD,
    producers=("relax.flip",),
    source="S42",
)
def flip_of_flip(node: Node, graph: Graph) -> Replacement | Decline:
    """Drop two flips of one axis; it may be symbolic."""
    inner = node.inputs[0].node
    if node.view is None or node.view != inner.view:
        return Decline("the axes differ")
    return inner.inputs[0]


@rule("flip-to-slice", "relax.flip", equation="flip(x, axis) -> strided_slice(x, axis, stride=-1)", source="S42")
def flip_to_slice(node: Node, graph: Graph) -> Replacement | Decline:
    """Spell a flip of a static extent as a slice that runs backwards."""
    shape = node.inputs[0].shape
    if not isinstance(node.view, Flip) or shape is None:
        return NO_VIEW
    axis = node.view.axis
    if not isinstance(shape[axis], int):
        return Decline("the extent is symbolic")
    reverse = Slice.whole(shape).with_axis(axis, shape[axis] - 1, shape[axis], -1)
    return emit_movement(graph, reverse, node.inputs[0])


RULES = RuleSet.of(
    nop_slice,
    slice_of_slice,
    slice_of_concat,
    slice_of_take,
    *THROUGH,
    slice_before_layers,
    *LAYERS,
    slice_into_conv,
    slice_normal_form,
    flip_of_flip,
    flip_to_slice,
    slice_scatter_to_concat,
)


CanonicalizeStridedSlice = family(
    "CanonicalizeStridedSlice",
    RULES,
    "Bring strided_slice, flip and slice_scatter to one strided_slice each cut, or none.",
)
