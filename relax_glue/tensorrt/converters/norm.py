"""Normalisations: batch, layer, instance, group and RMS.

TensorRT's normalization layer is used for the forms that it documents, over the last axis or over all spatial
axes of NCHW data. Other axes are plain arithmetic in float32, in which TVM computes half precision too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax

from ..extents import Dim, Extent
from ..registry import Refusal, converter
from .arith import axes_mask, binary, dtype_name, extent_of, reduce, refuse_arithmetic, unary
from .limits import FLOATS, MAX_RANK, dtype_of, rank_of, static_shape

if TYPE_CHECKING:
    from ..network import Network


def _axes(call: relax.Call) -> list[int]:
    rank = rank_of(call.args[0])
    return [int(axis) % rank for axis in call.attrs.axes]


def _accepts(call: relax.Call) -> Refusal | str | None:
    said = refuse_arithmetic(call, FLOATS)
    if said is not None:
        return said
    if any(static_shape(arg) is None for arg in call.args[1:]):
        return Refusal("the shape of a parameter is symbolic", "bind the symbolic dimensions to numbers")
    return None


def _accepts_axes(call: relax.Call) -> Refusal | str | None:
    axes = _axes(call)
    if axes != sorted(set(axes)):
        return Refusal(f"the axes {axes} are not in order", "transpose the parameters to the data's order")
    return _accepts(call)


def _parameter(network: Network, expr: relax.Expr, axes: Sequence[int], rank: int) -> Any:
    """Return a parameter, whose axes are `axes` of the data, with the rank of the data."""
    shape = [1] * rank
    for axis, extent in zip(axes, static_shape(expr) or (), strict=True):
        shape[axis] = extent
    array = network.array(expr)
    if array is None:
        return network.reshape(network.tensor(expr), shape)
    return network.constant(array.reshape(shape))


def _layer(network: Network, x: Any, scale: Any, bias: Any, axes: Sequence[int], epsilon: float) -> Any:
    """Add a normalization layer; the second version of it is the one whose scale is per channel."""
    net = network.net
    add = net.add_normalization_v2 if hasattr(net, "add_normalization_v2") else net.add_normalization
    layer = network.name(add(x, scale, bias, axes_mask(axes)))
    layer.epsilon = epsilon
    return layer.get_output(0)


def _standardised(network: Network, x: Any, axes: Sequence[int], epsilon: float) -> Any:
    """Return (x - mean) / sqrt(variance + epsilon) in float32."""
    x = network.cast(x, "float32")
    away = binary(network, "SUB", x, reduce(network, "AVG", x, axes))
    variance = reduce(network, "AVG", binary(network, "PROD", away, away), axes)
    return binary(network, "DIV", away, unary(network, "SQRT", binary(network, "SUM", variance, epsilon)))


def _affine(network: Network, x: Any, scale: Any, bias: Any, dtype: str) -> Any:
    """Return x * scale + bias, computed as x is, in `dtype`."""
    working = dtype_name(x)
    x = binary(network, "PROD", x, network.cast(scale, working))
    return network.cast(binary(network, "SUM", x, network.cast(bias, working)), dtype)


@converter("relax.nn.layer_norm", accepts=_accepts_axes)
def layer_norm(network: Network, call: relax.Call) -> Any:
    """Normalise over axes, then scale and shift each element of them."""
    x, axes, epsilon = network.tensor(call.args[0]), _axes(call), float(call.attrs.epsilon)
    scale, bias = (_parameter(network, arg, axes, len(x.shape)) for arg in call.args[1:])
    if axes == [len(x.shape) - 1]:
        return _layer(network, x, scale, bias, axes, epsilon)
    return _affine(network, _standardised(network, x, axes, epsilon), scale, bias, dtype_of(call))


@converter("relax.nn.instance_norm", accepts=_accepts)
def instance_norm(network: Network, call: relax.Call) -> Any:
    """Normalise each channel of each sample, then scale and shift it."""
    x, axes, epsilon = network.tensor(call.args[0]), _axes(call), float(call.attrs.epsilon)
    rank = len(x.shape)
    channel = int(call.attrs.channel_axis) % rank
    scale, bias = (_parameter(network, arg, [channel], rank) for arg in call.args[1:])
    if rank >= 4 and channel == 1 and sorted(axes) == list(range(2, rank)):
        return _layer(network, x, scale, bias, axes, epsilon)
    return _affine(network, _standardised(network, x, axes, epsilon), scale, bias, dtype_of(call))


def _accepts_group(call: relax.Call) -> Refusal | str | None:
    said = _accepts(call)
    if said is not None:
        return said
    rank = rank_of(call.args[0])
    if rank >= MAX_RANK:
        return f"rank {rank}: the groups need one dimension more than TensorRT has"
    channels = extent_of(call.args[0], int(call.attrs.channel_axis) % rank)
    if static_shape(call.args[1]) != (channels,):
        return f"the channels are {channels or 'symbolic'} and the parameters' shape {static_shape(call.args[1])}"
    return None


@converter("relax.nn.group_norm", accepts=_accepts_group)
def group_norm(network: Network, call: relax.Call) -> Any:
    """Split the channels into groups, normalise each group, then scale and shift each channel."""
    x = network.tensor(call.args[0])
    rank, groups = len(x.shape), int(call.attrs.num_groups)
    channel = int(call.attrs.channel_axis) % rank
    channels = int(x.shape[channel])
    dims: list[Dim] = [Extent(axis) for axis in range(rank)]
    split = network.reshape(x, [*dims[:channel], groups, channels // groups, *dims[channel + 1 :]])
    axes = [channel + 1, *(axis + (axis > channel) for axis in _axes(call))]
    flat = _standardised(network, split, axes, float(call.attrs.epsilon))
    merged: list[Dim] = [*dims[:channel], channels, *(Extent(axis + 1) for axis in range(channel + 1, rank))]
    scale, bias = (_parameter(network, arg, [channel], rank) for arg in call.args[1:])
    return _affine(network, network.reshape(flat, merged), scale, bias, dtype_of(call))


@converter("relax.nn.rms_norm", accepts=_accepts_axes)
def rms_norm(network: Network, call: relax.Call) -> Any:
    """x / sqrt(mean(x * x) + epsilon) * weight, in float32."""
    x, axes = network.cast(network.tensor(call.args[0]), "float32"), _axes(call)
    power = reduce(network, "AVG", binary(network, "PROD", x, x), axes)
    root = unary(network, "SQRT", binary(network, "SUM", power, float(call.attrs.epsilon)))
    weight = network.cast(_parameter(network, call.args[1], axes, len(x.shape)), "float32")
    out = binary(network, "PROD", binary(network, "DIV", x, root), weight)
    return network.cast(out, dtype_of(call))


def _accepts_batch(call: relax.Call) -> Refusal | str | None:
    if call.attrs.training:
        return Refusal("it is in training mode, where it uses the batch's own statistics", "set training=False")
    return _accepts(call)


@converter("relax.nn.batch_norm", accepts=_accepts_batch)
def batch_norm(network: Network, call: relax.Call) -> list[Any]:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, per index of the channel axis.

    Constant parameters become one factor and one term. The statistics are returned as they came.
    """
    x = network.tensor(call.args[0])
    attrs, rank = call.attrs, len(x.shape)
    axis = int(attrs.axis) % rank
    arrays = [network.array(arg) for arg in call.args[1:]]
    statistics = [network.tensor(arg) for arg in call.args[3:]]
    if all(array is not None for array in arrays):
        gamma, beta, mean, variance = (np.asarray(array, np.float64) for array in arrays)
        factor = (gamma if attrs.scale else 1.0) / np.sqrt(variance + float(attrs.epsilon))
        term = (beta if attrs.center else 0.0) - mean * factor
        shape = [-1 if place == axis else 1 for place in range(rank)]
        dtype = dtype_of(call.args[0])
        scale, bias = (network.constant(each.reshape(shape).astype(dtype)) for each in (factor, term))
        return [_affine(network, x, scale, bias, dtype), *statistics]
    gamma, beta, mean, variance = (_parameter(network, arg, [axis], rank) for arg in call.args[1:])
    deviation = unary(network, "SQRT", binary(network, "SUM", variance, float(attrs.epsilon)))
    out = binary(network, "DIV", binary(network, "SUB", x, mean), deviation)
    out = binary(network, "PROD", out, gamma) if attrs.scale else out
    out = binary(network, "SUM", out, beta) if attrs.center else out
    return [out, *statistics]
