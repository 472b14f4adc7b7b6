"""A function of the host that asks its arguments for something, and raises in words where they differ.

TVM's own assertions can only say what is known when they are compiled. Here a message holds numbers of the call: they
are written as digits into memory of the stack, and given to TVM's error handling together with the texts around them.
The function is code like any other kernel, so it is in the library that `export_library` writes, and needs no Python.

It has the signature of TVM's packed functions, `int f(void* self, TVMFFIAny* args, int num_args, TVMFFIAny* result)`,
since it looks at what kind of value an argument is before it reads anything of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import tvm
from tvm import tirx
from tvm.ir import StringImm
from tvm.ir.function import CallingConv

from .fields import Argument, Tensor, int32, put
from .words import NUMBER_BYTES, Words

ERROR = "ExecutionError"  # which is known to TVM once relax_glue is imported; without it Python has a RuntimeError

_RAISE = "TVMFFIErrorSetRaisedFromCStrParts"  # of tvm_ffi's C interface, which TVM's assertions call too
_SYMBOL_PREFIX = "__tvm_ffi_"
# More memory than 1024 bytes TVM takes from the heap, and asks for a device to take it from.
_MOST_PARTS, _MOST_NUMBERS = 127, 1023 // NUMBER_BYTES

Part: TypeAlias = str | Tensor | tvm.ir.Expr


class Kernel:
    """A function under construction: what it asks is asked in the order of the calls of `require`.

    Parameters
    ----------
    name : str
        How it is called.
    words : Words
        What writes numbers in its module.
    """

    def __init__(self, name: str, words: Words) -> None:
        self.name = name
        self._words = words
        self._args = tirx.Var("args", "handle")
        self._steps: list[tirx.Stmt] = []
        self._parts = tirx.decl_buffer((_MOST_PARTS,), "int64", name="parts")
        self._text = tirx.decl_buffer((_MOST_NUMBERS * NUMBER_BYTES,), "uint8", name="text")

    def argument(self, index: int) -> Argument:
        """Return an argument."""
        return Argument(self._args, index)

    def tensor(self, argument: Argument) -> Tensor:
        """Return an argument that is a tensor, for the steps that follow."""
        address = tirx.Var(f"tensor{argument.index}", "handle")
        self.define(address, argument.tensor())
        return Tensor(address)

    def define(self, variable: tirx.Var, value: tvm.ir.Expr) -> None:
        """Let a variable have a value in the steps that follow."""
        self._steps.append(tirx.Bind(variable, value))

    def require(self, holds: tirx.PrimExpr, *message: Part) -> None:
        """Ask for a condition.

        Parameters
        ----------
        holds : tirx.PrimExpr
            The condition.
        *message : str, Tensor or tirx.PrimExpr
            What is raised where it does not hold: texts, dtypes of tensors, and int64 values.
        """
        told = tirx.call_extern("void", _RAISE, StringImm(ERROR), self._parts.data, int32(len(message)))
        raising = [*self._written(message), tirx.Evaluate(told), tirx.Evaluate(tirx.tvm_throw_last_error())]
        self._steps.append(tirx.IfThenElse(tirx.Not(holds), tirx.SeqStmt(raising), None))

    def function(self) -> tirx.PrimFunc:
        """Return the function."""
        params = [tirx.Var("self", "handle"), self._args, tirx.Var("num_args", "int32"), tirx.Var("result", "handle")]
        memory = [tirx.AllocBuffer(self._parts), tirx.AllocBuffer(self._text)]
        body = tirx.SeqStmt([*memory, *self._steps, tirx.Return(int32(0))])
        attrs = {"calling_conv": int(CallingConv.C_PACKED_FUNC), "global_symbol": _SYMBOL_PREFIX + self.name}
        return tirx.PrimFunc(params, body, ret_type=tvm.ir.PrimType("int32")).with_attrs(attrs)

    def _written(self, message: Sequence[Part]) -> list[tirx.Stmt]:
        steps: list[tirx.Stmt] = []
        start = 0
        for place, part in enumerate(message):
            if isinstance(part, str):
                steps.append(put(self._parts.data, place, StringImm(part)))
            elif isinstance(part, Tensor):
                steps.append(self._words.dtype(self._parts.data, place, part))
            else:
                steps.append(self._words.number(self._parts.data, place, self._text.data, start, part))
                start += NUMBER_BYTES
        return steps
