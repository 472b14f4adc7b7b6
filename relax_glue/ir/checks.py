"""Checks of extents: what a model needs of its sizes, as bindings of its function.

A check is a `match_cast` of a shape: of `shape([(h - 1) // 16 + 1])` to `Shape([(h - 1) // 32 * 2 + 2])`. TVM computes
both sides when the function is called, and raises RuntimeError if they differ. The importers write checks;
`relax_glue.arguments` reads them back, to say in words what was asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvm import relax, tirx

from .shapes import Extent

MAX_EXTENT = 1 << 40  # no axis is longer: 2 ** 63 elements are the most there can be of a tensor, and most are small
_FITS = "_fits"


@dataclass(frozen=True)
class Check:
    """Two integers that have to be equal, and the name of the node that needs it."""

    left: tirx.PrimExpr
    right: tirx.PrimExpr
    node: str

    @staticmethod
    def of(left: Extent, right: Extent, node: str) -> Check:
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

    def bindings(self) -> list[relax.Binding]:
        """Return the bindings of the check.

        The shape has a binding of its own, since TVM's lowering does not look for it in the cast.
        """
        given, wanted = relax.ShapeExpr([self.left]), relax.ShapeType([self.right])
        shape = relax.Var(f"{self.node}_size", given.ty)
        return [relax.VarBinding(shape, given), relax.MatchCast(relax.Var(self.node + _FITS, wanted), shape, wanted)]


def checks_of(func: relax.Function) -> Iterator[Check]:
    """Yield the checks that every call of a function makes: those outside of branches, in order."""
    shapes: dict[relax.Expr, relax.Expr] = {}
    for binding in (binding for block in func.body.blocks for binding in block.bindings):
        if not isinstance(binding, relax.MatchCast):
            if isinstance(binding.value, relax.ShapeExpr):
                shapes[binding.var] = binding.value
            continue
        given = shapes.get(binding.value, binding.value)
        wanted = binding.ty.values if isinstance(binding.ty, relax.ShapeType) else None
        if isinstance(given, relax.ShapeExpr) and wanted is not None and len(given.values) == len(wanted):
            node = str(binding.var.name).removesuffix(_FITS)
            yield from (Check(left, _unbounded(right), node) for left, right in zip(given.values, wanted, strict=True))


def _unbounded(extent: tirx.PrimExpr) -> tirx.PrimExpr:
    """Return n for min(n, MAX_EXTENT), which `Check.of` writes."""
    is_bounded = isinstance(extent, tirx.Min) and isinstance(extent.b, tirx.IntImm) and extent.b.value == MAX_EXTENT
    return extent.a if is_bounded else extent
