"""A few operators that compute, so that rules which move glue have something to move it across.

Results are the same under any order of evaluation: entries stay integers that the dtype holds exactly, and
a reduction is drawn only over entries whose order cannot matter. Where an operand is NaN or a signed zero,
TVM's maximum is `x if x > y else y`, and so numpy's value is written in that way.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax
from tvm.relax import op

from relax_glue.testing.graph import Array, Graph, Value, is_exact, is_tame, peak


def _computes(value: Value) -> bool:
    """Say whether the dtype has arithmetic in TVM: for bool, its relu and maximum do not build."""
    return value.dtype != "bool"


def relu(graph: Graph) -> None:
    """Cut off what is negative."""
    value = graph.operand(_computes)
    if value is not None:
        zero = np.zeros((), value.dtype)
        graph.compute(op.nn.relu(value.expr), _maximum(value.array, zero))


def negative(graph: Graph) -> None:
    """Change the sign; TVM builds none for unsigned dtypes."""
    value = graph.operand(lambda v: _computes(v) and v.dtype != "uint8")
    if value is not None:
        graph.compute(op.negative(value.expr), -value.array)


def clip(graph: Graph) -> None:
    """Clip to a range of integers."""
    value = graph.operand(_computes)
    if value is None:
        return
    low = graph.choices.integer(0, 3) - (0 if value.dtype == "uint8" else 2)
    high = low + graph.choices.integer(0, 5)
    bounds = np.array([low, high], value.dtype)
    below = np.where(value.array < bounds[1], value.array, bounds[1])
    graph.compute(op.clip(value.expr, low, high), _maximum(below, bounds[0]))


def _maximum(left: Array, right: Array) -> Array:
    return np.where(left > right, left, right)


def _minimum(left: Array, right: Array) -> Array:
    return np.where(left < right, left, right)


_BINARY: dict[str, tuple[Callable[..., relax.Expr], Callable[[Array, Array], Array]]] = {
    "add": (op.add, np.add),
    "multiply": (op.multiply, np.multiply),
    "maximum": (op.maximum, _maximum),
    "minimum": (op.minimum, _minimum),
}


def binary(graph: Graph) -> None:
    """Combine two tensors, one of which may be broadcast, or a tensor and a constant."""
    left = graph.operand(lambda v: _computes(v) and is_exact(v.array))
    if left is None:
        return
    right_expr, right = _partner(graph, left)
    name = graph.choices.item(list(_BINARY))
    relax_op, numpy_op = _BINARY[name]
    if not _stays_exact(name, left.array, right):
        return
    pairs = [(left.expr, left.array), (right_expr, right)]
    (a, a_array), (b, b_array) = pairs[::-1] if graph.choices.one_in(2) else pairs
    with np.errstate(invalid="ignore"):
        graph.compute(relax_op(a, b), numpy_op(a_array, b_array))


def _stays_exact(name: str, left: Array, right: Array) -> bool:
    """Say whether no entry of the result can round or overflow."""
    if name == "multiply":
        return is_exact(left, peak(right))
    return name != "add" or (is_exact(left, 2) and is_exact(right, 2))


def _partner(graph: Graph, value: Value) -> tuple[relax.Expr, Array]:
    """Draw another operand: a value of the shape, or a constant that broadcasts into it."""

    def fits(other: Value) -> bool:
        return other.dims == value.dims and other.dtype == value.dtype and is_exact(other.array)

    other = graph.operand(fits)
    if other is not None and not graph.choices.one_in(2):
        return other.expr, other.array
    kept = value.axes()
    shape = [s if i in kept and graph.choices.one_in(2) else 1 for i, s in enumerate(value.array.shape)]
    while shape and shape[0] == 1 and graph.choices.one_in(2):
        shape = shape[1:]
    return graph.constant(shape, value.dtype)


def where(graph: Graph) -> None:
    """Choose between two tensors of one shape by a condition that may be broadcast."""
    value = graph.operand()
    if value is None:
        return
    same = graph.operand(lambda v: v.dims == value.dims and v.dtype == value.dtype) or value
    mask = graph.operand(lambda v: v.dtype == "bool" and v.dims == value.dims)
    if mask is None or graph.choices.one_in(2):
        shape = [s if isinstance(d, int) else 1 for d, s in zip(value.dims, value.array.shape, strict=True)]
        condition, chosen = graph.constant(shape, "bool")
    else:
        condition, chosen = mask.expr, mask.array
    graph.compute(op.where(condition, value.expr, same.expr), np.where(chosen, value.array, same.array))


_CASTS = {
    "float32": ("float16", "int64", "int32"),
    "float16": ("float32", "int32"),
    "int64": ("int32", "float32"),
    "int32": ("int64", "float32"),
    "int8": ("int32", "int64", "float32", "float16"),
    "uint8": ("int32", "float32", "int64"),
    "bool": ("float32", "int32", "int64", "uint8", "int8"),
}


def astype(graph: Graph) -> None:
    """Cast where the value survives: no rounding, and no NaN into an integer (undefined in LLVM)."""
    value = graph.operand(lambda v: v.dtype == "bool" or (is_exact(v.array) and is_tame(v.array)))
    if value is None:
        return
    dtype = graph.choices.item(_CASTS[value.dtype])
    array = value.array.astype(dtype)
    if value.dtype == "bool" or is_exact(array):
        graph.compute(op.astype(value.expr, dtype), array)


def reduction(graph: Graph) -> None:
    """Sum, average or take the greatest over some axes.

    The order of evaluation must not matter: so no NaN or signed zero, no rounding, and an average only over
    a power of two of entries. TVM types the mean of integers as int64, and its maximum over nothing is moot.
    """
    value = graph.operand(lambda v: _computes(v) and bool(v.axes(1)) and is_tame(v.array) and v.array.size > 0)
    if value is None:
        return
    axes = graph.choices.subset(value.axes(1))
    count = int(np.prod([value.array.shape[axis] for axis in axes]))
    keepdims = graph.choices.one_in(2)
    names = [graph.choices.spelling(axis, value.rank) for axis in axes]
    if graph.choices.one_in(2) or not is_exact(value.array, count):
        greatest = value.array.max(tuple(axes), keepdims=keepdims)
        graph.compute(op.max(value.expr, names, keepdims), np.asarray(greatest))
        return
    power_of_two = count & (count - 1) == 0
    if value.array.dtype.kind == "f" and power_of_two and graph.choices.one_in(2):
        average = value.array.mean(tuple(axes), dtype=value.dtype, keepdims=keepdims)
        graph.compute(op.mean(value.expr, names, keepdims), np.asarray(average))
        return
    total = value.array.sum(tuple(axes), dtype=value.dtype, keepdims=keepdims)
    graph.compute(op.sum(value.expr, names, keepdims), np.asarray(total))
