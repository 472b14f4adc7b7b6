"""Reductions over axes, and the positions of extremes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tvm import relax

from ..registry import Refusal, converter
from .arith import binary, reduce, refuse_arithmetic, select, unary
from .counting import counted, extent_as
from .limits import FLOATS, INTS, NUMBERS, dtype_of, rank_of, shape_of

if TYPE_CHECKING:
    from ..network import Network

_OPS = {"relax.sum": "SUM", "relax.prod": "PROD", "relax.max": "MAX", "relax.min": "MIN"}
_OF_BOOL = {"relax.prod": "MIN", "relax.max": "MAX", "relax.min": "MIN"}


def _axes(call: relax.Call) -> list[int]:
    """Return the axes to reduce, not negative; all of them where the operator names none."""
    rank = rank_of(call.args[0])
    axis = call.attrs.axis
    return list(range(rank)) if axis is None else sorted({int(each) % rank for each in axis})


def _accepts(call: relax.Call) -> Refusal | None:
    dtypes = (*NUMBERS, "bool") if call.op.name in _OF_BOOL else NUMBERS
    return refuse_arithmetic(call, dtypes)


@converter(*_OPS, accepts=_accepts)
def plain(network: Network, call: relax.Call) -> Any:
    """One reduce layer; on booleans max is any, min and prod are all."""
    x, axes, keep = network.tensor(call.args[0]), _axes(call), bool(call.attrs.keepdims)
    if not axes:
        return x
    if dtype_of(call) != "bool":
        return reduce(network, _OPS[call.op.name], x, axes, keep, "")
    number = reduce(network, _OF_BOOL[call.op.name], network.cast(x, "int32"), axes, keep)
    return network.cast(number, "bool")


def _accepts_mean(call: relax.Call) -> Refusal | None:
    return refuse_arithmetic(call, NUMBERS)


@converter("relax.mean", accepts=_accepts_mean)
def mean(network: Network, call: relax.Call) -> Any:
    """An average; integers are summed and divided towards zero."""
    x, axes, keep = network.tensor(call.args[0]), _axes(call), bool(call.attrs.keepdims)
    if not axes:
        return x
    if dtype_of(call) in FLOATS:
        return reduce(network, "AVG", x, axes, keep, "")
    total, known = reduce(network, "SUM", x, axes, keep), shape_of(call.args[0])
    return binary(network, "DIV", total, extent_as(network, math.prod(known[axis] for axis in axes), total), "")


def _accepts_spread(call: relax.Call) -> Refusal | None:
    said = refuse_arithmetic(call, FLOATS)
    integer = dtype_of(call.args[0]) in INTS
    return Refusal(said.reason, "cast it to float32") if said is not None and integer else said


@converter("relax.variance", "relax.std", accepts=_accepts_spread)
def spread(network: Network, call: relax.Call) -> Any:
    """The mean of the squared distance from the mean, and its root."""
    x, axes, keep = network.tensor(call.args[0]), _axes(call), bool(call.attrs.keepdims)
    away = binary(network, "SUB", x, reduce(network, "AVG", x, axes)) if axes else binary(network, "SUB", x, x)
    square = binary(network, "PROD", away, away)
    found = reduce(network, "AVG", square, axes, keep) if axes else square
    return found if call.op.name == "relax.variance" else unary(network, "SQRT", found, "")


def _accepts_position(call: relax.Call) -> Refusal | None:
    said = refuse_arithmetic(call, NUMBERS, results=INTS)
    if said is not None:
        return said
    if rank_of(call.args[0]) == 0:
        return Refusal("a scalar has no axis to search")
    return None


@converter("relax.argmax", "relax.argmin", accepts=_accepts_position)
def position(network: Network, call: relax.Call) -> Any:
    """The first place of the extreme: the least index among those that equal it.

    TensorRT's top-k gives no promise on which of several equals it finds, so it is not used here.
    """
    x, known = network.tensor(call.args[0]), shape_of(call.args[0])
    axis = call.attrs.axis
    extent = math.prod(known) if axis is None else known[int(axis)]
    if axis is None:
        x = network.reshape(x, (extent,))
    axis = 0 if axis is None else int(axis) % len(x.shape)
    extreme = reduce(network, "MAX" if call.op.name == "relax.argmax" else "MIN", x, [axis])
    places = counted(network, extent, dtype_of(call), axis, len(x.shape))
    last = extent_as(network, extent - 1, places)
    found = select(network, binary(network, "EQUAL", x, extreme), places, last)
    keep = bool(call.attrs.keepdims)
    if keep and call.attrs.axis is None:
        found = reduce(network, "MIN", found, [axis])
        return network.align(found, rank=rank_of(call))[0]
    return reduce(network, "MIN", found, [axis], keep, "")
