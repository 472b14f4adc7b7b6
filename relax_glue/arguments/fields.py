"""What a call gives for an argument, as a kernel reads it: fields of TVM's `TVMFFIAny` and of `DLTensor`."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import tirx
from tvm.relax.transform.legalize_ops.inspect_op import TVMStructFieldKind as Field

# Of tvm::tirx::builtin::TVMStructFieldKind, what the class in Python does not name.
_TYPE_INDEX, _UNION_VALUE, _INT64_ELEMENT = 13, 15, 17
# Of tvm_ffi/c_api.h: what a TVMFFIAny can hold. A Tensor is an object that has its DLTensor after the header.
_DL_TENSOR, _TENSOR = 7, 70
_HEADER_BYTES = 24


@dataclass(frozen=True)
class Argument:
    """One argument of a packed function.

    Attributes
    ----------
    args : tirx.Var
        The address of all of them.
    index : int
        Its place.
    """

    args: tirx.Var
    index: int

    def is_tensor(self) -> tirx.PrimExpr:
        """Return whether it is a tensor."""
        return tirx.any(self._type_index() == _TENSOR, self._type_index() == _DL_TENSOR)

    def tensor(self) -> tvm.ir.Expr:
        """Return the address of the DLTensor that it is."""
        offset = tirx.Select(self._type_index() == _TENSOR, int32(_HEADER_BYTES), int32(0))
        address = tirx.tvm_struct_get(self.args, self.index, _UNION_VALUE, "handle")
        return tirx.handle_add_byte_offset(address, offset)

    def _type_index(self) -> tirx.PrimExpr:
        return tirx.tvm_struct_get(self.args, self.index, _TYPE_INDEX, "int32")


@dataclass(frozen=True)
class Tensor:
    """A DLTensor.

    Attributes
    ----------
    address : tirx.Var
        Where it is.
    """

    address: tirx.Var

    def rank(self) -> tirx.PrimExpr:
        """Return the number of its axes, an int64."""
        return tirx.Cast("int64", self._field(Field.kDLTensorNDim, "int32"))

    def has_dtype(self, dtype: str) -> tirx.PrimExpr:
        """Return whether its elements have a type."""
        known = tvm.DataType(dtype)
        return tirx.all(
            self._field(Field.kDLTensorTypeCode, "uint8") == known.type_code,
            self._field(Field.kDLTensorTypeBits, "uint8") == known.bits,
            self._field(Field.kDLTensorTypeLanes, "uint16") == known.lanes,
        )

    def extent(self, axis: int) -> tirx.PrimExpr:
        """Return an extent, an int64; the tensor has the axis."""
        return tirx.tvm_struct_get(self._field(Field.kDLTensorShape, "handle"), axis, _INT64_ELEMENT, "int64")

    def _field(self, field: Field, dtype: str) -> tvm.ir.Expr:
        return tirx.tvm_struct_get(self.address, 0, field, dtype)


def put(pointers: tvm.ir.Expr, place: int | tirx.PrimExpr, pointer: tvm.ir.Expr) -> tirx.Stmt:
    """Return the step that writes a pointer into an array of such, which TIR takes for one of int64."""
    return tirx.Evaluate(tirx.tvm_struct_set(pointers, place, _INT64_ELEMENT, pointer))


def int32(value: int) -> tirx.IntImm:
    """Return a number as TIR has it."""
    return tirx.IntImm("int32", value)
