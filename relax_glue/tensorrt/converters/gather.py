"""take, gather_elements, gather_nd, index_tensor: gather layers in their three modes; and reverse_sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tvm
from tvm import relax

from ..registry import Refusal, converter
from ..slices import add_slice
from .arith import binary
from .indices import common_shape, coordinates, in_bounds, refuse_indices
from .limits import INTS, MAX_RANK, constant_of, extents, rank_of, refuse_tensors, refuse_type, static_shape, type_of

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
    place = common_shape(call.args[1].fields)
    if place is None or len(place) >= MAX_RANK:
        return f"the index tensors broadcast to {place}; one more axis is needed, and TensorRT has {MAX_RANK}"
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
    limits = [int(extent) for extent in x.shape[: len(items)]]
    return _gather_nd(network, x, coordinates(network, items, limits, in_bounds), 0)


def _accepts_reverse_sequence(call: relax.Call) -> Refusal | str | None:
    said = refuse_tensors(call, args=[0])
    if said is not None:
        return said
    rank = rank_of(call.args[0])
    if int(call.attrs.seq_axis) % rank == int(call.attrs.batch_axis) % rank:
        return f"axis {call.attrs.seq_axis} is both the batch and the sequence"
    ty = type_of(call.args[1])
    return "the lengths are no tensor" if ty is None else refuse_type(ty, "the tensor of lengths", INTS)


@converter("relax.reverse_sequence", accepts=_accepts_reverse_sequence, glue=True)
def reverse_sequence(network: Network, call: relax.Call) -> Any:
    """Read the first elements of each batch item backwards, as many as its length says."""
    x = network.tensor(call.args[0])
    layer = network.net.add_reverse_sequence(x, network.tensor(call.args[1]))
    layer.batch_axis = int(call.attrs.batch_axis) % len(x.shape)
    layer.sequence_axis = int(call.attrs.seq_axis) % len(x.shape)
    return network.name(layer).get_output(0)
