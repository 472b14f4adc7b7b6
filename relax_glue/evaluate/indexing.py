"""Operators that read or write at computed indices.

TVM reads an index out of bounds as it stands (`take` in its default mode, `gather_elements`, ...): the
result is whatever lies there, so those cases are not evaluated. Only `scatter_elements` counts negative
indices from the end, and `take` does what its mode says.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from relax_glue.evaluate.application import Application, Array, Evaluator, Outcome, kind

Index = tuple[Any, ...]


def _inside(indices: Array, extent: int) -> bool:
    return indices.size == 0 or bool(indices.min() >= 0 and indices.max() < extent)


def _take(app: Application) -> Outcome:
    data, indices = app.values
    if app.attrs.axis is None:
        data, axis = data.reshape(-1), 0
    else:
        axis = int(app.attrs.axis)
    picked = _resolve(indices, data.shape[axis], str(app.attrs.mode))
    return None if picked is None else np.take(data, picked, axis)


def _resolve(indices: Array, extent: int, mode: str) -> Array | None:
    """Bring the indices of `take` inside [0, extent); None if the mode does not."""
    if mode == "clip" and extent:
        return np.clip(indices.astype(np.int64), 0, extent - 1)
    if mode == "wrap" and extent:
        return np.mod(indices.astype(np.int64), extent)
    return indices.astype(np.int64) if _inside(indices, extent) else None


def _along(indices: Array, axis: int) -> Index:
    """Index every axis by position, and `axis` by `indices`."""
    grid: list[Any] = list(np.ogrid[tuple(slice(extent) for extent in indices.shape)])
    grid[axis] = indices
    return tuple(grid)


def _gather_elements(app: Application) -> Outcome:
    data, indices = app.values
    axis = int(app.attrs.axis) % data.ndim
    if not _inside(indices, data.shape[axis]) or not _narrower(indices.shape, data.shape, axis):
        return None
    return data[_along(indices, axis)]


def _narrower(inner: Sequence[int], outer: Sequence[int], axis: int) -> bool:
    sides = zip(inner, outer, strict=True)
    return all(small <= large for place, (small, large) in enumerate(sides) if place != axis)


def _gather_nd(app: Application) -> Outcome:
    data, indices = app.values
    batch = int(app.attrs.batch_dims)
    where = _components(indices, data.shape[batch:])
    if where is None or data.shape[:batch] != indices.shape[:batch]:
        return None
    shape = indices.shape[:-1]
    leading = np.ogrid[tuple(slice(extent) for extent in shape)][:batch] if batch else []
    return data[(*leading, *where)]


def _components(indices: Array, extents: Sequence[int]) -> Index | None:
    """Split the last axis of `indices` into one index per axis; None if one of them is out of bounds."""
    parts = tuple(np.moveaxis(indices, -1, 0))
    inside = len(parts) <= len(extents) and all(map(_inside, parts, extents))
    return parts if inside else None


def _index_tensor(app: Application) -> Outcome:
    data, indices = app.values
    kinds = {kind(index) for index in indices}
    if kinds - set("iu") or len(indices) > data.ndim or not all(map(_inside, indices, data.shape)):
        return None
    return data[tuple(indices)]


_COMBINE: MappingProxyType[str, np.ufunc] = MappingProxyType(
    {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
)


def _combined(data: Array, where: Index, updates: Array, reduction: str) -> Array | None:
    """Write in the order of the indices: the last of two equal ones stays, sums go one by one as in TVM."""
    out = data.copy()
    if reduction == "update":
        out[where] = updates
        return out
    if reduction not in _COMBINE or kind(data) not in "iuf":
        return None
    if reduction in ("min", "max") and not (_ordered(data) and _ordered(updates)):
        return None
    _COMBINE[reduction].at(out, where, updates)
    return out


def _ordered(data: Array) -> bool:
    """Exclude NaN and zeros, whose sign min and max may pick either way."""
    return kind(data) != "f" or bool(np.all((data < 0) | (data > 0)))


def _scatter_elements(app: Application) -> Outcome:
    data, indices, updates = app.values
    axis = int(app.attrs.axis) % data.ndim
    extent = data.shape[axis]
    wrapped = np.where(indices < 0, indices + extent, indices)
    # TVM walks the data with the extents of the indices; with smaller ones it writes to other places.
    aligned = indices.shape[:axis] + indices.shape[axis + 1 :] == data.shape[:axis] + data.shape[axis + 1 :]
    if not aligned or indices.shape != updates.shape or not _inside(wrapped, extent):
        return None
    return _combined(data, _along(wrapped, axis), updates, str(app.attrs.reduction))


def _scatter_nd(app: Application) -> Outcome:
    data, indices, updates = app.values
    where = _components(indices, data.shape)
    return None if where is None else _combined(data, where, updates, str(app.attrs.reduction))


def _slice_scatter(app: Application) -> Outcome:
    data, updates = app.values[:2]
    start, end, step = (int(value) for value in app.values[2:])
    axis = int(app.attrs.axis) % data.ndim
    if not (0 <= start <= end <= data.shape[axis] and step >= 1):
        return None
    window = (slice(None),) * axis + (slice(start, end, step),)
    if data[window].shape != updates.shape:
        return None
    out = data.copy()
    out[window] = updates
    return out


def _one_hot(app: Application) -> Outcome:
    indices, on, off = app.values
    axis = int(app.attrs.axis) % (indices.ndim + 1)
    depth = np.arange(int(app.attrs.depth)).reshape([-1] + [1] * (indices.ndim - axis))
    return np.where(np.expand_dims(indices, axis) == depth, on, off)


EVALUATORS = MappingProxyType(
    {
        "relax.take": Evaluator(_take),
        "relax.gather_elements": Evaluator(_gather_elements),
        "relax.gather_nd": Evaluator(_gather_nd),
        "relax.index_tensor": Evaluator(_index_tensor),
        "relax.scatter_elements": Evaluator(_scatter_elements),
        "relax.scatter_nd": Evaluator(_scatter_nd),
        "relax.slice_scatter": Evaluator(_slice_scatter),
        "relax.one_hot": Evaluator(_one_hot),
    }
)
