"""Data types: which ones TensorRT has, how constants of each are held, and how they are read."""

from __future__ import annotations

import numpy as np
from tvm import relax

# Relax dtype: member of trt.DataType
DTYPES = {
    "float32": "FLOAT",
    "float16": "HALF",
    "bfloat16": "BF16",
    "int8": "INT8",
    "int32": "INT32",
    "int64": "INT64",
    "uint8": "UINT8",
    "bool": "BOOL",
    "float8_e4m3fn": "FP8",
}

# A constant layer holds these in a wider type and casts: Python does not read bfloat16 and float8 back from a
# network, and a constant int8 counts as a quantized weight, which only a dequantize layer may read.
HELD_AS = {"bfloat16": "float32", "float8_e4m3fn": "float32", "int8": "int32"}

_VIEWED = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")


def constant_array(const: relax.Expr) -> np.ndarray:
    """Return the numbers of a Relax constant: a view of its memory where numpy has the type, not to be written."""
    if str(const.ty.dtype) in _VIEWED:
        return np.from_dlpack(const.value)
    return np.asarray(const.value.numpy())
