"""The code of a region in a compiled model: a host function with what it carries as a string constant.

It is built by TVM's LLVM backend, so it links into `lib.so` like any other function; and all that it does is to
hand its arguments on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import tvm
from tvm import tirx

from .artifact import Artifact, to_text
from .runtime import LOAD, RUN


def host_module(artifacts: Sequence[tuple[str, Artifact]], target: tvm.target.Target | str = "llvm") -> Any:
    """Compile the host functions of regions.

    Parameters
    ----------
    artifacts : Sequence[tuple[str, Artifact]]
        The symbol that each region is called by, and what it carries.
    target : tvm.target.Target or str
        The CPU of the machine that runs the model.

    Returns
    -------
    tvm.runtime.Module
        One function for each symbol. It takes the arguments of the region, tuples taken apart, then the outputs.
    """
    functions = {symbol: _host_function(symbol, artifact) for symbol, artifact in artifacts}
    return tvm.compile(tvm.IRModule(functions), target=tvm.target.Target(target)).mod


def _host_function(symbol: str, artifact: Artifact) -> tirx.PrimFunc:
    """Write `if run(key, *tensors) != 0: load(key, text, *tensors)`."""
    block = artifact.pack()
    key = hashlib.sha256(block).hexdigest()
    names = [f"in{i}" for i in range(len(artifact.arguments))] + [f"out{i}" for i in range(len(artifact.outputs))]
    tensors = [tirx.Var(name, "handle") for name in names]
    unknown = tirx.call_packed(RUN, key, *tensors) != tirx.const(0, "int32")
    load = tirx.Evaluate(tirx.call_packed(LOAD, key, to_text(block), *tensors))
    body = tirx.IfThenElse(unknown, load, None)
    return tirx.PrimFunc(tensors, body).with_attr({"global_symbol": symbol, "tirx.is_host_func": True})
