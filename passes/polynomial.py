"""Arithmetic read as a polynomial: whether a few calls compute c0 + c1 x + c2 x y ... of given values, however spelled.

0.5 * (x * (1 + t)), (x / 2) * (t + 1) and x * 0.5 + 0.5 * (x * t) are one polynomial of x and t, so an idiom is
recognised by its coefficients and not by the order in which an exporter writes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from relax_glue.ir import Node, Value

Monomial = tuple[int, ...]  # the power of each variable
Polynomial = dict[Monomial, float]

_MOST_TERMS = 16


class PolynomialReader:
    """Reads values as polynomials of given ones.

    Parameters
    ----------
    variables : sequence of Value
        What the polynomials are of.

    Attributes
    ----------
    inside : dict[Node, None]
        The nodes that were read as arithmetic, variables not included.
    """

    def __init__(self, variables: Sequence[Value]):
        self.variables = list(variables)
        self.inside: dict[Node, None] = {}

    def read(self, value: Value, depth: int = 12) -> Polynomial | None:
        """Return what a value is, or None where it is no polynomial with scalar constants."""
        if value in self.variables:
            return {tuple(int(v == value) for v in self.variables): 1.0}
        if value.array is not None:
            return {self._one: float(value.array.reshape(-1)[0])} if value.array.size == 1 else None
        reads = _READERS.get(value.op)
        if reads is None or value.index is not None or depth == 0:
            return None
        operands = [self.read(v, depth - 1) for v in value.node.inputs]
        found = None if None in operands else reads([p for p in operands if p is not None])
        if found is None or len(found) > _MOST_TERMS:
            return None
        self.inside[value.node] = None
        return found

    @property
    def _one(self) -> Monomial:
        return (0,) * len(self.variables)


def _add(operands: Sequence[Polynomial]) -> Polynomial:
    found: Counter[Monomial] = Counter()
    for polynomial in operands:
        for monomial, factor in polynomial.items():
            found[monomial] += factor  # type: ignore[assignment]  # a Counter holds any number
    return dict(found)


def _multiply(operands: Sequence[Polynomial]) -> Polynomial:
    left, right = operands
    parts = [
        {tuple(i + j for i, j in zip(a, b, strict=True)): f * g} for a, f in left.items() for b, g in right.items()
    ]
    return _add(parts)


def _scaled(polynomial: Polynomial, factor: float) -> Polynomial:
    return {monomial: factor * value for monomial, value in polynomial.items()}


def _constant(polynomial: Polynomial) -> float | None:
    return next(iter(polynomial.values())) if len(polynomial) == 1 and not any(next(iter(polynomial))) else None


def _divide(operands: Sequence[Polynomial]) -> Polynomial | None:
    divisor = _constant(operands[1])
    return _scaled(operands[0], 1 / divisor) if divisor else None


def _power(operands: Sequence[Polynomial]) -> Polynomial | None:
    exponent = _constant(operands[1])
    if exponent not in (1.0, 2.0, 3.0):
        return None
    found = operands[0]
    for _ in range(int(exponent) - 1):
        found = _multiply([found, operands[0]])
    return found


_READERS: Mapping[str, Callable[[Sequence[Polynomial]], Polynomial | None]] = {
    "relax.add": _add,
    "relax.subtract": lambda operands: _add([operands[0], _scaled(operands[1], -1)]),
    "relax.multiply": _multiply,
    "relax.divide": _divide,
    "relax.power": _power,
    "relax.square": lambda operands: _multiply([operands[0], operands[0]]),
    "relax.negative": lambda operands: _scaled(operands[0], -1),
}


def equals(polynomial: Polynomial | None, wanted: Mapping[Monomial, float], tolerance: float) -> bool:
    """Return whether a polynomial has the coefficients that are wanted, each up to a relative tolerance."""
    if polynomial is None:
        return False
    terms = {monomial: factor for monomial, factor in polynomial.items() if factor}
    return terms.keys() == wanted.keys() and all(
        abs(factor - wanted[monomial]) <= tolerance * abs(wanted[monomial]) for monomial, factor in terms.items()
    )
