"""What every `accepts` asks: types, ranks and extents, without TensorRT at hand.

A function here returns why a call cannot be taken, or None. None of them raises: a call may have an unknown
rank, symbolic extents, or arguments that are variables where a constant is usual.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

import numpy as np
import tvm
from tvm import relax
from tvm_ffi import structural_equal

from ..registry import Refusal
from ..shuffles import Dim, Extent

MAX_RANK = 8
MAX_VOLUME = 2**31 - 1

FLOATS = ("float32", "float16", "bfloat16")
INTS = ("int32", "int64")
NUMBERS = FLOATS + INTS
# What slice, shuffle, gather and concatenation move; uint8 can only be cast, float64 is no TensorRT type.
MOVABLE = (*NUMBERS, "int8", "bool")


def type_of(expr: relax.Expr) -> relax.TensorType | None:
    """Return the tensor type of an argument, or None when it is no tensor or has no type yet."""
    ty = expr.ty
    return ty if isinstance(ty, relax.TensorType) else None


def dtype_of(expr: relax.Expr) -> str:
    """Return the dtype of an argument as text; "" when it is not known."""
    ty = type_of(expr)
    return "" if ty is None or ty.dtype is None else str(ty.dtype)


def rank_of(expr: relax.Expr) -> int:
    """Return the rank of an argument, -1 when it is not known."""
    ty = type_of(expr)
    return -1 if ty is None else int(ty.ndim)


def extents(ty: relax.Type) -> list[tvm.ir.Expr] | None:
    """Return the extents of a tensor type, numbers or symbolic, or None when they are not known."""
    shape = getattr(ty, "shape", None)
    if isinstance(shape, relax.Var):
        shape = shape.ty
    values = getattr(shape, "values", None)
    return None if values is None else list(values)


def same_extent(one: tvm.ir.Expr, other: tvm.ir.Expr) -> bool:
    """Say whether two extents are the same number or the same expression."""
    return bool(structural_equal(one, other))


def shown(known: list[tvm.ir.Expr] | None) -> str:
    """Return extents as a reader of a reason wants them."""
    return "unknown" if known is None else f"({', '.join(str(_number(extent)) for extent in known)})"


def _number(extent: tvm.ir.Expr) -> tvm.ir.Expr | int:
    return int(extent) if isinstance(extent, tvm.tirx.IntImm) else extent


def static_shape(expr: relax.Expr) -> tuple[int, ...] | None:
    """Return the shape of an argument or call as numbers, or None."""
    known = extents(expr.ty)
    if known is None or not all(isinstance(extent, tvm.tirx.IntImm) for extent in known):
        return None
    return tuple(int(extent) for extent in known)


def numpy_of(call: relax.Call) -> np.dtype:
    """Return the numpy dtype of a call's result."""
    return np.dtype(str(call.ty.dtype))  # ml_dtypes, which TVM imports, adds bfloat16 and float8


def constant_of(expr: relax.Expr) -> np.ndarray | None:
    """Return the numbers of a constant argument, or None."""
    return np.asarray(expr.value.numpy()) if isinstance(expr, tvm.ir.GenericConst) else None


def tensor_types(ty: relax.Type) -> Iterator[relax.TensorType]:
    """Yield the tensor types in a type that may be a tuple."""
    if isinstance(ty, relax.TensorType):
        yield ty
    elif isinstance(ty, relax.TupleType):
        for item in ty.fields:
            yield from tensor_types(item)


