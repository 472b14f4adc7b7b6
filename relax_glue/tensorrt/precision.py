"""Float32 without TF32, where the builder's flag is not enough.

TensorRT-RTX compiles a plan's kernels on the machine that runs it, and 1.5 takes TF32 tensor cores for them
whatever the builder was told. What it obeys is the environment variable that all NVIDIA libraries know, and that
it reads once: the first engine that a process builds or loads decides for all the others. So the variable is set
whenever TensorRT-RTX is at work here, put back after, and what was decided is remembered, so that a request for
the other way is an error or a warning and never a silent loss of precision. TensorRT's other edition obeys the
flag, engine by engine.
"""

from __future__ import annotations

import functools
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import BuildError, EngineWarning
from .provider import Provider

VARIABLE = "NVIDIA_TF32_OVERRIDE"


class Precision:
    """What one process has decided on TF32."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before: str | None = None
        self._tf32: bool | None = None

    def settle(self, provider: Provider, tf32: bool) -> bool:
        """Decide whether engines use TF32, and return that.

        Parameters
        ----------
        provider : Provider
            What builds or loads.
        tf32 : bool
            What was asked for.

        Raises
        ------
        BuildError
            When TF32 must not be used, and this process can no longer help it.
        """
        if not provider.is_rtx:
            return tf32
        with self._lock:
            if self._tf32 is None:
                self._tf32 = tf32 and os.environ.get(VARIABLE) != "0"
            decided = self._tf32
        if decided and not tf32:
            raise BuildError(
                f"{provider} has already worked with TF32 in this process, and keeps to it: compile with tf32=True, "
                f"or keep models with and without TF32 in different processes"
            )
        if tf32 and not decided:
            warnings.warn(
                f"{provider} works without TF32 in this process, and keeps to it", EngineWarning, stacklevel=3
            )
        return decided

    @contextmanager
    def held(self, provider: Provider, tf32: bool) -> Iterator[None]:
        """Build, load or first run an engine, with TF32 as `settle` said."""
        if tf32 or not provider.is_rtx:
            yield
            return
        self._enter()
        try:
            yield
        finally:
            self._leave()

    def _enter(self) -> None:
        with self._lock:
            if self._users == 0:
                self._before = os.environ.get(VARIABLE)
                os.environ[VARIABLE] = "0"
            self._users += 1

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users:
                return
            if self._before is None:
                del os.environ[VARIABLE]
            else:
                os.environ[VARIABLE] = self._before


@functools.cache
def precision() -> Precision:
    """Return the one of this process, as its environment is one."""
    return Precision()
