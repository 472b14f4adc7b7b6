"""Layers that move or make data: shuffle, slice in every sample mode, concatenation, squeeze, cast, constant, fill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .numpy_types import numpy_dtype
from .table import Arrays, Layer


def _constant(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    weights = layer.weights
    if not isinstance(weights, np.ndarray):
        raise TypeError(f"the {weights.dtype} weights of {layer.name} cannot be read back as numbers")
    return [weights.reshape(tuple(layer.shape)).copy()]


def _fill(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    """Count: element i is the start plus the sum of step times index over the axes."""
    if layer.operation.name != "LINSPACE":
        raise ValueError(f"layer {layer.name} fills with {layer.operation.name}, which no converter asks for")
    given = [*inputs, None, None, None][:3]
    shape = tuple(layer.shape) if given[0] is None else tuple(int(extent) for extent in given[0])
    start = layer.alpha if given[1] is None else given[1].reshape(())
    steps = np.atleast_1d(layer.beta if given[2] is None else given[2])
    places = np.indices(shape).astype(numpy_dtype(layer.to_type))
    return [start + np.tensordot(steps, places, axes=1)]


def _identity(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    return [inputs[0]]


def _cast(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    return [inputs[0].astype(numpy_dtype(layer.to_type))]


def _shuffle(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    x = inputs[0]
    first, second = list(layer.first_transpose), list(layer.second_transpose)
    x = x.transpose(first[: x.ndim])
    x = x.reshape(_reshape_dims(layer, x, inputs))
    return [x.transpose(second[: x.ndim])]


def _reshape_dims(layer: Any, x: np.ndarray, inputs: Arrays) -> tuple[int, ...]:
    """Read the dims: a tensor, what the layer has, or, when it has none, those of the input."""
    if len(inputs) > 1:
        dims = [int(extent) for extent in inputs[1]]
    elif not is_set(layer.reshape_dims):
        return x.shape
    else:
        dims = list(layer.reshape_dims)
    if layer.zero_is_placeholder:
        dims = [x.shape[axis] if extent == 0 else extent for axis, extent in enumerate(dims)]
    return tuple(dims)


def _unsqueeze(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    return [np.expand_dims(inputs[0], tuple(int(axis) for axis in inputs[1]))]


def _squeeze(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    return [np.squeeze(inputs[0], tuple(int(axis) for axis in inputs[1]))]


def _concatenation(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    return [np.concatenate(inputs, axis=layer.axis)]


def _shape(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    return [np.array(inputs[0].shape, dtype=np.int64)]


def _slice(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    """Sample `start + i * stride` along each axis; the mode says what stands outside the input."""
    x = inputs[0]
    start, size, stride = (_dims(layer, inputs, *each) for each in ((1, "start"), (2, "shape"), (3, "stride")))
    axes = _dims(layer, inputs, 5, "axes") if is_set(layer.axes) or len(inputs) > 5 else list(range(x.ndim))
    mode = layer.mode.name
    outside = np.zeros([1] * x.ndim, dtype=bool)
    for axis, first, count, step in zip(axes, start, size, stride, strict=True):
        index = first + step * np.arange(count)
        bad = (index < 0) | (index >= x.shape[axis])
        if mode == "STRICT_BOUNDS" and bad.any():
            raise IndexError(f"slice {layer.name} leaves its input at axis {axis}: {index[bad]}")
        x = x.take(_inside(index, x.shape[axis], mode), axis=axis)
        outside = outside | bad.reshape([-1 if place == axis else 1 for place in range(x.ndim)])
    if mode != "FILL":
        return [x]
    fill = np.zeros((), x.dtype) if len(inputs) < 5 or inputs[4] is None else inputs[4].reshape(())
    return [np.where(outside, fill, x)]


def _inside(index: np.ndarray, extent: int, mode: str) -> np.ndarray:
    """Map indices into an axis the way a sample mode does."""
    if mode == "WRAP":
        return index % extent
    if mode == "REFLECT":
        period = max(2 * (extent - 1), 1)
        folded = index % period
        return np.minimum(folded, period - folded)
    return np.clip(index, 0, extent - 1)


def is_set(dims: Any) -> bool:
    """Say whether dims were given: those that were not have a negative count, at which `len` raises."""
    try:
        return len(dims) >= 0
    except ValueError:
        return False


def _dims(layer: Any, inputs: Arrays, number: int, attribute: str) -> list[int]:
    """Read dims from an input, else from the attribute, which TensorRT warns of where the input is there."""
    if len(inputs) > number and inputs[number] is not None:
        return [int(value) for value in inputs[number]]
    return list(getattr(layer, attribute))


LAYERS: Mapping[str, Layer] = {
    "CONSTANT": Layer("IConstantLayer", _constant),
    "FILL": Layer("IFillLayer", _fill),
    "IDENTITY": Layer("IIdentityLayer", _identity),
    "CAST": Layer("ICastLayer", _cast),
    "SHUFFLE": Layer("IShuffleLayer", _shuffle),
    "SQUEEZE": Layer("ISqueezeLayer", _squeeze),
    "UNSQUEEZE": Layer("IUnsqueezeLayer", _unsqueeze),
    "CONCATENATION": Layer("IConcatenationLayer", _concatenation),
    "SHAPE": Layer("IShapeLayer", _shape),
    "SLICE": Layer("ISliceLayer", _slice),
}
