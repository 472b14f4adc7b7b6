"""What a public bug report becomes here: a graph, inputs, and the right answer in numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

Array = np.ndarray[Any, Any]
Emit = Callable[[relax.Expr], relax.Var]
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)


def numbered(shape: Sequence[int], dtype: str = "float32") -> Array:
    """Entries that all differ, some of them negative, so that a wrong order or sign shows."""
    count = int(np.prod(shape))
    values = np.arange(count) - (count // 3 if dtype not in ("bool", "uint8") else 0)
    return (values % 2 == 0 if dtype == "bool" else values).astype(dtype).reshape(shape)


def const(values: Any, dtype: str) -> relax.Expr:
    return relax.const(np.array(values, dtype), dtype)


@dataclass(frozen=True, eq=False)
class BugReport:
    """One report.

    Attributes
    ----------
    name, url
        The case's number, and the place of the report.
    inputs
        The arrays the graph is run on; they give the parameters' types, unless `types` does.
    build
        Emits the graph from the parameters and returns its result, an expression or a list of them.
    right
        The answer in numpy, from the arrays.
    types
        The parameters' types where an extent is symbolic.
    tvm_wrong
        Whether TVM answers wrongly or not at all as the graph stands, so that only numpy is an oracle.
    becomes
        The operators of the canonical form, sorted.
    regions
        The number of TensorRT regions.
    exact
        Whether the graph only moves data or computes with whole numbers.
    """

    name: str
    url: str
    inputs: tuple[Array, ...]
    build: Callable[..., relax.Expr | list[relax.Expr]]
    right: Callable[..., Array | list[Array]]
    types: tuple[relax.Type, ...] | None = None
    tvm_wrong: bool = False
    becomes: tuple[str, ...] | None = None
    regions: int | None = None
    exact: bool = True

    def module(self) -> tvm.IRModule:
        types = self.types or [relax.TensorType(a.shape, str(a.dtype)) for a in self.inputs]
        parameters = [relax.Var(f"x{i}", ty) for i, ty in enumerate(types)]
        builder = relax.BlockBuilder()
        with builder.function("main", parameters):
            with builder.dataflow():
                built = self.build(builder.emit, *parameters)
                results = built if isinstance(built, list) else [built]
                outputs = [builder.emit_output(result) for result in results]
            builder.emit_func_output(outputs if isinstance(built, list) else outputs[0])
        return builder.get()

    def answers(self) -> list[Array]:
        right = self.right(*self.inputs)
        return right if isinstance(right, list) else [right]
