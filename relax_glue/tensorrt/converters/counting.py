"""Numbers that follow from an extent: the extent itself as an operand, and 0, 1, 2, ... along an axis.

Where the extent is known, they are constants; where it is symbolic, a shape tensor and a fill layer make them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..expressions import Number
from .arith import dtype_name

if TYPE_CHECKING:
    from ..network import Network

# What a linear fill layer yields.
COUNTED = ("float32", "int32", "int64")


def extent_as(network: Network, extent: Number, like: Any) -> Any:
    """Return an extent as an operand beside the tensor `like`: a number, or a tensor of its dtype and rank."""
    if isinstance(extent, int):
        return extent
    number = network.cast(network.extents.value(extent), dtype_name(like))
    return network.reshape(number, ()) if not like.shape else network.align(number, rank=len(like.shape))[0]


def limits_as(network: Network, extents: Iterable[Number], dtype: str) -> Any:
    """Return extents as a vector of `dtype`."""
    known = list(extents)
    if all(isinstance(extent, int) for extent in known):
        return network.constant(np.array(known, dtype=dtype))
    return network.cast(network.extents.joined([network.extents.value(extent) for extent in known]), dtype)


def counted(network: Network, extent: Number, dtype: str, axis: int = 0, rank: int = 1) -> Any:
    """Return 0, 1, 2, ... along an axis of a tensor whose other extents are 1.

    Parameters
    ----------
    network : Network
        The network.
    extent : Number
        How many.
    dtype : str
        One of `COUNTED`, or any dtype where the extent is a number.
    axis, rank : int
        Where they stand.
    """
    shape = [-1 if place == axis else 1 for place in range(rank)]
    if isinstance(extent, int):
        return network.constant(np.arange(extent).astype(dtype).reshape(shape))
    numbers = progression(network, 0, 1, extent, dtype)
    return numbers if rank == 1 else network.reshape(numbers, shape)


def progression(network: Network, start: float, step: float, count: Number, dtype: str) -> Any:
    """Return start, start + step, ... as a vector of `count` elements, by a fill layer."""
    layer = network.net.add_fill((1,), network.trt.FillOperation.LINSPACE, network.dtype(dtype))
    layer.set_input(0, network.extents.value(count))
    layer.set_input(1, network.constant(np.array(start, dtype=dtype)))
    layer.set_input(2, network.constant(np.array([step], dtype=dtype)))
    return network.name(layer, "fill").get_output(0)
