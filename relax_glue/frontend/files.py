"""Load a model by the ending of its file name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import tvm

from relax_glue.errors import ModelImportError

from .input_shapes import InputShapes
from .onnx import from_onnx
from .saved import bind_shapes, read_saved
from .symbolic.ranges import Ranges, with_ranges
from .tflite import from_tflite


def load(
    path: str | os.PathLike[str], input_shapes: InputShapes | None = None, ranges: Ranges | None = None
) -> tvm.IRModule:
    """Load a model of any kind that relax_glue reads.

    Parameters
    ----------
    path : str or os.PathLike
        ``.onnx`` and ``.onnx.gz``, ``.tflite``, what `save` wrote (``.relax``), and TVMScript as text (``.relax``
        or ``.py``; parsing it evaluates expressions in it, so read only files that you trust).
    input_shapes : mapping of str to tuple of int, or tuple of int, optional
        As in `from_onnx`. In a Relax module it fixes symbolic extents of the inputs of `main`.
    ranges : mapping of str to (int or None, int or None), optional
        As in `from_onnx`.

    Returns
    -------
    tvm.IRModule

    Raises
    ------
    ModelImportError
        The ending is unknown, or the file is not what its name says.
    InputShapeError
        A shape does not fit the model.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise ModelImportError(f"load takes a path, not {type(path).__name__}; a module is loaded already")
    name = Path(path).name.lower()
    for ending, reader in READERS.items():
        if name.endswith(ending):
            return reader(path, input_shapes, ranges)
    raise ModelImportError(
        f"{path} ends with none of {', '.join(READERS)}, so it is not known how to read it. A model in memory goes "
        "to from_onnx, from_torch or from_tflite"
    )


def _read_tflite(path: Any, shapes: InputShapes | None, ranges: Ranges | None) -> tvm.IRModule:
    return with_ranges(bind_shapes(from_tflite(path), shapes), ranges)


def _read_relax(path: Any, shapes: InputShapes | None, ranges: Ranges | None) -> tvm.IRModule:
    return with_ranges(bind_shapes(read_saved(path), shapes), ranges)


Reader = Callable[[Any, InputShapes | None, Ranges | None], tvm.IRModule]
READERS: Mapping[str, Reader] = MappingProxyType(
    {
        ".onnx": from_onnx,
        ".onnx.gz": from_onnx,
        ".tflite": _read_tflite,
        ".relax": _read_relax,
        ".py": _read_relax,
    }
)
