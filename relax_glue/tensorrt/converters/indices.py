"""Index tensors: what they may hold, and how they become what a gather or scatter layer reads.

TensorRT's layers want indices within bounds, from 0. Constant indices are brought there here; for computed
ones the operator's mode says what has to be done, or, as in TVM, the model promises that they are in bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax

from ...ir.shapes import is_static, same
from ..expressions import Number
from ..registry import Refusal
from ..slices import broadcast
from .arith import binary, dtype_name, select
from .counting import limits_as
from .limits import INTS, constant_of, extents, refuse_type, type_of

if TYPE_CHECKING:
    from ..network import Network


def refuse_indices(expr: relax.Expr, limits: Sequence[Number] | None) -> Refusal | None:
    """Check an index tensor, and that constant indices are within bounds.

    Parameters
    ----------
    expr : relax.Expr
        The indices; the last axis runs over `limits` when there is more than one.
    limits : Sequence[Number] or None
        The extents that are indexed; None where any index is within bounds. Where one is symbolic, no constant
        index may be negative, and the model promises that none is too large.
    """
    ty = type_of(expr)
    if ty is None:
        return Refusal("the indices are no tensor", "make them a constant tensor")
    said = refuse_type(ty, "the index tensor", INTS)
    if said is not None:
        return said
    array = constant_of(expr)
    if array is None or limits is None:
        return None
    if not is_static(limits):
        least = array.min(initial=0)
        return Refusal(f"index {least} of an axis whose extent is not known") if least < 0 else None
    bounds = _limits(limits, np.dtype(np.int64))
    bad = np.extract((array < -bounds) | (array >= bounds), array)
    return Refusal(f"index {bad[0]} is outside the extent {list(limits)}") if bad.size else None


def _limits(limits: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Return extents in a form that broadcasts: a scalar index has to stay a scalar."""
    return np.array(limits[0] if len(limits) == 1 else limits, dtype=dtype)


def in_bounds(network: Network, expr: relax.Expr, limits: Sequence[Number]) -> Any:
    """Return the tensor of indices that are within bounds; negative constant ones count from the end."""
    array = network.array(expr)
    return network.tensor(expr) if array is None else network.constant(wrapped(array, limits))


def wrapped(array: np.ndarray, limits: Sequence[Number]) -> np.ndarray:
    """Return indices with the negative ones counted from the end; of a symbolic extent there are none."""
    if not is_static(limits):
        return array
    return np.where(array < 0, array + _limits(limits, array.dtype), array).astype(array.dtype)


def from_end(network: Network, expr: relax.Expr, limits: Sequence[Number]) -> Any:
    """Return the tensor of indices of which negative ones count from the end, computed ones included."""
    if network.array(expr) is not None:
        return in_bounds(network, expr, limits)
    indices = network.tensor(expr)
    ends = limits_as(network, limits, dtype_name(indices))
    return select(network, binary(network, "LESS", indices, 0), binary(network, "SUM", indices, ends), indices)


def common_shape(items: Sequence[relax.Expr]) -> list[Number] | None:
    """Return the shape that index tensors broadcast to, or None when there is none or it is not known."""
    shapes = [extents(item.ty) for item in items]
    found: list[Number] = []
    for shape in shapes:
        if shape is None:
            return None
        found = [1] * (len(shape) - len(found)) + found
        lead = len(found) - len(shape)
        for axis, extent in enumerate(shape, start=lead):
            if found[axis] == 1:
                found[axis] = extent
            elif extent != 1 and not same(found[axis], extent):
                return None
    return found


def coordinates(
    network: Network,
    items: Sequence[relax.Expr],
    limits: Sequence[Number],
    bring: Callable[[Network, relax.Expr, Sequence[Number]], Any],
) -> Any:
    """Return index tensors, one for each axis, as one tensor of coordinates.

    Parameters
    ----------
    network : Network
        The network.
    items : Sequence[relax.Expr]
        Index tensors whose shapes broadcast to one, B.
    limits : Sequence[Number]
        The extent that each of them indexes.
    bring : Callable
        `in_bounds` or `from_end`: what becomes of negative indices.

    Returns
    -------
    trt.ITensor
        int64, of the shape B + (number of items,).
    """
    shape = common_shape(items) or []
    parts = []
    for item, extent in zip(items, limits, strict=True):
        part = broadcast(network, network.cast(bring(network, item, [extent]), "int64"), shape)
        parts.append(network.reshape(part, [*shape, 1]))
    layer = network.net.add_concatenation(parts)
    layer.axis = len(shape)
    return network.name(layer, "coordinates").get_output(0)
