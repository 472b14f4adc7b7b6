"""Matrix products, Einstein sums, and the steps between floats and eight-bit integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .numpy_types import numpy_dtype
from .precision import wide
from .table import Arrays, Layer


def _matrix_multiply(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    """Multiply; batch axes of extent 1 broadcast, a vector has no matrix axis of its own."""
    a, b = (wide(array, np.float64) for array in inputs)
    kinds = layer.op0.name, layer.op1.name
    if kinds[0] == "TRANSPOSE":
        a = a.swapaxes(-1, -2)
    if kinds[1] == "TRANSPOSE":
        b = b.swapaxes(-1, -2)
    a = a[..., None, :] if kinds[0] == "VECTOR" else a
    b = b[..., None] if kinds[1] == "VECTOR" else b
    if a.ndim != b.ndim:
        raise ValueError(f"layer {layer.name} multiplies ranks {a.ndim} and {b.ndim}")
    out = a @ b
    out = out[..., 0] if kinds[1] == "VECTOR" else out
    return [out.squeeze(-1 if kinds[1] == "VECTOR" else -2) if kinds[0] == "VECTOR" else out]


def _einsum(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    return [np.einsum(layer.equation, *(wide(array, np.float64) for array in inputs))]


def _quantize(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    """round(x / scale), ties to even, within the range of the result's type."""
    x = wide(inputs[0])
    limits = np.iinfo(numpy_dtype(layer.get_output(0).dtype))
    return [np.clip(np.rint(x / _along(layer, x, inputs[1])), limits.min, limits.max)]


def _dequantize(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    x = inputs[0].astype(np.float32)
    return [x * _along(layer, x, inputs[1])]


def _along(layer: Any, x: np.ndarray, scale: np.ndarray | None) -> np.ndarray:
    """Return the scale, of one element or one for each index of the layer's axis, ready to broadcast."""
    found = wide(scale)
    if found.size == 1:
        return found.reshape(())
    return found.reshape([-1 if axis == layer.axis else 1 for axis in range(x.ndim)])


LAYERS: Mapping[str, Layer] = {
    "MATRIX_MULTIPLY": Layer("IMatrixMultiplyLayer", _matrix_multiply),
    "EINSUM": Layer("IEinsumLayer", _einsum),
    "QUANTIZE": Layer("IQuantizeLayer", _quantize),
    "DEQUANTIZE": Layer("IDequantizeLayer", _dequantize),
}
