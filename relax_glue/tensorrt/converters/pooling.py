"""Max and average pools over one to three spatial axes, in any layout.

TensorRT's pool has no dilation, and its rounding up counts differently from TVM's. So sizes are always rounded
down here, with as much padding at the end as the last window needs; where that is only known at run time, a slice
layer pads. A dilated pool is strided slices of the input, combined elementwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax

from ..expressions import Number
from ..registry import Refusal, converter
from ..slices import add_slice, broadcast
from .arith import binary, dtype_name, open_dims, refuse_arithmetic
from .layouts import data_axes, from_layer, padded, refuse_layout, split_padding, to_layer
from .limits import FLOATS, shape_of

if TYPE_CHECKING:
    from ..network import Network

_MAX = {f"relax.nn.max_pool{spatial}d": spatial for spatial in (1, 2, 3)}
_AVERAGE = {f"relax.nn.avg_pool{spatial}d": spatial for spatial in (1, 2, 3)}
_SPATIAL = _MAX | _AVERAGE
# A dilated pool takes a slice for each tap along an axis.
_MAX_TAPS = 64


@dataclass(frozen=True)
class _Axis:
    """One spatial axis of a pool. `extent` and `cells` are the input's and the result's."""

    extent: Number
    cells: Number
    window: int
    stride: int
    dilation: int
    pre: int
    post: int

    @property
    def is_symbolic(self) -> bool:
        """Whether the sizes are only known at run time."""
        return not (isinstance(self.extent, int) and isinstance(self.cells, int))

    @property
    def reach(self) -> Number:
        """How many elements of the padded input the windows reach over."""
        return (self.cells - 1) * self.stride + (self.window - 1) * self.dilation + 1

    @property
    def overhang(self) -> int:
        """How far the last window reaches beyond the input."""
        return self.reach - self.pre - self.extent

    @property
    def end(self) -> int:
        """The end padding with which rounding down yields `cells`."""
        return self.post if self.is_symbolic else max(self.overhang, 0)

    @property
    def used(self) -> int:
        """How much of the end padding the windows reach: TVM leaves out a window that starts in it."""
        return min(self.post, self.end)

    @property
    def is_extended(self) -> bool:
        """Whether `ceil_mode` adds a window that reaches beyond the padding."""
        return not self.is_symbolic and self.overhang > self.post

    def taps(self) -> np.ndarray:
        """Return the input index of each tap, shape (cells, window)."""
        starts = np.arange(int(self.cells)) * self.stride - self.pre
        return starts[:, None] + np.arange(self.window) * self.dilation

    def counts(self, with_padding: bool) -> np.ndarray:
        """Return the number of taps of each window inside the input, or inside its padding too."""
        taps = self.taps()
        low, high = (-self.pre, self.extent + self.post) if with_padding else (0, self.extent)
        return ((taps >= low) & (taps < high)).sum(axis=1)


def _axes(call: relax.Call) -> list[_Axis]:
    """Return the spatial axes in the order of the layer, a first one of extent 1 for a one-dimensional pool."""
    attrs, spatial = call.attrs, _SPATIAL[call.op.name]
    names = data_axes(spatial)[2:]
    given = _extents(call.args[0], attrs.layout, names)
    result = _extents(call, attrs.out_layout or attrs.layout, names)
    pre, post = split_padding(attrs.padding, spatial)
    columns = (
        padded(given, spatial, 1),
        padded(result, spatial, 1),
        padded(attrs.pool_size, spatial, 1),
        padded(attrs.strides, spatial, 1),
        padded(attrs.dilation, spatial, 1),
        pre,
        post,
    )
    return [_Axis(*row) for row in zip(*columns, strict=True)]


def _extents(expr: relax.Expr, layout: str, names: str) -> list[Number]:
    known = shape_of(expr)
    return [known[layout.index(name)] for name in names]


def _accepts(call: relax.Call) -> Refusal | str | None:
    spatial = _SPATIAL[call.op.name]
    said = refuse_arithmetic(call, FLOATS)
    if said is not None:
        return said
    attrs, axes = call.attrs, data_axes(spatial)
    refused = refuse_layout(attrs.layout, axes) or refuse_layout(attrs.out_layout or attrs.layout, axes)
    if refused is not None:
        return Refusal(refused, "convert the layout first")
    said_of = (_refuse_axis(axis, bool(attrs.ceil_mode)) for axis in _axes(call))
    return next((each for each in said_of if each is not None), None)


def _refuse_axis(axis: _Axis, ceil_mode: bool) -> str | None:
    """Refuse windows that no element of the input is in: what they yield is not defined."""
    if axis.is_symbolic:
        beyond = 0 if ceil_mode else axis.post  # rounding up, TVM leaves out a window that starts in the end padding
        empty = max(axis.pre, beyond) >= axis.window if axis.dilation == 1 else max(axis.pre, beyond) > 0
    else:
        empty = bool((axis.counts(with_padding=False) == 0).any())
    if empty:
        return f"a window of {axis.window} lies wholly in the padding ({axis.pre}, {axis.post})"
    if axis.dilation > 1 and axis.window > _MAX_TAPS:
        return f"a dilated window of {axis.window} takes more than {_MAX_TAPS} slices"
    return None


@converter(*_SPATIAL, accepts=_accepts)
def pool(network: Network, call: relax.Call) -> Any:
    """One pooling layer, or slices where the windows are dilated."""
    attrs, spatial = call.attrs, _SPATIAL[call.op.name]
    names = data_axes(spatial)
    axes = _axes(call)
    x = to_layer(network, network.tensor(call.args[0]), attrs.layout, names)
    counts_padding = call.op.name in _AVERAGE and bool(attrs.count_include_pad)
    if bool(attrs.ceil_mode) and any(axis.is_symbolic and axis.stride > 1 for axis in axes):
        out = _filled(network, x, axes, call.op.name in _MAX, counts_padding)
    elif any(axis.dilation > 1 for axis in axes):
        out = _sliced(network, x, axes, call.op.name in _MAX, counts_padding)
    elif call.op.name in _MAX:
        out = _pooled(network, x, "MAX", axes)
    else:
        out = _averaged(network, x, axes, counts_padding)
    return from_layer(network, out, names, attrs.out_layout or attrs.layout)


def _averaged(network: Network, x: Any, axes: list[_Axis], counts_padding: bool) -> Any:
    """Average; the divisor counts the padding or not, but never what `ceil_mode` reaches beyond it."""
    if not counts_padding or not any(axis.is_extended for axis in axes):
        return _pooled(network, x, "AVERAGE", axes, counts_padding)
    x = _with_zeros(network, x, axes)
    axes = [replace(axis, extent=axis.extent + axis.pre + axis.used, pre=0, post=0) for axis in axes]
    return _pooled(network, x, "AVERAGE", axes)


def _pooled(network: Network, x: Any, kind: str, axes: list[_Axis], counts_padding: bool = False) -> Any:
    member = network.trt.PoolingType.__members__[kind]
    layer = network.name(network.net.add_pooling_nd(x, member, tuple(axis.window for axis in axes)))
    layer.stride_nd = tuple(axis.stride for axis in axes)
    layer.pre_padding = tuple(axis.pre for axis in axes)
    layer.post_padding = tuple(axis.end for axis in axes)
    if kind == "AVERAGE":
        layer.average_count_excludes_padding = not counts_padding
    return layer.get_output(0)


def _with_zeros(network: Network, x: Any, axes: list[_Axis]) -> Any:
    """Pad the input for real, as far as the windows reach."""
    shape = tuple(x.shape)
    start = (0, 0, *(-axis.pre for axis in axes))
    size = (*open_dims(shape[:2]), *(axis.extent + axis.pre + axis.used for axis in axes))
    return add_slice(network, x, start, size, mode="FILL", suffix="padded")


def _filled(network: Network, x: Any, axes: list[_Axis], is_max: bool, counts_padding: bool) -> Any:
    """Pool the input cut and padded to what the windows reach over, whose size is only known at run time."""
    if any(axis.dilation > 1 for axis in axes):
        return _sliced(network, x, axes, is_max, counts_padding)
    plain = [replace(axis, extent=axis.reach, pre=0, post=0) for axis in axes]
    reached = _reached(network, x, axes, -math.inf if is_max else 0.0)
    if is_max:
        return _pooled(network, reached, "MAX", plain)
    ones = _ones(network, x, axes, counts_padding)
    counted = _reached(network, ones, _counting(axes, counts_padding), 0.0)
    totals = (_pooled(network, each, "AVERAGE", plain, counts_padding=True) for each in (reached, counted))
    return binary(network, "DIV", *totals)


def _reached(network: Network, x: Any, axes: list[_Axis], value: float) -> Any:
    """Cut and pad the input to what the windows reach over."""
    fill = network.constant(np.full((), value).astype(dtype_name(x)))
    start = (0, 0, *(-axis.pre for axis in axes))
    size = (*open_dims(tuple(x.shape)[:2]), *(axis.reach for axis in axes))
    return add_slice(network, x, start, size, mode="FILL", fill=fill, suffix="reached")


def _counting(axes: list[_Axis], with_padding: bool) -> list[_Axis]:
    """Return the axes of the tensor of ones whose windows count; padding that counts is part of it."""
    return [replace(axis, pre=0) if with_padding else axis for axis in axes]


def _ones(network: Network, x: Any, axes: list[_Axis], with_padding: bool) -> Any:
    """Return ones in the place of what a divisor counts."""
    one = network.constant(np.ones((1, 1, *(1 for _ in axes))).astype(dtype_name(x)))
    extents = [axis.extent + (axis.pre + axis.post if with_padding else 0) for axis in axes]
    return broadcast(network, one, [1, 1, *extents])


def _sliced(network: Network, x: Any, axes: list[_Axis], is_max: bool, counts_padding: bool) -> Any:
    """Combine, axis after axis, the slices that hold one tap of every window each."""
    if is_max:
        return _taps(network, x, axes, "MAX", -math.inf)
    total = _taps(network, x, axes, "SUM", 0.0)
    if any(axis.is_symbolic for axis in axes):
        ones = _ones(network, x, axes, counts_padding)
        return binary(network, "DIV", total, _taps(network, ones, _counting(axes, counts_padding), "SUM", 0.0))
    counts = np.ones((1, 1, *(1 for _ in axes)))
    for place, axis in enumerate(axes, start=2):
        along = [1] * counts.ndim
        along[place] = int(axis.cells)
        counts = counts * axis.counts(counts_padding).reshape(along)
    return binary(network, "DIV", total, network.constant(counts.astype(dtype_name(x))))


def _taps(network: Network, x: Any, axes: list[_Axis], op: str, value: float) -> Any:
    """Combine all taps of the windows, axis after axis; outside the input they are `value`."""
    shape = open_dims(x.shape)
    fill = network.constant(np.full((), value).astype(dtype_name(x)))
    for place, axis in enumerate(axes, start=2):
        start, stride = [0] * len(shape), [1] * len(shape)
        shape[place], stride[place] = axis.cells, axis.stride
        parts = []
        for tap in range(axis.window):
            start[place] = tap * axis.dilation - axis.pre
            parts.append(add_slice(network, x, start, shape, stride, mode="FILL", fill=fill, suffix="tap"))
        x = parts[0]
        for part in parts[1:]:
            x = binary(network, op, x, part)
    return x
