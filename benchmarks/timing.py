"""How benchmarks take the time of a call, and compare its results."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

WARM, CALLS, ROUNDS = 20, 360, 9


def flat(result: Any) -> list[np.ndarray]:
    """Return the arrays of a nested result, in order."""
    if hasattr(result, "numpy"):
        return [result.numpy()]
    if isinstance(result, np.ndarray):
        return [result]
    return [array for item in result for array in flat(item)]


def latency(call: Callable[[], object], wait: Callable[[], object]) -> dict[str, float]:
    """Return milliseconds of a call with the wait for its result, and of one among many in a row."""
    for _ in range(WARM):
        call()
    wait()
    single = []
    for _ in range(CALLS):
        start = time.perf_counter()
        call()
        wait()
        single.append(time.perf_counter() - start)
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    wait()
    return {
        "call_ms": round(statistics.median(single) * 1e3, 3),
        "in_a_row_ms": round((time.perf_counter() - start) / CALLS * 1e3, 3),
    }


def in_turns(calls: Mapping[str, Callable[[], object]], wait: Callable[[], object]) -> dict[str, float]:
    """Return the median milliseconds of each call, measured in turns: a clock that drifts then drifts for all."""
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(WARM):
            call()
        wait()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            call()  # the first one after another engine finds cold caches
            wait()
            for _ in range(CALLS // ROUNDS):
                start = time.perf_counter()
                call()
                wait()
                spent[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) * 1e3 for name, times in spent.items()}


def difference(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> float:
    """Return the largest difference of two results, each array by its own largest value."""
    pairs = [(f.astype("float64"), w) for f, w in zip(found, wanted, strict=True) if w.size]
    return max((float(np.abs(f - w).max() / max(np.abs(w).max(), 1e-30)) for f, w in pairs), default=0.0)
