"""Small modules with regions, and what LLVM makes of them, for the tests of engines and their runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import relax
from tvm.relax.backend.contrib.tensorrt import partition_for_tensorrt

Body = Callable[..., relax.Expr]


def module_of(body: Body, *shapes: tuple[int, ...], dtype: str = "float32") -> tvm.IRModule:
    """Return a module whose `main` takes tensors of these shapes and returns `body(emit, *variables)`."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{index}", relax.TensorType(shape, dtype)) for index, shape in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            made = builder.emit_output(body(builder.emit, *params))
        builder.emit_func_output(made)
    return builder.get()


def conv_block(seed: int, channels: int = 8) -> Body:
    """Return a body of a convolution with constant weights, an activation, and glue that swaps channels."""
    weights = np.random.default_rng(seed).standard_normal((channels, channels, 3, 3)).astype("float32") / 9

    def body(emit: Callable[..., relax.Var], x: relax.Var) -> relax.Expr:
        y = emit(relax.op.nn.conv2d(x, relax.const(weights), padding=1))
        y = emit(relax.op.nn.relu(y))
        parts = emit(relax.op.split(y, 2, axis=1))
        return emit(relax.op.concat([parts[1], parts[0]], axis=1))

    return body


def conv_module(seed: int = 0, size: int = 16, channels: int = 8) -> tvm.IRModule:
    """Return `conv_block` as a module; equal but for its weights for every seed."""
    return module_of(conv_block(seed, channels), (1, channels, size, size))


def partitioned(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with region functions, as TVM makes them."""
    return partition_for_tensorrt(mod)


def region_of(mod: tvm.IRModule) -> relax.Function:
    """Return the only region function of a module."""
    found = [f for f in mod.functions.values() if isinstance(f, relax.Function) and f.attrs and "Codegen" in f.attrs]
    assert len(found) == 1
    return found[0]


def inputs_of(mod: tvm.IRModule, seed: int = 1) -> list[np.ndarray]:
    """Return random inputs for `main`."""
    random = np.random.default_rng(seed)
    shapes = [tuple(int(extent) for extent in param.ty.shape.values) for param in mod["main"].params]
    return [random.standard_normal(shape).astype("float32") for shape in shapes]


def flat(result: object) -> list[np.ndarray]:
    """Return the tensors of a result as arrays."""
    items = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)  # type: ignore[call-overload]
    return [item.numpy() for item in items]


def on_llvm(mod: tvm.IRModule, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return what `main` yields on the CPU."""
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    return flat(machine["main"](*[tvm.runtime.tensor(array) for array in inputs]))
