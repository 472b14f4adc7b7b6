"""Shapes as tuples of extents, and what can be proved about them.

An extent is an `int` where it is static and a TVM primitive expression where it is symbolic. Equality of
symbolic extents is proved by structure first, then by TVM's analyser; where neither proves it, the answer
is False and the caller declines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import tvm_ffi
from tvm import relax, tirx
from tvm.sym import Analyzer

Extent = Any  # int, or a tirx.PrimExpr
_INT64_MAX = 2**63 - 1


def extents(ty: relax.Type) -> tuple[Extent, ...] | None:
    """Return the extents of a tensor type, or None where its shape is unknown."""
    values = getattr(getattr(ty, "shape", None), "values", None)
    if values is None:
        return None
    return tuple([v.value if isinstance(v, tirx.IntImm) else _bounded(v) for v in values[:]])


def _bounded(extent: Any) -> Any:
    """Return n for min(INT64_MAX, n), which is how TVM types x[0:] along a symbolic axis."""
    if isinstance(extent, tirx.Min):
        for bound, other in ((extent.a, extent.b), (extent.b, extent.a)):
            if isinstance(bound, tirx.IntImm) and bound.value == _INT64_MAX:
                return other
    return extent


def dtype_of(ty: relax.Type) -> str | None:
    """Return the element type of a tensor type as a string such as "float32", or None where unknown."""
    dtype = getattr(ty, "dtype", None)
    name = "" if dtype is None else str(dtype)
    return name if name not in ("", "void") else None


def is_static(shape: Sequence[Extent] | None) -> bool:
    """Return whether every extent is known."""
    return shape is not None and all(isinstance(e, int) for e in shape)


@lru_cache(maxsize=1)
def analyzer() -> Analyzer:
    """Return the analyser of this process."""
    # One analyser with no bindings or constraints ever added: it holds no facts about any model.
    return Analyzer()


def same(a: Extent, b: Extent) -> bool:
    """Return whether two extents are proved equal."""
    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int) and a == b
    return bool(tvm_ffi.structural_equal(a, b)) or bool(analyzer().can_prove_equal(a, b))


def same_shape(a: Sequence[Extent] | None, b: Sequence[Extent] | None) -> bool:
    """Return whether two shapes have equal rank and extents proved equal; unknown shapes are not equal."""
    if a is None or b is None or len(a) != len(b):
        return False
    return all(same(x, y) for x, y in zip(a, b, strict=True))


def product(shape: Sequence[Extent]) -> Extent:
    """Return the number of elements of a shape: an int where the shape is static."""
    return math.prod(shape)
