"""Operators that compute the same with their axes in another order.

    f(x, y)  ->  permute_dims(f'(permute_dims(x, p), permute_dims(y, p)), inverse(p))

f' is f with its axes renamed: those of a pointwise operator need no renaming, a concat or softmax has one axis, a slice
or pad has bounds for each. `following` says which operands are permuted with the result, `build` adds f'. All of
it keeps every bit, but a float sum over several axes, which is made in another order.
(rules.md T04 to T13, T16, T18, T28; section 3.)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
from tvm import relax

from relax_glue.ir import Extent, Graph, Node, Value
from relax_glue.ir.views import emit_movement, normal_axis
from relax_glue.movement import (
    Broadcast,
    Concat,
    Flip,
    Movement,
    Pad,
    Permute,
    Repeat,
    Reshape,
    Slice,
    Split,
    Take,
    Tile,
)

from .axis_norms import NORMS, build_norm, may_renormalise
from .between_reshapes import PRELU, SOFTMAXES
from .pointwise import BINARY, UNARY, WHERE, casts_bytes
from .reduce import MOMENTS, REDUCTIONS, SUMS, emit_reduction, reduced_axes

Axes = tuple[int, ...]

_LOOKED_AT = 64  # the latest users of a value: looking at all is quadratic where a thousand layers share one

POINTWISE = frozenset((*UNARY, *BINARY, WHERE))
SCANS = ("relax.cumsum", "relax.cumprod")
QUANTIZERS = ("relax.quantize", "relax.dequantize")
ONE_AXIS = frozenset((*SOFTMAXES, PRELU, *SCANS, *QUANTIZERS))
MOVED = (Broadcast, Concat, Flip, Pad, Repeat, Slice, Split, Take, Tile)


def following(node: Node, exact: bool) -> tuple[int, ...]:
    """Return which operands of a node are permuted with its result.

    Parameters
    ----------
    node : Node
        Any node.
    exact : bool
        Whether every bit has to stay.

    Returns
    -------
    operands : tuple of int
        Empty where the node does not follow a permutation. Operands of a lower rank are aligned at the right.
    """
    if not node.inputs or rank_of(node) < 1 or any(v.shape is None for v in node.inputs) or casts_bytes(node):
        return ()
    if node.op in POINTWISE:
        return tuple(range(len(node.inputs)))
    if node.op in ONE_AXIS:
        return (0,) if node.attrs.axis is not None else ()
    if node.op in NORMS:
        return (0,) if may_renormalise(node, exact) else ()
    if node.op in REDUCTIONS:
        return (0,) if node.attrs.keepdims and may_reduce(node, exact) else ()
    return _moved(node)


def _moved(node: Node) -> tuple[int, ...]:
    view = node.view
    if not isinstance(view, MOVED):
        return ()
    if isinstance(view, Concat):
        return tuple(range(len(node.inputs)))
    kept = isinstance(view, Broadcast) or node.inputs[0].ndim == rank_of(node)
    return (0,) if kept and not (isinstance(view, Take) and len(view.shape) != 1) else ()


def rank_of(node: Node) -> int:
    """Return the rank of a node's result, or of the items of a split; -1 where a shape is unknown."""
    shape = node.shape_of(0) if isinstance(node.ty, relax.TupleType) and node.ty.fields else node.shape_of(None)
    return -1 if shape is None else len(shape)


def may_reduce(node: Node, exact: bool) -> bool:
    """Return whether a reduction may take its axes in another order."""
    sums = node.op in (*SUMS, *MOMENTS) and "float" in str(node.value.dtype)
    return not (exact and sums and len(reduced_axes(node)) > 1)


def lifted(shape: Sequence[Extent], rank: int) -> tuple[Extent, ...]:
    """Return a shape with ones in front up to a rank."""
    return (1,) * (rank - len(shape)) + tuple(shape)


def permuted(graph: Graph, value: Value, axes: Axes) -> Value:
    """Return an operand, of any rank up to that of `axes`, with its axes in another order; constants are folded."""
    shape = lifted(value.shape or (), len(axes))
    if value.array is None:
        return permute_once(graph, emit_movement(graph, Reshape(shape), value), axes)
    if value.array.size == 1:
        return value  # it varies along no axis, and its rank is at most that of the other operand
    return graph.constant(np.reshape(value.array, shape).transpose(axes))


