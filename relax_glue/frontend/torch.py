"""Programs of torch.export to Relax through TVM's importer."""

from __future__ import annotations

import contextlib
import io
import warnings
from typing import Any

import tvm
from tvm import relax

from relax_glue.errors import ModelImportError

from .naming import last_line
from .symbolic.ranges import check_bounds
from .torch_repairs import convert_map


def from_torch(exported_program: Any) -> tvm.IRModule:
    """Import a program of torch.export as a Relax module with its weights inside.

    Parameters
    ----------
    exported_program : torch.export.ExportedProgram
        What `torch.export.export(model.eval(), example_inputs)` returns.

    Returns
    -------
    tvm.IRModule
        A module with the function `main`. The weights are copies, so that the module can be saved and does not
        change with the PyTorch model. The ranges of dynamic dimensions are attributes of it, as `from_onnx` writes
        them, and a size outside raises RuntimeError when it is called.

    Raises
    ------
    ModelImportError
        torch is missing, the value is no exported program, or an operator cannot be converted.
    """
    try:
        from torch.export import ExportedProgram
    except ImportError as error:
        raise ModelImportError("from_torch needs the package torch: pip install torch") from error
    if not isinstance(exported_program, ExportedProgram):
        raise ModelImportError(
            f"from_torch takes a torch.export.ExportedProgram, not {type(exported_program).__name__}; "
            "make one with torch.export.export(model.eval(), example_inputs)"
        )
    from tvm.relax.frontend.torch import from_exported_program

    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            mod = from_exported_program(exported_program, custom_convert_map=convert_map())
        except ModelImportError:
            raise
        except Exception as error:
            raise ModelImportError(f"the exported program cannot be imported: {last_line(error)}") from error
    return check_bounds(_own_constants(mod))


def _own_constants(mod: tvm.IRModule) -> tvm.IRModule:
    """Copy the constants, which the importer takes over by DLPack, out of PyTorch's memory.

    Shared memory changes the module when the PyTorch model trains on, or frees a weight with it.
    """
    result = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    for name, function in mod.functions_items():
        if isinstance(function, relax.Function):
            result.update_func(name, _CopyConstants(mod).visit_expr(function))
    return result


@relax.expr_functor.mutator
class _CopyConstants(relax.PyExprMutator):
    def visit_generic_const_(self, op: Any) -> relax.Expr:
        copy = tvm.runtime.empty(op.value.shape, op.value.dtype)
        return tvm.ir.GenericConst(copy.copyfrom(op.value), op.ty)
