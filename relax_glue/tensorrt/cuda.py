"""The few CUDA driver calls that execution needs, by ctypes.

The driver library comes with every NVIDIA driver, so nothing has to be installed or compiled; the CUDA runtime
that TVM and TensorRT use shares its primary contexts, streams and events.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..errors import DeviceError

_LIBRARIES = ("libcuda.so.1", "libcuda.so", "nvcuda.dll")
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76
_MULTIPROCESSORS = 16
_NON_BLOCKING = 1
_NO_TIMING = 2
_CAPTURE_THREAD_LOCAL = 1

_HANDLE = ctypes.c_void_p
_OUT = ctypes.POINTER(ctypes.c_void_p)
_INT_OUT = ctypes.POINTER(ctypes.c_int)
_SIGNATURES: dict[str, list[Any]] = {
    "cuInit": [ctypes.c_uint],
    "cuDeviceGetCount": [_INT_OUT],
    "cuDeviceGet": [_INT_OUT, ctypes.c_int],
    "cuDeviceGetName": [ctypes.c_char_p, ctypes.c_int, ctypes.c_int],
    "cuDeviceGetAttribute": [_INT_OUT, ctypes.c_int, ctypes.c_int],
    "cuDevicePrimaryCtxRetain": [_OUT, ctypes.c_int],
    "cuCtxPushCurrent_v2": [_HANDLE],
    "cuCtxPopCurrent_v2": [_OUT],
    "cuStreamCreate": [_OUT, ctypes.c_uint],
    "cuStreamDestroy_v2": [_HANDLE],
    "cuStreamSynchronize": [_HANDLE],
    "cuStreamWaitEvent": [_HANDLE, _HANDLE, ctypes.c_uint],
    "cuStreamIsCapturing": [_HANDLE, _INT_OUT],
    "cuStreamBeginCapture_v2": [_HANDLE, ctypes.c_int],
    "cuStreamEndCapture": [_HANDLE, _OUT],
    "cuEventCreate": [_OUT, ctypes.c_uint],
    "cuEventDestroy_v2": [_HANDLE],
    "cuEventRecord": [_HANDLE, _HANDLE],
    "cuGraphInstantiateWithFlags": [_OUT, _HANDLE, ctypes.c_ulonglong],
    "cuGraphLaunch": [_HANDLE, _HANDLE],
    "cuGraphExecDestroy": [_HANDLE],
    "cuGraphDestroy": [_HANDLE],
}


class Driver:
    """The driver library. Each method raises DeviceError when the driver reports an error."""

    def __init__(self) -> None:
        self._lib = _load()
        for name, arguments in _SIGNATURES.items():
            function = getattr(self._lib, name)
            function.argtypes = arguments
            function.restype = ctypes.c_int
        self._call("cuInit", 0)
        # what a model's every call goes through, looked up once
        self._record = self._lib.cuEventRecord
        self._wait = self._lib.cuStreamWaitEvent
        self._launch = self._lib.cuGraphLaunch
        self._push = self._lib.cuCtxPushCurrent_v2
        self._pop = self._lib.cuCtxPopCurrent_v2
        self._popped = ctypes.c_void_p()

    def _call(self, name: str, *args: Any) -> None:
        self._check(getattr(self._lib, name)(*args), name)

    def _check(self, code: int, name: str) -> None:
        if code:
            text = ctypes.c_char_p()
            self._lib.cuGetErrorString(code, ctypes.byref(text))
            said = text.value.decode() if text.value else "unknown error"
            raise DeviceError(f"{name} reports error {code}: {said}")

    def _made(self, name: str, *args: Any) -> int:
        handle = ctypes.c_void_p()
        self._call(name, ctypes.byref(handle), *args)
        return handle.value or 0

    def _number(self, name: str, *args: Any) -> int:
        number = ctypes.c_int()
        self._call(name, ctypes.byref(number), *args)
        return number.value

    def device_count(self) -> int:
        """Return how many GPUs there are."""
        return self._number("cuDeviceGetCount")

    def device_name(self, index: int) -> str:
        """Return a GPU's name and compute capability, such as "NVIDIA H200 (9.0)"."""
        device = self._number("cuDeviceGet", index)
        name = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, len(name), device)
        major = self._number("cuDeviceGetAttribute", _CAPABILITY_MAJOR, device)
        minor = self._number("cuDeviceGetAttribute", _CAPABILITY_MINOR, device)
        return f"{name.value.decode()} ({major}.{minor})"

    def multiprocessors(self, index: int) -> int:
        """Return how many multiprocessors a GPU has."""
        return self._number("cuDeviceGetAttribute", _MULTIPROCESSORS, self._number("cuDeviceGet", index))

    def primary_context(self, index: int) -> int:
        """Return the context that the CUDA runtime uses on a GPU; it stays retained."""
        return self._made("cuDevicePrimaryCtxRetain", self._number("cuDeviceGet", index))

    def push(self, context: int) -> None:
        """Make a context this thread's current one, until `pop`."""
        self._check(self._push(context), "cuCtxPushCurrent")

    def pop(self) -> None:
        """Bring back the context from before `push`."""
        self._check(self._pop(ctypes.byref(self._popped)), "cuCtxPopCurrent")

    @contextmanager
    def current(self, context: int) -> Iterator[None]:
        """Have a context current in a `with` block."""
        self.push(context)
        try:
            yield
        finally:
            self.pop()

    def stream(self) -> int:
        """Make a stream that does not synchronise with the null stream by itself."""
        return self._made("cuStreamCreate", _NON_BLOCKING)

    def event(self) -> int:
        """Make an event for ordering streams."""
        return self._made("cuEventCreate", _NO_TIMING)

    def follow(self, waits: int, event: int, runs: int) -> None:
        """Let stream `waits` go on only after what stream `runs` holds now; the host does not wait."""
        self.record(event, runs)
        self.wait(waits, event)

    def record(self, event: int, stream: int) -> None:
        """Let an event stand for what a stream holds now."""
        code = self._record(event, stream)
        if code:
            self._check(code, "cuEventRecord")

    def wait(self, stream: int, event: int) -> None:
        """Let a stream go on only after what an event stands for; one that was never recorded stands for nothing."""
        code = self._wait(stream, event, 0)
        if code:
            self._check(code, "cuStreamWaitEvent")

    def synchronize(self, stream: int) -> None:
        """Wait on the host until a stream is done."""
        self._call("cuStreamSynchronize", stream)

    def is_capturing(self, stream: int) -> bool:
        """Say whether what is put on a stream is being recorded instead of run."""
        status = ctypes.c_int()
        self._call("cuStreamIsCapturing", stream, ctypes.byref(status))
        return status.value != 0

    def begin_capture(self, stream: int) -> None:
        """Record what this thread puts on a stream, instead of running it."""
        self._call("cuStreamBeginCapture_v2", stream, _CAPTURE_THREAD_LOCAL)

    def end_capture(self, stream: int) -> int:
        """Return what was recorded as an executable graph."""
        graph = ctypes.c_void_p()
        self._call("cuStreamEndCapture", stream, ctypes.byref(graph))
        try:
            return self._made("cuGraphInstantiateWithFlags", graph, 0)
        finally:
            self._call("cuGraphDestroy", graph)

    def launch(self, graph: int, stream: int) -> None:
        """Put an executable graph on a stream."""
        self._check(self._launch(graph, stream), "cuGraphLaunch")

    def destroy(self, *, graphs: list[int], events: list[int], streams: list[int]) -> None:
        """Free what was made here; the driver keeps what still runs until it is done."""
        for graph in graphs:
            self._call("cuGraphExecDestroy", graph)
        for event in events:
            self._call("cuEventDestroy_v2", event)
        for stream in streams:
            self._call("cuStreamDestroy_v2", stream)


