"""scatter_elements, scatter_nd, index_put, slice_scatter.

TensorRT's scatter layers overwrite; which of two updates of one element wins is not defined, as in TVM's
"update". So constant indices that repeat are refused, and so are the reductions, for which it has no layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
from tvm import relax

from ...ir.shapes import same, same_shape
from ..expressions import Number
from ..registry import Refusal, converter
from ..slices import add_slice
from .arith import open_dims
from .indices import common_shape, coordinates, from_end, in_bounds, refuse_indices, wrapped
from .limits import MAX_RANK, constant_of, dtype_of, refuse_tensors, shape_of, shown

if TYPE_CHECKING:
    from ..network import Network


def _refuse_scatter(call: relax.Call) -> Refusal | str | None:
    """Check what the two operators share: an update, of the data's dtype."""
    if str(call.attrs.reduction) != "update":
        return f"the reduction {str(call.attrs.reduction)!r}; TensorRT's scatter only overwrites"
    said = refuse_tensors(call, args=[0, 2])
    if said is not None:
        return said
    if dtype_of(call.args[0]) != dtype_of(call.args[2]):
        return f"the updates are {dtype_of(call.args[2])}, the data {dtype_of(call.args[0])}"
    return None


def _accepts_scatter_elements(call: relax.Call) -> Refusal | str | None:
    said = _refuse_scatter(call)
    if said is not None:
        return said
    shape = shape_of(call.args[0])
    axis = int(call.attrs.axis) % len(shape)
    said = refuse_indices(call.args[1], [shape[axis]])
    if said is not None:
        return said
    chosen = shape_of(call.args[1])
    if not same_shape(chosen, shape_of(call.args[2])):
        return f"the indices have the shape {shown(chosen)}, the updates {shown(shape_of(call.args[2]))}"
    for place, (extent, count) in enumerate(zip(shape, chosen, strict=True)):
        if place != axis and not same(count, extent):
            return f"the indices have {count} rows at axis {place}, where the data has {extent}"
    array = constant_of(call.args[1])
    if array is not None and _repeats(np.moveaxis(wrapped(array, [shape[axis]]), axis, -1)):
        return "an element is updated twice, and the order is not defined"
    return None


def _repeats(rows: np.ndarray) -> bool:
    """Say whether an index stands twice in a row along the last axis."""
    ordered = np.sort(rows, axis=-1)
    return bool((ordered[..., 1:] == ordered[..., :-1]).any())


@converter("relax.scatter_elements", accepts=_accepts_scatter_elements, glue=True)
def scatter_elements(network: Network, call: relax.Call) -> Any:
    """Overwrite one element for each index; a negative index counts from the end."""
    x = network.tensor(call.args[0])
    axis = int(call.attrs.axis) % len(x.shape)
    indices = from_end(network, call.args[1], [shape_of(call.args[0])[axis]])
    layer = network.net.add_scatter(x, indices, network.tensor(call.args[2]), network.trt.ScatterMode.ELEMENT)
    layer.axis = axis
    return network.name(layer).get_output(0)


def _accepts_scatter_nd(call: relax.Call) -> Refusal | str | None:
    said = _refuse_scatter(call)
    if said is not None:
        return said
    depth = shape_of(call.args[1])[-1:]
    if not depth or not isinstance(depth[0], int):
        return "the indices are a scalar, or the extent of their last axis is not known"
    extents = shape_of(call.args[0])[: depth[0]]
    said = refuse_indices(call.args[1], extents)
    array = constant_of(call.args[1])
    if said is not None or array is None:
        return said
    rows = wrapped(array, extents).reshape(-1, depth[0])
    if len(np.unique(rows, axis=0)) < len(rows):
        return "an element is updated twice, and the order is not defined"
    return None


@converter("relax.scatter_nd", accepts=_accepts_scatter_nd, glue=True)
def scatter_nd(network: Network, call: relax.Call) -> Any:
    """Overwrite the slices that the last axis of the indices addresses, which are within bounds as in TVM."""
    x = network.tensor(call.args[0])
    depth = shape_of(call.args[1])[-1]
    indices = in_bounds(network, call.args[1], shape_of(call.args[0])[:depth])
    layer = network.net.add_scatter(x, indices, network.tensor(call.args[2]), network.trt.ScatterMode.ND)
    return network.name(layer).get_output(0)


