"""Takes with constant indices: slices where the indices are a progression, else one `take` of plain indices.

TensorRT gathers, but a slice is cheaper, meets the rules of slices and concats, and is known to TVM's table. A
rotation, as torch.roll makes it, stays a take, and two slices with their concat become one: TensorRT has one layer for
it, a slice that begins again at the end. What stays is a take along a named axis with indices within the extent, so
that no mode matters; "fast" does not look, and reads outside where an index is negative. Takes of takes, slices and
concats read the first operand. (rules.md G01 to G05, G07, G14, S38, S41.)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from relax_glue.ir import Graph, Node, Value, is_static
from relax_glue.ir.views import MAX_INDICES, emit_movement, is_normal_take, join, slice_of
from relax_glue.movement import Broadcast, Concat, Reshape, Slice, Take
from relax_glue.rewrite import Decline, Replacement, RuleSet, rule

from .base import family

TAKE = "relax.take"
NO_VIEW = Decline("the indices are not constant and within the extent, or the extent is symbolic")


@rule(
    "take-of-take",
    TAKE,
    equation="take(take(x, i, axis), j, axis) -> take(x, i[j], axis)",
    producers=(TAKE,),
    source="G07",
)
def take_of_take(node: Node, graph: Graph) -> Replacement | Decline:
    """Take from the first operand; the inner indices are of rank 1, so that the axes are the same."""
    inner = node.inputs[0].node
    if not isinstance(node.view, Take) or not isinstance(inner.view, Take):
        return NO_VIEW
    axis, shape, indices = node.view.axis, node.view.shape, node.view.indices
    if inner.view.axis != axis or len(inner.view.shape) != 1:
        return Decline("the axes differ, or the inner indices have another rank than 1")
    composed = tuple(inner.view.indices[i] for i in indices)
    return emit_movement(graph, Take(axis, shape, composed), inner.inputs[0])


@rule(
    "take-of-slice",
    TAKE,
    equation="take(x[b:e:s], i, axis) -> take(x, b + s * i, axis); items of a split count as slices",
    producers=("relax.strided_slice", "relax.split"),
    source="G07, S17",
)
def take_of_slice(node: Node, graph: Graph) -> Replacement | Decline:
    """Take from what was sliced, where only the axis of the take was."""
    inner = slice_of(node.inputs[0])
    if not isinstance(node.view, Take) or inner is None:
        return NO_VIEW
    source, cut = inner
    axis, shape, indices = node.view.axis, node.view.shape, node.view.indices
    if cut.cuts(source.shape or ()) != [axis]:
        return Decline("another axis is cut")
    shifted = tuple(cut.begin[axis] + cut.stride[axis] * i for i in indices)
    return emit_movement(graph, Take(axis, shape, shifted), source)


@rule(
    "take-of-concat",
    TAKE,
    equation="take(concat(x, y, axis), i, axis) -> take(y, i - extent of x, axis), where i is within y",
    producers=("relax.concat",),
    source="G14",
)
def take_of_concat(node: Node, graph: Graph) -> Replacement | Decline:
    """Take from the one operand that holds all the elements."""
    concat = node.inputs[0].node
    if not isinstance(node.view, Take) or concat.view != Concat(node.view.axis):
        return Decline("the axes differ, or the indices are not constant")
    axis, shape, indices = node.view.axis, node.view.shape, node.view.indices
    extents = [(x.shape or ())[axis] for x in concat.inputs]
    if not is_static(extents) or not indices:
        return NO_VIEW
    for operand, end, extent in zip(concat.inputs, accumulate(extents), extents, strict=True):
        start = end - extent
        if start <= min(indices) and max(indices) < end:
            return emit_movement(graph, Take(axis, shape, tuple(i - start for i in indices)), operand)
    return Decline("the elements lie in several operands")


@rule(
    "take-to-slices",
    TAKE,
    equation="take(x, b + s * (0, 1, ...), axis) -> x[b::s]; take(x, [a, a + 1, ..., b, b + 1, ...]) -> concat",
    source="G01 to G05, S41",
)
def take_to_slices(node: Node, graph: Graph) -> Replacement | Decline:
    """Slice where the indices are one progression, one index repeated, or two runs of neighbours.

    More pieces are dearer than TensorRT's gather. A scalar or a tensor of indices adds a reshape.
    """
    if not isinstance(node.view, Take):
        return NO_VIEW
    axis, indices = node.view.axis, node.view.indices
    if len(node.view.shape) == 1 and _is_rotation(indices, (node.inputs[0].shape or ())[axis]):
        return Decline("it is a rotation, which is one layer")
    if len(set(indices)) == 1:
        taken = _repeated(graph, node.inputs[0], axis, indices[0], len(indices))
    else:
        runs = _runs(indices)
        if runs is None:
            return Decline("the indices are no progression, and more than two runs of neighbours")
        taken = join(graph, axis, [_slice(graph, node.inputs[0], axis, run) for run in runs])
    return emit_movement(graph, Reshape(node.shape_of(None) or ()), taken)


def _repeated(graph: Graph, x: Value, axis: int, index: int, count: int) -> Value:
    """Return `count` times element `index` of an axis."""
    element = _slice(graph, x, axis, (index, 1, 1))
    shape = list(element.shape or ())
    shape[axis] = count
    return emit_movement(graph, Broadcast(tuple(shape)), element)


def _slice(graph: Graph, x: Value, axis: int, run: tuple[int, int, int]) -> Value:
    return emit_movement(graph, Slice.whole(x.shape or ()).with_axis(axis, *run), x)


def _runs(indices: Sequence[int]) -> list[tuple[int, int, int]] | None:
    """Return the indices as one progression or two of step 1, each (first, count, step); else None."""
    steps = [b - a for a, b in pairwise(indices)]
    if len(set(steps)) == 1:
        return [(indices[0], len(indices), steps[0])]
    breaks = [k for k, step in enumerate(steps, 1) if step != 1]
    if len(breaks) != 1:
        return None
    cut = breaks[0]
    return [(indices[0], cut, 1), (indices[cut], len(indices) - cut, 1)]


def _is_rotation(indices: Sequence[int], extent: int) -> bool:
    """Return whether indices go up by one to the end of the extent, and on from its beginning."""
    wraps = any(b < a for a, b in pairwise(indices))
    return wraps and all(b == (a + 1) % extent for a, b in pairwise(indices))


@rule(
    "rotation-to-take",
    "relax.concat",
    equation="concat(x[k:], x[:k], axis) -> take(x, [k, ..., n - 1, 0, ..., k - 1], axis)",
    source="S38",
)
def rotation_to_take(node: Node, graph: Graph) -> Replacement | Decline:
    """Read on from the beginning, instead of joining the end and the beginning."""
    pieces = [piece for v in node.inputs if (piece := slice_of(v)) is not None]
    if not isinstance(node.view, Concat) or len(pieces) != 2 or len(node.inputs) != 2:
        return Decline("it does not join two slices")
    (x, first), (other, then) = pieces
    axis, shape = node.view.axis, x.shape or ()
    if other != x or first.cuts(shape) != [axis] or then.cuts(shape) != [axis]:
        return Decline("they are no slices of one operand along the axis")
    indices = [piece.begin[axis] + piece.stride[axis] * k for piece in (first, then) for k in range(piece.size[axis])]
    if len(indices) > MAX_INDICES or not _is_rotation(indices, shape[axis]):
        return Decline("the second does not go on where the first ends")
    if any(graph.uses_of(v) > 1 for v in node.inputs):
        return Decline("the slices have other users")
    return emit_movement(graph, Take(axis, (len(indices),), tuple(indices)), x)


@rule(
    "take-normal-form",
    TAKE,
    equation="take(x, i, any mode) -> take(x, i within the extent, axis)",
    source="G11",
)
def take_normal_form(node: Node, graph: Graph) -> Replacement | Decline:
    """Bring the indices within the extent as the mode says, and name the axis."""
    if not isinstance(node.view, Take):
        return NO_VIEW
    if is_normal_take(node):
        return Decline("it is spelled so already")
    return emit_movement(graph, node.view, node.inputs[0])


RULES = RuleSet.of(take_of_take, take_of_slice, take_of_concat, take_to_slices, rotation_to_take, take_normal_form)


CanonicalizeTake = family(
    "CanonicalizeTake", RULES, "Bring takes with constant indices to slices, or to one take of plain indices."
)
