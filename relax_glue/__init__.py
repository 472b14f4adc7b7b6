"""relax_glue: Apache TVM Relax passes that bring the glue of a model into forms TensorRT takes.

    mod = relax_glue.from_onnx("yolo11n.onnx")
    print(relax_glue.explain(mod))              # the regions, and what stays outside them and why
    executable = relax_glue.compile(mod)        # TensorRT where there is one, else TVM

Single passes stand in `relax_glue.passes`, strategies and checks for testing passes in `relax_glue.testing`.
"""

from importlib.util import find_spec

if find_spec("relax_glue.passes") is None:
    # in a checkout passes/ lies beside this folder, and Python looks into the current folder first
    raise ImportError(
        "relax_glue.passes is not there: this is a checkout that is not installed; "
        "install it with pip install -e . or run from another folder"
    )

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
    SplitError,
    UnknownNameError,
)
from .frontend import from_onnx, from_tflite, from_torch, load, save
from .inline import inline
from .postprocessing import SplitModules, split_postprocessing
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
    "SplitError",
    "SplitModules",
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
    "split_postprocessing",
]
