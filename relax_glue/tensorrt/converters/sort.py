"""Order along an axis: topk, sort, argsort, bucketize; and running sums and products.

Values are exact. Where values are equal, TVM's sort is stable and gives the lower index first; TensorRT does
not promise an order of equals, so indices of equal values may differ.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax

from ...errors import ConversionError
from ..extents import Extent
from ..registry import Refusal, converter
from .arith import axes_mask, binary, extent_of, reduce, refuse_arithmetic, select
from .limits import MAX_RANK, NUMBERS, dtype_of, rank_of, shape_of, static_shape

if TYPE_CHECKING:
    from ..network import Network

_MAX_K = 3840  # of a top-k layer
_LAST_AXES = 4  # it searches one of the last four axes
_MAX_COPIES = 64  # a running product and a search take this many times the memory of their input


def _k(call: relax.Call) -> int | None:
    """Return how many elements to keep: -1 stands for all; None where that is not known."""
    k = int(call.attrs.k) if call.op.name == "relax.topk" else -1
    return k if k >= 1 else extent_of(call.args[0], _axis(call))


def _axis(call: relax.Call) -> int:
    return int(call.attrs.axis) % rank_of(call.args[0])


def _accepts_order(call: relax.Call) -> Refusal | str | None:
    said = refuse_arithmetic(call, NUMBERS)
    if said is not None:
        return said
    if rank_of(call.args[0]) == 0:
        return "a scalar has no axis to sort"
    k, extent = _k(call), extent_of(call.args[0], _axis(call))
    if k is None:
        return Refusal("all elements of a symbolic dimension in order", "bind the symbolic dimensions to numbers")
    if extent is not None and k > extent:
        return f"k is {k} and the axis has {extent} elements"
    return f"{k} elements in order; TensorRT's top-k has {_MAX_K} at most" if k > _MAX_K else None


def _ordered(network: Network, call: relax.Call, largest: bool) -> tuple[Any, Any]:
    """Add a top-k layer, on an axis it can search; return values and int32 indices."""
    x, rank, axis = network.tensor(call.args[0]), rank_of(call.args[0]), _axis(call)
    (x,) = network.align(x, rank=2)
    axis += len(x.shape) - rank
    swap = None
    if axis < len(x.shape) - _LAST_AXES:
        swap = list(range(len(x.shape)))
        swap[axis], swap[-1] = swap[-1], swap[axis]
        x, axis = network.transpose(x, swap), len(swap) - 1
    op = network.trt.TopKOperation.MAX if largest else network.trt.TopKOperation.MIN
    layer = network.name(network.net.add_topk(x, op, _k(call) or 1, axes_mask([axis])))
    outputs = [layer.get_output(0), layer.get_output(1)]
    if swap is not None:
        outputs = [network.transpose(each, swap) for each in outputs]
    if rank == 1:
        outputs = [network.reshape(each, (-1,)) for each in outputs]
    return outputs[0], outputs[1]


@converter("relax.topk", accepts=_accepts_order)
def topk(network: Network, call: relax.Call) -> Any:
    """One top-k layer; its values, its indices, or both."""
    values, indices = _ordered(network, call, bool(call.attrs.largest))
    kind = call.attrs.ret_type
    indices = network.cast(indices, str(call.attrs.dtype)) if kind != "values" else indices
    return [values, indices] if kind == "both" else values if kind == "values" else indices


@converter("relax.sort", accepts=_accepts_order)
def sort(network: Network, call: relax.Call) -> Any:
    """All values of an axis in order."""
    return _ordered(network, call, bool(call.attrs.descending))[0]


@converter("relax.argsort", accepts=_accepts_order)
def argsort(network: Network, call: relax.Call) -> Any:
    """The indices of all values of an axis in order."""
    return network.cast(_ordered(network, call, bool(call.attrs.descending))[1], dtype_of(call))


def _accepts_bucketize(call: relax.Call) -> Refusal | str | None:
    said = refuse_arithmetic(call, NUMBERS)
    if said is not None:
        return said
    boundaries = static_shape(call.args[1])
    if boundaries is None or len(boundaries) != 1:
        return Refusal(f"the boundaries have the shape {boundaries or 'unknown'}, not one known extent")
    if boundaries[0] > _MAX_COPIES:
        return f"{boundaries[0]} boundaries; {_MAX_COPIES} at most"
    if rank_of(call.args[0]) >= MAX_RANK:
        return f"a search of rank {rank_of(call.args[0])} needs one dimension more than TensorRT has"
    return None


@converter("relax.bucketize", accepts=_accepts_bucketize)
def bucketize(network: Network, call: relax.Call) -> Any:
    """The place of each element among sorted boundaries: how many of them it exceeds, or reaches."""
    x, boundaries = (network.tensor(arg) for arg in call.args)
    rank = len(x.shape)
    x = network.reshape(x, [*(Extent(axis) for axis in range(rank)), 1])
    passed = binary(network, "GREATER", x, boundaries)
    if call.attrs.right:
        passed = binary(network, "OR", passed, binary(network, "EQUAL", x, boundaries))
    return reduce(network, "SUM", network.cast(passed, dtype_of(call)), [rank], False, "")


# Running sums and products


def _accepts_scan(call: relax.Call) -> Refusal | str | None:
    said = refuse_arithmetic(call, (*NUMBERS, "bool"), results=NUMBERS)
    if said is not None:
        return said
    if rank_of(call.args[0]) == 0:
        return "a scalar has no axis to run along"
    return _refuse_product(call) if call.op.name == "relax.cumprod" else None


def _refuse_product(call: relax.Call) -> Refusal | str | None:
    flat = call.attrs.axis is None
    extent = math.prod(shape_of(call.args[0])) if flat else shape_of(call.args[0])[_axis(call)]
    if not isinstance(extent, int):
        return Refusal("the dimension to run along is symbolic", "bind the symbolic dimensions to numbers")
    if extent > _MAX_COPIES:
        return f"a running product over {extent} elements; {_MAX_COPIES} at most"
    if not flat and rank_of(call.args[0]) >= MAX_RANK:
        return f"a running product of rank {MAX_RANK} needs one dimension more than TensorRT has"
    return None


def _scanned(network: Network, call: relax.Call) -> tuple[Any, int]:
    """Return the input in the dtype of the result, flat where there is no axis, and the axis."""
    x = network.cast(network.tensor(call.args[0]), dtype_of(call))
    if call.attrs.axis is None:
        return network.reshape(x, (math.prod(shape_of(call.args[0])),)), 0
    return x, _axis(call)


@converter("relax.cumsum", accepts=_accepts_scan)
def cumsum(network: Network, call: relax.Call) -> Any:
    """One cumulative layer."""
    if not network.provider.has("add_cumulative"):
        raise ConversionError(f"{network.provider} has no cumulative layer: use a newer TensorRT")
    x, axis = _scanned(network, call)
    place = network.constant(np.array(axis, np.int32))
    kind = network.trt.CumulativeOperation.SUM
    return network.name(network.net.add_cumulative(x, place, kind, bool(call.attrs.exclusive), False)).get_output(0)


@converter("relax.cumprod", accepts=_accepts_scan)
def cumprod(network: Network, call: relax.Call) -> Any:
    """A product for each element, over a triangle of copies of the input with ones elsewhere."""
    x, axis = _scanned(network, call)
    rank, extent = len(x.shape), int(x.shape[axis])
    dims = [Extent(place) for place in range(rank)]
    copies = network.reshape(x, [*dims[:axis], 1, *dims[axis:]])
    triangle = np.tri(extent, extent, -1 if call.attrs.exclusive else 0, dtype=bool)
    triangle = triangle.reshape([1] * axis + [extent, extent] + [1] * (rank - axis - 1))
    return reduce(network, "PROD", select(network, network.constant(triangle), copies, 1), [axis + 1], False, "")
