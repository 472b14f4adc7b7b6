"""One converter test case: a small Relax function through TensorRT's builder and numpy, and through TVM's LLVM.

The network is built for real by TensorRT-RTX, which needs no GPU for that, and evaluated from its own
definition by `relax_glue.tensorrt.reference`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from relax_glue.tensorrt.converters import REGISTRY
from relax_glue.tensorrt.network import Network, build_network
from relax_glue.tensorrt.products import NO_PRODUCTS, Products
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
    return module_of_types(build, [relax.TensorType(array.shape, str(array.dtype)) for array in inputs])


def module_of_types(build: Build, types: Sequence[relax.TensorType]) -> tvm.IRModule:
    """Return a module whose `main` takes tensors of these types, with symbolic extents or not."""
    params = [relax.Var(f"x{index}", ty) for index, ty in enumerate(types)]
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


def run(build: Build, inputs: Sequence[np.ndarray], products: Products = NO_PRODUCTS) -> Outcome:
    """Build the network of an accepted case, evaluate it, and run the function with LLVM."""
    module = module_of(build, inputs)
    for call in calls_of(module):
        refusal = REGISTRY.accepts(call)
        assert refusal is None, f"{call.op.name} is refused: {refusal}"
    network = build_network(module["main"], products=products)
    return Outcome(network, evaluate(network, inputs), run_llvm(module, inputs))


def run_llvm(module: tvm.IRModule, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the results of `main` as TVM's LLVM computes them, flat."""
    return run_machine(relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu()), inputs)


def run_machine(machine: relax.VirtualMachine, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the results of `main`, flat."""
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
    products: Products = NO_PRODUCTS,
) -> Network:
    """Run a case and compare the numbers: bit for bit unless a tolerance is given.

    With `engine`, the network must also serialise, and on a machine with a GPU the engine must agree too, unless
    `gpu` is False. `step` is what a value may be off there beside rounding: one step of a quantization.
    """
    outcome = run(build, inputs, products)
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


def extent_at(extent: tvm.ir.Expr | int, sizes: Mapping[str, int]) -> int:
    """Return the number that an extent is where the symbols have these sizes, by name."""
    analyzer = tvm.sym.Analyzer()
    for symbol in relax.analysis.tir_vars_in_type(relax.ShapeType([extent])):
        analyzer.bind(symbol, tvm.tirx.IntImm("int64", sizes[symbol.name]))
    return int(analyzer.simplify(extent))


def shape_at(ty: relax.TensorType, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of a tensor type where the symbols have these sizes."""
    return tuple(extent_at(extent, sizes) for extent in ty.shape.values)


def check_symbolic(
    build: Build,
    types: Sequence[relax.TensorType],
    every_size: Sequence[Mapping[str, int]],
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
    make: Callable[..., np.ndarray] | None = None,
    static: Callable[[Mapping[str, int]], Build] | None = None,
) -> Network:
    """Build one network of an accepted case, and compare its numbers with LLVM at several sizes.

    Parameters
    ----------
    build : Build
        As for `check`.
    types : Sequence[relax.TensorType]
        The types of its operands.
    every_size : Sequence[Mapping[str, int]]
        The sizes of the symbols by name. The engine is built for the range of all of them.
    rtol, atol : float
        Bit for bit unless a tolerance is given.
    make : Callable, optional
        Makes an operand, as `numbers` does, which is used if left out.
    static : Callable, optional
        The case with numbers for the symbols, for LLVM: there are operators that TVM compiles only so.
    """
    module = module_of_types(build, types)
    for call in calls_of(module):
        refusal = REGISTRY.accepts(call)
        assert refusal is None, f"{call.op.name} is refused: {refusal}"
    network = build_network(module["main"])
    compiled = None if static is not None else relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())
    for sizes in every_size:
        arrays = [
            (make or numbers)(*shape_at(ty, sizes), dtype=str(ty.dtype), seed=seed) for seed, ty in enumerate(types)
        ]
        if static is not None:
            wanted = run_llvm(module_of(static(sizes), arrays), arrays)
        else:
            wanted = run_machine(compiled, arrays)
        got = evaluate(network, arrays)
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted, strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)
    assert serialise(network, every_size) > 0
    return network


def profile_of(network: Network, every_size: Sequence[Mapping[str, int]]) -> Any:
    """Return an optimisation profile for the range of all these sizes."""
    profile = network.builder.builder.create_optimization_profile()
    for given in network.inputs:
        profile.set_shape(given.name, *_range_of(given.ty.shape.values, every_size))
    for shape in network.shapes:
        profile.set_shape_input(shape.name, *_range_of(shape.extents, every_size))
    return profile


def _range_of(extents: Sequence[tvm.ir.Expr], every_size: Sequence[Mapping[str, int]]) -> list[list[int]]:
    """Return the least, usual and largest extents."""
    columns = [[extent_at(extent, sizes) for sizes in every_size] for extent in extents]
    return [[choose(column) for column in columns] for choose in (min, max, max)]


def serialise(network: Network, every_size: Sequence[Mapping[str, int]] = ()) -> int:
    """Build the engine's plan, on this machine without a GPU, and return its size in bytes.

    A network with symbolic extents is built for the range of `every_size`.
    """
    config = network.builder.config()
    if every_size:
        config.add_optimization_profile(profile_of(network, every_size))
    plan = network.builder.builder.build_serialized_network(network.net, config)
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