def refuse_type(
    ty: relax.TensorType, what: str, dtypes: Collection[str] = MOVABLE, *, static: bool = True
) -> Refusal | None:
    """Check one tensor type: dtype, rank, extents.

    Parameters
    ----------
    ty : relax.TensorType
        The type.
    what : str
        How to call it in the reason, such as "the input".
    dtypes : Collection[str]
        The dtypes that the layer takes.
    static : bool
        Whether each extent has to be a number.
    """
    dtype = str(ty.dtype) if ty.dtype is not None else "unknown"
    if dtype not in dtypes:
        hint = "cast it to float32" if dtype == "float64" else ""
        return Refusal(f"{what} is {dtype}; the layer takes {', '.join(dtypes)}", hint)
    known = extents(ty)
    if known is None:
        return Refusal(f"the shape of {what} is not known", "give the model's inputs a shape")
    if len(known) > MAX_RANK:
        return Refusal(f"{what} has rank {len(known)}; TensorRT has at most {MAX_RANK} dimensions")
    numbers = [int(extent) for extent in known if isinstance(extent, tvm.tirx.IntImm)]
    if static and len(numbers) < len(known):
        return Refusal(f"the shape of {what} is symbolic: {shown(known)}", "bind the symbolic dimensions to numbers")
    if any(extent < 1 for extent in numbers):  # Relax infers a negative extent for some empty slices
        return Refusal(f"{what} is empty: {shown(known)}")
    if math.prod(numbers) > MAX_VOLUME:
        return Refusal(f"{what} has {math.prod(numbers)} elements; TensorRT holds at most {MAX_VOLUME}")
    return None


def refuse_tensors(
    call: relax.Call,
    dtypes: Collection[str] = MOVABLE,
    *,
    static: bool = True,
    args: Collection[int] | None = None,
) -> Refusal | None:
    """Check the tensors among a call's arguments, and its results.

    Parameters
    ----------
    call : relax.Call
        The call.
    dtypes : Collection[str]
        The dtypes that the layer takes; arguments and results alike.
    static : bool
        Whether each extent has to be a number.
    args : Collection[int], optional
        Which arguments to look at; all of them if left out.
    """
    chosen = [arg for index, arg in enumerate(call.args) if args is None or index in args]
    for arg in chosen:
        for ty in tensor_types(arg.ty):
            said = refuse_type(ty, "an argument", dtypes, static=static)
            if said is not None:
                return said
    results = list(tensor_types(call.ty))
    if not results:
        return Refusal("the type of the result is not known", "run a type inference first")
    for ty in results:
        said = refuse_type(ty, "the result", dtypes, static=static)
        if said is not None:
            return said
    return None


def dims_of(call: relax.Call) -> list[Dim] | None:
    """Return the extents of a call's result, the symbolic ones in terms of its first argument.

    A symbolic extent is one that the argument has too (best at the same axis), or, for a single one, what is
    left over (-1). None means that it is some other function of the inputs.
    """
    wanted, given = extents(call.ty), extents(call.args[0].ty)
    if wanted is None or given is None:
        return None
    dims: list[Dim] = []
    for place, extent in enumerate(wanted):
        if isinstance(extent, tvm.tirx.IntImm):
            dims.append(int(extent))
            continue
        nearest = sorted(range(len(given)), key=lambda axis: axis != place)
        axis = next((axis for axis in nearest if same_extent(given[axis], extent)), None)
        dims.append(-1 if axis is None else Extent(axis))
    return dims if dims.count(-1) <= 1 else None


def refuse_dims(call: relax.Call) -> Refusal | None:
    """Refuse a result whose symbolic extents cannot be derived from the argument's, as `dims_of` does it."""
    if dims_of(call) is not None:
        return None
    return Refusal(
        f"the result's shape {shown(extents(call.ty))} has more than one extent that is not one of the input's",
        "bind the symbolic dimensions to numbers",
    )


def sizes_of(call: relax.Call) -> list[Dim]:
    """Return the extents of a result that has its argument's symbolic extents at the same axes."""
    known = extents(call.ty) or []
    return [int(extent) if isinstance(extent, tvm.tirx.IntImm) else Extent(axis) for axis, extent in enumerate(known)]


def refuse_changed(call: relax.Call) -> Refusal | None:
    """Refuse a call that changes a symbolic extent: each axis has to be a number, or stay what it is."""
    given, wanted = extents(call.args[0].ty) or [], extents(call.ty) or []
    lead = len(wanted) - len(given)
    for axis, after in enumerate(wanted):
        before = given[axis - lead] if axis >= lead else tvm.tirx.IntImm("int64", 1)
        numbers = isinstance(before, tvm.tirx.IntImm) and isinstance(after, tvm.tirx.IntImm)
        if not numbers and not same_extent(before, after):
            return Refusal(f"axis {axis} goes from {before} to {after}", "bind the symbolic dimensions to numbers")
    return None
