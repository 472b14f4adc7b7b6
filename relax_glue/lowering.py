"""How TVM is called to lower what is left to it."""

from __future__ import annotations

import contextlib

import tvm
from tvm import relax

NO_CSE = "tirx.disable_cse_tir"


def lowering_context(mod: tvm.IRModule) -> contextlib.AbstractContextManager[object]:
    """Return the context to compile a module in: on free sizes, without TVM's sharing of subexpressions.

    That pass binds `float32(w - 1) / float32(2 * w - 1)` of a resize2d with align_corners on a symbolic width to a
    variable, and the analyser then fails on a float where it expects an integer ("IntImm supports only int or uint or
    bool type"). LLVM and NVRTC share subexpressions by themselves.

    Parameters
    ----------
    mod : tvm.IRModule
        What is to be compiled.
    """
    functions = [func for func in mod.functions.values() if isinstance(func, relax.Function)]
    if not any(relax.analysis.defined_symbolic_vars(func) for func in functions):
        return contextlib.nullcontext()
    current = tvm.transform.PassContext.current()
    return tvm.transform.PassContext(
        opt_level=current.opt_level,
        required_pass=list(current.required_pass),
        disabled_pass=list(current.disabled_pass),
        instruments=list(current.instruments),
        config={**current.config, NO_CSE: True},
    )
