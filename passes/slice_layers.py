"""Slices moved before what computes: what is cut off is not computed then.

    strided_slice(reduce(x, A))  ->  reduce(strided_slice(x), A)
    strided_slice(matmul(x, w))  ->  matmul(strided_slice(x), strided_slice(w))

Where the result has no other user only: several slices of one product would be several products. Past pointwise
operators a slice goes where it reaches a layer behind them: see `slice_clusters`. (rules.md S23, S33.)
"""

from __future__ import annotations

from relax_glue.ir import Graph, Node, Value, same
from relax_glue.ir.views import emit_movement, moves_nothing
from relax_glue.movement import Slice
from relax_glue.rewrite import FLOAT_REASSOC, Decline, Replacement, rule

from .reduce import REDUCTIONS, emit_reduction, reduced_axes
from .slice_through import NO_VIEW, SLICE


@rule(
    "slice-of-reduction",
    SLICE,
    equation="strided_slice(reduce(x, A)) -> reduce(strided_slice(x), A)",
    producers=REDUCTIONS,
    single_use=(0,),
    source="S33",
)
def slice_of_reduction(node: Node, graph: Graph) -> Replacement | Decline:
    """Reduce only what is kept."""
    reduction = node.inputs[0].node
    x, view = reduction.inputs[0], node.view
    if not isinstance(view, Slice) or x.shape is None or view.is_empty:
        return NO_VIEW
    axes, keepdims = reduced_axes(reduction), bool(reduction.attrs.keepdims)
    kept = [a for a in range(x.ndim) if keepdims or a not in axes]
    cut = Slice.whole(x.shape)
    for position, axis in enumerate(kept):
        if axis not in axes:
            cut = cut.with_axis(axis, view.begin[position], view.size[position], view.stride[position])
    if moves_nothing(cut, x.shape):
        return Decline("it cuts nothing of what is reduced")
    return emit_reduction(graph, reduction, emit_movement(graph, cut, x), axes, keepdims)


@rule(
    "slice-of-matmul",
    SLICE,
    equation="strided_slice(matmul(x, w)) -> matmul(strided_slice(x), strided_slice(w))",
    producers=("relax.matmul",),
    single_use=(0,),
    soundness=FLOAT_REASSOC,
    source="S23",
)
def slice_of_matmul(node: Node, graph: Graph) -> Replacement | Decline:
    """Multiply only the rows, columns and matrices that are kept."""
    product, view = node.inputs[0].node, node.view
    left, right = product.inputs
    if not isinstance(view, Slice) or left.shape is None or right.shape is None or view.is_empty:
        return NO_VIEW
    if min(left.ndim, right.ndim) < 2:
        return Decline("an operand is a vector")
    if moves_nothing(view, node.inputs[0].shape or ()):
        return Decline("it cuts nothing")
    if not batches_are_known(product):
        return Decline("the batch axes of an operand are not proved to be those of the result")
    rows, columns = (_operand(graph, view, v, k) for k, v in enumerate((left, right)))
    return graph.rebuild(product, [rows, columns])


def batches_are_known(product: Node) -> bool:
    """Return whether each batch axis of both operands is 1, or the one of the result."""
    batch = (product.value.shape or ())[:-2]
    own = ((v.shape or ())[:-2] for v in product.inputs)
    return all(same(e, 1) or same(e, r) for axes in own for e, r in zip(reversed(axes), reversed(batch), strict=False))


def operand_slice(view: Slice, operand: Value, number: int) -> Slice:
    """Return what is read of the left (0) or right (1) operand of a product of which `view` is cut."""
    shape, rank = operand.shape or (), len(view.begin)
    lead = rank - len(shape)
    cut = Slice.whole(shape)
    for axis, extent in enumerate(shape[:-2]):
        if not same(extent, 1):  # one matrix goes with all of the other operand's
            place = lead + axis
            cut = cut.with_axis(axis, view.begin[place], view.size[place], view.stride[place])
    axis, place = (len(shape) - 2, rank - 2) if number == 0 else (len(shape) - 1, rank - 1)
    return cut.with_axis(axis, view.begin[place], view.size[place], view.stride[place])


def _operand(graph: Graph, view: Slice, operand: Value, number: int) -> Value:
    """Cut the left (0) or right (1) operand of a product."""
    cut = operand_slice(view, operand, number)
    return operand if moves_nothing(cut, operand.shape or ()) else emit_movement(graph, cut, operand)


LAYERS = (slice_of_reduction, slice_of_matmul)
