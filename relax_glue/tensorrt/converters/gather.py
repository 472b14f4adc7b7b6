"""take, gather_elements, gather_nd, index_tensor: gather layers in their three modes; and reverse_sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax

from ...ir.shapes import is_static, same
from ..expressions import Number
from ..extents import Dim, Extent
from ..registry import Refusal, converter
from ..slices import add_slice
from .arith import binary
from .counting import extent_as
from .indices import common_shape, coordinates, in_bounds, refuse_indices
from .limits import INTS, MAX_RANK, constant_of, dims_of, rank_of, refuse_tensors, refuse_type, shape_of, type_of

if TYPE_CHECKING:
    from ..network import Network


def _take_axis(call: relax.Call) -> int:
    axis = call.attrs.axis
    return 0 if axis is None else int(axis) % rank_of(call.args[0])


def _accepts_take(call: relax.Call) -> Refusal | str | None:
    said = refuse_tensors(call, args=[0])
    if said is not None:
        return said
    mode, array = str(call.attrs.mode), constant_of(call.args[1])
    if mode in ("clip", "wrap"):
        return refuse_indices(call.args[1], None)
    if mode == "nan" and array is None:
        return Refusal("mode nan with computed indices", 'use mode "clip" where the indices are within bounds')
    if mode == "nan" and array is not None and array.min() < 0:
        return Refusal("mode nan with a negative index, which is out of bounds")
    return refuse_indices(call.args[1], [shape_of(call.args[0])[_take_axis(call)]])


@converter("relax.take", accepts=_accepts_take, glue=True)
def take(network: Network, call: relax.Call) -> Any:
    """Gather along one axis. TVM's mode "fast" promises that the indices are within bounds."""
    x = network.tensor(call.args[0])
    axis, mode = _take_axis(call), str(call.attrs.mode)
    extent = shape_of(call.args[0])[axis]
    array = network.array(call.args[1])
    if isinstance(extent, int) and (begin := _rotation(array, extent, mode)) is not None:
        start = [begin if place == axis else 0 for place in range(rank_of(call.args[0]))]
        return add_slice(network, x, start, dims_of(call), mode="WRAP")
    if mode not in ("clip", "wrap"):
        indices = in_bounds(network, call.args[1], [extent])
    elif array is not None and isinstance(extent, int):
        folded = array.clip(0, extent - 1) if mode == "clip" else array % extent
        indices = network.constant(folded.astype(array.dtype))
    else:
        indices = _moded(network, network.tensor(call.args[1]), extent, mode)
    return network.name(network.net.add_gather(x, indices, axis)).get_output(0)


def _rotation(array: np.ndarray | None, extent: int, mode: str) -> int | None:
    """Return where indices begin that go up by one to the end of an axis and on from its beginning, or None."""
    if array is None or array.ndim != 1 or array.size < 2:
        return None
    first = int(array[0]) % extent
    wrapped = (first + np.arange(array.size)) % extent
    inside = array % extent if mode == "wrap" else array
    return first if first + array.size > extent and np.array_equal(inside, wrapped) else None


def _moded(network: Network, indices: Any, extent: Number, mode: str) -> Any:
    if mode == "clip":
        return binary(network, "MIN", binary(network, "MAX", indices, 0), extent_as(network, extent - 1, indices))
    count = extent_as(network, extent, indices)
    turns = binary(network, "FLOOR_DIV", indices, count)
    return binary(network, "SUB", indices, binary(network, "PROD", turns, count))


def _accepts_gather_elements(call: relax.Call) -> Refusal | str | None:
    said = refuse_tensors(call, args=[0])
    if said is not None:
        return said
    shape = shape_of(call.args[0])
    axis = int(call.attrs.axis) % len(shape)
    said = refuse_indices(call.args[1], [shape[axis]])
    if said is not None:
        return said
    for place, (extent, count) in enumerate(zip(shape, shape_of(call.args[1]), strict=True)):
        fits = count <= extent if is_static((extent, count)) else same(count, extent)
        if place != axis and not fits:
            return f"the indices have {count} rows at axis {place}, where the data has {extent}"
    return None


@converter("relax.gather_elements", accepts=_accepts_gather_elements, glue=True)
def gather_elements(network: Network, call: relax.Call) -> Any:
    """Gather one element for each index; data beyond the extents of the indices is cut off first."""
    x = network.tensor(call.args[0])
    axis = int(call.attrs.axis) % len(x.shape)
    given, chosen = shape_of(call.args[0]), shape_of(call.args[1])
    indices = in_bounds(network, call.args[1], [given[axis]])
    size: list[Dim] = [
        Extent(place) if place == axis or same(extent, chosen[place]) else chosen[place]
        for place, extent in enumerate(given)
    ]
    if any(isinstance(dim, int) for dim in size):
        x = add_slice(network, x, [0] * len(size), size, suffix="data")
    layer = network.net.add_gather_v2(x, indices, network.trt.GatherMode.ELEMENT)
    layer.axis = axis
    return network.name(layer).get_output(0)


def _accepts_gather_nd(call: relax.Call) -> Refusal | str | None:
    said = refuse_tensors(call, args=[0])
    if said is not None:
        return said
    depth = shape_of(call.args[1])[-1:]
    if not depth or not isinstance(depth[0], int):
        return "the indices are a scalar, or the extent of their last axis is not known"
    batch = int(call.attrs.batch_dims)
    return refuse_indices(call.args[1], shape_of(call.args[0])[batch : batch + depth[0]])


@converter("relax.gather_nd", accepts=_accepts_gather_nd, glue=True)
def gather_nd(network: Network, call: relax.Call) -> Any:
    """Gather the slices that the last axis of the indices addresses."""
    x = network.tensor(call.args[0])
    batch = int(call.attrs.batch_dims)
    depth = shape_of(call.args[1])[-1]
    limits = shape_of(call.args[0])[batch : batch + depth]
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
    shape = shape_of(call.args[0])
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
        indices = in_bounds(network, items[0], shape_of(call.args[0])[:1])
        return network.name(network.net.add_gather(x, indices, 0)).get_output(0)
    limits = shape_of(call.args[0])[: len(items)]
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
