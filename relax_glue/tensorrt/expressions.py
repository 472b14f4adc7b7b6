"""Extents of Relax types as expressions: what they may be made of, and their normal form.

An extent is a number, or an expression of symbolic variables in `+ - * // % min max`. Relax also writes choices
between two; they are arithmetic here.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias

import tvm
from tvm import tirx

from ..errors import ConversionError
from ..ir.shapes import analyzer

# An extent of a Relax type: a number, or an expression of symbolic variables.
Number: TypeAlias = int | tvm.ir.Expr

# The operations on extents by the names of TVM's classes. Extents are never negative and neither is what divides
# them, so the two kinds of division agree on them.
ARITHMETIC = frozenset(("Add", "Sub", "Mul", "FloorDiv", "Div", "FloorMod", "Mod", "Min", "Max"))

# No extent reaches this: x[0:] along a symbolic axis has the extent min(INT64_MAX, n), which is n.
_UNREACHED = 2**31


def inexpressible(extent: Number) -> tvm.ir.Expr | None:
    """Return the part of an extent that shape tensors cannot compute, or None where there is none."""
    return _strange(calculated(extent))


def _strange(extent: Number) -> tvm.ir.Expr | None:
    if isinstance(extent, int | tirx.IntImm | tirx.Var):
        return None
    if kind_of(extent) not in ARITHMETIC:
        return extent
    found = (_strange(part) for part in (extent.a, extent.b))
    return next((part for part in found if part is not None), None)


def calculated(extent: Number) -> Number:
    """Return an extent with each choice between two, as Relax has it for some pools, written as arithmetic.

    if_then_else(h % 2 == 0, a, b) is b + (a - b) * (1 - min(h % 2, 1)). What cannot be written so is left.
    """
    if isinstance(extent, tirx.Cast):
        return calculated(extent.value)
    if isinstance(extent, int) or kind_of(extent) in ("IntImm", "Var"):
        return extent
    if kind_of(extent) in ARITHMETIC:
        return type(extent)(calculated(extent.a), calculated(extent.b))
    choice = _choice(extent)
    truth = None if choice is None else _truth(choice[0])
    if choice is None or truth is None:
        return extent
    a, b = calculated(choice[1]), calculated(choice[2])
    return b + simplified(a - b) * truth  # mostly a number, so that the range of the whole follows from that of b


def _choice(extent: tvm.ir.Expr) -> tuple[tvm.ir.Expr, ...] | None:
    """Return condition, value and other value of a choice."""
    if isinstance(extent, tirx.Select):
        return extent.condition, extent.true_value, extent.false_value
    is_choice = kind_of(extent) == "Call" and str(getattr(extent.op, "name", "")).endswith(".if_then_else")
    return tuple(extent.args) if is_choice else None


def _truth(condition: tvm.ir.Expr) -> Number | None:
    """Return 1 where a condition on extents holds and 0 where it does not, as arithmetic; None for other conditions."""
    kind = kind_of(condition)
    if kind == "Not":
        held = _truth(condition.a)
        return None if held is None else 1 - held
    if kind in ("And", "Or"):
        a, b = _truth(condition.a), _truth(condition.b)
        if a is None or b is None:
            return None
        return a * b if kind == "And" else tirx.max(a, b)
    if kind not in ("EQ", "NE", "LT", "LE", "GT", "GE"):
        return None
    a, b = calculated(condition.a), calculated(condition.b)
    if kind in ("EQ", "NE"):
        differs = tirx.min(tirx.max(a - b, b - a), 1)
        return differs if kind == "NE" else 1 - differs
    above = {"GT": a - b, "GE": a - b + 1, "LT": b - a, "LE": b - a + 1}[kind]
    return tirx.max(tirx.min(above, 1), 0)


def kind_of(extent: tvm.ir.Expr) -> str:
    """Return the name of an expression's class."""
    return type(extent).__name__


def simplified(extent: Number) -> Number:
    """Return an extent in TVM's normal form, without bounds that no extent reaches; a number as int."""
    if isinstance(extent, int):
        return extent
    found = analyzer().simplify(_reachable(calculated(extent)))
    return int(found) if isinstance(found, tirx.IntImm) else found


def _reachable(extent: tvm.ir.Expr) -> tvm.ir.Expr:
    if kind_of(extent) not in ARITHMETIC:
        return extent
    a, b = _reachable(extent.a), _reachable(extent.b)
    if isinstance(extent, tirx.Min | tirx.Max):
        sign = 1 if isinstance(extent, tirx.Min) else -1
        for bound, other in ((a, b), (b, a)):
            if isinstance(bound, tirx.IntImm) and sign * int(bound) >= _UNREACHED - 1:
                return other
    return type(extent)(a, b)


def clamped(value: Number, low: Number, high: Number) -> Number:
    """Return a number brought within low..high, as an expression where one of them is."""
    if all(isinstance(each, int) for each in (value, low, high)):
        return min(max(value, low), high)
    return simplified(tirx.min(tirx.max(value, low), high))


def key_of(extent: Number) -> Hashable:
    """Return what equal expressions have in common; variables are themselves, not their names."""
    if isinstance(extent, int | tirx.IntImm):
        return int(extent)
    if isinstance(extent, tirx.Var):
        return extent
    if kind_of(extent) in ARITHMETIC:
        return kind_of(extent), key_of(extent.a), key_of(extent.b)
    raise ConversionError(f"the extent {extent} is no sum, product, quotient, remainder, minimum or maximum of extents")


def variables_of(extent: tvm.ir.Expr) -> list[tirx.Var]:
    """Return the variables of an expression, one for each place where it stands."""
    if isinstance(extent, tirx.Var):
        return [extent]
    return [] if isinstance(extent, tirx.IntImm) else [*variables_of(extent.a), *variables_of(extent.b)]
