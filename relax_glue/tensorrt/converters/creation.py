"""full, zeros, ones and their _like forms, arange, eye, tril, triu, one_hot, meshgrid; the numbers of a shape.

What holds one value throughout is one constant read again and again by a slice layer of stride 0, so that a
large fill does not make a large engine. The rest are constants, or a choice by a constant mask; where the size is
symbolic, fill layers count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
from tvm import relax

from ..expressions import Number, inexpressible, simplified
from ..registry import Refusal, converter
from ..slices import broadcast
from .arith import binary, select, unary
from .counting import COUNTED, counted, extent_as, limits_as, progression
from .limits import (
    INTS,
    MOVABLE,
    constant_of,
    extents,
    numpy_of,
    rank_of,
    refuse_tensors,
    refuse_type,
    shape_of,
    static_shape,
    tensor_types,
    type_of,
)

if TYPE_CHECKING:
    from ..network import Network

# arange of more elements is refused: it would stand in the engine as a constant
_MAX_CONSTANT = 1 << 22


def _refuse_result(call: relax.Call) -> Refusal | None:
    """Check the result; and, in a _like form, the tensor whose shape it has, which the network takes too."""
    like = call.op.name.endswith("_like")
    return refuse_tensors(call, (*MOVABLE, "uint8"), args=[0] if like else ()) or refuse_tensors(call, args=())


def _accepts_fill(call: relax.Call) -> Refusal | None:
    return _refuse_result(call)


def _accepts_full(call: relax.Call) -> Refusal | str | None:
    said = _refuse_result(call)
    if said is not None:
        return said
    value = constant_of(call.args[1])
    if value is None:
        return Refusal("the fill value is computed", "use broadcast_to")
    return f"the fill value has {value.size} elements" if value.size != 1 else None


@converter("relax.full", "relax.full_like", accepts=_accepts_full, glue=True)
def full(network: Network, call: relax.Call) -> Any:
    """Fill with a constant."""
    return _filled(network, call, np.asarray(network.array(call.args[1])).reshape(()))


@converter("relax.zeros", "relax.zeros_like", accepts=_accepts_fill, glue=True)
def zeros(network: Network, call: relax.Call) -> Any:
    """Fill with 0."""
    return _filled(network, call, np.array(0))


@converter("relax.ones", "relax.ones_like", accepts=_accepts_fill, glue=True)
def ones(network: Network, call: relax.Call) -> Any:
    """Fill with 1."""
    return _filled(network, call, np.array(1))


def _filled(network: Network, call: relax.Call, value: np.ndarray) -> Any:
    shape = shape_of(call)
    one = network.constant(value.astype(numpy_of(call)).reshape((1,) * len(shape)))
    return broadcast(network, one, shape)


def _number(expr: relax.Expr) -> float | int | None:
    return expr.value if isinstance(expr, tvm.tirx.IntImm | tvm.tirx.FloatImm) else None


def _refuse_size(call: relax.Call) -> str | None:
    """Refuse a constant that is too large to stand in an engine."""
    count = int(np.prod(static_shape(call) or ()))
    return f"{count} elements are too many for a constant" if count > _MAX_CONSTANT else None


def _accepts_arange(call: relax.Call) -> Refusal | str | None:
    said = _refuse_result(call) or _refuse_size(call)
    if said is not None:
        return said
    if static_shape(call) is None or any(_number(arg) is None for arg in call.args):
        return _refuse_progression(call)
    # Relax counts one too many in arange(10, 2, -3)
    count = _numbers(call).size
    return f"Relax says {static_shape(call)}, there are {count} numbers" if static_shape(call) != (count,) else None


def _refuse_progression(call: relax.Call) -> Refusal | str | None:
    """Check an arange between bounds of which one is symbolic."""
    start, _, step = call.args
    by = _number(step)
    if by is None or by <= 0:
        return f"the step is {step}; between symbolic bounds it has to be a positive number"
    if _number(start) is None and (not tvm.ir.is_prim_expr(start) or inexpressible(start) is not None):
        return Refusal(f"the start is {start}", "fold the shape computation first")
    if str(call.ty.dtype) not in COUNTED:
        return Refusal(f"symbolic bounds of {call.ty.dtype} numbers", "cast from float32 or int64")
    return None


def _numbers(call: relax.Call) -> np.ndarray:
    start, end, step = (_number(arg) or 0 for arg in call.args)
    return np.arange(start, end, step, dtype=numpy_of(call))


@converter("relax.arange", accepts=_accepts_arange, glue=True)
def arange(network: Network, call: relax.Call) -> Any:
    """Hold the numbers as a constant; between symbolic bounds, a fill layer makes them."""
    if static_shape(call) is not None and all(_number(arg) is not None for arg in call.args):
        return network.constant(_numbers(call))
    start, step, dtype = _number(call.args[0]), _number(call.args[2]) or 1, str(call.ty.dtype)
    numbers = progression(network, start or 0, step, shape_of(call)[0], dtype)
    if start is not None:
        return numbers
    return binary(network, "SUM", numbers, extent_as(network, call.args[0], numbers), "")


def _accepts_eye(call: relax.Call) -> Refusal | str | None:
    if _diagonal(call) is None:
        return Refusal("the diagonal is not a constant number", "fold the shape computation first")
    return _refuse_result(call) or _refuse_size(call)


def _accepts_shape(call: relax.Call) -> Refusal | str | None:
    values = getattr(call.args[0].ty, "values", None)
    if values is None:
        return Refusal("the extents of the shape are not known", "give the model's inputs a shape")
    strange = next((part for value in values if (part := inexpressible(value)) is not None), None)
    return f"the extent {strange} is no sum, product, quotient, minimum or maximum of extents" if strange else None


@converter("relax.shape_to_tensor", accepts=_accepts_shape, glue=True)
def shape_to_tensor(network: Network, call: relax.Call) -> Any:
    """Return extents as the numbers of a vector."""
    return limits_as(network, (simplified(value) for value in call.args[0].ty.values), "int64")


@converter("relax.eye", "relax.eye_like", accepts=_accepts_eye, glue=True)
def eye(network: Network, call: relax.Call) -> Any:
    """Hold the diagonal as a constant; of a symbolic size, it is where row and column agree."""
    shape, diagonal = static_shape(call), _diagonal(call) or 0
    if shape is not None:
        return network.constant(np.eye(shape[0], shape[1], diagonal, dtype=numpy_of(call)))
    rows, columns = _places(network, shape_of(call), diagonal)
    one, zero = (network.constant(np.full((1, 1), number).astype(numpy_of(call))) for number in (1, 0))
    return select(network, binary(network, "EQUAL", rows, columns), one, zero, "")


def _places(network: Network, shape: list[Number], diagonal: int) -> tuple[Any, Any]:
    """Return for each row of a matrix the column on its diagonal, and for each column its number."""
    rank = len(shape)
    rows, columns = (counted(network, shape[axis], "int64", axis, rank) for axis in (rank - 2, rank - 1))
    return binary(network, "SUM", rows, diagonal), columns


def _diagonal(call: relax.Call) -> int | None:
    """Return k: the last argument, if there is one that does not give the shape; None where it is no number."""
    place = 1 if call.op.name != "relax.eye" else 2
    found = _number(call.args[place]) if len(call.args) > place else 0
    return None if found is None else int(found)


def _accepts_triangle(call: relax.Call) -> Refusal | str | None:
    said = refuse_tensors(call)
    if said is not None:
        return said
    if rank_of(call) < 2 or _diagonal(call) is None:
        return "k is not a constant number, or the rank is below 2"
    shape = static_shape(call) or ()
    return f"a mask of {shape[-2:]} is too large for a constant" if np.prod(shape[-2:]) > _MAX_CONSTANT else None


@converter("relax.tril", "relax.triu", accepts=_accepts_triangle, glue=True)
def triangle(network: Network, call: relax.Call) -> Any:
    """Choose between the input and 0 by a mask, which is a constant where the size is known."""
    shape, lower = shape_of(call), call.op.name == "relax.tril"
    if all(isinstance(extent, int) for extent in shape[-2:]):
        keep = np.tril if lower else np.triu
        mask = network.constant(keep(np.ones(shape[-2:], dtype=bool), _diagonal(call) or 0))
    else:
        rows, columns = _places(network, shape, _diagonal(call) or 0)
        mask = unary(network, "NOT", binary(network, "GREATER" if lower else "LESS", columns, rows))
    zero = network.constant(np.zeros((1,) * len(shape), dtype=numpy_of(call)))
    return select(network, mask, network.tensor(call.args[0]), zero)


def _accepts_one_hot(call: relax.Call) -> Refusal | str | None:
    said = refuse_tensors(call, args=())
    if said is not None:
        return said
    ty = type_of(call.args[0])
    if ty is None or any(_number(arg) is None for arg in call.args[1:]):
        return "the indices are no tensor, or a value is computed"
    return refuse_type(ty, "the index tensor", INTS)


@converter("relax.one_hot", accepts=_accepts_one_hot, glue=True)
def one_hot(network: Network, call: relax.Call) -> Any:
    """Compare with 0, 1, 2, ...: no index is out of bounds then, and off everywhere is what TVM yields there."""
    indices = network.tensor(call.args[0])
    shape = shape_of(call.args[0])
    axis = int(call.attrs.axis) % (len(shape) + 1)
    spread = network.reshape(indices, [*shape[:axis], 1, *shape[axis:]])
    classes = np.arange(int(call.attrs.depth)).reshape([-1, *(1 for _ in shape[axis:])])
    dtype = "int32" if indices.dtype == network.trt.int32 else "int64"
    hot = binary(network, "EQUAL", spread, network.constant(classes.astype(dtype)))
    values = (np.array(_number(arg)).astype(numpy_of(call)) for arg in call.args[1:])
    on, off = (network.constant(value.reshape((1,) * (len(shape) + 1))) for value in values)
    return select(network, hot, on, off)


def _accepts_meshgrid(call: relax.Call) -> Refusal | str | None:
    said = refuse_tensors(call)
    if said is not None:
        return said
    ranks = {len(ty.shape.values) for ty in call.args[0].ty.fields}
    if ranks != {1}:
        return f"the inputs have ranks {sorted(ranks)}; each has to have 1"
    # Relax gives the result of "xy" the shape of "ij"
    return "the indexing 'xy'" if str(call.attrs.indexing) == "xy" and len(call.args[0].ty.fields) > 1 else None


@converter("relax.meshgrid", accepts=_accepts_meshgrid, glue=True)
def meshgrid(network: Network, call: relax.Call) -> Any:
    """Lay each vector along its own axis and repeat it along the others."""
    parts = network.tensors(call.args[0])
    shape = [(extents(ty) or [])[0] for ty in tensor_types(call.args[0].ty)]
    grids = []
    for axis, part in enumerate(parts):
        lone = network.reshape(part, [-1 if place == axis else 1 for place in range(len(parts))])
        grids.append(broadcast(network, lone, shape))
    return grids
