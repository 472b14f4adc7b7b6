"""Operators that make a tensor from a shape or a scalar, or read only the type of their operand."""

from __future__ import annotations

import math
from types import MappingProxyType

import numpy as np

from relax_glue.evaluate.application import Application, Array, Evaluator, Outcome, Result, Value, declared
from relax_glue.evaluate.elementwise import cast


def _filled(app: Application, value: Array) -> Outcome:
    """Spread one scalar without storing it more than once."""
    return np.broadcast_to(value, app.shape)


def _full(app: Application) -> Outcome:
    fill = app.values[1]
    if fill.size != 1:
        return None
    value = cast(fill.reshape(()), app.out.dtype)
    return None if value is None else _filled(app, value)


def _zeros(app: Application) -> Outcome:
    return _filled(app, np.zeros((), app.out.dtype))


def _ones(app: Application) -> Outcome:
    return _filled(app, np.ones((), app.out.dtype))


def _arange(app: Application) -> Outcome:
    """TVM itself makes the constant with numpy when all three scalars are known."""
    start, end, step = (value.item() for value in app.values)
    return None if step == 0 else np.arange(start, end, step, dtype=app.out.dtype)


def _diagonal(app: Application, offset: tuple[Value, ...]) -> Outcome:
    rows, columns = app.shape
    return np.eye(rows, columns, int(offset[0]) if offset else 0, app.out.dtype)


def _eye(app: Application) -> Outcome:
    return _diagonal(app, app.values[2:])


def _eye_like(app: Application) -> Outcome:
    return _diagonal(app, app.values[1:])


def _tril(app: Application) -> Outcome:
    return np.tril(app.data, int(app.values[1]))


def _triu(app: Application) -> Outcome:
    return np.triu(app.data, int(app.values[1]))


def _shape_to_tensor(app: Application) -> Outcome:
    return np.asarray(app.values[0], np.int64)


def _size(app: Application) -> Outcome:
    operand = declared(app.call.args[0].ty)
    if not isinstance(operand, Result) or operand.shape is None:
        return None
    return np.asarray(math.prod(operand.shape), np.int64)


def _meshgrid(app: Application) -> Outcome:
    indexing = "ij" if app.attrs.indexing is None else str(app.attrs.indexing)
    vectors = [np.atleast_1d(vector) for vector in app.data]
    return tuple(np.meshgrid(*vectors, indexing=indexing, copy=False))  # type: ignore[call-overload]


EVALUATORS = MappingProxyType(
    {
        "relax.full": Evaluator(_full),
        "relax.full_like": Evaluator(_full),
        "relax.zeros": Evaluator(_zeros),
        "relax.zeros_like": Evaluator(_zeros),
        "relax.ones": Evaluator(_ones),
        "relax.ones_like": Evaluator(_ones),
        "relax.arange": Evaluator(_arange),
        "relax.eye": Evaluator(_eye),
        "relax.eye_like": Evaluator(_eye_like),
        "relax.tril": Evaluator(_tril),
        "relax.triu": Evaluator(_triu),
        "relax.shape_to_tensor": Evaluator(_shape_to_tensor),
        "relax.size": Evaluator(_size),
        "relax.meshgrid": Evaluator(_meshgrid),
    }
)

SHAPE_ONLY = frozenset({"relax.full_like", "relax.zeros_like", "relax.ones_like", "relax.eye_like", "relax.size"})
