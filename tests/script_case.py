"""Modules from a few lines of TVMScript, and random slices, for tests of rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tvm
from hypothesis import strategies as st

from relax_glue.movement import Slice


def script(*lines: str, dtype: str = "float32", **params: tuple[int | str, ...]) -> tvm.IRModule:
    """Return a module whose `main` is one dataflow block.

    Parameters
    ----------
    lines : str
        Bindings in TVMScript; the last one binds `gv`, which is the result.
    dtype : str
        The element type of the parameters.
    params : tuple
        The shape of each parameter; a string is a symbolic extent.
    """
    signature = ", ".join(f'{name}: R.Tensor({shape!r}, "{dtype}")' for name, shape in params.items())
    body = "\n            ".join(lines)
    return tvm.script.from_source(
        f"""
@I.ir_module
class Module:
    @R.function
    def main({signature}):
        with R.dataflow():
            {body}
            R.output(gv)
        return gv
"""
    )


def cut(
    axes: Sequence[int], begin: Sequence[int], end: Sequence[int], strides: Sequence[int] | None = None, x: str = "x"
) -> str:
    """Return a strided_slice in TVMScript."""
    tail = f", {strides}" if strides else ""
    return f"R.strided_slice({x}, {axes}, {begin}, {end}{tail})"


@st.composite
def slices(draw: Callable, shape: Sequence[int]) -> Slice:
    """Draw a slice of a tensor of shape `shape` that keeps something."""
    windows = []
    for extent in shape:
        begin, stride = draw(st.integers(0, extent - 1)), draw(st.integers(-3, 3).filter(bool))
        room = (extent - 1 - begin if stride > 0 else begin) // abs(stride) + 1
        size = draw(st.integers(1, room))
        windows.append((begin, size, stride if size > 1 else 1))
    return Slice(*zip(*windows, strict=True))
