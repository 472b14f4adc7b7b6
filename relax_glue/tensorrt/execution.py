"""Engines on a GPU, and one thread's way of running them.

TVM puts a model's work on its current stream, the null stream unless the caller sets one. On the null stream
TensorRT synchronises the whole device by itself, and it cannot be captured. So each runner has a stream of its
own, which waits for TVM's by an event and is waited for by another; the host never waits. A runner belongs to
one thread: an execution context has one set of addresses and one scratch memory, which two calls at a time
would share.

A call is captured as a CUDA graph the second time it sees the same addresses, and launched from then on, on TVM's
stream itself, which may be the null stream: the GPU then has no stream to change, which takes it several
microseconds. All graphs of a runner share its scratch memory, so each waits for the event that stands for the last
call, on whatever stream that was. TVM's memory planner and pool hand out the same few buffers again and again; a
caller that has new ones each time pays for the enqueue only. What symbolic shapes add stands in `dynamic.py`.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import tvm
import tvm_ffi

from ..errors import DeviceError, ExecutionError, PlanError
from .artifact import Artifact, Plan
from .cuda import Driver, Gpu
from .kernels import Kernels
from .precision import VARIABLE, precision
from .provider import Provider
from .signature import ShapeSpec
from .tensors import misaligned, slot_of

if TYPE_CHECKING:
    import tensorrt as trt

_LOG = logging.getLogger("relax_glue.tensorrt")
GRAPHS = 16


class Engine:
    """A deserialised engine on one GPU, shared by all threads.

    Parameters
    ----------
    artifact : Artifact
        The signature and options.
    plan : Plan
        The serialised engine.
    provider : Provider
        The TensorRT to load it with.
    gpu : Gpu
        Where to.

    Raises
    ------
    PlanError
        When the plan is for another TensorRT or GPU, or TensorRT refuses it.
    ExecutionError
        When the GPU has no memory for it.
    """

    def __init__(self, artifact: Artifact, plan: Plan, provider: Provider, gpu: Gpu) -> None:
        _check_origin(plan, provider, gpu)
        self.artifact = artifact
        self.gpu = gpu
        self._provider = provider
        self._tf32 = plan.tf32  # not the plan: its bytes are in the engine now
        self.turn = threading.RLock()
        self._recorder = provider.recorder()
        self._logger = provider.logger()
        with gpu.driver.current(gpu.context), self.compiling():
            self._runtime: trt.Runtime = provider.trt.Runtime(self._logger)
            self._runtime.error_recorder = self._recorder
            engine = self._runtime.deserialize_cuda_engine(plan.data)
            if engine is None:
                raise self._refusal()
            self._engine: trt.ICudaEngine = engine
            self._kernels = Kernels.of(self._engine, provider, artifact, plan, gpu)
        names = {self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)}
        missing = sorted(set(plan.outputs) - names)
        if missing:
            raise PlanError(f"the engine of {artifact.symbol} has no output {', '.join(missing)}")
        # the builder may drop an input that nothing reads
        self.inputs = [name if name in names else None for name in plan.inputs]
        self.shapes = [name if name in names else None for name in plan.shapes]
        self.outputs = plan.outputs
        tensors = iter(self.inputs)
        arguments = [None if isinstance(spec, ShapeSpec) else next(tensors) for spec in artifact.arguments]
        # in the order of a call; what shapes hold is not read where TVM has it
        self.bound = [*arguments, *self.outputs]

    def _refusal(self) -> Exception:
        said = self.said()
        if "memory" in said.lower():  # no fault of the plan: another one would fare no better
            return ExecutionError(f"the engine of {self.artifact.symbol} does not fit on {self.gpu.name}: {said}")
        return PlanError(f"{self._provider} refuses the engine of {self.artifact.symbol}: {said}")

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Hold the engine where it may compile kernels: to load it, to run it first, and for new extents.

        One thread at a time: TensorRT-RTX 1.5 crashes when two contexts that share compiled kernels compile at once.
        """
        with self.turn, precision().held(self._provider, self._tf32):
            yield

    def context(self) -> trt.IExecutionContext:
        """Make an execution context; the engine's GPU is current."""
        made = self._kernels.context() if self._kernels is not None else self._engine.create_execution_context()
        if made is None:
            raise ExecutionError(f"no execution context for {self.artifact.symbol}: {self._no_context()}")
        return made

    def _no_context(self) -> str:
        said = self.said()
        if VARIABLE in said:  # the process used TensorRT-RTX before it came here
            return f"{said}; start the process with {VARIABLE}=0 in its environment, or compile with tf32=True"
        return f"{said}; its scratch memory is {self._engine.device_memory_size_v2} bytes, which the GPU must have free"

    def keep_kernels(self) -> None:
        """Write the kernels compiled for this GPU to the cache, where the provider compiles late."""
        if self._kernels is not None:
            self._kernels.keep()

    def said(self) -> str:
        """Return, and forget, what TensorRT reported."""
        text = "; ".join(self._recorder.messages)
        self._recorder.clear()
        return text or "it gave no reason"

    def __del__(self) -> None:
        """Free in the order that TensorRT needs: it still calls the recorder and the logger as it goes."""
        if sys.is_finalizing() or "_runtime" not in self.__dict__:
            return
        with self.gpu.driver.current(self.gpu.context):
            for name in ("_kernels", "_engine", "_runtime"):
                self.__dict__.pop(name, None)


