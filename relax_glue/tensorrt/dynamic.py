"""Engines of symbolic shapes, run by one thread.

An execution context is at one optimisation profile and one set of extents. It is brought to those of a call only
when they differ from the last ones, on our stream; TensorRT plans memory and, with TensorRT-RTX, kernels when that
happens, which no CUDA graph can hold. So a graph is captured right after an enqueue with the same extents, and
belongs to these extents and addresses. Threads take turns at what is no replay of a graph, since any enqueue may
compile.
"""

from __future__ import annotations

import ctypes
from collections.abc import Hashable
from typing import Any

from ..errors import ExecutionError
from .calls import Call, Calls, Extents
from .execution import Engine, Graphs, Runner


class DynamicRunner(Runner):
    """Runs an engine whose artifact has profiles."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._calls = Calls(engine.artifact)
        self._extents: tuple[Extents, ...] = ()
        self._call: Call | None = None  # the one being made, with these extents
        self._settled: Call | None = None  # the one that the context is ready for
        self._profile = int(self._context.active_optimization_profile)

    def _key(self, addresses: tuple[int, ...]) -> Hashable | None:
        extents = tuple([slot.extents for slot in self._slots])
        if self._call is None or extents != self._extents:
            self._call, self._extents = self._calls.of(extents), extents
        return (addresses, self._call) if self._call.profiles else None  # else every result is empty

    def _enqueue(self, addresses: tuple[int, ...]) -> None:
        with self._engine.turn:
            if self._call is not None and self._call is not self._settled:
                with self._engine.compiling():
                    self._settle(self._call)
            super()._enqueue(addresses)

    def _capture(self, addresses: tuple[int, ...], key: Hashable, graphs: Graphs) -> None:
        if self._call is self._settled:
            super()._capture(addresses, key, graphs)
            return
        self._enqueue(addresses)
        self._record(addresses, key, graphs)

    def _settle(self, call: Call) -> None:
        """Bring the context to the extents of a call."""
        engine, context = self._engine, self._context
        symbol = engine.artifact.symbol
        if self._driver.is_capturing(self._stream):
            raise ExecutionError(
                f"{symbol} is captured with other extents than it last ran with, which TensorRT has to prepare for: "
                f"call it once with these inputs right before the capture"
            )
        self._settled = None
        if self._profile not in call.profiles:
            self._change_profile(call.profiles[0])
        for name, extents in zip(engine.inputs, call.inputs, strict=True):
            if name is not None and not context.set_input_shape(name, extents):
                raise ExecutionError(f"input {name} of {symbol} cannot have the extents {extents}: {engine.said()}")
        for name, values in zip(engine.shapes, call.shapes, strict=True):
            if name is not None and not context.set_tensor_address(name, ctypes.addressof(values)):
                raise ExecutionError(f"shape {name} of {symbol} cannot be {tuple(values)}: {engine.said()}")
        if not call.is_known:
            self._confirm(call)
        self._settled = call

    def _change_profile(self, profile: int) -> None:
        try:
            done = self._context.set_optimization_profile_async(profile, self._stream)
        except RuntimeError:  # the Python binding raises where the C++ function returns false
            done = False
        if not done:
            raise ExecutionError(
                f"{self._engine.artifact.symbol} cannot change to profile {profile}: {self._engine.said()}"
            )
        self._profile = profile

    def _confirm(self, call: Call) -> None:
        """See that TensorRT and TVM agree on the outputs; kernels of new extents are kept after their first run."""
        engine = self._engine
        for name, extents in zip(engine.outputs, call.outputs, strict=True):
            dims: Any = self._context.get_tensor_shape(name)
            found = tuple(dims)
            if found != extents:
                raise ExecutionError(
                    f"TensorRT gives output {name} of {engine.artifact.symbol} the extents {found}, and TVM {extents}, "
                    f"for inputs of {call.inputs}: keep the operator that yields it outside the region, and report it"
                )
        call.is_known = True
        self._warm = False


def runner_of(engine: Engine) -> Runner:
    """Return what runs an engine from the current thread."""
    return DynamicRunner(engine) if engine.artifact.profiles else Runner(engine)
