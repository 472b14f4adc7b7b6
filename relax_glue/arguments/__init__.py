"""What a compiled function is called with, asked at its entry, so that a wrong call is told in words.

TVM checks arguments too, and names neither the input of the source model, nor the axis, nor the range, nor the way out:
"Check failed: input_shape[i] == heap_data[reg] (5 vs. 4) : ErrorContext(match_cast, ty=R.Shape([T.min(n, 4)]))". Here
the same is asked before TVM does, by a kernel for each function that is called from outside: `entry.py` says what is
asked, `kernel.py` makes code of it. The kernel is called once, with the arguments as they are, and reads no data, so it
costs a fraction of a microsecond, on the GPU too.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax

from ..ir.blocks import is_closed
from .entry import Entry
from .kernel import Kernel
from .words import Words

__all__ = ["check_arguments"]

_NOTHING = relax.TupleType([])


def check_arguments(lowered: tvm.IRModule, source: tvm.IRModule, host: tvm.target.Target) -> tvm.IRModule:
    """Let the functions of a module that TVM has lowered for its virtual machine check their arguments.

    It is done to what is lowered, since TVM puts its own checks in front of everything else. The kernels are a library
    of their own: TVM's generator declares the function that they raise with anew, under another name, for assertions
    of other kernels beside them.

    Parameters
    ----------
    lowered : tvm.IRModule
        It is not changed.
    source : tvm.IRModule
        What it was before, where signatures and checks still stand.
    host : tvm.target.Target
        What the kernels are for. Where it is not LLVM's, TVM's own checks stay the only ones.
    """
    if host.kind.name != "llvm":
        return lowered
    result, words, kernels = lowered.clone(), Words(), {}
    for var, func in source.functions_items():
        name = str(var.name_hint)
        if not isinstance(func, relax.Function) or not _is_called_from_outside(func):
            continue
        kernel = Kernel(f"check_arguments_of_{name}", words)
        places = Entry(name, func, kernel).ask()
        if places:
            kernels[tvm.ir.GlobalVar(kernel.name)] = kernel.function()
            result[name] = _calling(result[name], kernel.name, places)
    if not kernels:
        return lowered
    code = tvm.tirx.build(tvm.IRModule({**kernels, **words.functions()}), target=host, pipeline="tirx")
    attrs = lowered.attrs or {}
    return result.with_attr("external_mods", [*attrs.get("external_mods", []), code])


def _is_called_from_outside(func: relax.Function) -> bool:
    return func.attrs is not None and "global_symbol" in func.attrs and not is_closed(func)


def _calling(func: relax.Function, kernel: str, places: Sequence[int]) -> relax.Function:
    """Return a function that first calls a kernel with some of its parameters."""
    call = relax.Call(relax.ExternFunc(kernel), [func.params[place] for place in places], ty_args=[_NOTHING])
    relax.expr._update_type(call, _NOTHING)
    first = relax.BindingBlock([relax.VarBinding(relax.Var("_", _NOTHING), call)])
    body = relax.SeqExpr([first, *func.body.blocks], func.body.body)
    relax.expr._update_type(body, func.body.ty)
    return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)