def _accepts_index_put(call: relax.Call) -> Refusal | str | None:
    if bool(call.attrs.accumulate):
        return "it accumulates; TensorRT's scatter only overwrites"
    said = refuse_tensors(call, args=[0, 2])
    if said is not None:
        return said
    if not isinstance(call.args[1], relax.Tuple):
        return "the index tensors are not written as a tuple"
    items, shape = list(call.args[1].fields), shape_of(call.args[0])
    if len(items) != len(shape):
        return f"{len(items)} index tensors for {len(shape)} axes"
    said_of = (refuse_indices(item, [extent]) for item, extent in zip(items, shape, strict=True))
    said = next((said for said in said_of if said is not None), None)
    if said is not None:
        return said
    place = common_shape(items)
    if place is None or len(place) >= MAX_RANK or not same_shape(shape_of(call.args[2]), place):
        return f"the values have the shape {shown(shape_of(call.args[2]))}, the indices {shown(place)}"
    if dtype_of(call.args[0]) != dtype_of(call.args[2]):
        return f"the values are {dtype_of(call.args[2])}, the data {dtype_of(call.args[0])}"
    return _refuse_repeats([constant_of(item) for item in items], shape)


def _refuse_repeats(arrays: list[np.ndarray | None], shape: list[Number]) -> str | None:
    known = [wrapped(array, [extent]) for array, extent in zip(arrays, shape, strict=True) if array is not None]
    if len(known) < len(arrays):
        return None
    places = np.stack(np.broadcast_arrays(*known)).reshape(len(known), -1)
    repeated = np.unique(places, axis=1).shape[1] < places.shape[1]
    return "an element is written twice, and the order is not defined" if repeated else None


@converter("relax.index_put", accepts=_accepts_index_put, glue=True)
def index_put(network: Network, call: relax.Call) -> Any:
    """Overwrite the elements at coordinates, one index tensor for each axis; a negative one counts from the end."""
    x = network.tensor(call.args[0])
    places = coordinates(network, list(call.args[1].fields), shape_of(call.args[0]), from_end)
    layer = network.net.add_scatter(x, places, network.tensor(call.args[2]), network.trt.ScatterMode.ND)
    return network.name(layer).get_output(0)


def _range(call: relax.Call) -> tuple[int, int, int] | None:
    """Return start, end and step of a slice_scatter, or None when one is computed."""
    bounds = call.args[2:5]
    if not all(isinstance(bound, tvm.tirx.IntImm) for bound in bounds):
        return None
    start, end, step = (int(bound) for bound in bounds)
    return start, end, step


def _accepts_slice_scatter(call: relax.Call) -> Refusal | str | None:
    said = refuse_tensors(call, args=[0, 1])
    if said is not None:
        return said
    bounds = _range(call)
    if bounds is None:
        return Refusal("start, end or step is not a constant number", "fold the shape computation first")
    shape = shape_of(call.args[0])
    extent = shape[int(call.attrs.axis) % len(shape)]
    start, end, step = bounds
    if not isinstance(extent, int):
        return Refusal(f"the axis has the symbolic extent {extent}", "bind the symbolic dimensions to numbers")
    if not 0 <= start < end <= extent or step < 1:
        return f"the range {start}:{end}:{step} does not lie within 0:{extent}"
    return None


@converter("relax.slice_scatter", accepts=_accepts_slice_scatter, glue=True)
def slice_scatter(network: Network, call: relax.Call) -> Any:
    """Put `src` between what stands before and behind it, or, with steps, overwrite rows by their numbers."""
    x, src = network.tensor(call.args[0]), network.tensor(call.args[1])
    axis = int(call.attrs.axis) % len(x.shape)
    start, end, step = _range(call) or (0, 0, 1)
    if step > 1:
        return _overwrite(network, x, src, axis, np.arange(start, end, step))
    end = start + int(src.shape[axis])
    parts = [_rows(network, x, axis, 0, start), src, _rows(network, x, axis, end, int(x.shape[axis]))]
    layer = network.net.add_concatenation([part for part in parts if part is not None])
    layer.axis = axis
    return network.name(layer).get_output(0)


def _rows(network: Network, x: Any, axis: int, begin: int, end: int) -> Any | None:
    if begin >= end:
        return None
    start = [begin if place == axis else 0 for place in range(len(x.shape))]
    size = open_dims(x.shape)
    size[axis] = end - begin
    return add_slice(network, x, start, size, suffix="kept")


def _overwrite(network: Network, x: Any, src: Any, axis: int, rows: np.ndarray) -> Any:
    """Scatter along the first axis, where the coordinates are row numbers."""
    perm = [axis, *(place for place in range(len(x.shape)) if place != axis)]
    back = list(np.argsort(perm))
    indices = network.constant(rows.astype(np.int32)[:, None])
    moved = network.shuffle(x, first=perm), network.shuffle(src, first=perm)
    layer = network.net.add_scatter(moved[0], indices, moved[1], network.trt.ScatterMode.ND)
    return network.shuffle(network.name(layer, "rows").get_output(0), first=[int(place) for place in back])
