"""Modules from a few lines of TVMScript, for tests of rules."""

from __future__ import annotations

import tvm


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
