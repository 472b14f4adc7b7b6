"""Layers over windows: convolution, deconvolution, pooling. Two or three spatial axes after batch and channel."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .precision import weights_of, wide
from .table import Arrays, Layer


def _convolution(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    kernel, window = _kernel(layer, inputs)
    x = _padded(layer, wide(inputs[0], np.float64), 0.0)
    groups = layer.num_groups
    kernel = kernel.reshape(groups, layer.num_output_maps // groups, x.shape[1] // groups, *window)
    products = []
    for tap, part in _windows(x, window, layer.stride_nd, layer.dilation_nd):
        data = part.reshape(x.shape[0], groups, x.shape[1] // groups, *part.shape[2:])
        products.append(np.einsum("ngc...,gmc->ngm...", data, kernel[(slice(None),) * 3 + tap]))
    out = np.sum(products, axis=0)
    return [_biased(layer, out.reshape(x.shape[0], layer.num_output_maps, *out.shape[3:]))]


def _deconvolution(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    """Each input element adds the kernel, scaled by it, to the output; then the padding is cut off."""
    kernel, window = _kernel(layer, inputs)
    x = wide(inputs[0], np.float64)
    groups, maps = layer.num_groups, layer.num_output_maps
    data = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    kernel = kernel.reshape(groups, x.shape[1] // groups, maps // groups, *window)
    strides, dilations = tuple(layer.stride_nd), tuple(layer.dilation_nd)
    whole = [
        (extent - 1) * stride + (size - 1) * dilation + 1
        for extent, stride, size, dilation in zip(x.shape[2:], strides, window, dilations, strict=True)
    ]
    out = np.zeros((x.shape[0], groups, maps // groups, *whole))
    for tap in np.ndindex(*window):
        place = tuple(
            slice(index * dilation, index * dilation + (extent - 1) * stride + 1, stride)
            for index, dilation, extent, stride in zip(tap, dilations, x.shape[2:], strides, strict=True)
        )
        out[(slice(None),) * 3 + place] += np.einsum("ngc...,gcm->ngm...", data, kernel[(slice(None),) * 3 + tap])
    inner = tuple(
        slice(pre, extent - post)
        for pre, extent, post in zip(layer.pre_padding, whole, layer.post_padding, strict=True)
    )
    return [_biased(layer, out.reshape(x.shape[0], maps, *whole)[(slice(None),) * 2 + inner])]


def _pooling(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    if layer.padding_mode.name != "EXPLICIT_ROUND_DOWN":
        raise ValueError(f"layer {layer.name} has the padding mode {layer.padding_mode.name}")
    x, window = wide(inputs[0], np.float64), tuple(layer.window_size_nd)
    if layer.type.name == "MAX":
        data = _padded(layer, x, -math.inf)
        return [np.max([part for _, part in _windows(data, window, layer.stride_nd, (1,) * len(window))], axis=0)]
    total = _summed(layer, x, window)
    if not layer.average_count_excludes_padding:
        return [total / math.prod(window)]
    return [total / _summed(layer, np.ones_like(x), window)]


def _summed(layer: Any, x: np.ndarray, window: tuple[int, ...]) -> np.ndarray:
    parts = _windows(_padded(layer, x, 0.0), window, layer.stride_nd, (1,) * len(window))
    return np.sum([part for _, part in parts], axis=0)


def _kernel(layer: Any, inputs: Arrays) -> tuple[np.ndarray, tuple[int, ...]]:
    """Return the kernel, which is the second input where it is computed, and its window."""
    computed = inputs[1] if len(inputs) > 1 else None
    found = weights_of(layer, layer.kernel) if computed is None else computed
    return wide(found, np.float64), tuple(layer.kernel_size_nd)


def _biased(layer: Any, out: np.ndarray) -> np.ndarray:
    bias = weights_of(layer, layer.bias)
    return out if bias.size == 0 else out + wide(bias, np.float64).reshape(-1, *(1,) * (out.ndim - 2))


def _padded(layer: Any, x: np.ndarray, value: float) -> np.ndarray:
    pads = list(zip(layer.pre_padding, layer.post_padding, strict=True))
    return np.pad(x, [(0, 0), (0, 0), *pads], constant_values=value)


def _windows(
    x: np.ndarray, window: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """Yield for each tap of the window its place and the elements under it in all windows."""
    cells = [
        (extent - (size - 1) * dilation - 1) // stride + 1
        for extent, size, stride, dilation in zip(x.shape[2:], window, strides, dilations, strict=True)
    ]
    for tap in np.ndindex(*window):
        place = tuple(
            slice(index * dilation, index * dilation + (count - 1) * stride + 1, stride)
            for index, dilation, count, stride in zip(tap, dilations, cells, strides, strict=True)
        )
        yield tap, x[(slice(None),) * 2 + place]


LAYERS: Mapping[str, Layer] = {
    "CONVOLUTION": Layer("IConvolutionLayer", _convolution),
    "DECONVOLUTION": Layer("IDeconvolutionLayer", _deconvolution),
    "POOLING": Layer("IPoolingLayer", _pooling),
}
