"""Arrays as `trt.Weights`, kept in memory.

TensorRT does not copy weights when a layer is added: they must stay where they are until the engine is built.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class Weights:
    """Makes `trt.Weights` and owns the arrays behind them."""

    def __init__(self, trt: Any, dtype: Callable[[str], Any]) -> None:
        self._trt = trt
        self._dtype = dtype
        self._kept: list[np.ndarray] = []

    def of(self, array: np.ndarray) -> Any:
        """Return the weights of `array`; a view or a foreign byte order is copied first."""
        kept = np.ascontiguousarray(array)
        self._kept.append(kept)
        return self._trt.Weights(self._dtype(str(kept.dtype)), kept.ctypes.data, kept.size)
