"""Which rows nearest-neighbour resizing picks: as TVM computes it, and as TensorRT's resize layer does.

TVM computes coordinates in float32, and adds or takes away 1e-5 before floor and ceil. The layer's choice is
computed exactly. A mode of the layer is only used where its coordinates keep a distance from what it rounds
at, or are exact in float32, so that it makes no difference how a kernel computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import product

import numpy as np

_F = np.float32
_SAFE = Fraction(1, 4096)

COORDINATES: dict[str, Callable[[np.ndarray, int, int], np.ndarray]] = {
    "half_pixel": lambda x, before, after: (x + _F(0.5)) * (_F(before) / _F(after)) - _F(0.5),
    "pytorch_half_pixel": lambda x, before, after: (
        (x + _F(0.5)) * (_F(before) / _F(after)) - _F(0.5) if after > 1 else np.zeros_like(x)
    ),
    "asymmetric": lambda x, before, after: x * (_F(before) / _F(after)),
    "tf_half_pixel_for_nn": lambda x, before, after: (x + _F(0.5)) * (_F(before) / _F(after)),
    "align_corners": lambda x, before, after: x * (_F(before - 1) / _F(max(after - 1, 1))),
}

ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round": np.rint,
    "round_prefer_floor": lambda x: np.ceil(x - _F(0.5)),
    "round_prefer_ceil": lambda x: np.floor(x + _F(0.5)),
    "floor": lambda x: np.floor(x + _F(1e-5)),
    "ceil": lambda x: np.ceil(x - _F(1e-5)),
    "": lambda x: np.floor(x + _F(1e-5)),
}


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
    if not rounding and coordinates == "align_corners":
        rounding = "round"
    places = COORDINATES[coordinates](np.arange(after, dtype=_F), before, after)
    return ROUNDINGS[rounding](places).clip(0, before - 1).astype(np.int32)


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
