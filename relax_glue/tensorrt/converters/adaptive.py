"""Adaptive average pools: a mean, a pool, or one mean for each cell where the cells differ in size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import relax

from ..expressions import Number
from ..extents import Dim
from ..registry import Refusal, converter
from ..slices import add_slice
from .arith import open_dims, reduce, refuse_arithmetic
from .layouts import data_axes, from_layer, padded, refuse_layout, to_layer
from .limits import FLOATS, shape_of

if TYPE_CHECKING:
    from ..network import Network

_SPATIAL = {f"relax.nn.adaptive_avg_pool{spatial}d": spatial for spatial in (1, 2, 3)}
# Cells of different sizes take a slice and a mean each.
_MAX_CELLS = 64


def _cells(call: relax.Call) -> list[int]:
    """Return the number of cells along each spatial axis, -1 for all axes where each keeps its extent."""
    size = call.attrs.output_size
    if size is not None and len(size):
        return [int(extent) for extent in size]
    return [-1] * _SPATIAL[call.op.name]


def _extents(call: relax.Call) -> list[Number]:
    """Return the extents of the spatial axes of the input."""
    known, layout = shape_of(call.args[0]), call.attrs.layout
    return [known[layout.index(name)] for name in data_axes(_SPATIAL[call.op.name])[2:]]


def _accepts(call: relax.Call) -> Refusal | str | None:
    said = refuse_arithmetic(call, FLOATS)
    if said is not None:
        return said
    attrs, axes = call.attrs, data_axes(_SPATIAL[call.op.name])
    refused = refuse_layout(attrs.layout, axes) or refuse_layout(attrs.out_layout or attrs.layout, axes)
    if refused is not None:
        return Refusal(refused, "convert the layout first")
    cells = _cells(call)
    if -1 in cells or all(count == 1 for count in cells):
        return None
    pairs = zip(cells, _extents(call), strict=True)
    ragged = [count for count, extent in pairs if not _divides(count, extent) and count > _MAX_CELLS]
    return f"{ragged[0]} cells of different sizes; {_MAX_CELLS} at most" if ragged else None


def _divides(count: int, extent: Number) -> bool:
    """Say whether an extent is known to fall into so many cells of one size."""
    return isinstance(extent, int) and extent % count == 0


@converter(*_SPATIAL, accepts=_accepts)
def adaptive_avg_pool(network: Network, call: relax.Call) -> Any:
    """Cell i of n covers the input from floor(i * extent / n) to ceil((i + 1) * extent / n)."""
    attrs, spatial = call.attrs, _SPATIAL[call.op.name]
    names, target = data_axes(spatial), attrs.out_layout or attrs.layout
    cells = _cells(call)
    x = to_layer(network, network.tensor(call.args[0]), attrs.layout, names)
    extents = padded(_extents(call), spatial, 1)
    counts = padded(cells, spatial, 1)
    if -1 in counts or all(
        isinstance(extent, int) and extent == count for extent, count in zip(extents, counts, strict=True)
    ):
        return from_layer(network, x, names, target)
    if all(count == 1 for count in counts):
        out = reduce(network, "AVG", x, range(2, len(x.shape)))
    elif all(_divides(count, extent) for count, extent in zip(counts, extents, strict=True)):
        window = tuple(extent // count for extent, count in zip(extents, counts, strict=True))
        layer = network.name(network.net.add_pooling_nd(x, network.trt.PoolingType.AVERAGE, window))
        layer.stride_nd = window
        out = layer.get_output(0)
    else:
        out = x
        for axis, (count, extent) in enumerate(zip(counts, extents, strict=True), start=2):
            out = _ragged(network, out, axis, count, extent)
    return from_layer(network, out, names, target)


def _ragged(network: Network, x: Any, axis: int, cells: int, extent: Number) -> Any:
    """Average one axis cell by cell; cells are boxes, so the mean of means is their mean."""
    shape = open_dims(x.shape)
    if isinstance(extent, int) and extent == cells:
        return x
    parts = []
    for cell in range(cells):
        start: list[Dim] = [0] * len(shape)
        begin: Number = cell * extent // cells
        start[axis], shape[axis] = begin, -(-(cell + 1) * extent // cells) - begin
        part = add_slice(network, x, start, shape, suffix="cell")
        parts.append(reduce(network, "AVG", part, [axis]))
    if len(parts) == 1:
        return parts[0]
    layer = network.net.add_concatenation(parts)
    layer.axis = axis
    return network.name(layer).get_output(0)
