"""Reductions, scans and sorting.

Integers are exact in the declared width (TVM accumulates in the dtype of its operand, so int8 sums wrap).
Floating-point sums depend on the order of the additions and are `float_reassoc`; minima and maxima do
not, but for NaN and for zeros of both signs, which are left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np

from relax_glue.evaluate.application import Application, Array, Evaluator, Function, Outcome, kind


def _axes(app: Application) -> tuple[int, ...]:
    axis = app.attrs.axis
    if axis is None:
        return tuple(range(app.data.ndim))
    return tuple(int(one) % app.data.ndim for one in axis)


def _accumulated(combine: np.ufunc) -> Function:
    def function(app: Application) -> Outcome:
        data, dtype = app.data, app.out.dtype
        if kind(data) not in "iuf":
            return None
        if kind(data) == "f" and not _partials_fit(combine, data, _axes(app), dtype):
            return None
        wide = np.dtype(np.float64) if kind(data) == "f" else dtype
        total = combine.reduce(data, _axes(app), wide, keepdims=bool(app.attrs.keepdims))
        return np.asarray(total).astype(dtype)

    return function


def _partials_fit(combine: np.ufunc, data: Array, axes: tuple[int, ...], dtype: np.dtype) -> bool:
    """Say whether no partial sum or product of finite entries, in any order, leaves the range of the dtype.

    TVM accumulates in the dtype itself: of the float16 numbers 300, 300 and 0 its product is NaN, not 0.
    """
    neutral = combine.identity
    sizes = np.abs(np.where(np.isfinite(data), data, neutral).astype(np.float64))
    info = np.finfo(dtype)
    if combine is np.add:
        return bool(np.all(sizes.sum(axes) <= info.max))
    below = np.where(sizes == 0, 1, np.minimum(sizes, 1)).prod(axes)
    return bool(np.all(np.maximum(sizes, 1).prod(axes) <= info.max) and np.all(below >= info.tiny))


def _extremum(combine: np.ufunc) -> Function:
    def function(app: Application) -> Outcome:
        if kind(app.data) not in "iuf" or app.data.size == 0 or not _comparable(app.data):
            return None
        found = np.asarray(combine.reduce(app.data, _axes(app), keepdims=bool(app.attrs.keepdims)))
        start = _identity(combine, app.data.dtype)
        # TVM starts at the lowest finite float, so the maximum of nothing but -inf is not -inf there.
        return found if np.array_equal(combine(found, start), found) else None

    return function


def _identity(combine: np.ufunc, dtype: np.dtype) -> Array:
    """Give the value that TVM starts a maximum or minimum with."""
    info = np.finfo(dtype) if kind(dtype) == "f" else np.iinfo(dtype)
    return np.asarray(info.min if combine is np.maximum else info.max, dtype)


def _comparable(data: Array) -> bool:
    """Exclude NaN, and zeros of both signs: which of them stays depends on the order."""
    if kind(data) != "f":
        return True
    negative_zero = np.signbit(data) & (data == 0)
    return not np.isnan(data).any() and not negative_zero.any()


def _moment(compute: Callable[..., Any]) -> Function:
    def function(app: Application) -> Outcome:
        if kind(app.data) != "f" or app.data.size == 0:
            return None
        data, axes = app.data.astype(np.float64), _axes(app)
        addends = data if compute is np.mean else (data - data.mean(axes, keepdims=True)) ** 2
        if not all(_partials_fit(np.add, part, axes, app.data.dtype) for part in (data, addends)):
            return None
        wide = compute(data, axis=axes, keepdims=bool(app.attrs.keepdims))
        return np.asarray(wide).astype(app.out.dtype)

    return function


def _position(compute: Callable[..., Any], combine: np.ufunc) -> Function:
    def function(app: Application) -> Outcome:
        data, axis = app.data, app.attrs.axis
        if kind(data) not in "iuf" or data.size == 0 or np.isnan(_floats(data)).any():
            return None
        axis = None if axis is None else int(axis)
        start = _identity(combine, data.dtype)
        # TVM starts at that value with the index -1, and keeps it where no element goes beyond.
        if np.any(combine(combine.reduce(data, axis), start) == start):
            return None
        return np.asarray(compute(data, axis=axis, keepdims=bool(app.attrs.keepdims))).astype(app.out.dtype)

    return function


def _floats(data: Array) -> Array:
    return data if kind(data) == "f" else np.empty(0)


def _scan(combine: np.ufunc) -> Function:
    def function(app: Application) -> Outcome:
        dtype = app.out.dtype
        if kind(app.data) not in "iufb" or kind(dtype) not in "iuf" or app.data.size == 0:
            return None
        if kind(app.data) == "f" and kind(dtype) != "f":
            return None
        data = app.data.astype(dtype)
        data = data.reshape(-1) if app.attrs.axis is None else data
        axis = 0 if app.attrs.axis is None else int(app.attrs.axis)
        running = combine.accumulate(data, axis, dtype)
        return _shifted(running, axis, combine.identity) if bool(app.attrs.exclusive) else running

    return function


def _shifted(running: Array, axis: int, identity: Any) -> Array:
    """Start each line with the identity and leave its total out."""
    moved = np.moveaxis(running, axis, 0)
    out = np.empty_like(moved)
    out[0] = identity
    out[1:] = moved[:-1]
    return np.moveaxis(out, 0, axis)


def _order(data: Array, axis: int, descending: bool) -> Array:
    """Sort stably, in both directions, as the runtime does: equal elements keep their order."""
    if not descending:
        return np.argsort(data, axis, kind="stable")
    backwards = np.argsort(np.flip(data, axis), axis, kind="stable")
    return data.shape[axis] - 1 - np.flip(backwards, axis)


def _sortable(data: Array) -> bool:
    return data.dtype.name in ("float32", "float64", "int32", "int64") and not np.isnan(_floats(data)).any()


def _sort(app: Application) -> Outcome:
    if not _sortable(app.data):
        return None
    axis = int(app.attrs.axis)
    return np.take_along_axis(app.data, _order(app.data, axis, bool(app.attrs.descending)), axis)


def _argsort(app: Application) -> Outcome:
    if not _sortable(app.data):
        return None
    return _order(app.data, int(app.attrs.axis), bool(app.attrs.descending)).astype(app.out.dtype)


def _topk(app: Application) -> Outcome:
    if not _sortable(app.data):
        return None
    axis, count = int(app.attrs.axis), int(app.attrs.k)
    extent = app.data.shape[axis]
    if count > extent:
        return None
    best = range(count if count >= 1 else extent)
    order = np.take(_order(app.data, axis, bool(app.attrs.largest)), best, axis)
    values = np.take_along_axis(app.data, order, axis)
    indices = order.astype(str(app.attrs.dtype))
    if str(app.attrs.ret_type) == "both":
        return values, indices
    return values if str(app.attrs.ret_type) == "values" else indices


EVALUATORS = MappingProxyType(
    {
        "relax.sum": Evaluator(_accumulated(np.add), "float_reassoc"),
        "relax.prod": Evaluator(_accumulated(np.multiply), "float_reassoc"),
        "relax.max": Evaluator(_extremum(np.maximum)),
        "relax.min": Evaluator(_extremum(np.minimum)),
        "relax.mean": Evaluator(_moment(np.mean), "float_reassoc"),
        "relax.variance": Evaluator(_moment(np.var), "float_reassoc"),
        "relax.std": Evaluator(_moment(np.std), "float_reassoc"),
        "relax.argmax": Evaluator(_position(np.argmax, np.maximum)),
        "relax.argmin": Evaluator(_position(np.argmin, np.minimum)),
        "relax.cumsum": Evaluator(_scan(np.add), "float_reassoc"),
        "relax.cumprod": Evaluator(_scan(np.multiply), "float_reassoc"),
        "relax.sort": Evaluator(_sort),
        "relax.argsort": Evaluator(_argsort),
        "relax.topk": Evaluator(_topk),
    }
)
