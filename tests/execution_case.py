"""A CUDA driver, an execution context and tensors that write down what is done with them."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from typing import Any

from relax_glue.errors import DeviceError

OURS, ARRIVED, DONE, LAST, NULL = 77, 1, 2, 3, 0


class Driver:
    """Stands for the CUDA driver: writes down what is asked of it."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.capturing = False
        self.capture_fails = False
        self._events = iter([ARRIVED, DONE, LAST])
        self._graphs = iter(range(100, 200))

    def current(self, _context: int) -> Any:
        return nullcontext()

    def stream(self) -> int:
        return OURS

    def event(self) -> int:
        return next(self._events)

    def push(self, _context: int) -> None: ...

    def pop(self) -> None: ...

    def follow(self, waits: int, event: int, runs: int) -> None:
        self.log.append(("follow", waits, event, runs))

    def record(self, event: int, stream: int) -> None:
        self.log.append(("record", event, stream))

    def wait(self, stream: int, event: int) -> None:
        self.log.append(("wait", stream, event))

    def is_capturing(self, _stream: int) -> bool:
        return self.capturing

    def begin_capture(self, stream: int) -> None:
        self.log.append(("begin", stream))

    def end_capture(self, stream: int) -> int:
        self.log.append(("end", stream))
        if self.capture_fails:
            raise DeviceError("capture")
        return next(self._graphs)

    def launch(self, graph: int, stream: int) -> None:
        self.log.append(("launch", graph, stream))

    def synchronize(self, _stream: int) -> None: ...

    def destroy(self, *, graphs: list[int], events: list[int], streams: list[int]) -> None:
        self.log.extend(("destroy", graph) for graph in graphs)


class Context:
    """Stands for an execution context."""

    def __init__(self, log: list[tuple[Any, ...]]) -> None:
        self._log = log
        self.addresses: dict[str, int] = {}

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return address % 256 == 0

    def execute_async_v3(self, stream: int) -> bool:
        self._log.append(("enqueue", stream))
        return True


class Header(ctypes.Structure):
    """A `DLTensor`."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class Tensor:
    """A `DLTensor` in this test's own memory."""

    def __init__(self, data: int, shape: tuple[int, ...] = (2, 3), **other: Any) -> None:
        rank = len(shape)
        strides = other.pop("strides", None)
        self._shape = (ctypes.c_int64 * rank)(*shape)
        self._strides = (ctypes.c_int64 * rank)(*strides) if strides else None
        fields = {"device_type": 2, "device_id": 0, "code": 2, "bits": 32, "lanes": 1, "byte_offset": 0, **other}
        where = ctypes.addressof(self._strides) if self._strides else None
        self._header = Header(data=data, ndim=rank, shape=ctypes.addressof(self._shape), strides=where, **fields)
        self.handle = ctypes.addressof(self._header)
