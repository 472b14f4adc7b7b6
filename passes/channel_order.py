"""The order of channels before a convolution or a matrix product becomes the order of its weights.

    conv(take(x, order, channels), W)      ->  conv(x, W in the inverse order)
    matmul(reshape(permute_dims(x)), W)    ->  matmul(reshape(x), W in the inverse order)

What reorders channels is a take or a reversed slice (BGR for RGB), a channel shuffle (reshape, permute, reshape), or
the permute before the flatten of a classifier that was trained on channels last. Between it and the layer may stand
what works element by element, with constants, which are reordered along (the mean of a picture). (rules.md S29, X13.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relax_glue.ir import Extent, Graph, Node, Value, product, same_shape
from relax_glue.ir.views import emit_movement
from relax_glue.movement import Permute, Reshape, Slice, Take
from relax_glue.rewrite import FLOAT_REASSOC, Decline, Replacement, RuleSet, rule

from .batch_norm import CONVOLUTIONS
from .convolution import summed_axes
from .pointwise import BINARY, UNARY
from .slice_through import reshape_groups

CONSTANT = "constant"
MAX_STEPS = 8  # operators that work element by element, between the reordering and the layer


@dataclass(frozen=True)
class Reordering:
    """A value of which element i of one axis is element `order[i]` of `source`, reshaped to `shape`."""

    source: Value
    shape: tuple[Extent, ...]
    order: np.ndarray


@rule(
    "channel-order-into-weight",
    *CONVOLUTIONS,
    "relax.matmul",
    equation="conv(x in another order of channels, W) -> conv(x, W in the inverse order), matmul likewise",
    soundness=FLOAT_REASSOC,
    source="S29, X13",
)
def channel_order_into_weight(node: Node, graph: Graph) -> Replacement | Decline:
    """Reorder the weights, once, instead of the operand."""
    axes = summed_axes(node)
    if node.inputs[1].op != CONSTANT or axes is None:
        return Decline("its weight is not constant or no matrix, or it has groups, or another layout")
    axis, weight_axis = axes
    steps = _steps(node.inputs[0], graph)
    first = steps[-1].inputs[_operand(steps[-1])] if steps else node.inputs[0]
    found = reordering(first, axis)
    if found is None:
        return Decline("the channels of its operand are not reordered")
    if not (graph.single_use(first) or same_shape(found.source.shape, found.shape)):
        return Decline("the reordered operand has other users, and would have to be reshaped for this one")
    inverse = np.argsort(found.order)
    value = emit_movement(graph, Reshape(found.shape), found.source)
    for step in reversed(steps):
        value = _reordered(graph, step, value, axis, inverse)
    return graph.rebuild(node, [value, _taken(graph, node.inputs[1], inverse, weight_axis)])


def _steps(value: Value, graph: Graph) -> list[Node]:
    """Return the operators that work element by element on one value, with constants, the last one first."""
    steps: list[Node] = []
    while len(steps) < MAX_STEPS and graph.single_use(value) and _is_step(value):
        steps.append(value.node)
        value = value.node.inputs[_operand(value.node)]
    return steps


def _is_step(value: Value) -> bool:
    node = value.node
    if node.op not in UNARY + BINARY or sum(v.op != CONSTANT for v in node.inputs) != 1:
        return False
    return same_shape(node.inputs[_operand(node)].shape, value.shape)


def _operand(node: Node) -> int:
    """Return the number of the operand that is not constant."""
    return next(k for k, v in enumerate(node.inputs) if v.op != CONSTANT)


def _reordered(graph: Graph, step: Node, value: Value, axis: int, inverse: np.ndarray) -> Value:
    """Add an operator of the value in its own order, whose constant is brought into that order."""
    inputs = list(step.inputs)
    inputs[_operand(step)] = value
    for number, operand in enumerate(inputs):
        place = axis - value.ndim + operand.ndim  # shapes are aligned at the right
        if operand.op == CONSTANT and place >= 0 and (operand.shape or ())[place] != 1:
            inputs[number] = _taken(graph, operand, inverse, place)
    return graph.rebuild(step, inputs)


def _taken(graph: Graph, constant: Value, order: np.ndarray, axis: int) -> Value:
    """Return a constant with one axis in another order."""
    return graph.constant(np.asarray(constant.array).take(order, axis))


def reordering(value: Value, axis: int) -> Reordering | None:
    """Return the reordering of one axis that a value is, or None where it is none, or moves nothing."""
    shape = value.shape
    if shape is None or value.index is not None or not isinstance(shape[axis], int):
        return None
    found = _picked(value.node, axis) or _shuffled(value.node, axis)
    if found is None or sorted(found.order) != list(range(shape[axis])):
        return None
    return None if (found.order == np.arange(shape[axis])).all() else found


def _picked(node: Node, axis: int) -> Reordering | None:
    """Read a take of all elements, and a slice that runs backwards."""
    view = node.view
    if isinstance(view, Take) and view.axis == axis and len(view.shape) == 1:
        return Reordering(node.inputs[0], node.value.shape or (), np.array(view.indices))
    if not isinstance(view, Slice) or view.cuts(node.inputs[0].shape or ()) != [axis]:
        return None
    order = view.begin[axis] + view.stride[axis] * np.arange(view.size[axis])
    return Reordering(node.inputs[0], node.value.shape or (), order)


def _shuffled(node: Node, axis: int) -> Reordering | None:
    """Read a permute between two reshapes, each of which may be missing, that permutes within one axis."""
    shape = node.value.shape or ()
    permute = node.inputs[0].node if isinstance(node.view, Reshape) else node
    if not isinstance(permute.view, Permute):
        return None
    axes, moved, operand = permute.view.axes, permute.value.shape or (), permute.inputs[0]
    groups = reshape_groups(moved, shape)
    inner = next((positions for positions, results in groups or () if results == [axis]), None)
    if inner is None or any(axes[k] != k for k in range(len(axes)) if k not in inner):
        return None
    order = _order([(operand.shape or ())[k] for k in inner], [axes[k] - inner[0] for k in inner])
    return Reordering(_before_reshape(operand), shape, order)


def _before_reshape(value: Value) -> Value:
    return value.node.inputs[0] if isinstance(value.node.view, Reshape) else value


def _order(extents: Sequence[Extent], axes: Sequence[int]) -> np.ndarray:
    """Return where the elements of a permuted box of static extents come from."""
    return np.arange(product(extents)).reshape(extents).transpose(axes).ravel()


RULES = RuleSet.of(channel_order_into_weight)
