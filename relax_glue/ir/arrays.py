"""Arrays of numpy and tensors of TVM: the values of constants, which are hundreds of megabytes of a model."""

from __future__ import annotations

import numpy as np
import tvm

_LINE = 64  # the bytes of a cache line
_LARGE = 1 << 16  # an array of fewer bytes stays in the cache while it is copied


def array_of(tensor: tvm.runtime.Tensor) -> np.ndarray:
    """Return a tensor as an array: its own memory, or a copy where numpy cannot have that.

    numpy knows no bfloat16 and the like, and no memory but that of the CPU.
    """
    try:
        return np.from_dlpack(tensor)
    except (BufferError, RuntimeError):
        return tensor.numpy()


def tensor_of(array: np.ndarray) -> tvm.runtime.Tensor:
    """Return a tensor with memory of its own that holds an array.

    numpy writes a transposed matrix row by row, and fetches a line of memory for each element of it. In strips as wide
    as such a line, one after the other, it fetches each line once, which takes a third to a fifth of the time.
    """
    if array.nbytes < _LARGE or array.strides[-1] == array.itemsize:
        return tvm.runtime.tensor(array)
    made, width = np.empty(array.shape, array.dtype), _LINE // array.itemsize
    for begin in range(0, array.shape[-1], width):
        made[..., begin : begin + width] = array[..., begin : begin + width]
    return tvm.runtime.tensor(made)
