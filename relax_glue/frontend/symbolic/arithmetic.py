"""Integers, fractions and truth values of which some are expressions of free extents.

An element is an `int`, a `float` or a `bool` where it is known, an int64 expression of TVM where it is an integer that
is not, and a `Quotient` where it is a float that is not. An operation returns None where it cannot be sure of its
result: the order of two free extents, or a float that rounding has touched twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.sym import Analyzer

from relax_glue.ir.checks import MAX_EXTENT

Element = Any  # int, float, bool, tirx.PrimExpr or Quotient
MAX_DENOMINATOR = 1 << 10  # a constant such as 0.375 is 3 / 8; what needs a larger one has been rounded


@dataclass(frozen=True)
class Quotient:
    """A float that is an integer divided by a positive one, and has been rounded at most once.

    In float32 the quotient of two integers below 2 ** 24 lies on the right side of every integer, so that floor and
    ceil of it are those of the exact quotient; after a second rounding they need not be: 10 * 0.7 is 7 in float32.

    Attributes
    ----------
    numerator, denominator : int or tirx.PrimExpr
    """

    numerator: Element
    denominator: Element

    @property
    def is_exact(self) -> bool:
        """Whether no rounding has happened: the denominator is a power of two."""
        return isinstance(self.denominator, int) and self.denominator & (self.denominator - 1) == 0


def is_expression(value: Element) -> bool:
    """Return whether an element is an integer that is not known."""
    return not isinstance(value, (int, float, Quotient)) and tvm.ir.is_prim_expr(value)


def is_integer(value: Element) -> bool:
    """Return whether an element is an integer, known or not."""
    return is_expression(value) or (isinstance(value, int) and not isinstance(value, bool))


class Arithmetic:
    """Operations on elements, and what is known of the free extents.

    Every extent of an input is taken to be 1 or more: with 0 allowed nothing could be said of `(n - 1) // 2`. One that
    values decide, such as the number of boxes found, may be 0. And a model that asks whether an extent is 0 guards the
    empty case, so a comparison takes nothing for granted: `n == 0` is not decided unless the range of n is given.
    """

    def __init__(self) -> None:
        self._analyzer = Analyzer()
        self._deciding = Analyzer()
        self._bound: set[tirx.Var] = set()

    def bind(self, symbol: tirx.Var, least: int, most: int, is_given: bool = True) -> None:
        """Note that a free extent lies between two numbers, both included; one whose range is not given may be 0."""
        self._bound.add(symbol)
        self._analyzer.bind(symbol, tvm.ir.Range(least, most + 1))
        self._deciding.bind(symbol, tvm.ir.Range(least if is_given else 0, most + 1))

    def simplify(self, value: Element) -> Element:
        """Return an integer in its simplest form: an int where it is known."""
        if isinstance(value, int):
            return value
        self._bind_new(value)
        simple = self._analyzer.simplify(value)
        if isinstance(simple, tirx.Add):
            simple = self._filled_up(simple)
        return int(simple) if isinstance(simple, tirx.IntImm) else simple

    def _filled_up(self, total: tirx.Add) -> Any:
        """Return c for min(c, n) + max(0, c - n), the extent of what is padded up to c, which TVM leaves so."""
        for part, other in ((total.a, total.b), (total.b, total.a)):
            sides = (part.a, part.b) if isinstance(part, tirx.Max) else ()
            missing = next((side for side in sides if isinstance(side, tirx.Sub)), None)
            if missing is None or not any(isinstance(side, tirx.IntImm) and side.value == 0 for side in sides):
                continue
            opened = self._analyzer.simplify(other + missing.a - tirx.Min(missing.a, missing.b))
            if isinstance(opened, tirx.IntImm):
                return opened
        return total

    def _bind_new(self, value: Any) -> None:
        for symbol in tirx.analysis.undefined_vars(value):
            if symbol not in self._bound:
                self.bind(symbol, 0, MAX_EXTENT)

    def proves(self, condition: Any) -> bool:
        """Return whether a condition holds for all values of the free extents."""
        if isinstance(condition, bool):
            return condition
        self._bind_new(condition)
        return bool(self._analyzer.can_prove(condition))

    def same(self, left: Element, right: Element) -> bool:
        """Return whether two integers are proved equal."""
        if isinstance(left, int) and isinstance(right, int):
            return left == right
        return self.proves(tirx.EQ(_expr(left), _expr(right)))

    def is_negative(self, value: Element) -> bool | None:
        """Return whether a bound of a slice counts from the end, None where that is open."""
        if isinstance(value, int):
            return value < 0
        if self.proves(_expr(value) >= 0):
            return False
        return True if self.proves(_expr(value) < 0) else None

    def largest(self, value: Element) -> int | None:
        """Return a bound that an integer never exceeds, None if there is none that matters."""
        if isinstance(value, int):
            return value
        self._bind_new(value)
        most = int(self._analyzer.const_int_bound(value).max_value)
        return most if most < MAX_EXTENT else None

    # Integers and fractions

    def add(self, left: Element, right: Element) -> Element | None:
        """Return the sum."""
        if is_integer(left) and is_integer(right):
            return self.simplify(left + right)
        if _known(left) and _known(right):
            return left + right
        a, b = as_quotient(left), as_quotient(right)
        if a is None or b is None or not (a.is_exact and b.is_exact):
            return None
        top = self.simplify(a.numerator * b.denominator + b.numerator * a.denominator)
        return Quotient(top, a.denominator * b.denominator)

    def negate(self, value: Element) -> Element | None:
        """Return the negative."""
        return self.multiply(value, -1 if is_integer(value) else -1.0)

    def subtract(self, left: Element, right: Element) -> Element | None:
        """Return the difference."""
        negative = self.negate(right)
        return None if negative is None else self.add(left, negative)

    def multiply(self, left: Element, right: Element) -> Element | None:
        """Return the product."""
        if is_integer(left) and is_integer(right):
            return self.simplify(left * right)
        if _known(left) and _known(right):
            return left * right
        a, b = as_quotient(left), as_quotient(right)
        if a is None or b is None or not (a.is_exact or b.is_exact):
            return None
        if not (a.is_exact and b.is_exact) and not (_is_power_of_two(left) or _is_power_of_two(right)):
            return None
        return self.quotient(self.simplify(a.numerator * b.numerator), self.simplify(a.denominator * b.denominator))

    def quotient(self, top: Element, bottom: Element) -> Quotient:
        """Return a fraction without the factors that both sides have."""
        tops, bottoms = cancel(factors(top), factors(bottom))
        return Quotient(self.simplify(math.prod(tops)), self.simplify(math.prod(bottoms)))

    def divide(self, left: Element, right: Element) -> Element | None:
        """Return the quotient: of integers rounded towards 0, as ONNX says; of floats as it is."""
        if is_integer(left) and is_integer(right):
            return self._divide_integers(left, right)
        if _known(left) and _known(right):
            return left / right if right else None
        if _known(right) and right < 0:
            left, right = self.negate(left), -right
        a, b = as_quotient(left), as_quotient(right)
        if a is None or b is None or not (a.is_exact and b.is_exact) or not self.proves(_expr(b.numerator) > 0):
            return None
        return self.quotient(self.simplify(a.numerator * b.denominator), self.simplify(a.denominator * b.numerator))

    def _divide_integers(self, left: Element, right: Element) -> Element | None:
        if isinstance(right, int) and right == 0:
            return None
        if isinstance(left, int) and isinstance(right, int):
            down = left // right
            return down + (1 if left % right and (left < 0) != (right < 0) else 0)
        if self.proves(_expr(left) >= 0) and self.proves(_expr(right) > 0):
            return self.floor_divide(left, right)
        return self.simplify(tirx.truncdiv(_expr(left), _expr(right)))

    def floor_divide(self, left: Element, right: Element) -> Element:
        """Return the quotient of integers rounded down, without the factors that both have.

        The analyser leaves (n * 3 * h) // h as it is, for it sees no product of two variables.
        """
        tops, bottoms = cancel(factors(left), factors(right))
        top, bottom = math.prod(tops), math.prod(bottoms)
        if isinstance(top, int) and isinstance(bottom, int):
            return top // bottom
        return self.simplify(tirx.floordiv(_expr(top), _expr(bottom)))

    def modulo(self, left: Element, right: Element) -> Element | None:
        """Return the rest with the sign of the divisor."""
        if not (is_integer(left) and is_integer(right)) or (isinstance(right, int) and right == 0):
            return None
        if isinstance(left, int) and isinstance(right, int):
            return left % right
        return self.simplify(tirx.floormod(_expr(left), _expr(right)))

    def floor(self, value: Element) -> Element | None:
        """Return the greatest integer that is not above a float."""
        if not isinstance(value, Quotient):
            return math.floor(value) if _known(value) else value
        return self.floor_divide(value.numerator, value.denominator)

    def ceil(self, value: Element) -> Element | None:
        """Return the least integer that is not below a float."""
        if not isinstance(value, Quotient):
            return math.ceil(value) if _known(value) else value
        above = self.simplify(value.numerator + value.denominator - 1)
        return self.floor_divide(above, value.denominator)

    def round(self, value: Element) -> Element | None:
        """Return the nearest integer; of halves the even one, so a fraction must not be able to be one."""
        if not isinstance(value, Quotient):
            return round(value) if _known(value) else value
        if not isinstance(value.denominator, int) or value.denominator % 2 == 0:
            return None
        return self.floor_divide(self.simplify(2 * value.numerator + value.denominator), 2 * value.denominator)

    def truncate(self, value: Element) -> Element | None:
        """Return a float without its fraction, as a cast to an integer does."""
        if not isinstance(value, Quotient):
            return math.trunc(value) if _known(value) and math.isfinite(value) else value
        return self.floor(value) if self.proves(_expr(value.numerator) >= 0) else None

    # Order and truth

    def minimum(self, left: Element, right: Element) -> Element | None:
        """Return the smaller one."""
        return self._extreme(left, right, min, tirx.min)

    def maximum(self, left: Element, right: Element) -> Element | None:
        """Return the larger one."""
        return self._extreme(left, right, max, tirx.max)

    def _extreme(self, left: Element, right: Element, of_numbers: Any, of_expressions: Any) -> Element | None:
        if _known(left) and _known(right):
            return of_numbers(left, right)
        if is_integer(left) and is_integer(right):
            return self.simplify(of_expressions(_expr(left), _expr(right)))
        return None

    def equal(self, left: Element, right: Element) -> bool | None:
        """Return whether two elements are equal, None where that depends on the free extents."""
        return self._decide(left, right, tirx.EQ, tirx.NE, lambda a, b: a == b)

    def less(self, left: Element, right: Element) -> bool | None:
        """Return whether one is less than the other, None where that depends on the free extents."""
        return self._decide(left, right, tirx.LT, tirx.GE, lambda a, b: a < b)

    def _decide(self, left: Element, right: Element, yes: Any, no: Any, of_numbers: Any) -> bool | None:
        if _known(left) and _known(right):
            return bool(of_numbers(left, right))
        a, b = as_quotient(left), as_quotient(right)
        if a is None or b is None:
            return None
        one = _expr(self.simplify(a.numerator * b.denominator))
        other = _expr(self.simplify(b.numerator * a.denominator))
        if self._deciding.can_prove(yes(one, other)):
            return True
        return False if self._deciding.can_prove(no(one, other)) else None


def _known(value: Element) -> bool:
    return isinstance(value, (int, float))


def _expr(value: Element) -> Any:
    return tirx.IntImm("int64", value) if isinstance(value, int) else value


def as_quotient(value: Element) -> Quotient | None:
    """Return a number as a fraction; None for a float that is no simple one."""
    if isinstance(value, Quotient):
        return value
    if is_integer(value):
        return Quotient(value, 1)
    if not isinstance(value, float) or not math.isfinite(value):
        return None
    fraction = Fraction(value)
    return Quotient(fraction.numerator, fraction.denominator) if fraction.denominator <= MAX_DENOMINATOR else None


def _is_power_of_two(value: Element) -> bool:
    return isinstance(value, (int, float)) and value != 0 and abs(math.frexp(value)[0]) == 0.5


def factors(value: Element) -> list[Element]:
    """Return the factors of a product, as it is written; numbers are not taken apart."""
    if isinstance(value, tirx.Mul):
        return factors(value.a) + factors(value.b)
    return [int(value) if isinstance(value, tirx.IntImm) else value]


def cancel(tops: list[Element], bottoms: list[Element]) -> tuple[list[Element], list[Element]]:
    """Drop the factors that two products have in common."""
    top, bottom = (math.prod(f for f in side if isinstance(f, int)) for side in (tops, bottoms))
    common = math.gcd(top, bottom) or 1
    left = [f for f in tops if not isinstance(f, int)]
    rest = []
    for factor in (f for f in bottoms if not isinstance(f, int)):
        found = next((k for k, other in enumerate(left) if tvm_ffi.structural_equal(other, factor)), None)
        if found is None:
            rest.append(factor)
        else:
            del left[found]
    return [top // common, *left], [bottom // common, *rest]