def permute_once(graph: Graph, value: Value, axes: Axes) -> Value:
    """Return the permute of a value that there is, or add it."""
    for user in islice(reversed(value.node.users), _LOOKED_AT):
        if user.op == "relax.permute_dims" and user.inputs == [value] and user.view == Permute(axes):
            return user.value
    return emit_movement(graph, Permute(axes), value)


def build(graph: Graph, node: Node, axes: Axes, inputs: Sequence[Value]) -> Value:
    """Add a node that follows a permutation.

    Parameters
    ----------
    graph : Graph
        Where it goes.
    node : Node
        One for which `following` names operands.
    axes : tuple of int
        Axis i of the new result is axis `axes[i]` of the old one.
    inputs : sequence of Value
        The operands, those that follow permuted by `axes`.

    Returns
    -------
    value : Value
        The result; for a split its tuple.
    """
    if node.op in POINTWISE:
        return graph.rebuild(node, inputs)
    if node.op in ONE_AXIS:
        return with_axis(graph, node, axes.index(normal_axis(int(node.attrs.axis), len(axes))), inputs)
    if node.op in NORMS:
        return build_norm(graph, node, axes.index, inputs)
    if node.op in REDUCTIONS:
        return emit_reduction(graph, node, inputs[0], sorted(axes.index(a) for a in reduced_axes(node)), True)
    if isinstance(node.view, Split):
        bounds = list(node.view.bounds[1:-1])
        return graph.emit(lambda e: relax.op.split(e, bounds, axes.index(node.view.axis)), inputs[0])
    operands = inputs if isinstance(node.view, Concat) else inputs[:1]
    return emit_movement(graph, renamed(node.view, axes), *operands)


def with_axis(graph: Graph, node: Node, axis: int, inputs: Sequence[Value]) -> Value:
    """Add a call like that of a node of `ONE_AXIS` along another axis."""
    attrs = node.attrs
    if node.op in SCANS:
        make = getattr(relax.op, node.op.removeprefix("relax."))
        return graph.emit(lambda e: make(e, axis, attrs.dtype, bool(attrs.exclusive)), inputs[0])
    if node.op in QUANTIZERS:
        make = getattr(relax.op, node.op.removeprefix("relax."))
        return graph.emit(lambda *es: make(*es, axis, str(attrs.out_dtype)), *inputs)
    make = getattr(relax.op.nn, node.op.removeprefix("relax.nn."))
    return graph.emit(lambda *es: make(*es, axis), *inputs)


def renamed(movement: Movement, axes: Axes) -> Movement:
    """Return a movement of an operand whose axis i was axis `axes[i]`, with the result permuted likewise."""

    def order(values: Sequence) -> tuple:
        return tuple(values[a] for a in axes)

    match movement:
        case Concat(axis):
            return Concat(axes.index(axis))
        case Flip(axis):
            return Flip(axes.index(axis))
        case Repeat(count, axis):
            return Repeat(count, axes.index(axis))
        case Take(axis, shape, indices):
            return Take(axes.index(axis), shape, indices)
        case Broadcast(shape):
            return Broadcast(order(shape))
        case Tile(repeats):
            return Tile(order(repeats))
        case Slice(begin, size, stride):
            return Slice(order(begin), order(size), order(stride))
        case Pad(before, after, mode, value):
            return Pad(order(before), order(after), mode, value)
    raise TypeError(f"{movement!r} has no axes to rename")


def kept_order(node: Node, axes: Axes) -> Axes:
    """Return how a reduction without keepdims permutes its result when its operand is permuted by `axes`."""
    kept = [a for a in axes if a not in reduced_axes(node)]
    return tuple(sorted(kept).index(a) for a in kept)


def build_reduction(graph: Graph, node: Node, axes: Axes, x: Value) -> Value:
    """Add a reduction without keepdims of a permuted operand; its result is permuted by `kept_order`."""
    return emit_reduction(graph, node, x, sorted(axes.index(a) for a in reduced_axes(node)), False)
