"""Is what TensorRT computes what TVM computes? Each region against LLVM, layer by layer.

The model is run by LLVM with the caller's inputs, so that every region is seen with the tensors that really
reach it. On a machine with a GPU the region's engine then runs on those; if its results differ, a second engine
with every layer as an output shows where they part. Without a GPU the network is evaluated in numpy, which
shows a wrong conversion though not a fault of TensorRT itself.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from ..errors import DeviceError, InvalidModuleError
from ..region_function import is_region
from .artifact import Artifact, save_region
from .check_inputs import arguments_of
from .check_report import CheckReport, RegionCheck, difference
from .codegen import RegionCaller, make_artifact
from .converters import REGISTRY
from .cuda import gpu
from .engine import build_plan
from .host import host_module
from .network import DTYPES, Network
from .options import BuildOptions
from .plain import Plain, with_every_step
from .products import products_for
from .profiles import read_profiles, with_bounds
from .provider import get_provider
from .reference import evaluate
from .region import Region
from .signature import TensorSpec

_Argument: TypeAlias = "np.ndarray | tvm_ffi.Shape"


@dataclass(frozen=True)
class _Seen:
    """A region's call in the run by LLVM: the arguments that came in, and the arrays of each step and each result."""

    arguments: list[_Argument]
    values: list[np.ndarray]

    @property
    def inputs(self) -> list[np.ndarray]:
        return [argument for argument in self.arguments if isinstance(argument, np.ndarray)]

    @property
    def shapes(self) -> list[np.ndarray]:
        return [np.array(argument, "int64") for argument in self.arguments if not isinstance(argument, np.ndarray)]


def check(
    mod: tvm.IRModule,
    inputs: Sequence[Any] | None = None,
    *,
    function: str = "main",
    tolerance: float | None = None,
    options: BuildOptions | None = None,
) -> CheckReport:
    """Compare each TensorRT region of a module with TVM.

    Parameters
    ----------
    mod : tvm.IRModule
        A partitioned module, as `relax_glue.partition` or MergeCompositeFunctions leaves it.
    inputs : Sequence, optional
        The inputs of `function`: an array for each tensor, and numbers for each shape. Random ones if left out, which
        needs static shapes.
    function : str
        The function to run.
    tolerance : float, optional
        The error allowed in floating point, as a share of a tensor's largest value. Left out, 1e-3 for
        float32, 2e-2 for float16, 1e-1 for bfloat16. Integers have to be equal.
    options : BuildOptions, optional
        How engines are built, on a GPU.

    Returns
    -------
    CheckReport
        `report.ok` is the answer, `print(report)` says what differs first.

    Raises
    ------
    InvalidModuleError
        When the module has no such function, or no region.
    InputShapeError
        When the inputs do not fit the function.
    ConversionError, BuildError
        When a region cannot be converted or built.
    """
    regions = {gv: region for gv, region in mod.functions_items() if is_region(region)}
    if not regions:
        raise InvalidModuleError("the module has no TensorRT region: partition it first, with relax_glue.partition")
    if function not in [gv.name_hint for gv in mod.get_global_vars()]:
        raise InvalidModuleError(f"the module has no function {function}: name one with function=")
    steps = {gv: with_every_step(region) for gv, region in regions.items()}
    for plain in steps.values():
        _unique_names(plain.region)
    seen = _observe(mod, steps, function, arguments_of(mod[function], inputs))
    where, chosen = _where(), BuildOptions.of(options)
    callers = [each for each in mod.functions.values() if isinstance(each, relax.Function)]
    found = [
        _compare(gv.name_hint, with_bounds(regions[gv], callers), steps[gv], seen[gv], where, tolerance, chosen)
        for gv in seen
    ]
    return CheckReport(where or "numpy", tuple(found))


def _where() -> str | None:
    """Return the name of the GPU, or None."""
    try:
        return gpu().name
    except DeviceError:
        return None


def _observe(
    mod: tvm.IRModule, steps: Mapping[tvm.ir.GlobalVar, Plain], function: str, arguments: Sequence[Any]
) -> dict[tvm.ir.GlobalVar, _Seen]:
    """Run the module by LLVM, with a Python function in the place of each region that looks at its call."""
    prefix = f"relax_glue.check.{uuid.uuid4().hex}."
    caller = RegionCaller(mod, {gv: prefix + gv.name_hint for gv in steps})
    functions = {}
    for gv, old in mod.functions_items():
        if gv in steps:
            functions[gv] = steps[gv].function.with_attr("global_symbol", gv.name_hint)
        else:
            functions[gv] = caller.visit_expr(old) if isinstance(old, relax.Function) else old
    compiled = tvm.compile(tvm.IRModule(functions), "llvm")
    observers = {gv: _Observer(gv.name_hint, plain.region) for gv, plain in steps.items()}
    try:
        for gv, observer in observers.items():  # the virtual machine looks for them when it is made
            tvm.register_global_func(prefix + gv.name_hint, observer)
        machine, inner = (relax.VirtualMachine(compiled, tvm.cpu()) for _ in range(2))
        for observer in observers.values():
            observer.machine = inner
        machine[function](*arguments)
    finally:
        for gv in steps:
            tvm_ffi.registry.remove_global_func(prefix + gv.name_hint)
    return {gv: observer.seen for gv, observer in observers.items() if observer.seen is not None}


