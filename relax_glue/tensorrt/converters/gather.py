"""take, gather_elements, gather_nd, index_tensor: gather layers in their three modes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
from tvm import relax

from ..registry import Refusal, converter
from ..slices import add_slice, broadcast
from .arith import binary
from .indices import in_bounds, refuse_indices, wrapped
from .limits import constant_of, extents, rank_of, refuse_tensors, static_shape

if TYPE_CHECKING:
    from ..network import Network


def _take_axis(call: relax.Call) -> int:
    axis = call.attrs.axis
    return 0 if axis is None else int(axis) % rank_of(call.args[0])


def _accepts_take(call: relax.Call) -> Refusal | str | None:
    said = refuse_tensors(call, static=False, args=[0])
    if said is not None:
        return said
    extent, mode = (extents(call.args[0].ty) or [])[_take_axis(call)], str(call.attrs.mode)
    known = [int(extent)] if isinstance(extent, tvm.tirx.IntImm) else None
    array = constant_of(call.args[1])
    if mode in ("clip", "wrap"):
        if known is None:
            return Refusal(f"mode {mode} needs the extent of the axis", "bind the symbolic dimensions to numbers")
        return refuse_indices(_without_value(call.args[1]), None, static=False)
    if mode == "nan" and array is None:
        return Refusal("mode nan with computed indices", 'use mode "clip" where the indices are within bounds')
    if mode == "nan" and array is not None and array.min() < 0:
        return Refusal("mode nan with a negative index, which is out of bounds")
    return refuse_indices(call.args[1], known, static=False)


def _without_value(expr: relax.Expr) -> relax.Expr:
    """Return a variable of the same type: any index is within bounds after clip or wrap."""
    return relax.Var("indices", expr.ty)


@converter("relax.take", accepts=_accepts_take, glue=True)
def take(network: Network, call: relax.Call) -> Any:
    """Gather along one axis. TVM's mode "fast" promises that the indices are within bounds."""
    x = network.tensor(call.args[0])
    axis, mode = _take_axis(call), str(call.attrs.mode)
    extent = int(x.shape[axis])
    array = network.array(call.args[1])
    if mode not in ("clip", "wrap"):
        indices = in_bounds(network, call.args[1], [extent] if extent > 0 else None)
    elif array is not None:
        folded = array.clip(0, extent - 1) if mode == "clip" else array % extent
        indices = network.constant(folded.astype(array.dtype))
    else:
        indices = _moded(network, network.tensor(call.args[1]), extent, mode)
    return network.name(network.net.add_gather(x, indices, axis)).get_output(0)


def _moded(network: Network, indices: Any, extent: int, mode: str) -> Any:
    if mode == "clip":
        return binary(network, "MIN", binary(network, "MAX", indices, 0), extent - 1)
    turns = binary(network, "FLOOR_DIV", indices, extent)
    return binary(network, "SUB", indices, binary(network, "PROD", turns, extent))


def _accepts_gather_elements(call: relax.Call) -> Refusal | str | None:
    said = refuse_tensors(call, args=[0])
    if said is not None:
        return said
    shape = static_shape(call.args[0]) or ()
    axis = int(call.attrs.axis) % len(shape)
    said = refuse_indices(call.args[1], [shape[axis]])
    if said is not None:
        return said
    chosen = static_shape(call.args[1]) or ()
    for place, (extent, count) in enumerate(zip(shape, chosen, strict=True)):
        if place != axis and count > extent:
            return f"the indices have {count} rows at axis {place}, where the data has {extent}"
    return None


@converter("relax.gather_elements", accepts=_accepts_gather_elements, glue=True)
def gather_elements(network: Network, call: relax.Call) -> Any:
    """Gather one element for each index; data beyond the extents of the indices is cut off first."""
    x = network.tensor(call.args[0])
    axis = int(call.attrs.axis) % len(x.shape)
    indices = in_bounds(network, call.args[1], [int(x.shape[axis])])
    size = [int(x.shape[axis]) if place == axis else int(dim) for place, dim in enumerate(indices.shape)]
    if size != list(x.shape):
        x = add_slice(network, x, [0] * len(size), size, suffix="data")
    layer = network.net.add_gather_v2(x, indices, network.trt.GatherMode.ELEMENT)
    layer.axis = axis
    return network.name(layer).get_output(0)


def _accepts_gather_nd(call: relax.Call) -> Refusal | str | None:
    said = refuse_tensors(call, args=[0])
    if said is not None:
        return said
    chosen = static_shape(call.args[1])
    if not chosen:
        return "the shape of the indices is not known"
    batch = int(call.attrs.batch_dims)
    return refuse_indices(call.args[1], (static_shape(call.args[0]) or ())[batch : batch + chosen[-1]])


@converter("relax.gather_nd", accepts=_accepts_gather_nd, glue=True)
def gather_nd(network: Network, call: relax.Call) -> Any:
    """Gather the slices that the last axis of the indices addresses."""
    x = network.tensor(call.args[0])
    batch = int(call.attrs.batch_dims)
    depth = (static_shape(call.args[1]) or (0,))[-1]
    limits = [int(extent) for extent in x.shape[batch : batch + depth]]
    return _gather_nd(network, x, in_bounds(network, call.args[1], limits), batch)


def _gather_nd(network: Network, x: Any, indices: Any, batch: int) -> Any:
    layer = network.net.add_gather_v2(x, indices, network.trt.GatherMode.ND)
    layer.num_elementwise_dims = batch
    return network.name(layer).get_output(0)


def _accepts_index_tensor(call: relax.Call) -> Refusal | str | None:
    said = refuse_tensors(call, args=[0])
    if said is not None:
        return said
    if not isinstance(call.args[1], relax.Tuple):
        return "the index tensors are not written as a tuple"
    shape = static_shape(call.args[0]) or ()
    rank = max(len(static_shape(item) or ()) for item in call.args[1].fields)
    if rank > 7:
        return f"the index tensors have rank {rank}; with one more axis for the coordinates, TensorRT has 8"
    said_of = (refuse_indices(item, [extent]) for item, extent in zip(call.args[1].fields, shape, strict=False))
    return next((said for said in said_of if said is not None), None)


@converter("relax.index_tensor", accepts=_accepts_index_tensor, glue=True)
def index_tensor(network: Network, call: relax.Call) -> Any:
    """Gather with one index tensor for each leading axis: broadcast, stack, and gather by coordinates."""
    x = network.tensor(call.args[0])
    items = list(call.args[1].fields)
    if len(items) == 1:
        indices = in_bounds(network, items[0], [int(x.shape[0])])
        return network.name(network.net.add_gather(x, indices, 0)).get_output(0)
    shape = np.broadcast_shapes(*(static_shape(item) or () for item in items))
    parts = [_coordinate(network, item, int(extent), shape) for item, extent in zip(items, x.shape, strict=False)]
    layer = network.net.add_concatenation(parts)
    layer.axis = len(shape)
    return _gather_nd(network, x, network.name(layer, "coordinates").get_output(0), 0)


def _coordinate(network: Network, item: relax.Expr, extent: int, shape: tuple[int, ...]) -> Any:
    """Return one index tensor as int64, broadcast to `shape`, with a last axis of 1."""
    array = network.array(item)
    if array is not None:
        whole = np.broadcast_to(wrapped(array, [extent]), shape).astype(np.int64)
        return network.constant(whole[..., None])
    indices = broadcast(network, network.cast(network.tensor(item), "int64"), list(shape))
    return network.reshape(indices, [*shape, 1])
