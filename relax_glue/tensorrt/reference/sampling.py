"""Layers that interpolate: resize and grid sample, in float64 after TensorRT's definitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .movement import is_set
from .table import Arrays, Layer


def _resize(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    """Resize one axis after the other: each is a matrix of weights."""
    x = inputs[0]
    if len(inputs) > 1 and inputs[1] is not None:
        shape = [int(extent) for extent in inputs[1]]
    elif is_set(layer.shape):
        shape = list(layer.shape)
    else:
        shape = [int(extent * scale) for extent, scale in zip(x.shape, layer.scales, strict=True)]
    wide = x.astype(np.float64)
    for axis, after in enumerate(shape):
        if after != x.shape[axis]:
            weights = _axis_weights(layer, x.shape[axis], after)
            wide = np.moveaxis(np.tensordot(weights, wide, axes=(1, axis)), 0, axis)
    return [wide.astype(x.dtype)]


def _coordinates(layer: Any, before: int, after: int) -> np.ndarray:
    places = np.arange(after, dtype=np.float64)
    if after == 1 and layer.selector_for_single_pixel.name == "UPPER":
        return np.zeros(1)
    mode = layer.coordinate_transformation.name
    if mode == "ALIGN_CORNERS":
        return places * ((before - 1) / (after - 1)) if after > 1 else np.zeros(1)
    if mode == "HALF_PIXEL":
        return (places + 0.5) * before / after - 0.5
    return places * before / after


_ROUND: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "FLOOR": np.floor,
    "CEIL": np.ceil,
    "HALF_UP": lambda x: np.floor(x + 0.5),
    "HALF_DOWN": lambda x: np.ceil(x - 0.5),
}


def _axis_weights(layer: Any, before: int, after: int) -> np.ndarray:
    """Return the (after, before) matrix that makes the rows of the output from those of the input."""
    places = _coordinates(layer, before, after)
    mode = layer.resize_mode.name
    if mode == "NEAREST":
        taps, shares = _ROUND[layer.nearest_rounding.name](places)[None], np.ones((1, after))
    elif mode == "LINEAR":
        first = np.floor(places)
        taps = np.stack([first, first + 1])
        shares = np.stack([1 - (places - first), places - first])
    else:
        first = np.floor(places)
        taps = np.stack([first + step for step in (-1, 0, 1, 2)])
        shares = cubic(np.abs(places - taps), layer.cubic_coeff)
        if layer.exclude_outside:
            shares = np.where((taps < 0) | (taps >= before), 0, shares)
            shares = shares / shares.sum(axis=0)
    weights = np.zeros((after, before))
    rows = np.broadcast_to(np.arange(after), taps.shape)
    np.add.at(weights, (rows, taps.clip(0, before - 1).astype(np.int64)), shares)
    return weights


def cubic(distance: np.ndarray, coefficient: float) -> np.ndarray:
    """Return the cubic convolution weights at distances up to 2 (Keys' kernel)."""
    near = ((coefficient + 2) * distance - (coefficient + 3)) * distance**2 + 1
    far = coefficient * (((distance - 5) * distance + 8) * distance - 4)
    return np.where(distance <= 1, near, far)


def _grid_sample(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    x, grid = inputs[0].astype(np.float64), inputs[1].astype(np.float64)
    places = [_unnormalised(grid[..., 1 - axis], x.shape[2 + axis], layer.align_corners) for axis in range(2)]
    mode, padding = layer.interpolation_mode.name, layer.sample_mode.name
    if mode != "CUBIC":
        places = [_padded(place, x.shape[2 + axis], padding, layer.align_corners) for axis, place in enumerate(places)]
    taps = [_taps(mode, place) for place in places]
    total = np.zeros((*x.shape[:2], *grid.shape[1:3]))
    for rows, row_share in taps[0]:
        for columns, column_share in taps[1]:
            pixel = _pixel(x, rows, columns, padding, layer.align_corners)
            total += pixel * (row_share * column_share)[:, None]
    return [total.astype(inputs[0].dtype)]


def _unnormalised(place: np.ndarray, extent: int, align_corners: bool) -> np.ndarray:
    if align_corners:
        return (place + 1) * (extent - 1) / 2
    return ((place + 1) * extent - 1) / 2


def _padded(place: np.ndarray, extent: int, padding: str, align_corners: bool) -> np.ndarray:
    """Bring coordinates inside: the mirror stands at the outer pixels' centres, or at their edges."""
    if padding == "REFLECT":
        low, span = (0.0, extent - 1.0) if align_corners else (-0.5, float(extent))
        if span == 0:
            return np.zeros_like(place)
        folded = np.abs(place - low) % (2 * span)
        place = np.minimum(folded, 2 * span - folded) + low
    return place if padding == "FILL" else place.clip(0, extent - 1)


def _taps(mode: str, place: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the rows that are read for each place, with their shares."""
    if mode == "NEAREST":
        return [(np.rint(place), np.ones_like(place))]
    first = np.floor(place)
    if mode == "LINEAR":
        return [(first, 1 - (place - first)), (first + 1, place - first)]
    return [(first + step, cubic(np.abs(place - first - step), -0.75)) for step in (-1, 0, 1, 2)]


def _pixel(x: np.ndarray, rows: np.ndarray, columns: np.ndarray, padding: str, align: bool) -> np.ndarray:
    rows, columns = (_padded(place, x.shape[axis], padding, align) for axis, place in ((2, rows), (3, columns)))
    inside = (rows >= 0) & (rows < x.shape[2]) & (columns >= 0) & (columns < x.shape[3])
    row, column = (
        place.clip(0, extent - 1).astype(np.int64) for place, extent in ((rows, x.shape[2]), (columns, x.shape[3]))
    )
    batch = np.arange(x.shape[0])[:, None, None]
    picked = np.moveaxis(x[batch, :, row, column], -1, 1)
    return np.where(inside[:, None], picked, 0.0)


LAYERS: Mapping[str, Layer] = {
    "RESIZE": Layer("IResizeLayer", _resize),
    "GRID_SAMPLE": Layer("IGridSampleLayer", _grid_sample),
}
