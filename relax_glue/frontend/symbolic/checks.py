"""What a model asks of its free extents, checked once, at the entry of the function.

A check is a `match_cast` of a shape: `match_cast(shape([(h - 1) // 16 + 1]), Shape([(h - 1) // 32 * 2 + 2]))`. TVM computes
both sides when the function is called, and raises RuntimeError with the expression that was to hold if they differ.
It stands outside of every region, so nothing is cut, and no later pass drops it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx

from .arithmetic import Element


@dataclass(frozen=True)
class Check:
    """Two integers that have to be equal, and the name of the node that needs it."""

    left: tirx.PrimExpr
    right: tirx.PrimExpr
    node: str


class EntryChecks:
    """The checks of one function.

    Parameters
    ----------
    symbols : iterable of tirx.Var
        The free extents of the function's parameters: what is known at its entry.
    """

    def __init__(self, symbols: Iterable[tirx.Var]) -> None:
        self._symbols = set(symbols)
        self._found: dict[tuple[str, str], Check] = {}

    def known_at_entry(self, value: Element) -> bool:
        """Return whether an integer follows from the extents of the parameters alone."""
        return isinstance(value, int) or self._symbols.issuperset(tirx.analysis.undefined_vars(value))

    def equal(self, left: Element, right: Element, node: str) -> None:
        """Ask that two integers be equal."""
        sides = tuple(tirx.IntImm("int64", e) if isinstance(e, int) else e for e in (left, right))
        self._found.setdefault((str(left), str(right)), Check(*sides, node))

    def within(self, symbol: tirx.Var, least: int | None, most: int | None) -> None:
        """Ask that a free extent lie between two numbers, both included; None where there is no such bound."""
        clamped: Any = symbol
        if most is not None:
            clamped = tirx.min(clamped, tirx.IntImm("int64", most))
        if least is not None:
            clamped = tirx.max(clamped, tirx.IntImm("int64", least))
        if clamped is not symbol:
            self.equal(symbol, clamped, symbol.name)

    def write(self, func: relax.Function) -> relax.Function:
        """Return the function with the checks at its beginning."""
        if not self._found:
            return func
        bindings = [self._binding(check) for check in self._found.values()]
        body = relax.SeqExpr([relax.BindingBlock(bindings), *func.body.blocks], func.body.body)
        relax.expr._update_type(body, func.body.ty)
        return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)

    @staticmethod
    def _binding(check: Check) -> relax.MatchCast:
        wanted = relax.ShapeType([check.right])
        return relax.MatchCast(relax.Var(f"{check.node}_fits", wanted), _shape(check.left), wanted)


def _shape(extent: tirx.PrimExpr) -> relax.ShapeExpr:
    return relax.ShapeExpr([extent])


def symbols_of(params: Iterable[relax.Var]) -> list[tirx.Var]:
    """Return the free extents that the types of parameters define, in order."""
    listed = (symbol for param in params for symbol in relax.analysis.definable_tir_vars_in_type(param.ty))
    return list(dict.fromkeys(listed))


def bounds_of(func: relax.Function) -> dict[str, tuple[int | None, int | None]]:
    """Return the bounds that a function's attributes give to its free extents, by name.

    These are TVM's own attributes, by which it plans memory: `tir_var_lower_bound` and `tir_var_upper_bound`.
    """
    least, most = (dict((func.attrs or {}).get(f"tir_var_{side}_bound", {})) for side in ("lower", "upper"))
    names = dict.fromkeys([*map(str, least), *map(str, most)])
    found = [{str(key): int(value) for key, value in side.items()} for side in (least, most)]
    return {name: (found[0].get(name), found[1].get(name)) for name in names}


def with_bounds(func: relax.Function, least: dict[str, int], most: dict[str, int]) -> relax.Function:
    """Return the function with bounds of its free extents as attributes; see `bounds_of`."""
    for side, bounds in (("lower", least), ("upper", most)):
        if bounds:
            values = {name: tvm.tirx.IntImm("int64", value) for name, value in bounds.items()}
            func = func.with_attr(f"tir_var_{side}_bound", values)
    return func
