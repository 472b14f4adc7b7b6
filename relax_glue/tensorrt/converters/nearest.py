"""Which rows nearest-neighbour resizing picks: as TVM computes it, and as TensorRT's resize layer does.

TVM computes coordinates in float32, and adds or takes away 1e-5 before floor and ceil. Its formulas stand here once,
for numpy and for layers. The layer's choice is computed exactly. A mode of the layer is only used where its
coordinates keep a distance from what it rounds at, or are exact in float32, so that it makes no difference how a
kernel computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

_F = np.float32
_SAFE = Fraction(1, 4096)


@dataclass(frozen=True)
class Sizes:
    """What a coordinate follows from, as float32 numbers or as what calculates like them.

    Attributes
    ----------
    before, after : np.float32
        The extents of the input and the output.
    inner : np.float32
        before - 1.
    gaps : np.float32
        after - 1, but 1 at least.
    several : np.float32
        1, or 0 where the output has one row.
    """

    before: Any
    after: Any
    inner: Any
    gaps: Any
    several: Any


COORDINATES: dict[str, Callable[[Any, Sizes], Any]] = {
    "half_pixel": lambda x, of: (x + 0.5) * (of.before / of.after) - 0.5,
    "pytorch_half_pixel": lambda x, of: ((x + 0.5) * (of.before / of.after) - 0.5) * of.several,
    "asymmetric": lambda x, of: x * (of.before / of.after),
    "tf_half_pixel_for_nn": lambda x, of: (x + 0.5) * (of.before / of.after),
    "align_corners": lambda x, of: x * (of.inner / of.gaps),
}

# what is added, and the function of numpy that then rounds
ROUNDINGS: dict[str, tuple[float, str]] = {
    "round": (0.0, "rint"),
    "round_prefer_floor": (-0.5, "ceil"),
    "round_prefer_ceil": (0.5, "floor"),
    "floor": (1e-5, "floor"),
    "ceil": (-1e-5, "ceil"),
}


def rounding_of(rounding: str, coordinates: str) -> tuple[float, str]:
    """Return the entry of `ROUNDINGS` for a method, "" being TVM's choice."""
    return ROUNDINGS[rounding or ("round" if coordinates == "align_corners" else "floor")]


def tvm_rows(before: int, after: int, coordinates: str, rounding: str) -> np.ndarray:
    """Return the row that TVM picks for each row of the output.

    Parameters
    ----------
    before, after : int
        Extents of the input and the output.
    coordinates, rounding : str
        Names as in `relax.image.resize2d`.

    Returns
    -------
    np.ndarray
        int32, of `after` elements.
    """
    of = Sizes(*(_F(number) for number in (before, after, before - 1, max(after - 1, 1), min(after - 1, 1))))
    places = COORDINATES[coordinates](np.arange(after, dtype=_F), of)
    added, function = rounding_of(rounding, coordinates)
    return getattr(np, function)(places + _F(added)).clip(0, before - 1).astype(np.int32)


def layer_mode(sizes: Sequence[tuple[int, int]], rows: Sequence[np.ndarray]) -> tuple[str, str] | None:
    """Return the coordinate transformation and rounding with which a resize layer picks these rows, or None."""
    modes = product(_LAYER_COORDINATES, _LAYER_ROUNDINGS)
    for coordinates, rounding in modes:
        picks = (_layer_rows(before, after, coordinates, rounding) for before, after in sizes)
        if _all_equal(picks, rows):
            return coordinates, rounding
    return None


def _all_equal(picks: Iterable[list[int] | None], rows: Sequence[np.ndarray]) -> bool:
    return all(pick is not None and pick == list(row) for pick, row in zip(picks, rows, strict=True))


def _half_pixel(before: int, after: int) -> tuple[Fraction, Fraction]:
    scale = Fraction(before, after)
    return scale, scale / 2 - Fraction(1, 2)


# scale and offset of the input coordinate
_LAYER_COORDINATES: dict[str, Callable[[int, int], tuple[Fraction, Fraction]]] = {
    "ASYMMETRIC": lambda before, after: (Fraction(before, after), Fraction(0)),
    "HALF_PIXEL": _half_pixel,
    "ALIGN_CORNERS": lambda before, after: (Fraction(before - 1, max(after - 1, 1)), Fraction(0)),
}

# what is added before the floor, and the sign in front of both
_LAYER_ROUNDINGS: dict[str, tuple[Fraction, int]] = {
    "FLOOR": (Fraction(0), 1),
    "HALF_DOWN": (Fraction(1, 2), -1),
    "HALF_UP": (Fraction(1, 2), 1),
    "CEIL": (Fraction(0), -1),
}


def _layer_rows(before: int, after: int, coordinates: str, rounding: str) -> list[int] | None:
    """Return the rows that the layer picks, or None when a coordinate is too close to where it rounds."""
    scale, offset = _LAYER_COORDINATES[coordinates](before, after)
    added, sign = _LAYER_ROUNDINGS[rounding]
    exact = scale.denominator & (scale.denominator - 1) == 0
    rows = []
    for place in range(after):
        value = sign * (place * scale + offset) + added
        floor = value.numerator // value.denominator
        close = min(value - floor, floor + 1 - value) < _SAFE
        if close and not exact:
            return None
        rows.append(min(max(sign * floor, 0), before - 1))
    return rows
