"""Float32 without TF32, where the builder's flag is not enough.

TensorRT-RTX compiles a plan's kernels on the machine that runs it, and 1.5 takes TF32 tensor cores for them
whatever the builder was told. It obeys the environment variable that all NVIDIA libraries know. The variable is
set while an engine is built, loaded and first run, and put back after; TensorRT's other edition obeys the flag.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from .provider import Provider

VARIABLE = "NVIDIA_TF32_OVERRIDE"


class _Override:
    """Holds the variable at "0" as long as anyone needs it, and then restores it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before: str | None = None

    def enter(self) -> None:
        with self._lock:
            if self._users == 0:
                self._before = os.environ.get(VARIABLE)
                os.environ[VARIABLE] = "0"
            self._users += 1

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users:
                return
            if self._before is None:
                del os.environ[VARIABLE]
            else:
                os.environ[VARIABLE] = self._before


@functools.cache
def _override() -> _Override:
    """Return the one of this process, as the environment is one."""
    return _Override()


@contextmanager
def float32(provider: Provider, *, tf32: bool) -> Iterator[None]:
    """Build, load or first run an engine with TF32 as asked for.

    Parameters
    ----------
    provider : Provider
        What does it.
    tf32 : bool
        Whether TF32 is allowed.
    """
    if tf32 or not provider.is_rtx:
        yield
        return
    _override().enter()
    try:
        yield
    finally:
        _override().leave()
