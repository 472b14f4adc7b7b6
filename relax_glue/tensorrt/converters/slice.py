"""strided_slice, split, flip, broadcast_to, tile: slice layers; repeat: a gather with constant indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
from tvm import relax

from ..registry import Refusal, converter
from ..shuffles import Dim, Extent
from ..slices import add_slice, broadcast
from .limits import extents, rank_of, refuse_changed, refuse_tensors, shown, sizes_of, tensor_types

if TYPE_CHECKING:
    from ..network import Network


def _integers(expr: relax.Expr) -> list[int] | None:
    """Return the numbers of a tuple of scalar expressions, or None when one is computed."""
    if not isinstance(expr, relax.Tuple):
        return None
    items = list(expr.fields)
    if not all(isinstance(item, tvm.tirx.IntImm) for item in items):
        return None
    return [int(item) for item in items]


def _strided(call: relax.Call) -> list[tuple[int, int, int]] | None:
    """Return (axis, begin, stride) for each sliced axis, with begin as written, or None when not constant."""
    axes, begin = _integers(call.args[1]), _integers(call.args[2])
    if axes is None or begin is None:
        return None
    strides = _integers(call.args[4]) if len(call.args) > 4 else [1] * len(axes)
    if strides is None or not len(axes) == len(begin) == len(strides):
        return None
    rank = rank_of(call.args[0])
    return [(axis % rank, first, step) for axis, first, step in zip(axes, begin, strides, strict=True)]


def _first(begin: int, extent: int, step: int) -> int:
    """Return where a slice begins: a negative begin counts from the end, and what is outside is clamped."""
    begin = begin + extent if begin < 0 else begin
    return min(max(begin, 0), extent if step > 0 else extent - 1)


def _ends(call: relax.Call) -> list[int | None]:
    """Return the ends as written, None for a computed one."""
    fields = call.args[3].fields if isinstance(call.args[3], relax.Tuple) else []
    return [int(end) if isinstance(end, tvm.tirx.IntImm) else None for end in fields]


def _count(begin: int, end: int, step: int, extent: int) -> int:
    """Return how many elements a slice has, with an end that counts and is clamped as its begin."""
    end = end + extent if end < 0 else end
    end = min(max(end, 0), extent) if step > 0 else min(max(end, -1), extent - 1)
    return len(range(_first(begin, extent, step), end, step))


def _accepts_strided_slice(call: relax.Call) -> Refusal | str | None:
    said = refuse_tensors(call, static=False, args=[0])
    if said is not None:
        return said
    strided = _strided(call)
    if strided is None:
        return Refusal("axes, begin or strides are not constant numbers", "fold the shape computation first")
    said = refuse_changed(call)
    if said is not None:
        return said
    given, wanted = extents(call.args[0].ty) or [], extents(call.ty) or []
    for (axis, begin, step), end in zip(strided, _ends(call), strict=False):
        extent = given[axis]
        if not isinstance(extent, tvm.tirx.IntImm):
            if (begin, step) != (0, 1):
                return Refusal(f"axis {axis} of extent {extent} is cut", "bind the symbolic dimensions to numbers")
        # with assume_inbound Relax counts as if nothing were clamped, and TVM clamps all the same
        elif end is not None and _count(begin, end, step, int(extent)) != int(wanted[axis]):
            count = _count(begin, end, step, int(extent))
            return f"Relax counts {wanted[axis]} elements at axis {axis}, the slice has {count}"
    return None


@converter("relax.strided_slice", accepts=_accepts_strided_slice, glue=True)
def strided_slice(network: Network, call: relax.Call) -> Any:
    """Cut and step; how many elements there are is known from the type of the result."""
    given = extents(call.args[0].ty) or []
    start, stride = [0] * len(given), [1] * len(given)
    for axis, begin, step in _strided(call) or []:
        stride[axis] = step
        if isinstance(given[axis], tvm.tirx.IntImm):
            start[axis] = _first(begin, int(given[axis]), step)
    return add_slice(network, network.tensor(call.args[0]), start, sizes_of(call), stride)


def _accepts_split(call: relax.Call) -> Refusal | str | None:
    said = refuse_tensors(call, static=False)
    if said is not None:
        return said
    axis = int(call.attrs.axis) % rank_of(call.args[0])
    pieces = [(extents(ty) or [])[axis] for ty in tensor_types(call.ty)]
    if all(isinstance(extent, tvm.tirx.IntImm) for extent in pieces):
        return None
    return Refusal(
        f"the extents {shown(pieces)} along the split axis are not all numbers", "bind the symbolic dimensions"
    )


@converter("relax.split", accepts=_accepts_split, glue=True)
def split(network: Network, call: relax.Call) -> Any:
    """Cut into pieces that follow one another; their types say how long each is."""
    x = network.tensor(call.args[0])
    axis = int(call.attrs.axis) % len(x.shape)
    start = [0] * len(x.shape)
    pieces = []
    for number, ty in enumerate(tensor_types(call.ty)):
        count = int((extents(ty) or [])[axis])
        size: list[Dim] = [count if place == axis else Extent(place) for place in range(len(start))]
        pieces.append(add_slice(network, x, start, size, suffix=str(number)))
        start[axis] += count
    return pieces


def _accepts_flip(call: relax.Call) -> Refusal | str | None:
    said = refuse_tensors(call, static=False)
    if said is not None:
        return said
    extent = (extents(call.ty) or [])[int(call.attrs.axis)]
    return None if isinstance(extent, tvm.tirx.IntImm) else f"the flipped axis has the extent {extent}"


@converter("relax.flip", accepts=_accepts_flip, glue=True)
def flip(network: Network, call: relax.Call) -> Any:
    """Read an axis backwards."""
    size = sizes_of(call)
    start, stride = [0] * len(size), [1] * len(size)
    axis = int(call.attrs.axis) % len(size)
    start[axis], stride[axis] = int((extents(call.ty) or [])[axis]) - 1, -1
    return add_slice(network, network.tensor(call.args[0]), start, size, stride)


def _accepts_repeated(call: relax.Call) -> Refusal | str | None:
    return refuse_tensors(call, static=False, args=[0]) or refuse_changed(call)


@converter("relax.broadcast_to", accepts=_accepts_repeated, glue=True)
def broadcast_to(network: Network, call: relax.Call) -> Any:
    """Repeat along axes of extent 1."""
    return broadcast(network, network.tensor(call.args[0]), sizes_of(call))


@converter("relax.tile", accepts=_accepts_repeated, glue=True)
def tile(network: Network, call: relax.Call) -> Any:
    """Read the input again past its end: a slice in WRAP mode."""
    size = sizes_of(call)
    x = network.align(network.tensor(call.args[0]), rank=len(size))[0]
    return add_slice(network, x, [0] * len(size), size, mode="WRAP")


def _accepts_repeat(call: relax.Call) -> Refusal | None:
    return refuse_tensors(call, args=[0])


@converter("relax.repeat", accepts=_accepts_repeat, glue=True)
def repeat(network: Network, call: relax.Call) -> Any:
    """Repeat each element along an axis; without an axis, of the flat input."""
    x = network.tensor(call.args[0])
    axis = call.attrs.axis
    if axis is None:
        x = network.reshape(x, [-1])
    place = 0 if axis is None else int(axis) % len(x.shape)
    indices = np.repeat(np.arange(x.shape[place], dtype=np.int32), int(call.attrs.repeats))
    return network.name(network.net.add_gather(x, network.constant(indices), place)).get_output(0)
