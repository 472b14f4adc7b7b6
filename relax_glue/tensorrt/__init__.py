"""TensorRT for TVM Relax, in Python: regions become engines that run in the Relax virtual machine.

Importing this package registers three things with TVM, and it is the only import here that does anything: the
functions that compiled models call (`relax_glue.tensorrt.run` and `.load`), and, unless TVM has a TensorRT
backend built in, `relax.ext.tensorrt` with `relax.is_tensorrt_runtime_enabled`. TensorRT itself is imported
when an engine is built or loaded.
"""

from __future__ import annotations

from .check_report import CheckReport
from .checker import check
from .codegen import Codegen, register_codegen
from .options import BuildOptions
from .provider import get_provider
from .runtime import can_run, register_runtime, unload_engines

register_runtime()
register_codegen()

__all__ = [
    "BuildOptions",
    "CheckReport",
    "Codegen",
    "can_run",
    "check",
    "get_provider",
    "register_codegen",
    "unload_engines",
]
