"""Arithmetic on free extents, against the same operations on numbers, in int64 and float32 as ONNX has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import tirx
from tvm.sym import Analyzer

from relax_glue.frontend.symbolic import Arithmetic, Quotient

Sizes = dict[str, int]
SIZES: tuple[Sizes, ...] = ({"a": 1, "b": 1}, {"a": 7, "b": 640}, {"a": 33, "b": 10}, {"a": 1280, "b": 999})


@dataclass(frozen=True)
class Pair:
    """An element as it is calculated symbolically, and the same in numpy for given sizes."""

    element: Any
    number: Callable[[Sizes], Any]

    @property
    def is_float(self) -> bool:
        return isinstance(self.element, (float, Quotient))


def value_at(element: Any, symbols: dict[str, tirx.Var], sizes: Sizes) -> Any:
    """Return the number that an element stands for."""
    if isinstance(element, (bool, int, float)):
        return element
    if isinstance(element, Quotient):
        top, bottom = (value_at(side, symbols, sizes) for side in (element.numerator, element.denominator))
        return np.float32(top) / np.float32(bottom)
    analyzer = Analyzer()
    for name, symbol in symbols.items():
        analyzer.bind(symbol, tirx.IntImm("int64", sizes[name]))
    return int(analyzer.simplify(element))


def truncated(x: Any, y: Any) -> Any:
    quotient = abs(int(x)) // abs(int(y))
    return np.int64(quotient if (x < 0) == (y < 0) else -quotient)


INTEGER: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": truncated,
    "modulo": lambda x, y: x % y,
    "minimum": min,
    "maximum": max,
}
FLOAT: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: np.float32(x + y),
    "subtract": lambda x, y: np.float32(x - y),
    "multiply": lambda x, y: np.float32(x * y),
    "divide": lambda x, y: np.float32(x / y),
}
ROUNDING: dict[str, Callable[[Any], Any]] = {"floor": np.floor, "ceil": np.ceil, "truncate": np.trunc}
COMPARING: dict[str, Callable[[Any, Any], bool]] = {"equal": lambda x, y: x == y, "less": lambda x, y: x < y}


def combined(arithmetic: Arithmetic, name: str, left: Pair, right: Pair) -> Pair | None:
    """Apply an operation of two operands of one kind to both sides of the pairs."""
    table = FLOAT if left.is_float else INTEGER
    if left.is_float != right.is_float or name not in table:
        return None
    if name in ("divide", "modulo") and any(right.number(sizes) <= 0 for sizes in SIZES):
        return None
    element = getattr(arithmetic, name)(left.element, right.element)
    apply = table[name]
    return None if element is None else Pair(element, lambda sizes: apply(left.number(sizes), right.number(sizes)))


def as_float(pair: Pair) -> Pair:
    element = float(pair.element) if isinstance(pair.element, int) else Quotient(pair.element, 1)
    return Pair(element, lambda sizes: np.float32(pair.number(sizes)))


def rounded(arithmetic: Arithmetic, name: str, pair: Pair) -> Pair | None:
    element = getattr(arithmetic, name)(pair.element)
    if element is None or isinstance(element, (float, Quotient)):
        return None
    return Pair(element, lambda sizes: np.int64(ROUNDING[name](pair.number(sizes))))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.data())
def test_random_terms(data: st.DataObject) -> None:
    arithmetic = Arithmetic()
    symbols = {name: tirx.Var(name, "int64") for name in ("a", "b")}
    known: list[Pair] = [Pair(s, lambda sizes, name=name: np.int64(sizes[name])) for name, s in symbols.items()]
    numbers = st.sampled_from([1, 2, 3, 4, 7, 16, 32])
    fractions = st.sampled_from([0.5, 2.0, 0.25, 3.0, 1.5, 7.0])
    for _ in range(data.draw(st.integers(2, 7))):
        left = data.draw(st.sampled_from(known))
        kind = data.draw(st.sampled_from(["two", "number", "float", "round"]))
        made: Pair | None = None
        if kind == "two":
            name = data.draw(st.sampled_from(sorted({**INTEGER, **FLOAT})))
            made = combined(arithmetic, name, left, data.draw(st.sampled_from(known)))
        elif kind == "number":
            name = data.draw(st.sampled_from(sorted({**INTEGER, **FLOAT})))
            value = data.draw(fractions if left.is_float else numbers)
            held = np.float32(value) if left.is_float else np.int64(value)
            made = combined(arithmetic, name, left, Pair(value, lambda _sizes, held=held: held))
        elif kind == "float" and not left.is_float:
            made = as_float(left)
        elif kind == "round" and left.is_float:
            made = rounded(arithmetic, data.draw(st.sampled_from(sorted(ROUNDING))), left)
        if made is not None and all(abs(made.number(sizes)) < 1 << 24 for sizes in SIZES):
            known.append(made)
    for pair in known:
        for sizes in SIZES:
            assert value_at(pair.element, symbols, sizes) == pair.number(sizes), (str(pair.element), sizes)
    one, other = data.draw(st.sampled_from(known)), data.draw(st.sampled_from(known))
    for name, compare in COMPARING.items():
        decided = getattr(arithmetic, name)(one.element, other.element)
        if decided is not None:
            assert all(compare(one.number(sizes), other.number(sizes)) == decided for sizes in SIZES)


@pytest.fixture
def arithmetic() -> Arithmetic:
    return Arithmetic()


def test_a_float_that_was_rounded_twice_is_left_alone(arithmetic: Arithmetic) -> None:
    n = tirx.Var("n", "int64")
    third = arithmetic.divide(Quotient(n, 1), 3.0)
    assert str(arithmetic.floor(third)) == "n // T.int64(3)"
    assert arithmetic.multiply(third, 3.0) is None
    assert arithmetic.add(third, 0.5) is None
    assert str(arithmetic.multiply(third, 2.0).numerator) == "n * T.int64(2)"
    assert arithmetic.multiply(Quotient(n, 1), 0.7) is None  # 10 * 0.7 is 7 in float32


def test_common_factors_are_cancelled(arithmetic: Arithmetic) -> None:
    n, h = tirx.Var("n", "int64"), tirx.Var("h", "int64")
    assert str(arithmetic.floor_divide(n * 12 * h, n * 4)) == "h * T.int64(3)"
    assert arithmetic.floor_divide(n * 12, n) == 12


def test_what_values_decide_may_be_zero(arithmetic: Arithmetic) -> None:
    n, found = tirx.Var("n", "int64"), tirx.Var("found", "int64")
    arithmetic.bind(n, 1, 16)
    assert arithmetic.less(0, n) is True
    assert arithmetic.less(0, found) is None
    assert arithmetic.less(found, 0) is False
    assert arithmetic.is_negative(arithmetic.subtract(n, 1)) is False
    assert arithmetic.largest(arithmetic.multiply(n, 3)) == 48
    assert arithmetic.largest(found) is None