class _Observer:
    """Stands in the place of a region: lets LLVM compute it and keeps what the first call saw."""

    def __init__(self, name: str, region: Region) -> None:
        self.machine: Any = None
        self.seen: _Seen | None = None
        self._name = name
        self._shapes = len(region.shapes)
        self._results = len(region.outputs)

    def __call__(self, *tensors: Any) -> None:
        split = len(tensors) - self._results
        values = list(self.machine[self._name](*tensors[:split]))
        for result, value in zip(tensors[split:], values[len(values) - self._results :], strict=True):
            result.copyfrom(value)
        if self.seen is None:
            self.seen = _Seen(list(map(_kept, tensors[:split])), [value.numpy() for value in values])


def _kept(argument: Any) -> _Argument:
    """Return a tensor as an array; a shape is kept as it is."""
    return argument if isinstance(argument, tvm_ffi.Shape) else argument.numpy()


def _compare(
    name: str,
    function: relax.Function,
    plain: Plain,
    seen: _Seen,
    where: str | None,
    tolerance: float | None,
    options: BuildOptions,
) -> RegionCheck:
    """Compare one region's results, and its layers if those differ or come for nothing."""
    names = _step_names(plain)
    count = len(plain.region.outputs)
    expected = seen.values[len(names) :]
    network = _network(plain.region, options)
    if where is None:
        values = evaluate(network, seen.inputs, every_tensor=True, shapes=seen.shapes)
        got = [values[output] for output in network.outputs]
    else:
        artifact = make_artifact(function, replace(options, build="now", keep_region=False))
        got = _run(artifact, seen)
    outputs = tuple(difference(f"output {index}", "", got[index], expected[index], tolerance) for index in range(count))
    if where is not None and not all(output.ok for output in outputs):
        values = _run_every_layer(network, function, seen, options)
    elif where is not None:
        values = {}
    compared = [
        difference(step, op, values[network.named[step]], value, tolerance)
        for (step, op), value in zip(names, seen.values, strict=False)
        if network.named.get(step) in values
    ]
    first = next((each for each in compared if not each.ok), None)
    return RegionCheck(name, outputs, first, len(compared))


def _network(region: Region, options: BuildOptions) -> Network:
    """Make the network of a region whose steps have different names."""
    provider = get_provider(options.provider)
    network = Network(provider.builder(), products_for(options, provider, read_profiles(options.profiles)))
    network.build(region, REGISTRY)
    return network


def _unique_names(region: Region) -> None:
    """Give each step a name of its own: Relax names are hints, and two variables can share one."""
    taken: set[str] = set()
    for step in region.steps:
        name, number = step.name, 1
        while name in taken:
            number += 1
            name = f"{step.name}_{number}"
        taken.add(name)
        step.name = name


def _step_names(plain: Plain) -> list[tuple[str, str]]:
    """Return the name and operator of each tensor that a step yields, as `Network.tensors` has them."""
    found = []
    for step in plain.region.steps:
        ty = step.call.ty
        count = len(ty.fields) if isinstance(ty, relax.TupleType) else 1
        op = step.call.op.name
        found += [(step.name if count == 1 else f"{step.name}.{item}", op) for item in range(count)]
    return found


def _run_every_layer(
    network: Network, function: relax.Function, seen: _Seen, options: BuildOptions
) -> dict[str, np.ndarray]:
    """Run the network with every layer's tensor as an output, by name."""
    tensors = _tensors(network)
    wanted = [name for name in dict.fromkeys(network.named.values()) if name not in network.outputs]
    for name in wanted:
        network.net.mark_output(tensors[name])
    network.outputs.extend(wanted)
    saved = save_region(function, read_profiles(options.profiles))
    values = evaluate(network, seen.inputs, every_tensor=True, shapes=seen.shapes)
    shapes = {name: array.shape for name, array in values.items()}
    specs = [TensorSpec(name, shapes[name], _dtype(network, tensors[name])) for name in network.outputs]
    plan = build_plan(network, options, saved, title=f"{saved.symbol}, every layer an output")
    artifact = Artifact(saved.symbol, saved.inputs, tuple(specs), options, None, plan, saved.shapes, saved.profiles)
    return dict(zip(network.outputs, _run(artifact, seen), strict=True))


def _tensors(network: Network) -> dict[str, Any]:
    """Return the network's tensors by name."""
    net = network.net
    layers = [net.get_layer(index) for index in range(net.num_layers)]
    made = [layer.get_output(index) for layer in layers for index in range(layer.num_outputs)]
    return {tensor.name: tensor for tensor in made}


def _dtype(network: Network, tensor: Any) -> str:
    return next(name for name, member in DTYPES.items() if member == tensor.dtype.name)


def _run(artifact: Artifact, seen: _Seen) -> list[np.ndarray]:
    """Run an engine on the first GPU, through the code that compiled models run it by."""
    device = tvm.cuda(0)
    values = artifact.values(each.shape if isinstance(each, np.ndarray) else tuple(each) for each in seen.arguments)
    outputs = [tvm.runtime.empty(spec.extents(values), spec.dtype, device) for spec in artifact.outputs]
    module = host_module([("region", artifact)])
    module["region"](*[_on(device, argument) for argument in seen.arguments], *outputs)
    return [output.numpy() for output in outputs]


def _on(device: tvm.runtime.Device, argument: _Argument) -> Any:
    return tvm.runtime.tensor(argument, device) if isinstance(argument, np.ndarray) else argument
