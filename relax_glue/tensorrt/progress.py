"""What a long engine build shows: a bar on the terminal, or calls of the user's function."""

from __future__ import annotations

import sys
import threading
from typing import Any, TextIO

from .options import Progress

_WIDTH = 30


def progress_function(choice: bool | Progress | None, title: str) -> Progress | None:
    """Return what is to be called as the build goes on, or None.

    Parameters
    ----------
    choice : bool, Callable or None
        `BuildOptions.progress`.
    title : str
        What is built.
    """
    if callable(choice):
        return choice
    if choice or (choice is None and sys.stderr.isatty()):
        return Bar(title, sys.stderr)
    return None


class Bar:
    """One line of text that is drawn over itself."""

    def __init__(self, title: str, out: TextIO) -> None:
        self._title = title
        self._out = out

    def __call__(self, phase: str, step: int, steps: int) -> None:
        """Draw `step` of `steps`."""
        full = _WIDTH * step // max(steps, 1)
        bar = "#" * full + "." * (_WIDTH - full)
        self._out.write(f"\r{self._title} [{bar}] {phase[:40]:<40}")
        if step >= steps:
            self._out.write("\r" + " " * (len(self._title) + _WIDTH + 44) + "\r")
        self._out.flush()


class Reporter:
    """Turns TensorRT's nested phases into (phase, step, steps) of the outermost one.

    TensorRT calls from its own threads and from C++ that must not see a Python exception. One that the
    function raises is kept in `error`, and the build is told to stop.
    """

    def __init__(self, function: Progress) -> None:
        self.error: BaseException | None = None
        self._function = function
        self._lock = threading.Lock()
        self._phases: dict[str, tuple[int, int]] = {}
        self.stopped = False

    def start(self, phase: str, parent: str | None, steps: int) -> None:
        """Begin a phase."""
        with self._lock:
            self._phases[phase] = (0, steps)
        if parent is None:
            self._report(phase, 0, steps)

    def step(self, phase: str, step: int) -> bool:
        """Count a step; False asks TensorRT to stop the build."""
        with self._lock:
            _, steps = self._phases.get(phase, (0, step + 1))
            outermost = next(iter(self._phases), phase) == phase
        if outermost:
            self._report(phase, step + 1, steps)
        return not self.stopped

    def finish(self, phase: str) -> None:
        """End a phase."""
        with self._lock:
            _, steps = self._phases.pop(phase, (0, 1))
            outermost = not self._phases
        if outermost:
            self._report(phase, steps, steps)

    def _report(self, phase: str, step: int, steps: int) -> None:
        if self.stopped:
            return
        try:
            answer = self._function(phase, step, steps)
        except BaseException as error:  # raised again by the caller of the builder
            self.error = error
            answer = False
        self.stopped = answer is False


def monitor(trt: Any, reporter: Reporter) -> Any:
    """Return the `IProgressMonitor` that feeds a reporter; keep it alive as long as the build config."""

    class Monitor(trt.IProgressMonitor):
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            reporter.start(phase_name, parent_phase or None, num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:
            return reporter.step(phase_name, step)

        def phase_finish(self, phase_name: str) -> None:
            reporter.finish(phase_name)

    return Monitor()