class Runner:
    """Runs an engine from one thread."""

    def __init__(self, engine: Engine) -> None:
        gpu, artifact = engine.gpu, engine.artifact
        self._engine = engine
        self._driver = gpu.driver
        self._home = gpu.context
        self._device = tvm.cuda(gpu.index)
        self._slots = [slot_of(spec, "input", gpu.index) for spec in artifact.arguments]
        self._slots += [slot_of(spec, "output", gpu.index) for spec in artifact.outputs]
        with gpu.driver.current(gpu.context), engine.compiling():
            self._context = engine.context()
            self._stream = gpu.driver.stream()
            self._arrived, self._done, self._last = (gpu.driver.event() for _ in range(3))
        self._graphs = Graphs(gpu.driver) if artifact.options.cuda_graphs else None
        self._warm = False

    def run(self, headers: Sequence[bytes]) -> None:
        """Put one call on TVM's current stream.

        Parameters
        ----------
        headers : Sequence[bytes]
            The `DLTensor` of each argument, or the beginning of its `Shape`, then that of each output.

        Raises
        ------
        ExecutionError
            When number, shape, dtype or layout of the tensors is wrong, or TensorRT refuses the call.
        DeviceError
            When a tensor is elsewhere.
        """
        if len(headers) != len(self._slots):
            raise ExecutionError(
                f"{self._engine.artifact.symbol} is called with {len(headers)} tensors; it takes {len(self._slots)}"
            )
        addresses = tuple([slot.address(header) for slot, header in zip(self._slots, headers, strict=True)])
        key = self._key(addresses)
        if key is None:
            return
        driver = self._driver
        driver.push(self._home)
        try:
            self._launch(addresses, key, tvm_ffi.get_raw_stream(self._device))
        finally:
            driver.pop()

    def _key(self, addresses: tuple[int, ...]) -> Hashable | None:
        """Return what calls that can share a graph have in common, or None where there is nothing to run."""
        return addresses

    def _launch(self, addresses: tuple[int, ...], key: Hashable, caller: int) -> None:
        """Put the engine behind the caller's stream: a graph there, if this is one to replay, or a call on ours."""
        driver = self._driver
        # a graph that the caller captures takes the enqueue in; the null stream cannot be captured
        if caller and driver.is_capturing(caller):
            driver.follow(self._stream, self._arrived, caller)
            self._enqueue(addresses)
            driver.follow(caller, self._done, self._stream)
            return
        graph = None if self._graphs is None else self._graphs.find(key)
        if graph:
            driver.wait(caller, self._last)
            driver.launch(graph, caller)
            driver.record(self._last, caller)
            return
        driver.follow(self._stream, self._arrived, caller)
        driver.wait(self._stream, self._last)
        if graph is None or self._graphs is None:
            self._enqueue(addresses)
        else:
            self._capture(addresses, key, self._graphs)
        driver.record(self._last, self._stream)
        driver.wait(caller, self._last)

    def _enqueue(self, addresses: tuple[int, ...]) -> None:
        if self._warm:
            self._execute(addresses)
            return
        with self._engine.compiling():
            self._execute(addresses)
            self._engine.keep_kernels()
        self._warm = True

    def _execute(self, addresses: tuple[int, ...]) -> None:
        context = self._context
        for name, address in zip(self._engine.bound, addresses, strict=True):
            if name is not None and not context.set_tensor_address(name, address):
                raise ExecutionError(misaligned(self._slots, addresses) or self._engine.said())
        if not context.execute_async_v3(self._stream):
            raise ExecutionError(f"{self._engine.artifact.symbol} did not run: {self._engine.said()}")

    def _capture(self, addresses: tuple[int, ...], key: Hashable, graphs: Graphs) -> None:
        """Record the call and launch the record; without one, run it as it is from now on."""
        graph = self._record(addresses, key, graphs)
        if graph is None:
            self._enqueue(addresses)
        else:
            self._driver.launch(graph, self._stream)

    def _record(self, addresses: tuple[int, ...], key: Hashable, graphs: Graphs) -> int | None:
        """Return the call as a graph, which is kept; None where it cannot be, and then no other is tried."""
        self._driver.begin_capture(self._stream)
        try:
            self._enqueue(addresses)
        except ExecutionError as error:
            refusal: Exception | None = error
        else:
            refusal = None
        try:
            graph = self._driver.end_capture(self._stream)
        except DeviceError as error:
            refusal = refusal or error
        if refusal is not None:
            _LOG.info("%s runs without CUDA graphs: %s", self._engine.artifact.symbol, refusal)
            self._graphs = None
            return None
        graphs.add(key, graph)
        return graph

    def __del__(self) -> None:
        if sys.is_finalizing() or not hasattr(self, "_done"):
            return
        with self._driver.current(self._home):
            self._driver.wait(self._stream, self._last)
            self._driver.synchronize(self._stream)
            if self._graphs is not None:
                self._graphs.clear()
            del self._context
            self._driver.destroy(graphs=[], events=[self._arrived, self._done, self._last], streams=[self._stream])


