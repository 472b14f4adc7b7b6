"""What a model asks of its free extents, checked once, at the entry of the function.

A check is a `match_cast` of a shape: of `shape([(h - 1) // 16 + 1])` to `Shape([(h - 1) // 32 * 2 + 2])`. TVM computes
both sides when the function is called, and raises RuntimeError with the expression that was to hold if they differ.
It stands outside of every region, so nothing is cut, and no later pass drops it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tvm import relax, tirx

from .arithmetic import MAX_EXTENT, Arithmetic, Element


@dataclass(frozen=True)
class Check:
    """Two integers that have to be equal, and the name of the node that needs it."""

    left: tirx.PrimExpr
    right: tirx.PrimExpr
    node: str

    @staticmethod
    def of(left: Element, right: Element, node: str) -> Check:
        """Make the check that two integers are equal.

        What is cast to is no lone symbol: TVM's CanonicalizeBindings takes match_cast(shape([m]), Shape([n])) for the
        definition of n, even of one that a parameter defines, puts m in its place and drops the check.
        """
        sides = [tirx.IntImm("int64", e) if isinstance(e, int) else e for e in (left, right)]
        if isinstance(sides[1], tirx.Var):
            sides.reverse()
        if isinstance(sides[1], tirx.Var):
            sides[1] = tirx.min(sides[1], tirx.IntImm("int64", MAX_EXTENT))  # one that values decide may be 0
        return Check(sides[0], sides[1], node)


class EntryChecks:
    """The checks of one function.

    Parameters
    ----------
    symbols : iterable of tirx.Var
        The free extents of the function's parameters: what is known at its entry.
    builder : relax.BlockBuilder, optional
        Where to ask for what is not known at the entry, or only matters in a branch.
    """

    def __init__(self, symbols: Iterable[tirx.Var], builder: relax.BlockBuilder | None = None) -> None:
        self._symbols = set(symbols)
        self._builder = builder
        self._branches = 0
        self._found: dict[tuple[str, str], Check] = {}
        self._seen: set[str] = set()

    @contextlib.contextmanager
    def inside_branch(self) -> Iterator[None]:
        """Ask in place while a branch is converted: what it needs matters only where it is taken."""
        self._branches += 1
        yield
        self._branches -= 1

    def known_at_entry(self, *values: Element) -> bool:
        """Return whether integers follow from the extents of the parameters alone, and matter for every call."""
        if self._branches:
            return False
        known = (isinstance(v, int) or self._symbols.issuperset(tirx.analysis.undefined_vars(v)) for v in values)
        return all(known)

    def equal(self, left: Element, right: Element, node: str) -> None:
        """Ask that two integers be equal: at the entry, or in place if they are known only there."""
        check = Check.of(left, right, node)
        if self._builder is None or self.known_at_entry(left, right):
            self._found.setdefault((str(left), str(right)), check)
            return
        size = self._builder.emit(relax.ShapeExpr([check.left]), name_hint=f"{node}_size")
        self._builder.match_cast(size, relax.ShapeType([check.right]))

    def at_least(self, value: Element, least: int, node: str) -> None:
        """Ask that an integer be no less than a number."""
        self.equal(value, tirx.max(value, tirx.IntImm("int64", least)), node)

    def not_negative(self, extents: Iterable[Any], arithmetic: Arithmetic, node: str) -> None:
        """Ask that the extents of a result be no less than 0: an image can be too small for a window.

        Asked is what does not follow from the extents of the inputs, and is known at the entry.
        """
        for extent in extents:
            if isinstance(extent, (tirx.IntImm, tirx.Var)) or str(extent) in self._seen:
                continue
            self._seen.add(str(extent))
            if not arithmetic.proves(extent >= 0) and self.known_at_entry(extent):
                self.at_least(extent, 0, node)

    def within(self, symbol: tirx.Var, least: int, most: int | None) -> None:
        """Ask that a free extent lie between two numbers, both included; None is no upper bound."""
        clamped: Any = symbol
        if most is not None:
            clamped = tirx.min(clamped, tirx.IntImm("int64", most))
        if least > 1:  # an extent of less is no size that a model is called with
            clamped = tirx.max(clamped, tirx.IntImm("int64", least))
        if clamped is not symbol:
            self.equal(symbol, clamped, symbol.name)

    def write(self, func: relax.Function) -> relax.Function:
        """Return the function with the checks at its beginning."""
        if not self._found:
            return func
        bindings = [binding for check in self._found.values() for binding in _bindings(check)]
        body = relax.SeqExpr([relax.BindingBlock(bindings), *func.body.blocks], func.body.body)
        relax.expr._update_type(body, func.body.ty)
        return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)


def _bindings(check: Check) -> list[relax.Binding]:
    """Return the bindings of a check. The shape has one of its own: TVM's lowering does not look for it in the cast."""
    given, wanted = relax.ShapeExpr([check.left]), relax.ShapeType([check.right])
    shape = relax.Var(f"{check.node}_size", given.ty)
    return [relax.VarBinding(shape, given), relax.MatchCast(relax.Var(f"{check.node}_fits", wanted), shape, wanted)]


def symbols_of(params: Iterable[relax.Var]) -> list[tirx.Var]:
    """Return the free extents that the types of parameters define, in order."""
    listed = (symbol for param in params for symbol in relax.analysis.definable_tir_vars_in_type(param.ty))
    return list(dict.fromkeys(listed))
