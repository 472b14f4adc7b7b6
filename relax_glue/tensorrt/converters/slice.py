"""strided_slice, split, flip, broadcast_to, tile: slice layers; repeat: a gather."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
from tvm import relax, tirx

from ..expressions import Number, clamped, inexpressible
from ..extents import Dim, Extent
from ..registry import Refusal, converter
from ..slices import add_slice, broadcast
from .arith import binary
from .counting import counted
from .limits import dims_of, extents, rank_of, refuse_tensors, refuse_unlike, shape_of, tensor_types

if TYPE_CHECKING:
    from ..network import Network


@dataclass(frozen=True)
class _Cut:
    """What a strided_slice does to one axis, as written in the call."""

    axis: int
    begin: Number
    end: Number
    step: int


def _numbers(expr: relax.Expr) -> list[Number] | None:
    """Return the entries of a tuple of scalars, or None when it is not written in the call."""
    if not isinstance(expr, relax.Tuple):
        return None
    items = list(expr.fields)
    if not all(tvm.ir.is_prim_expr(item) for item in items):
        return None
    return [int(item) if isinstance(item, tirx.IntImm) else item for item in items]


def _cuts(call: relax.Call) -> list[_Cut] | None:
    """Return the cuts of a strided_slice, or None where an axis or a step is not a number, or a bound is computed."""
    axes, begins, ends = (_numbers(arg) for arg in call.args[1:4])
    steps = _numbers(call.args[4]) if len(call.args) > 4 else [1] * len(axes or ())
    if axes is None or begins is None or ends is None or steps is None:
        return None
    if not len(axes) == len(begins) == len(ends) == len(steps):
        return None
    if not all(isinstance(number, int) for number in (*axes, *steps)) or 0 in steps:
        return None
    if any(inexpressible(bound) is not None for bound in (*begins, *ends)):
        return None
    rank = rank_of(call.args[0])
    rows = zip(axes, begins, ends, steps, strict=True)
    return [_Cut(int(axis) % rank, begin, end, int(step)) for axis, begin, end, step in rows]


def _first(cut: _Cut, extent: Number) -> Number:
    """Return where a slice begins: a negative begin counts from the end, and what is outside is clamped.

    A symbolic begin counts from the front: TVM reads outside where it is negative.
    """
    begin = cut.begin + extent if isinstance(cut.begin, int) and cut.begin < 0 else cut.begin
    return clamped(begin, 0, extent if cut.step > 0 else extent - 1)


def _count(cut: _Cut, extent: int) -> int:
    """Return how many elements a slice has whose bounds are numbers."""
    end = cut.end + extent if cut.end < 0 else cut.end
    end = min(max(end, 0), extent) if cut.step > 0 else min(max(end, -1), extent - 1)
    return len(range(_first(cut, extent), end, cut.step))


def _accepts_strided_slice(call: relax.Call) -> Refusal | str | None:
    said = refuse_tensors(call, args=[0])
    if said is not None:
        return said
    cuts = _cuts(call)
    if cuts is None:
        return Refusal("axes or strides are not constant numbers, or a bound is computed", "fold the shape computation")
    given, wanted = shape_of(call.args[0]), shape_of(call)
    said_of = (_refuse_cut(cut, given[cut.axis], wanted[cut.axis], bool(call.attrs.assume_inbound)) for cut in cuts)
    return next((each for each in said_of if each is not None), None)


def _refuse_cut(cut: _Cut, extent: Number, wanted: Number, inbound: bool) -> str | None:
    """Refuse a cut whose type does not say how many elements there are.

    With assume_inbound Relax counts as if nothing were clamped or counted from the end, and TVM does both.
    """
    bounds = (cut.begin, cut.end)
    if isinstance(extent, int) and all(isinstance(bound, int) for bound in bounds):
        count = _count(cut, extent)
        return f"Relax counts {wanted} elements at axis {cut.axis}, the slice has {count}" if wanted != count else None
    from_end = [isinstance(bound, int) and bound < 0 for bound in bounds]
    if inbound and from_end[0] != from_end[1]:
        return f"assume_inbound with the bounds {cut.begin} and {cut.end} of the symbolic extent {extent}"
    return None


@converter("relax.strided_slice", accepts=_accepts_strided_slice, glue=True)
def strided_slice(network: Network, call: relax.Call) -> Any:
    """Cut and step; how many elements there are is known from the type of the result."""
    given = shape_of(call.args[0])
    start: list[Dim] = [0] * len(given)
    stride = [1] * len(given)
    for cut in _cuts(call) or []:
        start[cut.axis], stride[cut.axis] = _first(cut, given[cut.axis]), cut.step
    return add_slice(network, network.tensor(call.args[0]), start, dims_of(call), stride)


def _accepts_split(call: relax.Call) -> Refusal | None:
    return refuse_tensors(call)


@converter("relax.split", accepts=_accepts_split, glue=True)
def split(network: Network, call: relax.Call) -> Any:
    """Cut into pieces that follow one another; their types say how long each is."""
    x = network.tensor(call.args[0])
    axis = int(call.attrs.axis) % len(x.shape)
    begin: Number = 0
    pieces = []
    for number, ty in enumerate(tensor_types(call.ty)):
        count = (extents(ty) or [])[axis]
        start: list[Dim] = [begin if place == axis else 0 for place in range(len(x.shape))]
        size: list[Dim] = [count if place == axis else Extent(place) for place in range(len(x.shape))]
        pieces.append(add_slice(network, x, start, size, suffix=str(number)))
        begin = begin + count
    return pieces


def _accepts_flip(call: relax.Call) -> Refusal | None:
    return refuse_tensors(call)


@converter("relax.flip", accepts=_accepts_flip, glue=True)
def flip(network: Network, call: relax.Call) -> Any:
    """Read an axis backwards."""
    size = dims_of(call)
    start: list[Dim] = [0] * len(size)
    stride = [1] * len(size)
    axis = int(call.attrs.axis) % len(size)
    start[axis], stride[axis] = shape_of(call)[axis] - 1, -1
    return add_slice(network, network.tensor(call.args[0]), start, size, stride)


def _accepts_broadcast(call: relax.Call) -> Refusal | None:
    return refuse_tensors(call, args=[0]) or refuse_unlike(call)


@converter("relax.broadcast_to", accepts=_accepts_broadcast, glue=True)
def broadcast_to(network: Network, call: relax.Call) -> Any:
    """Repeat along axes of extent 1."""
    return broadcast(network, network.tensor(call.args[0]), shape_of(call))


def _accepts_repeated(call: relax.Call) -> Refusal | None:
    return refuse_tensors(call, args=[0])


@converter("relax.tile", accepts=_accepts_repeated, glue=True)
def tile(network: Network, call: relax.Call) -> Any:
    """Read the input again past its end: a slice in WRAP mode."""
    size = shape_of(call)
    x = network.align(network.tensor(call.args[0]), rank=len(size))[0]
    return add_slice(network, x, [0] * len(size), size, mode="WRAP")


@converter("relax.repeat", accepts=_accepts_repeated, glue=True)
def repeat(network: Network, call: relax.Call) -> Any:
    """Repeat each element along an axis; without an axis, of the flat input."""
    x = network.tensor(call.args[0])
    axis, repeats = call.attrs.axis, int(call.attrs.repeats)
    if axis is None:
        x = network.reshape(x, [-1])
    place = 0 if axis is None else int(axis) % len(x.shape)
    count = shape_of(call)[place]
    if isinstance(count, int):
        indices = network.constant(np.arange(count, dtype=np.int32) // repeats)
    else:
        indices = binary(network, "FLOOR_DIV", counted(network, count, "int32"), repeats)
    return network.name(network.net.add_gather(x, indices, place)).get_output(0)
