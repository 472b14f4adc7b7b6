"""The precision that numpy computes in, and the weights of a layer as numbers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

_SHORT = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def wide(array: np.ndarray | None, floats: type[np.floating] = np.float32) -> np.ndarray:
    """Return floats as `floats`, at least float32; integers and booleans as they are.

    A layer of half precision works in float32 and rounds its result. Sums take float64 here, so that numpy's
    order of additions does not show.

    Raises
    ------
    ValueError
        When an input that the layer needs is not set.
    """
    if array is None:
        raise ValueError("an input of the layer is not set")
    if array.dtype in _SHORT or array.dtype.kind == "f":
        return array.astype(floats)
    return array


def weights_of(layer: Any, weights: Any) -> np.ndarray:
    """Return weights that a layer was made with; TensorRT shows bfloat16 ones by their address only."""
    if isinstance(weights, np.ndarray):
        return weights
    if weights.size == 0:
        return np.zeros(0, np.float32)
    raise TypeError(f"the {weights.dtype} weights of {layer.name} cannot be read back as numbers")
