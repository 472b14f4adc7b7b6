"""Constants of functions that run on the host.

The virtual machine keeps its constants on its first device, the GPU. So a small constant is written by a kernel, and a
large one copied at each call.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from ..tensorrt.transfer import COPY

_WRITTEN = 256  # elements; more would make the code long, and a copy takes some ten microseconds at any size
_LITERAL = frozenset(
    ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "float16", "float32", "float64")
)


def ConstantsOfHost() -> tvm.transform.Pass:
    """Return the pass that lets legalised functions of the host make their constants themselves."""

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        writer = _Constants(mod)
        for var, function in mod.functions_items():
            if isinstance(function, relax.Function):
                writer.builder_.update_func(var, writer.visit_expr(function))
        return writer.builder_.finalize()

    return tvm.transform.module_pass(run, opt_level=0, name="relax_glue.ConstantsOfHost")


@mutator
class _Constants(PyExprMutator):
    """Replaces each constant by a call that makes it."""

    def visit_generic_const_(self, const: relax.Expr) -> relax.Expr:
        """Replace a constant tensor."""
        array = const.value.numpy() if isinstance(const.ty, relax.TensorType) else None
        if array is None:
            return const
        dtype = str(const.ty.dtype)
        if array.size > _WRITTEN or dtype not in _LITERAL:
            return self.builder_.emit(relax.call_dps_packed(COPY, [const], out_ty=const.ty))
        kernel = self.builder_.add_func(_store(array, dtype), "constant")
        return self.builder_.emit(relax.call_tir(kernel, [], out_ty=const.ty))


def _store(array: np.ndarray, dtype: str) -> tirx.PrimFunc:
    """Write a kernel that stores the elements of an array one by one."""
    buffer = tirx.decl_buffer(array.shape, dtype, "values")
    stores = [
        tirx.BufferStore(buffer, tirx.const(value.item(), dtype), list(index)) for index, value in np.ndenumerate(array)
    ]
    body = tirx.SeqStmt(stores) if len(stores) > 1 else (stores or [tirx.Evaluate(0)])[0]
    return tirx.PrimFunc([buffer], body)