class Graphs:
    """Executable graphs by key, the least recently used going first. 0 stands for seen once."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._graphs: OrderedDict[Hashable, int] = OrderedDict()

    def find(self, key: Hashable) -> int | None:
        """Return the graph, 0 for a key seen once, or None for a new one, which is noted."""
        graph = self._graphs.get(key)
        if graph is None:
            self.add(key, 0)
            return None
        self._graphs.move_to_end(key)
        return graph

    def add(self, key: Hashable, graph: int) -> None:
        """Keep a graph, and free what was used longest ago beyond what may be kept."""
        self._graphs[key] = graph
        while len(self._graphs) > GRAPHS:
            _, old = self._graphs.popitem(last=False)
            self._destroy([old])

    def clear(self) -> None:
        """Free all graphs."""
        graphs = list(self._graphs.values())
        self._graphs.clear()
        self._destroy(graphs)

    def _destroy(self, graphs: list[int]) -> None:
        self._driver.destroy(graphs=[graph for graph in graphs if graph], events=[], streams=[])


def _check_origin(plan: Plan, provider: Provider, gpu: Gpu) -> None:
    """Refuse what TensorRT would refuse, or worse, run slowly; engines of TensorRT-RTX fit any GPU."""
    if plan.provider != str(provider):
        raise PlanError(f"an engine of {plan.provider} does not load with {provider}")
    if not provider.is_rtx and plan.gpu != gpu.name:
        raise PlanError(f"an engine built on {plan.gpu} does not fit {gpu.name}")
    if precision().settle(provider, plan.tf32) != plan.tf32:
        raise PlanError(f"an engine with TF32 does not load where {provider} works without it")
