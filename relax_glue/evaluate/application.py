"""One Relax call with its operands as numpy values: what every evaluator reads.

`tvm.relax` spreads what a call computes over tensors, shapes, scalars, tuples of scalars, attributes and
the declared result type. Here they become plain numpy and Python values once, so that an evaluator is a
few lines of numpy and never looks at the IR.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

Array = np.ndarray
Value = Any  # an Array, a tuple of Arrays, a tuple of ints (a shape), or None (an operand nobody reads)
Outcome = Array | tuple[Array, ...] | None

_EXTENSION_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


@dataclass(frozen=True)
class Result:
    """A declared tensor type: `shape` is None where the type leaves it open."""

    shape: tuple[int, ...] | None
    dtype: np.dtype

    def holds(self, array: Array) -> bool:
        """Say whether `array` has this dtype and shape."""
        return array.dtype == self.dtype and self.shape in (None, array.shape)


@dataclass(frozen=True)
class Application:
    """An operator applied to known operands.

    `values` stand in the order of `call.args`: tensors and scalars as arrays (scalars of rank 0, in their
    own dtype), shapes as tuples of ints, tuples as tuples. `result` is what the call's type declares; a
    tuple of them when the call gives a tuple.
    """

    call: relax.Call
    values: tuple[Value, ...]
    result: Result | tuple[Result, ...]

    @property
    def attrs(self) -> Any:
        """The attributes of the call."""
        return self.call.attrs

    @property
    def data(self) -> Array:
        """The first operand."""
        return self.values[0]

    @property
    def out(self) -> Result:
        """The one result, for operators that have a single one."""
        if isinstance(self.result, tuple):
            raise TypeError("an operator with one result was declared to give a tuple")
        return self.result

    @property
    def shape(self) -> tuple[int, ...]:
        """The declared extents of the one result; only for operators whose extents come from their type."""
        if self.out.shape is None:
            raise Undetermined
        return self.out.shape


class Undetermined(Exception):
    """The value of the call cannot be told: an operand is symbolic, or LLVM leaves the case undefined."""


Function = Callable[[Application], Outcome]


@dataclass(frozen=True)
class Evaluator:
    """How one operator is computed in numpy.

    Attributes
    ----------
    function
        From an `Application` to the result, or None where it is not certain.
    soundness
        "exact": bit for bit what TVM's LLVM build computes. "float_reassoc": last bits may differ on
        floating-point data (another order of summation, another libm); integers and bool stay exact.
    """

    function: Function
    soundness: str = "exact"


def numpy_dtype(name: str) -> np.dtype | None:
    """Give the numpy dtype called `name`, or None if neither numpy nor ml_dtypes has it."""
    if name in _EXTENSION_DTYPES:
        try:
            import ml_dtypes
        except ImportError:
            return None
        return np.dtype(getattr(ml_dtypes, name))
    try:
        return np.dtype(name)
    except TypeError:
        return None


def kind(typed: Array | np.dtype) -> str:
    """Give "i", "u", "f" or "b" for the dtypes that numpy computes with, "x" for those of ml_dtypes.

    numpy's own `kind` of float8_e5m2 is "f", though that of bfloat16 is "V".
    """
    dtype = typed if isinstance(typed, np.dtype) else typed.dtype
    return "x" if dtype.name in _EXTENSION_DTYPES else dtype.kind


def is_floating(array: Array) -> bool:
    """Say whether `array` holds floating-point values, the types of ml_dtypes included."""
    return kind(array) in "fx"


def declared(result_type: relax.Type) -> Result | tuple[Result, ...] | None:
    """Read a tensor type, or a flat tuple of them; None where an extent is symbolic or a dtype unknown."""
    if isinstance(result_type, relax.TupleType):
        fields = tuple(declared(field) for field in result_type.fields)
        return fields if all(isinstance(field, Result) for field in fields) else None  # type: ignore[return-value]
    if not isinstance(result_type, relax.TensorType):
        return None
    dtype = numpy_dtype(str(result_type.dtype))
    if dtype is None:
        return None
    if not isinstance(result_type.shape, relax.ShapeExpr):
        return Result(None, dtype)
    extents = _static(result_type.shape.values)
    return None if extents is None else Result(extents, dtype)


def byte_size(result_type: relax.Type) -> int | None:
    """Count the bytes of a value of `result_type`; None where its extents or dtype are unknown."""
    results = declared(result_type)
    if results is None:
        return None
    fields = results if isinstance(results, tuple) else (results,)
    if any(field.shape is None for field in fields):
        return None
    return sum(math.prod(field.shape or ()) * field.dtype.itemsize for field in fields)


def bind(call: relax.Call, args: Sequence[Value]) -> tuple[Value, ...]:
    """Put the tensor values `args` among the shapes and scalars that stand in the call itself.

    Raises
    ------
    Undetermined
        A shape or scalar of the call is symbolic.
    ValueError
        There are more or fewer values than tensor operands, or one has another dtype than its operand.
    """
    tensors = [arg for arg in call.args if _is_tensor(arg.ty)]
    if len(tensors) != len(args):
        raise ValueError(f"{call.op.name} has {len(tensors)} tensor operands, but {len(args)} values were given")
    for place, (tensor, value) in enumerate(zip(tensors, args, strict=True)):
        if isinstance(value, np.ndarray) and str(tensor.ty.dtype) not in ("", value.dtype.name):
            raise ValueError(f"{call.op.name}: operand {place} is {tensor.ty.dtype}, its value {value.dtype.name}")
    rest = iter(args)
    return tuple(next(rest) if _is_tensor(arg.ty) else _literal(arg) for arg in call.args)


def _is_tensor(operand_type: Any) -> bool:
    if isinstance(operand_type, relax.TupleType):
        fields = list(operand_type.fields)
        return bool(fields) and all(isinstance(field, relax.TensorType) for field in fields)
    return isinstance(operand_type, relax.TensorType)


def _literal(arg: relax.Expr) -> Value:
    if isinstance(arg, relax.ShapeExpr):
        return _known(_static(arg.values))
    if isinstance(arg, relax.Tuple):
        return tuple(_literal(field) for field in arg.fields)
    if isinstance(arg, tvm.tirx.IntImm | tvm.tirx.FloatImm):
        return _immediate(arg)
    if isinstance(arg.ty, relax.ShapeType) and arg.ty.values is not None:
        return _known(_static(arg.ty.values))
    raise Undetermined


def _immediate(imm: Any) -> Array:
    dtype = numpy_dtype(str(imm.ty.dtype))
    if dtype is None:
        raise Undetermined
    return np.asarray(imm.value).astype(dtype)


def _static(values: Sequence[Any]) -> tuple[int, ...] | None:
    extents = list(values)
    if not all(isinstance(extent, tvm.tirx.IntImm) for extent in extents):
        return None
    return tuple(int(extent) for extent in extents)


def _known(extents: tuple[int, ...] | None) -> tuple[int, ...]:
    if extents is None:
        raise Undetermined
    return extents
