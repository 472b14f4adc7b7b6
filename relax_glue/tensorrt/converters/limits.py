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

from ..registry import Refusal

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


def static_shape(expr: relax.Expr) -> tuple[int, ...] | None:
    """Return the shape of an argument or call as numbers, or None."""
    known = extents(expr.ty)
    if known is None or not all(isinstance(extent, tvm.tirx.IntImm) for extent in known):
        return None
    return tuple(int(extent) for extent in known)


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
        return Refusal(f"the shape of {what} is symbolic: {list(known)}", "bind the symbolic dimensions to numbers")
    if 0 in numbers:
        return Refusal(f"{what} is empty: {list(known)}")
    if math.prod(numbers) > MAX_VOLUME:
        return Refusal(f"{what} has {math.prod(numbers)} elements; TensorRT holds at most {MAX_VOLUME}")
    return None


def refuse_tensors(
    call: relax.Call, dtypes: Collection[str] = MOVABLE, *, static: bool = True, args: Collection[int] | None = None
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
