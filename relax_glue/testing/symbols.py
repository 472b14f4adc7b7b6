"""Symbolic extents of a drawn module: several symbols, at any axis, alone or in expressions.

    x0: (n, 4, m)    x1: (2 * n, 3)    x2: (m + 1, n * m)

A symbol stands alone in some shape, as Relax asks: from there the function knows its size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tvm import ir, tirx
from tvm.sym import Analyzer

from relax_glue.testing.graph import Choices

Extent: TypeAlias = int | ir.Expr

LARGEST = 4
"""The most that a symbol is; other sizes of a case are smaller, so that what is exact at the first is exact at all."""


@dataclass
class Symbols:
    """The symbols of one module.

    Attributes
    ----------
    choices
        What draws.
    sizes
        What each symbol is in the first inputs.
    waiting
        The symbols that stand alone in no shape yet.
    """

    choices: Choices
    sizes: dict[tirx.Var, int]
    waiting: list[tirx.Var] = field(default_factory=list)

    @staticmethod
    def draw(choices: Choices) -> Symbols:
        """Draw one to three symbols and their sizes."""
        names = "nmk"[: choices.item((1, 2, 1, 2, 3))]
        sizes = {tirx.Var(name, "int64"): choices.integer(1, LARGEST) for name in names}
        return Symbols(choices, sizes, list(sizes))

    def put_into(self, shape: Sequence[Extent], most: int) -> list[Extent]:
        """Put symbols into one to three places of a shape, first those that wait, unless it gets too many elements."""
        extents, waiting = list(shape), list(self.waiting)
        places = self.choices.permutation(len(extents))
        for place in places[: self.choices.integer(1, 3)]:
            extents[place] = waiting.pop() if waiting else self.extent()
        if math.prod(shape_at(extents, self.sizes)) > most:
            return list(shape)
        self.waiting = waiting
        return extents

    def extent(self) -> Extent:
        """Draw a symbol or an expression; only where none waits, so that each of them stands alone somewhere."""
        symbol, other = (self.choices.item(list(self.sizes)) for _ in range(2))
        return self.choices.item((symbol, symbol, 2 * symbol, symbol + 1, symbol * other))

    def other_sizes(self) -> dict[tirx.Var, int]:
        """Draw smaller sizes, or the same."""
        return {symbol: self.choices.integer(1, size) for symbol, size in self.sizes.items()}


def shape_at(shape: Sequence[Extent], sizes: Mapping[tirx.Var, int]) -> list[int]:
    """Return what extents are where symbols have the sizes given."""
    analyzer = Analyzer()
    for symbol, size in sizes.items():
        analyzer.bind(symbol, tirx.IntImm("int64", size))
    return [extent if isinstance(extent, int) else int(analyzer.simplify(extent)) for extent in shape]
