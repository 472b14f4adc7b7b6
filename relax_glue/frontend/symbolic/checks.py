"""What a model asks of its free extents, checked once, at the entry of the function.

What a check is stands in `relax_glue.ir.checks`. It is outside of every region, so nothing is cut, and no later pass
drops it; `relax_glue.compile` asks the same in words before it (`relax_glue.arguments`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from tvm import relax, tirx

from relax_glue.errors import InputShapeError
from relax_glue.ir.checks import Check
from relax_glue.ir.text import written

from .arithmetic import Arithmetic, Element


class EntryChecks:
    """The checks of one function.

    Parameters
    ----------
    symbols : iterable of tirx.Var
        The free extents of the function's parameters: what is known at its entry.
    builder : relax.BlockBuilder, optional
        Where to ask for what is not known at the entry, or only matters in a branch.
    arithmetic : Arithmetic, optional
        What is known of the extents. What they can never be is refused at once.
    """

    def __init__(
        self,
        symbols: Iterable[tirx.Var],
        builder: relax.BlockBuilder | None = None,
        arithmetic: Arithmetic | None = None,
    ) -> None:
        self._symbols = set(symbols)
        self._builder = builder
        self._arithmetic = arithmetic or Arithmetic()
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
        """Ask that two integers be equal: at the entry, or in place if they are known only there.

        Raises
        ------
        InputShapeError
            The ranges of the extents allow no call in which they are.
        """
        check = Check.of(left, right, node)
        if self._builder is None:
            self._found.setdefault((str(left), str(right)), check)
            return
        if self.known_at_entry(left, right):
            self._refuse_never(
                tirx.NE(check.left, check.right), node, f"{written(left)} and {written(right)} to be equal"
            )
            self._found.setdefault((str(left), str(right)), check)
            return
        size = self._builder.emit(relax.ShapeExpr([check.left]), name_hint=f"{node}_size")
        self._builder.match_cast(size, relax.ShapeType([check.right]))

    def at_least(self, value: Element, least: int, node: str) -> None:
        """Ask that an integer be no less than a number."""
        if self.known_at_entry(value):
            self._refuse_never(value < least, node, f"{written(value)} to be at least {least}")
        self.equal(value, tirx.max(value, tirx.IntImm("int64", least)), node)

    def _refuse_never(self, violated: Any, node: str, needs: str) -> None:
        if self._arithmetic.proves(violated):
            raise InputShapeError(
                f"node '{node}' needs {needs}, which no sizes of the inputs are within their ranges: give other "
                "ranges, or fix the axes through input_shapes"
            )

    def not_negative(self, extents: Iterable[Any], node: str) -> None:
        """Ask that the extents of a result be no less than 0: an image can be too small for a window.

        Asked is what does not follow from the extents of the inputs, and is known at the entry.
        """
        for extent in extents:
            if isinstance(extent, (tirx.IntImm, tirx.Var)) or str(extent) in self._seen:
                continue
            self._seen.add(str(extent))
            if not self._arithmetic.proves(extent >= 0) and self.known_at_entry(extent):
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
        bindings = [binding for check in self._found.values() for binding in check.bindings()]
        body = relax.SeqExpr([relax.BindingBlock(bindings), *func.body.blocks], func.body.body)
        relax.expr._update_type(body, func.body.ty)
        return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)


def symbols_of(params: Iterable[relax.Var]) -> list[tirx.Var]:
    """Return the free extents that the types of parameters define, in order."""
    listed = (symbol for param in params for symbol in relax.analysis.definable_tir_vars_in_type(param.ty))
    return list(dict.fromkeys(listed))
