"""relax_glue: Apache TVM Relax passes that bring the glue of a model into forms TensorRT takes.

    mod = relax_glue.from_onnx("yolo11n.onnx")
    print(relax_glue.explain(mod))              # the regions, and what stays outside them and why
    executable = relax_glue.compile(mod)        # TensorRT where there is one, else TVM

Single passes stand in `relax_glue.passes`, strategies and checks for testing passes in `relax_glue.testing`.
"""

from . import passes
from .api import canonicalize, compile, explain, optimize, partition
from .errors import (
    CompilationError,
    InputShapeError,
    InvalidModuleError,
    ModelImportError,
    OffloadError,
    RelaxGlueError,
    RewriteError,
    UnknownNameError,
)
from .frontend import from_onnx, from_tflite, from_torch, load, save
from .inline import inline
from .report import Outside, RegionSummary, Report

__version__ = "0.1.0"

__all__ = [
    "CompilationError",
    "InputShapeError",
    "InvalidModuleError",
    "ModelImportError",
    "OffloadError",
    "Outside",
    "RegionSummary",
    "RelaxGlueError",
    "Report",
    "RewriteError",
    "UnknownNameError",
    "__version__",
    "canonicalize",
    "compile",
    "explain",
    "from_onnx",
    "from_tflite",
    "from_torch",
    "inline",
    "load",
    "optimize",
    "partition",
    "passes",
    "save",
]
