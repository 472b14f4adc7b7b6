"""Layers along axes: reduce, top-k, cumulative sum, softmax, normalization."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .precision import wide
from .table import Arrays, Layer


def _average(x: np.ndarray, axis: tuple[int, ...], keepdims: bool) -> np.ndarray:
    return x.mean(axis=axis, keepdims=keepdims)


_REDUCE: Mapping[str, Callable[..., np.ndarray]] = {
    "SUM": np.sum,
    "PROD": np.prod,
    "MAX": np.max,
    "MIN": np.min,
    "AVG": _average,
}


def axes_of(mask: int) -> tuple[int, ...]:
    """Return the axes that a bit mask names."""
    return tuple(axis for axis in range(mask.bit_length()) if mask >> axis & 1)


def _reduce(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    run = _REDUCE[layer.op.name]
    return [run(wide(inputs[0], np.float64), axis=axes_of(layer.axes), keepdims=layer.keep_dims)]


def _top_k(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    """Take the first k in order; among equals the lower index comes first."""
    x = inputs[0]
    (axis,) = axes_of(layer.axes)
    order = np.argsort(x, axis=axis, kind="stable")
    if layer.op.name == "MAX":
        backward = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
        order = np.flip(x.shape[axis] - 1 - backward, axis)
    order = order.take(np.arange(layer.k), axis=axis)
    return [np.take_along_axis(x, order, axis), order]


def _cumulative(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    if layer.reverse:
        raise ValueError(f"layer {layer.name} runs backwards, which no converter asks for")
    x, axis = wide(inputs[0], np.float64), int(wide(inputs[1]))
    total = np.cumsum(x, axis=axis, dtype=x.dtype)
    return [total - x if layer.exclusive else total]


def _softmax(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    x, axes = wide(inputs[0], np.float64), axes_of(layer.axes)
    power = np.exp(x - x.max(axis=axes, keepdims=True))
    return [power / power.sum(axis=axes, keepdims=True)]


def _normalization(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    x, scale, bias = (wide(array, np.float64) for array in inputs)
    axes = axes_of(layer.axes)
    mean = x.mean(axis=axes, keepdims=True)
    variance = np.square(x - mean).mean(axis=axes, keepdims=True)
    return [(x - mean) / np.sqrt(variance + layer.epsilon) * scale + bias]


LAYERS: Mapping[str, Layer] = {
    "REDUCE": Layer("IReduceLayer", _reduce),
    "TOPK": Layer("ITopKLayer", _top_k),
    "CUMULATIVE": Layer("ICumulativeLayer", _cumulative),
    "SOFTMAX": Layer("ISoftMaxLayer", _softmax),
    "NORMALIZATION": Layer("INormalizationLayer", _normalization),
}
