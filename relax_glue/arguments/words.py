"""Parts of a message that are only known in a call, and the functions that write them for all kernels of a module."""

from __future__ import annotations

import tvm
from tvm import tirx
from tvm.ir import StringImm

from .fields import Tensor, int32, put

NUMBER_BYTES = 24  # a sign, the digits and a 0
_DIGITS = 19  # of the largest int64
_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_DTYPES = ["float16", "float32", "float64", "bfloat16", *_INTEGERS, "bool"]


class Words:
    """The functions of one module; a kernel calls them through `number` and `dtype`."""

    def __init__(self) -> None:
        self._number = tvm.ir.GlobalVar("write_number")
        self._dtype = tvm.ir.GlobalVar("write_dtype")

    def functions(self) -> dict[tvm.ir.GlobalVar, tirx.PrimFunc]:
        """Return the functions."""
        return {self._number: _number_writer(), self._dtype: _dtype_writer()}

    def number(self, parts: tvm.ir.Expr, place: int, text: tvm.ir.Expr, start: int, value: tirx.PrimExpr) -> tirx.Stmt:
        """Return the step that makes an int64 a part of a message.

        Parameters
        ----------
        parts : tvm.ir.Expr
            The address of the parts.
        place : int
            Which of them it becomes.
        text : tvm.ir.Expr
            The address of memory for texts.
        start : int
            Where in that NUMBER_BYTES are free.
        value : tirx.PrimExpr
            The number.
        """
        return _call(self._number, parts, int32(place), text, int32(start), value)

    def dtype(self, parts: tvm.ir.Expr, place: int, tensor: Tensor) -> tirx.Stmt:
        """Return the step that makes the type of the elements of a tensor a part of a message."""
        return _call(self._dtype, parts, int32(place), tensor.address)


def _call(function: tvm.ir.GlobalVar, *args: tvm.ir.Expr) -> tirx.Stmt:
    return tirx.Evaluate(tvm.ir.Call(function, args, ret_ty=tvm.ir.PrimType("void")))


def _number_writer() -> tirx.PrimFunc:
    """Return a function that writes digits from the right, and gives out where the first one that counts stands."""
    parts, place = tirx.Var("parts", "handle"), tirx.Var("place", "int32")
    memory = tirx.Var("memory", tvm.ir.PointerType(tvm.ir.PrimType("uint8")))
    start, value, index = tirx.Var("start", "int32"), tirx.Var("value", "int64"), tirx.Var("index", "int32")
    text = tirx.decl_buffer((NUMBER_BYTES,), "uint8", name="text")
    rest, length = tirx.decl_buffer((1,), "int64", name="rest"), tirx.decl_buffer((1,), "int32", name="length")
    first, ten, end = int32(0), tirx.IntImm("int64", 10), start + _DIGITS + 1

    def write(character: tirx.PrimExpr | int, where: tirx.PrimExpr) -> tirx.Stmt:
        return tirx.BufferStore(text, tirx.Cast("uint8", character), [where])

    each_digit = [
        write(tirx.truncmod(rest[0], ten) + ord("0"), end - 1 - index),
        tirx.BufferStore(rest, tirx.truncdiv(rest[0], ten), [first]),
        tirx.IfThenElse(rest[0] > 0, tirx.BufferStore(length, index + 2, [first]), None),
    ]
    sign = [write(ord("-"), end - 1 - length[0]), tirx.BufferStore(length, length[0] + 1, [first])]
    steps = [
        tirx.DeclBuffer(text, data=memory),
        tirx.AllocBuffer(rest),
        tirx.AllocBuffer(length),
        tirx.BufferStore(rest, tirx.abs(value), [first]),
        tirx.BufferStore(length, int32(1), [first]),
        tirx.For(index, first, int32(_DIGITS), tirx.ForKind.SERIAL, tirx.SeqStmt(each_digit)),
        tirx.IfThenElse(value < 0, tirx.SeqStmt(sign), None),
        write(0, end),
        put(parts, place, tirx.handle_add_byte_offset(memory, end - length[0])),
    ]
    return tirx.PrimFunc([parts, place, memory, start, value], tirx.SeqStmt(steps))


def _dtype_writer() -> tirx.PrimFunc:
    parts, place, address = tirx.Var("parts", "handle"), tirx.Var("place", "int32"), tirx.Var("tensor", "handle")
    tensor = Tensor(address)
    written = put(parts, place, StringImm("elements of another type"))
    for dtype in _DTYPES:
        written = tirx.IfThenElse(tensor.has_dtype(dtype), put(parts, place, StringImm(dtype)), written)
    return tirx.PrimFunc([parts, place, address], written)
