"""Layers in numpy, as plain as they can be said: what `relax_glue.evaluate` leaves out, since it never computes them.

Each takes the call and its operands, and gives what TVM's LLVM build does but for the order of its sums. Windows are
views of a padded operand, so two layers that read the same windows give the same bits here as they do there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from tvm import relax

Array = np.ndarray
SPATIAL = "DHW"


def softmax(call: relax.Call, x: Array) -> Array:
    shifted = np.exp(x - x.max(int(call.attrs.axis), keepdims=True))
    return shifted / shifted.sum(int(call.attrs.axis), keepdims=True)


def log_softmax(call: relax.Call, x: Array) -> Array:
    shifted = x - x.max(int(call.attrs.axis), keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(int(call.attrs.axis), keepdims=True))


def along(vector: Array, axis: int, rank: int) -> Array:
    """Return a vector as a tensor that varies along one axis."""
    return vector.reshape([-1 if a == axis % rank else 1 for a in range(rank)])


def prelu(call: relax.Call, x: Array, slope: Array) -> Array:
    return np.where(x > 0, x, x * along(slope, int(call.attrs.axis), x.ndim))


def batch_norm(call: relax.Call, x: Array, *statistics: Array) -> tuple[Array, Array, Array] | None:
    attrs = call.attrs
    if attrs.training:
        return None
    gamma, beta, mean, variance = (along(s, int(attrs.axis), x.ndim) for s in statistics)
    normal = (x - mean) / np.sqrt(variance + np.float32(attrs.epsilon))
    scaled = normal * gamma if attrs.scale else normal
    return (scaled + beta if attrs.center else scaled), statistics[2], statistics[3]


def ints(values: Sequence[Any]) -> list[int]:
    return [int(value) for value in values]


def channels_first(layout: str) -> str:
    return "NC" + "".join(letter for letter in SPATIAL if letter in layout)


def reordered(array: Array, source: str, target: str) -> Array:
    return array.transpose([source.index(letter) for letter in target])


def windows(x: Array, sizes: Sequence[int], attrs: Any, filling: float) -> Array:
    """Return what each window sees: (N, C, *places, *sizes) of an operand (N, C, *spatial)."""
    count = len(sizes)
    padding = ints(attrs.padding)
    widths = [(0, 0), (0, 0), *zip(padding[:count], padding[count:], strict=True)]
    padded = np.pad(x, widths, constant_values=np.array(filling, x.dtype))
    axes = tuple(range(2, 2 + count))
    reach = [(size - 1) * dilation + 1 for size, dilation in zip(sizes, ints(attrs.dilation), strict=True)]
    seen = np.lib.stride_tricks.sliding_window_view(padded, reach, axes)
    places = [slice(None, None, stride) for stride in ints(attrs.strides)]
    inside = [slice(None, None, dilation) for dilation in ints(attrs.dilation)]
    return seen[(slice(None), slice(None), *places, *inside)]


def convolution(call: relax.Call, x: Array, weight: Array) -> Array:
    attrs = call.attrs
    layout, kernel_layout = str(attrs.data_layout), str(attrs.kernel_layout)
    first = channels_first(layout)
    kernel = reordered(weight, kernel_layout, "OI" + first[2:])
    seen = windows(reordered(x, layout, first), kernel.shape[2:], attrs, 0.0)
    batch, channels, *rest = seen.shape
    places, groups = rest[: len(first) - 2], int(attrs.groups)
    apart = seen.reshape(batch, groups, channels // groups, math.prod(places), -1)
    grouped = kernel.reshape(groups, kernel.shape[0] // groups, kernel.shape[1], -1)
    found = np.einsum("ngcpk,gock->ngop", apart, grouped).reshape(batch, kernel.shape[0], *places)
    return reordered(found, first, str(attrs.out_layout) or layout)


def max_pool(call: relax.Call, x: Array) -> Array | None:
    lowest = np.finfo(x.dtype).min

    def greatest(seen: Array, axes: tuple[int, ...], _real: Array) -> Array:
        flat = seen.reshape(*seen.shape[: axes[0]], -1)
        found = np.full(flat.shape[:-1], lowest, x.dtype)
        for k in range(flat.shape[-1]):  # one after the other, for that decides what a NaN becomes
            found = np.where(found > flat[..., k], found, flat[..., k])
        return found

    return _pool(call, x, greatest, float(lowest))


def avg_pool(call: relax.Call, x: Array) -> Array | None:
    def average(seen: Array, axes: tuple[int, ...], real: Array) -> Array:
        whole = math.prod(seen.shape[a] for a in axes)
        return seen.sum(axes) / (np.float32(whole) if call.attrs.count_include_pad else real.sum(axes))

    return _pool(call, x, average, 0.0)


def _pool(call: relax.Call, x: Array, reduce: Callable[..., Array], filling: float) -> Array | None:
    attrs, layout = call.attrs, str(call.attrs.layout)
    if attrs.ceil_mode or str(attrs.out_layout) != layout:
        return None
    first = channels_first(layout)
    sizes = ints(attrs.pool_size)
    image = reordered(x, layout, first)
    seen, real = windows(image, sizes, attrs, filling), windows(np.ones_like(image), sizes, attrs, 0.0)
    axes = tuple(range(seen.ndim - len(sizes), seen.ndim))
    return reordered(reduce(seen, axes, real), first, layout)


def adaptive_avg_pool(call: relax.Call, x: Array) -> Array:
    layout = str(call.attrs.layout)
    first = channels_first(layout)
    image = reordered(x, layout, first)
    sizes = image.shape[2:] if call.attrs.output_size is None else ints(call.attrs.output_size)
    found = np.empty((*image.shape[:2], *sizes), x.dtype)
    for place in np.ndindex(*sizes):
        pairs = list(zip(place, image.shape[2:], sizes, strict=True))
        window = tuple(slice(i * n // m, -(-(i + 1) * n // m)) for i, n, m in pairs)
        found[(..., *place)] = image[(slice(None), slice(None), *window)].mean(tuple(range(2, x.ndim)))
    return reordered(found, first, layout)


def gelu(_call: relax.Call, x: Array) -> Array:
    wide = x.astype("float64")
    return (wide * 0.5 * (1 + np.vectorize(math.erf, otypes=[float])(wide / math.sqrt(2)))).astype(x.dtype)


def gelu_tanh(_call: relax.Call, x: Array) -> Array:
    wide = x.astype("float64")
    return (wide * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))).astype(x.dtype)


def layer_norm(call: relax.Call, x: Array, gamma: Array, beta: Array) -> Array:
    axes = tuple(ints(call.attrs.axes))
    wide = x.astype("float32")
    variance = wide.var(axes, keepdims=True)
    normal = (wide - wide.mean(axes, keepdims=True)) / np.sqrt(variance + np.float32(call.attrs.epsilon))
    return (normal * gamma + beta).astype(x.dtype)


_COORDINATES: Mapping[str, Callable[[Array, int, int], Array]] = MappingProxyType(
    {
        "asymmetric": lambda o, n, m: o * n / m,
        "half_pixel": lambda o, n, m: (o + 0.5) * n / m - 0.5,
        "pytorch_half_pixel": lambda o, n, m: (o + 0.5) * n / m - 0.5 if m > 1 else o * 0.0,
        "tf_half_pixel_for_nn": lambda o, n, m: (o + 0.5) * n / m,
        "align_corners": lambda o, n, m: o * (n - 1) / (m - 1),
    }
)
_ROUNDINGS: Mapping[str, Callable[[Array], Array]] = MappingProxyType(
    {
        "floor": np.floor,
        "ceil": np.ceil,
        "round": lambda c: np.floor(c + 0.5),
        "round_prefer_ceil": lambda c: np.floor(c + 0.5),
        "round_prefer_floor": lambda c: np.ceil(c - 0.5),
    }
)


def resize(call: relax.Call, x: Array) -> Array | None:
    attrs, layout = call.attrs, str(call.attrs.layout)
    coordinates = _COORDINATES.get(str(attrs.coordinate_transformation_mode))
    if coordinates is None or str(attrs.method) not in ("nearest_neighbor", "linear"):
        return None
    found = x
    for axis, letter in enumerate(layout):
        if letter in SPATIAL:
            extent, size = x.shape[axis], int(call.ty.shape.values[axis])
            where = coordinates(np.arange(size), extent, size)
            found = _resized_axis(found, axis, where, str(attrs.method), str(attrs.rounding_method))
    return found.astype(x.dtype)


def _resized_axis(x: Array, axis: int, where: Array, method: str, rounding: str) -> Array:
    def at(index: Array) -> Array:
        return np.take(x, np.clip(index, 0, x.shape[axis] - 1).astype("int64"), axis)

    if method == "nearest_neighbor":
        return at(_ROUNDINGS[rounding](where))
    low = np.floor(where)
    part = along((where - low).astype("float32"), axis, x.ndim)
    return at(low) * (1 - part) + at(low + 1) * part


LAYERS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "relax.nn.softmax": softmax,
        "relax.nn.log_softmax": log_softmax,
        "relax.nn.prelu": prelu,
        "relax.nn.batch_norm": batch_norm,
        "relax.nn.layer_norm": layer_norm,
        "relax.nn.gelu": gelu,
        "relax.nn.gelu_tanh": gelu_tanh,
        **{f"relax.image.resize{n}d": resize for n in (2, 3)},
        **{f"relax.nn.conv{n}d": convolution for n in (1, 2, 3)},
        **{f"relax.nn.max_pool{n}d": max_pool for n in (1, 2, 3)},
        **{f"relax.nn.avg_pool{n}d": avg_pool for n in (1, 2, 3)},
        **{f"relax.nn.adaptive_avg_pool{n}d": adaptive_avg_pool for n in (1, 2, 3)},
    }
)
"""By the name of the operator; None of one of them says that numpy cannot tell."""
