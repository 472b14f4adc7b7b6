"""What compiled models call: two global functions of TVM, and the engines behind them.

A region's code in the model calls `relax_glue.tensorrt.run(key, *tensors)`. The key is the digest of what the
model carries for the region, so two models with equal region names never meet, and two virtual machines of one
module share an engine. Where `run` does not know the key yet, the code calls `relax_glue.tensorrt.load(key,
text, *tensors)` with what it carries, which makes the engine and runs it. After that a call is: read the
tensors' addresses, and launch.
"""

from __future__ import annotations

import threading
import warnings
from typing import Any, TypeAlias

import tvm
import tvm_ffi

from .. import errors
from ..errors import DeviceError, EngineWarning, PlanError, ProviderError
from .artifact import Artifact, Plan, SavedRegion, from_text
from .cuda import Gpu, gpu
from .dynamic import runner_of
from .engine import obtain_plan
from .execution import Engine, Runner
from .provider import Provider, get_provider, installed
from .tensors import CUDA, device_of, read_header
from .transfer import COPY, copy

RUN = "relax_glue.tensorrt.run"
LOAD = "relax_glue.tensorrt.load"
UNLOAD = "relax_glue.tensorrt.unload"

Place: TypeAlias = tuple[str, tuple[int, int]]  # the key, and the type and number of the device


class _Runners(threading.local):
    """The runners of each thread; they go when their thread ends."""

    def __init__(self) -> None:
        self.of_this_thread: dict[Place, Runner] = {}


class Runtime:
    """The engines of this process, and each thread's runners of them."""

    def __init__(self) -> None:
        self._engines: dict[Place, Engine] = {}
        self._loading: dict[Place, threading.Lock] = {}
        self._lock = threading.Lock()
        self._runners = _Runners()

    def run(self, key: str, *tensors: Any) -> int:
        """Run an engine.

        Parameters
        ----------
        key : str
            The digest of its artifact.
        tensors : ctypes.c_void_p
            Pointers to the `DLTensor` of each argument, or its `Shape`, then to that of each output.

        Returns
        -------
        int
            0 when it runs, 1 when it has to be loaded first.
        """
        headers = [read_header(tensor.value) for tensor in tensors]
        place = (key, device_of(headers[-1]))
        runners = self._runners.of_this_thread
        runner = runners.get(place)
        if runner is None:
            engine = self._engines.get(place)
            if engine is None:
                return 1
            runner = runners[place] = runner_of(engine)
        runner.run(headers)
        return 0

    def load(self, key: str, text: str, *tensors: Any) -> None:
        """Make the engine of an artifact on the GPU where the results lie, and run it.

        Raises
        ------
        DeviceError
            When the results are not on a GPU.
        PlanError
            When the artifact is damaged, or its engine is refused and it carries no region to rebuild it from.
        """
        device = device_of(read_header(tensors[-1].value))
        if device[0] != CUDA:
            raise DeviceError(
                "this model holds TensorRT engines, and its virtual machine is not on a GPU: make it with "
                "relax.VirtualMachine(module, tvm.cuda()), or compile the model without TensorRT"
            )
        place = (key, device)
        with self._lock:
            loading = self._loading.setdefault(place, threading.Lock())
        with loading:  # one thread builds, the others of the same engine wait
            if place not in self._engines:
                self._engines[place] = load_engine(Artifact.unpack(from_text(text)), gpu(device[1]))
        self.run(key, *tensors)

    def unload(self) -> None:
        """Free all engines; a model that is called again loads its own again."""
        with self._lock:
            self._engines = {}
            self._runners = _Runners()


def load_engine(artifact: Artifact, where: Gpu) -> Engine:
    """Deserialise an artifact's engine, or build it where it has none that fits.

    Parameters
    ----------
    artifact : Artifact
        What the model carries.
    where : Gpu
        The GPU that it will run on.

    Raises
    ------
    PlanError
        When its engine is refused and there is no region to rebuild it from.
    ProviderError
        When there is no TensorRT.
    """
    if artifact.plan is not None:
        try:
            return Engine(artifact.without_plan(), artifact.plan, _provider_of(artifact.plan), where)
        except PlanError as error:
            if artifact.region is None:
                raise PlanError(
                    f"{error}; the model carries no region to build another from: compile it with keep_region=True, "
                    f"or for this machine"
                ) from error
            warnings.warn(f"{error}; it is built again here", EngineWarning, stacklevel=2)
    region = _region_of(artifact)
    with where.driver.current(where.context):
        plan = obtain_plan(region, artifact.options, gpu=where.index)
        provider = get_provider(artifact.options.provider)
        try:
            return Engine(artifact.without_plan(), plan, provider, where)
        except PlanError as error:
            warnings.warn(f"{error}; it is built again", EngineWarning, stacklevel=2)
        plan = obtain_plan(region, artifact.options, gpu=where.index, fresh=True)
        return Engine(artifact.without_plan(), plan, provider, where)


def _provider_of(plan: Plan) -> Provider:
    """Return the package that a plan is for; a plan of one that is not here is a foreign one."""
    try:
        return get_provider(plan.provider.split()[0])
    except ProviderError as error:
        raise PlanError(f"an engine of {plan.provider} cannot be loaded: {error}") from error


def _region_of(artifact: Artifact) -> SavedRegion:
    if artifact.region is None:
        raise PlanError(f"{artifact.symbol} carries neither an engine nor a region")
    inputs, outputs, shapes = artifact.inputs, artifact.outputs, artifact.shapes
    return SavedRegion(artifact.symbol, inputs, outputs, artifact.region, shapes, artifact.profiles)


def register_runtime() -> None:
    """Make the functions that compiled models call known to TVM, and our errors known to its error handling."""
    runtime = Runtime()
    tvm.register_global_func(RUN, runtime.run, override=True)
    tvm.register_global_func(LOAD, runtime.load, override=True)
    tvm.register_global_func(UNLOAD, runtime.unload, override=True)
    tvm.register_global_func(COPY, copy, override=True)
    for error in vars(errors).values():
        if isinstance(error, type) and issubclass(error, errors.RelaxGlueError):
            tvm_ffi.register_error(error.__name__, error)


def can_run() -> bool:
    """Say whether this machine can run engines: it has an NVIDIA GPU, and a TensorRT package is installed."""
    try:
        gpu(0)
    except DeviceError:
        return False
    return bool(installed())


def unload_engines() -> None:
    """Free the engines that this process has loaded; a model that is called again loads its own again."""
    tvm.get_global_func(UNLOAD)()
