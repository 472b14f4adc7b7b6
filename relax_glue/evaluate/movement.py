"""Operators that only move data: numpy views of the operand wherever there is one.

Any dtype is fine here, those that only ml_dtypes knows included, and NaN payloads are kept.
"""

from __future__ import annotations

import math
from types import MappingProxyType

import numpy as np

from relax_glue.evaluate.application import Application, Array, Evaluator, Outcome, Result, Undetermined, kind
from relax_glue.movement import layout_axes


def _reshape(app: Application) -> Outcome:
    return app.data.reshape(app.shape) if math.prod(app.shape) == app.data.size else None


def _permute_dims(app: Application) -> Outcome:
    axes = app.attrs.axes
    return app.data.transpose(None if axes is None else [int(axis) for axis in axes])


def slice_axis(extent: int, begin: int, end: int, stride: int) -> slice:
    """Clamp one axis of a slice as TVM does; negative bounds count from the end.

    With a negative stride the range runs down to -1 exclusive, which Python spells None: a clamped end
    of -1 must not be read as "the last element" again.
    """
    if stride == 0:
        raise Undetermined
    low, high = (0, extent) if stride > 0 else (-1, extent - 1)
    first, last = (min(max(bound + extent if bound < 0 else bound, low), high) for bound in (begin, end))
    if stride < 0:
        return slice(max(first, 0), None if last < 0 else last, stride) if first >= 0 else slice(0, 0)
    return slice(first, last, stride)


def _strided_slice(app: Application) -> Outcome:
    data, axes, begin, end, *strides = app.values
    steps = strides[0] if strides else (1,) * len(axes)
    window = [slice(None)] * data.ndim
    for axis, first, last, step in zip(axes, begin, end, steps, strict=True):
        extent = data.shape[int(axis)]
        if app.attrs.assume_inbound and not _inbound(extent, int(first), int(last)):
            return None
        window[int(axis)] = slice_axis(extent, int(first), int(last), int(step))
    return data[tuple(window)]


def _inbound(extent: int, begin: int, end: int) -> bool:
    return 0 <= begin <= extent and 0 <= end <= extent


def _dynamic_strided_slice(app: Application) -> Outcome:
    data, begin, end, strides = app.values
    bounds = zip(data.shape, begin.tolist(), end.tolist(), strides.tolist(), strict=False)
    return data[tuple(slice_axis(*bound) for bound in bounds)]


def _split(app: Application) -> Outcome:
    if not isinstance(app.result, tuple):
        return app.data  # TVM types a split in one section as the tensor itself
    axis = int(app.attrs.axis) % app.data.ndim
    widths = [_extent(item, axis) for item in app.result]
    if sum(widths) != app.data.shape[axis]:
        return None
    return tuple(np.split(app.data, np.cumsum(widths)[:-1], axis))


def _extent(item: Result, axis: int) -> int:
    if item.shape is None:
        raise Undetermined
    return item.shape[axis]


def _concat(app: Application) -> Outcome:
    return None if app.attrs.axis is None else np.concatenate(app.data, int(app.attrs.axis))


def _stack(app: Application) -> Outcome:
    axis = app.attrs.axis
    return np.stack(list(app.data), 0 if axis is None else int(axis))


def _broadcast_to(app: Application) -> Outcome:
    return np.broadcast_to(app.data, app.shape)


def _tile(app: Application) -> Outcome:
    return np.tile(app.data, [int(count) for count in app.attrs.repeats])


def _repeat(app: Application) -> Outcome:
    axis = app.attrs.axis
    return np.repeat(app.data, int(app.attrs.repeats), None if axis is None else int(axis))


def _flip(app: Application) -> Outcome:
    return np.flip(app.data, int(app.attrs.axis))


def _pixel_shuffle(app: Application) -> Outcome:
    factor = int(app.attrs.upscale_factor)
    *batch, channels, height, width = app.data.shape
    blocks = app.data.reshape(*batch, channels // factor**2, factor, factor, height, width)
    rank = len(batch)
    order = [*range(rank), rank, rank + 3, rank + 1, rank + 4, rank + 2]
    return blocks.transpose(order).reshape(app.shape)


def _layout_transform(app: Application) -> Outcome:
    """Move axes; an index map that splits, joins or pads them is not one of these."""
    axes = layout_axes(app.attrs.index_map)
    return None if axes is None else app.data.transpose(axes)


_PAD_MODES = MappingProxyType({"reflect": "reflect", "replicate": "edge", "circular": "wrap"})


def _pad(app: Application) -> Outcome:
    flat = [int(width) for width in app.attrs.pad_width]
    widths = list(zip(flat[::2], flat[1::2], strict=True))
    if min(flat, default=0) < 0:
        return None
    mode = str(app.attrs.pad_mode)
    if mode not in _PAD_MODES:
        value = exactly(float(app.attrs.pad_value), app.data.dtype) if mode == "constant" else None
        return None if value is None else np.pad(app.data, widths, constant_values=value)
    if not all(_pad_fits(mode, extent, max(width)) for extent, width in zip(app.data.shape, widths, strict=True)):
        return None
    return np.pad(app.data, widths, mode=_PAD_MODES[mode])  # type: ignore[call-overload]


def _pad_fits(mode: str, extent: int, width: int) -> bool:
    """Keep every index inside: TVM reflects or wraps once and reads out of bounds beyond that."""
    limits = {"reflect": extent - 1, "circular": extent, "replicate": width if extent else 0}
    return width == 0 or width <= limits[mode]


def exactly(value: float, dtype: np.dtype) -> Array | None:
    """Give `value` in `dtype`, rounded if that is a float; None if it is an integer type that lacks it."""
    array = np.asarray(value)
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
    if kind(dtype) in "iub" and float(cast) != value:
        return None
    return cast


EVALUATORS = MappingProxyType(
    {
        "relax.reshape": Evaluator(_reshape),
        "relax.flatten": Evaluator(_reshape),
        "relax.nn.batch_flatten": Evaluator(_reshape),
        "relax.expand_dims": Evaluator(_reshape),
        "relax.squeeze": Evaluator(_reshape),
        "relax.permute_dims": Evaluator(_permute_dims),
        "relax.strided_slice": Evaluator(_strided_slice),
        "relax.dynamic_strided_slice": Evaluator(_dynamic_strided_slice),
        "relax.split": Evaluator(_split),
        "relax.concat": Evaluator(_concat),
        "relax.stack": Evaluator(_stack),
        "relax.broadcast_to": Evaluator(_broadcast_to),
        "relax.tile": Evaluator(_tile),
        "relax.repeat": Evaluator(_repeat),
        "relax.flip": Evaluator(_flip),
        "relax.nn.pixel_shuffle": Evaluator(_pixel_shuffle),
        "relax.layout_transform": Evaluator(_layout_transform),
        "relax.nn.pad": Evaluator(_pad),
    }
)
