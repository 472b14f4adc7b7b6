"""What every `accepts` asks: types, ranks and extents, without TensorRT at hand.

A function here returns why a call cannot be taken, or None. None of them raises: a call may have an unknown
rank, symbolic extents, or arguments that are variables where a constant is usual.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import tvm
from tvm import relax

from ...ir import shapes
from ...ir.shapes import same
from ..expressions import Number, inexpressible
from ..extents import Dim, Extent
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


def extents(ty: relax.Type) -> list[Number] | None:
    """Return the extents of a tensor type, numbers or symbolic, or None when they are not known."""
    shape = getattr(ty, "shape", None)
    known = shapes.extents(relax.TensorType(shape.ty.values) if isinstance(shape, relax.Var) else ty)
    return None if known is None else list(known)


def shape_of(expr: relax.Expr) -> list[Number]:
    """Return the extents of an argument, or of a call's result, that `accepts` has found to be known."""
    return extents(expr.ty) or []


def shown(known: Sequence[Number] | None) -> str:
    """Return extents as a reader of a reason wants them."""
    return "unknown" if known is None else f"({', '.join(str(extent) for extent in known)})"


def static_shape(expr: relax.Expr) -> tuple[int, ...] | None:
    """Return the shape of an argument or call as numbers, or None."""
    known = extents(expr.ty)
    return tuple(known) if known is not None and shapes.is_static(known) else None


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


def refuse_type(ty: relax.TensorType, what: str, dtypes: Collection[str] = MOVABLE) -> Refusal | None:
    """Check one tensor type: dtype, rank, extents.

    Parameters
    ----------
    ty : relax.TensorType
        The type.
    what : str
        How to call it in the reason, such as "the input".
    dtypes : Collection[str]
        The dtypes that the layer takes.
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
    numbers = [extent for extent in known if isinstance(extent, int)]
    strange = next((part for extent in known if (part := inexpressible(extent)) is not None), None)
    if strange is not None:
        return Refusal(
            f"the extent {strange} of {what} is no sum, product, quotient, minimum or maximum of extents",
            "bind the symbolic dimensions to numbers",
        )
    if any(extent < 1 for extent in numbers):  # Relax infers a negative extent for some empty slices
        return Refusal(f"{what} is empty: {shown(known)}")
    if math.prod(numbers) > MAX_VOLUME:
        return Refusal(f"{what} has {math.prod(numbers)} elements; TensorRT holds at most {MAX_VOLUME}")
    return None


def refuse_tensors(
    call: relax.Call,
    dtypes: Collection[str] = MOVABLE,
    *,
    args: Collection[int] | None = None,
) -> Refusal | None:
    """Check the tensors among a call's arguments, and its results.

    Parameters
    ----------
    call : relax.Call
        The call.
    dtypes : Collection[str]
        The dtypes that the layer takes; arguments and results alike.
    args : Collection[int], optional
        Which arguments to look at; all of them if left out.
    """
    chosen = [arg for index, arg in enumerate(call.args) if args is None or index in args]
    for arg in chosen:
        for ty in tensor_types(arg.ty):
            said = refuse_type(ty, "an argument", dtypes)
            if said is not None:
                return said
    results = list(tensor_types(call.ty))
    if not results:
        return Refusal("the type of the result is not known", "run a type inference first")
    for ty in results:
        said = refuse_type(ty, "the result", dtypes)
        if said is not None:
            return said
    return None


def dims_of(call: relax.Call) -> list[Dim]:
    """Return the extents of a call's result, those that its first argument has at the same axis as its own.

    A layer takes over its input's extents at no cost; any other one is computed.
    """
    given = shape_of(call.args[0])
    found: list[Dim] = []
    for axis, extent in enumerate(shape_of(call)):
        kept = not isinstance(extent, int) and axis < len(given) and same(given[axis], extent)
        found.append(Extent(axis) if kept else extent)
    return found


def refuse_unlike(call: relax.Call) -> Refusal | None:
    """Refuse to broadcast an argument where a symbolic extent may or may not be 1: it has to stay what it is."""
    given, wanted = shape_of(call.args[0]), shape_of(call)
    for before, after in zip(given[::-1], wanted[::-1], strict=False):
        if before != 1 and not same(before, after):
            return Refusal(f"{before} is not known to be 1 or {after}", "bind the symbolic dimensions to numbers")
    return None
