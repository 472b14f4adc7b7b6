"""TFLite to Relax through TVM's importer, with what it gets wrong mended and its refusals put in words."""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from pathlib import Path

import tvm

from relax_glue.errors import ModelImportError

from .naming import last_line

FILE_IDENTIFIER = b"TFL3"  # at bytes 4 to 8 of every TFLite file


def from_tflite(path_or_bytes: str | os.PathLike[str] | bytes) -> tvm.IRModule:
    """Import a TFLite model as a Relax module with its weights inside.

    Parameters
    ----------
    path_or_bytes : str, os.PathLike or bytes
        A ``.tflite`` file or its content.

    Returns
    -------
    tvm.IRModule
        A module with the function `main`. Tensors are NHWC and weights HWIO, as in the file.

    Raises
    ------
    ModelImportError
        The file cannot be read, is no TFLite model, or has an operator that TVM's importer refuses.
    """
    data, where = _read(path_or_bytes)
    if data[4:8] != FILE_IDENTIFIER:
        raise ModelImportError(f"{where} is no TFLite model: bytes 4 to 8 are not {FILE_IDENTIFIER.decode()}")
    try:
        import tflite
    except ImportError as error:
        raise ModelImportError(
            "reading a TFLite model needs the package tflite: pip install 'relax-glue[tflite]'"
        ) from error
    from tvm.relax.frontend import tflite as frontend

    from .tflite_converter import Converter

    # The file is read lazily, by offsets within it: one that is cut short shows up anywhere in the import, and as
    # any exception, so what is caught here is wide. The cause stays chained.
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = frontend.from_tflite(tflite.Model.GetRootAsModel(data, 0), op_converter=Converter)
        except Exception as error:
            raise ModelImportError(_refusal(error, where)) from error
    # The importer lists every weight once more in an attribute, which would double what a saved module takes.
    return tvm.IRModule({name: function.without_attr("params") for name, function in module.functions_items()})


def _read(path_or_bytes: str | os.PathLike[str] | bytes) -> tuple[bytes, str]:
    if isinstance(path_or_bytes, bytes):
        return path_or_bytes, "the bytes given"
    if not isinstance(path_or_bytes, (str, os.PathLike)):
        raise ModelImportError(f"from_tflite takes a path or bytes, not {type(path_or_bytes).__name__}")
    path = Path(path_or_bytes)
    try:
        return path.read_bytes(), str(path)
    except OSError as error:
        raise ModelImportError(f"{path} cannot be read: {error.strerror or error}") from error


def _refusal(error: BaseException, where: str) -> str:
    if isinstance(error, ModelImportError):
        return f"{where}: {error}"
    if isinstance(error, (NotImplementedError, tvm.error.OpNotImplemented)):
        return f"{where}: TVM's importer refuses it: {last_line(error)}"
    return f"{where}: it cannot be imported ({last_line(error)}); the file may be cut short or damaged"
