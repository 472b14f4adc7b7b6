"""Modules built call by call, for tests whose constants are computed and whose types TVMScript cannot spell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

Make = Callable[..., relax.Expr]


def const(values: Any, dtype: str = "float32") -> relax.Expr:
    """Return a constant of exactly this dtype."""
    return relax.const(np.array(values, dtype), dtype)


def build(make: Make, dtype: str = "float32", **params: tuple[int | str, ...]) -> tvm.IRModule:
    """Return a module whose `main` is one dataflow block.

    Parameters
    ----------
    make : Callable
        `make(emit, *params)` binds calls with `emit` and returns the result: an expression, or a tuple of some.
    dtype : str
        The element type of the parameters.
    params : tuple
        The shape of each parameter; a string is a symbolic extent.
    """
    symbols: dict[str, tvm.tirx.Var] = {}
    extents = {
        name: [symbols.setdefault(e, tvm.tirx.Var(e, "int64")) if isinstance(e, str) else e for e in shape]
        for name, shape in params.items()
    }
    variables = [relax.Var(name, relax.TensorType(shape, dtype)) for name, shape in extents.items()]
    builder = relax.BlockBuilder()
    with builder.function("main", variables):
        with builder.dataflow():
            result = make(builder.emit, *variables)
            if isinstance(result, tuple):
                results = [builder.emit_output(item) for item in result]
            else:
                results = [builder.emit_output(result)]
        builder.emit_func_output(relax.Tuple(results) if isinstance(result, tuple) else results[0])
    return builder.get()


def ops(mod: tvm.IRModule, function: str = "main") -> list[str]:
    """Return the operators that a function calls in its blocks, in order."""
    values = [b.value for block in mod[function].body.blocks for b in block.bindings]
    return [v.op.name for v in values if isinstance(v, relax.Call) and isinstance(v.op, tvm.ir.Op)]
