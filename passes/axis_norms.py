"""Normalisations with their axes in another order, for `axis_order`.

    layer_norm(x, g, b, axes)  ->  layer_norm(permute_dims(x, p), g', b', axes') behind a permute

The axes and the channel are renamed; parameters over several axes are permuted with them. TensorRT has one layer for
a normalisation over the last axis, and for one of each channel of channels-first data; any other is a dozen layers
of arithmetic. So a motion that takes a normalisation out of such a form does not pay, whatever else moves.
(rules.md T18.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax

from relax_glue.ir import Graph, Node, Value
from relax_glue.ir.views import normal_axis

OVER_AXES = ("relax.nn.layer_norm", "relax.nn.rms_norm")
OF_CHANNELS = ("relax.nn.instance_norm", "relax.nn.group_norm")
NORMS = frozenset((*OVER_AXES, *OF_CHANNELS))


def normalised_axes(node: Node) -> tuple[int, ...]:
    """Return the axes over which a normalisation takes its mean, counted from the front, in the order given."""
    rank = node.inputs[0].ndim
    return tuple(normal_axis(int(axis), rank) for axis in node.attrs.axes)


def channel_of(node: Node) -> int | None:
    """Return the axis of the channels, or None where there is none."""
    return normal_axis(int(node.attrs.channel_axis), node.inputs[0].ndim) if node.op in OF_CHANNELS else None


def may_renormalise(node: Node, exact: bool) -> bool:
    """Return whether a normalisation may take its axes in another order."""
    means = len(node.attrs.axes) + (node.op == "relax.nn.group_norm")
    if node.op in OVER_AXES and means > 1 and any(v.array is None for v in node.inputs[1:]):
        return False  # parameters over several axes would be permuted while the model runs
    return not (exact and means > 1)


def may_stand(node: Node, order: Sequence[int]) -> bool:
    """Return whether a normalisation can stand another order of its axes: one TensorRT layer stays one.

    TVM's kernel of rms_norm is wrong about any axes but the last ones.
    """
    axes, channel = normalised_axes(node), channel_of(node)
    moved = tuple(sorted(order.index(a) for a in axes))
    if node.op == "relax.nn.rms_norm":
        return moved == tuple(range(len(order) - len(axes), len(order)))
    now = _is_one_layer(node.op, len(order), tuple(sorted(axes)), channel)
    return not now or _is_one_layer(node.op, len(order), moved, None if channel is None else order.index(channel))


def _is_one_layer(op: str, rank: int, axes: tuple[int, ...], channel: int | None) -> bool:
    if op == "relax.nn.layer_norm":
        return axes == (rank - 1,)
    return op == "relax.nn.instance_norm" and rank >= 4 and channel == 1 and axes == tuple(range(2, rank))


def build_norm(graph: Graph, node: Node, moved: Callable[[int], int], inputs: Sequence[Value]) -> Value:
    """Add a normalisation of an operand whose axes have other numbers.

    Parameters
    ----------
    graph : Graph
        Where it goes.
    node : Node
        The normalisation as it is.
    moved : Callable
        `moved(axis)` is the number that an axis gets.
    inputs : sequence of Value
        The operand as it is then, and the parameters as they are.
    """
    axes = [moved(a) for a in normalised_axes(node)]
    ranked = sorted(range(len(axes)), key=axes.__getitem__)
    parameters = list(inputs[1:])
    if node.op in OVER_AXES and ranked != list(range(len(axes))):
        parameters = [graph.constant(v.array.transpose(ranked)) for v in parameters if v.array is not None]
    make = getattr(relax.op.nn, node.op.removeprefix("relax.nn."))
    options = _options(node, moved)
    return graph.emit(lambda *es: make(*es, axes=sorted(axes), **options), inputs[0], *parameters)


def _options(node: Node, moved: Callable[[int], int]) -> dict[str, Any]:
    """Return the attributes of a normalisation but for its axes."""
    attrs, options = node.attrs, {"epsilon": float(node.attrs.epsilon)}
    if node.op == "relax.nn.rms_norm":
        return options
    options |= {"center": bool(attrs.center), "scale": bool(attrs.scale)}
    if node.op == "relax.nn.group_norm":
        options["num_groups"] = int(attrs.num_groups)
    channel = channel_of(node)
    return options if channel is None else {**options, "channel_axis": moved(channel)}
