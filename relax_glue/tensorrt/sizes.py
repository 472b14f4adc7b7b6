"""Extents without TVM: numbers, variables by name, and arithmetic over them.

It is how a compiled model carries the symbolic shapes of a region: as plain values that JSON holds, that are
evaluated at each new shape, and that give the bounds of an optimisation profile.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any, TypeAlias

import tvm
from tvm import tirx

from ..errors import ConversionError
from .expressions import calculated, inexpressible

Size: TypeAlias = "int | str | tuple[str, Size, Size]"
"""A number, the name of a variable, or (operation, left, right)."""

Interval: TypeAlias = tuple[int, int]

_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "min": min,
    "max": max,
}
# Engines never see an extent of 0, and what is divided is not negative: truncation and floor are the same.
_KINDS = {
    tirx.Add: "+",
    tirx.Sub: "-",
    tirx.Mul: "*",
    tirx.FloorDiv: "//",
    tirx.Div: "//",
    tirx.FloorMod: "%",
    tirx.Mod: "%",
    tirx.Min: "min",
    tirx.Max: "max",
}


def size_of(extent: tvm.ir.Expr, name: Callable[[tirx.Var], str]) -> Size:
    """Return an extent of a Relax type as a size.

    Parameters
    ----------
    extent : tvm.ir.Expr
        A number, a variable, or an expression.
    name : Callable
        How a variable is called.

    Raises
    ------
    ConversionError
        When it holds another operation than `+ - * // % min max`.
    """
    if isinstance(extent, tirx.IntImm):
        return int(extent)
    if isinstance(extent, tirx.Var):
        return name(extent)
    if isinstance(extent, tirx.Cast):
        return size_of(extent.value, name)
    operation = _KINDS.get(type(extent))
    if operation is None and inexpressible(extent) is None:  # a choice
        return size_of(calculated(extent), name)
    if operation is None:
        raise ConversionError(
            f"the extent {extent} holds more than + - * // % min max of other extents; keep what yields it outside "
            f"the region"
        )
    return operation, size_of(extent.a, name), size_of(extent.b, name)


def from_json(value: Any) -> Size:
    """Return the size that JSON gave back, with lists for tuples."""
    if isinstance(value, list):
        operation, left, right = value
        return operation, from_json(left), from_json(right)
    return value


def evaluate(size: Size, values: Mapping[str, int]) -> int:
    """Return the number that a size is for these values of the variables."""
    if isinstance(size, int):
        return size
    if isinstance(size, str):
        return values[size]
    operation, left, right = size
    return _OPERATIONS[operation](evaluate(left, values), evaluate(right, values))


def variables(size: Size) -> Iterator[str]:
    """Yield the names of the variables of a size, from left to right."""
    if isinstance(size, str):
        yield size
    elif isinstance(size, tuple):
        yield from variables(size[1])
        yield from variables(size[2])


def text(size: Size) -> str:
    """Return a size as one writes it."""
    if not isinstance(size, tuple):
        return str(size)
    operation, left, right = size
    if operation in ("min", "max"):
        return f"{operation}({text(left)}, {text(right)})"
    strength = _strength(size)
    first = text(left) if _strength(left) >= strength else f"({text(left)})"
    second = text(right) if _strength(right) > strength else f"({text(right)})"
    return f"{first} {operation} {second}"


def _strength(size: Size) -> int:
    """Return how tightly the operation of a size binds."""
    if not isinstance(size, tuple) or size[0] in ("min", "max"):
        return 3
    return 1 if size[0] in ("+", "-") else 2


def bounds(size: Size, ranges: Mapping[str, Interval]) -> Interval:
    """Return an interval that holds every value of a size while its variables stay in their ranges.

    It is the smallest one where each variable stands once in the size, as in `n * 2` or `h // 8`.

    Raises
    ------
    ZeroDivisionError
        When a divisor can be 0.
    """
    if isinstance(size, int):
        return size, size
    if isinstance(size, str):
        return ranges[size]
    operation, left, right = size
    a, b = bounds(left, ranges), bounds(right, ranges)
    if operation in ("//", "%") and b[0] <= 0 <= b[1]:
        raise ZeroDivisionError(f"{text(right)} can be 0")
    if operation == "%" and not _is_monotone(a, b):
        return min(0, b[0] + 1), max(0, b[1] - 1)
    corners = [_OPERATIONS[operation](x, y) for x, y in product(a, b)]
    return min(corners), max(corners)


def _is_monotone(dividend: Interval, divisor: Interval) -> bool:
    """Say whether a remainder only grows over an interval: the divisor is one number and the quotient too."""
    return divisor[0] == divisor[1] and dividend[0] // divisor[0] == dividend[1] // divisor[0]
