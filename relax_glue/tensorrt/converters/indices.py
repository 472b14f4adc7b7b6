"""Index tensors: what they may hold, and how they become what a gather or scatter layer reads.

TensorRT's layers want indices within bounds, from 0. Constant indices are brought there here; for computed
ones the operator's mode says what has to be done, or, as in TVM, the model promises that they are in bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax

from ..registry import Refusal
from ..slices import broadcast
from .arith import binary, dtype_name, select
from .limits import INTS, constant_of, refuse_type, static_shape, type_of

if TYPE_CHECKING:
    from ..network import Network


def refuse_indices(expr: relax.Expr, extents: Sequence[int] | None, *, static: bool = True) -> Refusal | None:
    """Check an index tensor, and that constant indices are within bounds.

    Parameters
    ----------
    expr : relax.Expr
        The indices; the last axis runs over `extents` when there is more than one.
    extents : Sequence[int] or None
        The extents that are indexed; None where they are not known, and then no index may be negative.
    static : bool
        Whether the shape of the indices has to be known.
    """
    ty = type_of(expr)
    if ty is None:
        return Refusal("the indices are no tensor", "make them a constant tensor")
    said = refuse_type(ty, "the index tensor", INTS, static=static)
    if said is not None:
        return said
    array = constant_of(expr)
    if array is None:
        return None
    if extents is None:
        return Refusal(f"index {array.min()} of an axis whose extent is not known") if array.min() < 0 else None
    limits = _limits(extents, np.dtype(np.int64))
    bad = np.extract((array < -limits) | (array >= limits), array)
    return Refusal(f"index {bad[0]} is outside the extent {list(extents)}") if bad.size else None


def _limits(extents: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Return extents in a form that broadcasts: a scalar index has to stay a scalar."""
    return np.array(extents[0] if len(extents) == 1 else extents, dtype=dtype)


def in_bounds(network: Network, expr: relax.Expr, extents: Sequence[int] | None) -> Any:
    """Return the tensor of indices that are within bounds; negative constant ones count from the end."""
    array = network.array(expr)
    if array is None or extents is None:
        return network.tensor(expr)
    return network.constant(wrapped(array, extents))


def wrapped(array: np.ndarray, extents: Sequence[int]) -> np.ndarray:
    """Return indices with the negative ones counted from the end."""
    return np.where(array < 0, array + _limits(extents, array.dtype), array).astype(array.dtype)


def from_end(network: Network, expr: relax.Expr, extents: Sequence[int]) -> Any:
    """Return the tensor of indices of which negative ones count from the end, computed ones included."""
    if network.array(expr) is not None:
        return in_bounds(network, expr, extents)
    indices = network.tensor(expr)
    limits = network.constant(np.array(extents, dtype=dtype_name(indices)).reshape(-1))
    return select(network, binary(network, "LESS", indices, 0), binary(network, "SUM", indices, limits), indices)


def common_shape(items: Sequence[relax.Expr]) -> tuple[int, ...] | None:
    """Return the shape that index tensors broadcast to, or None when there is none or it is not known."""
    shapes = [static_shape(item) for item in items]
    try:
        return np.broadcast_shapes(*(shape for shape in shapes if shape is not None)) if None not in shapes else None
    except ValueError:
        return None


def coordinates(
    network: Network,
    items: Sequence[relax.Expr],
    extents: Sequence[int],
    bring: Callable[[Network, relax.Expr, Sequence[int]], Any],
) -> Any:
    """Return index tensors, one for each axis, as one tensor of coordinates.

    Parameters
    ----------
    network : Network
        The network.
    items : Sequence[relax.Expr]
        Index tensors whose shapes broadcast to one, B.
    extents : Sequence[int]
        The extent that each of them indexes.
    bring : Callable
        `in_bounds` or `from_end`: what becomes of negative indices.

    Returns
    -------
    trt.ITensor
        int64, of the shape B + (number of items,).
    """
    shape = common_shape(items) or ()
    parts = []
    for item, extent in zip(items, extents, strict=True):
        part = broadcast(network, network.cast(bring(network, item, [extent]), "int64"), list(shape))
        parts.append(network.reshape(part, [*shape, 1]))
    layer = network.net.add_concatenation(parts)
    layer.axis = len(shape)
    return network.name(layer, "coordinates").get_output(0)
