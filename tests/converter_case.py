"""One converter test case: a small Relax function through TensorRT's builder and numpy, and through TVM's LLVM.

The network is built for real by TensorRT-RTX, which needs no GPU for that, and evaluated from its own
definition by `relax_glue.tensorrt.reference`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from relax_glue.tensorrt.converters import REGISTRY
from relax_glue.tensorrt.network import Network, build_network
from relax_glue.tensorrt.reference import evaluate
from relax_glue.tensorrt.registry import Refusal

Build = Callable[..., relax.Expr]


@dataclass(frozen=True)
class Outcome:
    """A case that was run: the network, its numbers by numpy, and TVM's."""

    network: Network
    got: list[np.ndarray]
    wanted: list[np.ndarray]


def module_of(build: Build, inputs: Sequence[np.ndarray]) -> tvm.IRModule:
    """Return a module whose `main` takes tensors like `inputs` and returns `build(*variables)`."""
    params = [
        relax.Var(f"x{index}", relax.TensorType(array.shape, str(array.dtype))) for index, array in enumerate(inputs)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(build(*params))
        builder.emit_func_output(result)
    return builder.get()


def calls_of(module: tvm.IRModule) -> list[relax.Call]:
    """Return the operator calls of `main` in order."""
    blocks = module["main"].body.blocks
    values = [binding.value for block in blocks for binding in block.bindings]
    return [value for value in values if isinstance(value, relax.Call)]


def refusals(build: Build, inputs: Sequence[np.ndarray]) -> list[Refusal]:
    """Return the reasons of the calls that the registry refuses."""
    said = [REGISTRY.accepts(call) for call in calls_of(module_of(build, inputs))]
    return [refusal for refusal in said if refusal is not None]


def run(build: Build, inputs: Sequence[np.ndarray]) -> Outcome:
    """Build the network of an accepted case, evaluate it, and run the function with LLVM."""
    module = module_of(build, inputs)
    for call in calls_of(module):
        refusal = REGISTRY.accepts(call)
        assert refusal is None, f"{call.op.name} is refused: {refusal}"
    network = build_network(module["main"])
    return Outcome(network, evaluate(network, inputs), run_llvm(module, inputs))


def run_llvm(module: tvm.IRModule, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the results of `main` as TVM's LLVM computes them, flat."""
    machine = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())
    result = machine["main"](*[tvm.runtime.tensor(np.array(array, order="C")) for array in inputs])
    return [item.numpy() for item in (result if not isinstance(result, tvm.runtime.Tensor) else [result])]


def check(
    build: Build,
    inputs: Sequence[np.ndarray],
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
    engine: bool = False,
    gpu: bool = True,
    step: float = 0.0,
) -> Network:
    """Run a case and compare the numbers: bit for bit unless a tolerance is given.

    With `engine`, the network must also serialise, and on a machine with a GPU the engine must agree too, unless
    `gpu` is False. `step` is what a value may be off there beside rounding: one step of a quantization.
    """
    outcome = run(build, inputs)
    assert len(outcome.got) == len(outcome.wanted)
    for got, wanted in zip(outcome.got, outcome.wanted, strict=True):
        assert got.shape == wanted.shape
        assert got.dtype == wanted.dtype
        if rtol or atol:
            np.testing.assert_allclose(
                got.astype(np.float64), wanted.astype(np.float64), rtol=rtol, atol=atol, equal_nan=True
            )
        else:
            np.testing.assert_array_equal(got, wanted)
    if engine:
        assert serialise(outcome.network) > 0
    if engine and gpu and tvm.cuda(0).exist:
        for got, wanted in zip(run_gpu(build, inputs), outcome.wanted, strict=True):
            close_on_gpu(got, wanted, exact=not (rtol or atol), step=step)
    return outcome.network


def as_region(module: tvm.IRModule) -> tvm.IRModule:
    """Return a module whose `main` does nothing but call the old one, which is a region for TensorRT."""
    body = module["main"].with_attr("Codegen", "tensorrt").with_attr("global_symbol", "region")
    params = [relax.Var(param.name, param.ty) for param in body.params]
    builder = relax.BlockBuilder()
    region = builder.add_func(body, "region")
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(relax.Call(region, params))
        builder.emit_func_output(result)
    return builder.get()


def run_gpu(build: Build, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the results of a case that runs as one engine on the GPU."""
    import relax_glue.tensorrt as trt

    lowered = trt.Codegen(trt.BuildOptions(cache=False), require=True)(as_region(module_of(build, inputs)))
    machine = relax.VirtualMachine(tvm.compile(lowered, "cuda"), tvm.cuda())
    result = machine["main"](*[tvm.runtime.tensor(np.array(array, order="C"), tvm.cuda()) for array in inputs])
    return [item.numpy() for item in (result if not isinstance(result, tvm.runtime.Tensor) else [result])]


def close_on_gpu(got: np.ndarray, wanted: np.ndarray, *, exact: bool, step: float = 0.0) -> None:
    """Compare an engine's result: bit for bit where data is only moved, else to the largest value."""
    assert got.shape == wanted.shape
    assert got.dtype == wanted.dtype
    if exact:
        np.testing.assert_array_equal(got, wanted)
        return
    wide = wanted.astype(np.float64)
    relative = 1e-3 if wanted.dtype == np.float32 else 2e-2
    bound = step + relative * np.abs(wide[np.isfinite(wide)]).max(initial=1e-6)
    np.testing.assert_allclose(got.astype(np.float64), wide, rtol=0, atol=bound, equal_nan=True)


def serialise(network: Network) -> int:
    """Build the engine's plan, on this machine without a GPU, and return its size in bytes."""
    plan = network.builder.builder.build_serialized_network(network.net, network.builder.config())
    assert plan is not None, "TensorRT does not build the engine"
    return int(plan.nbytes)


def layer_types(network: Network) -> list[str]:
    """Return the types of the network's layers in order."""
    return [network.net.get_layer(index).type.name for index in range(network.net.num_layers)]


def numbers(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Return distinct-looking random numbers: integers within [-9, 9] for integer dtypes."""
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if dtype.startswith(("int", "uint")):
        return random.integers(-9 if dtype.startswith("int") else 0, 10, shape).astype(dtype)
    if dtype == "bfloat16":
        import ml_dtypes

        return random.standard_normal(shape).astype(ml_dtypes.bfloat16)
    return random.standard_normal(shape).astype(dtype)