@dataclass(frozen=True)
class Gpu:
    """A GPU of this machine.

    Attributes
    ----------
    driver : Driver
        The library that drives it.
    index : int
        Its number, as in `tvm.cuda(index)`.
    name : str
        Its name and compute capability.
    context : int
        Its primary context.
    multiprocessors : int
        How many it has.
    """

    driver: Driver
    index: int
    name: str
    context: int
    multiprocessors: int


@functools.cache
def gpu(index: int = 0) -> Gpu:
    """Return a GPU of this machine.

    Raises
    ------
    DeviceError
        When there is no driver, or no GPU of that number.
    """
    driver = Driver()
    count = driver.device_count()
    if not 0 <= index < count:
        raise DeviceError(f"no GPU number {index}: the NVIDIA driver finds {count}")
    return Gpu(driver, index, driver.device_name(index), driver.primary_context(index), driver.multiprocessors(index))


def gpu_name(index: int = 0) -> str:
    """Return what `Gpu.name` is, or "no GPU" on a machine that has none."""
    try:
        return gpu(index).name
    except DeviceError:
        return "no GPU"


def multiprocessors(index: int = 0) -> int | None:
    """Return what `Gpu.multiprocessors` is, or None on a machine that has no GPU."""
    try:
        return gpu(index).multiprocessors
    except DeviceError:
        return None


def _load() -> Any:
    tried = []
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            tried.append(str(error))
    raise DeviceError(
        f"no NVIDIA driver on this machine ({tried[0]}); TensorRT engines run on an NVIDIA GPU: run the model "
        f"there, or compile it without TensorRT"
    )
