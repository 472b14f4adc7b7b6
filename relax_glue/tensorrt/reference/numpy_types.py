"""TensorRT's data types as numpy's."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

_DTYPES = {
    "FLOAT": np.float32,
    "HALF": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "INT8": np.int8,
    "INT32": np.int32,
    "INT64": np.int64,
    "UINT8": np.uint8,
    "BOOL": np.bool_,
    "FP8": ml_dtypes.float8_e4m3fn,
}


def numpy_dtype(dtype: Any) -> np.dtype:
    """Return the numpy dtype of a `trt.DataType`."""
    return np.dtype(_DTYPES[dtype.name])
