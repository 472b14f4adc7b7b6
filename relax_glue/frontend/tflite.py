"""TFLite to Relax through TVM's importer, with what it gets wrong mended and its refusals put in words."""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from pathlib import Path
from typing import Any

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

    # The file is read lazily, by offsets within it: one that is cut short shows up anywhere in the import, and as
    # any exception, so what is caught here is wide. The cause stays chained.
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = frontend.from_tflite(tflite.Model.GetRootAsModel(data, 0), op_converter=_converter_class())
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


def _converter_class() -> type:
    """Return TVM's converter with its faults mended; made here, so that importing this file imports no TFLite."""
    from tvm.relax.frontend.tflite.tflite_frontend import OperatorConverter

    class Converter(OperatorConverter):
        """TVM's converter that remembers which operator it works on."""

        convert_map: dict[str, Any]

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.convert_map = {name: self._named(name, convert) for name, convert in self.convert_map.items()}

        def _named(self, name: str, convert: Any) -> Any:
            def run(op: Any) -> Any:
                try:
                    return convert(op=op)
                except ModelImportError:
                    raise
                except Exception as error:
                    raise ModelImportError(f"{self._place(op, name)}: {last_line(error)}") from error

            return run

        def _place(self, op: Any, name: str) -> str:
            results = [tensor.tensor.Name().decode() for tensor in self.get_output_tensors(op)]
            return f"the operator {name} that computes {', '.join(results)} cannot be converted"

        def get_tensor_value(self, tensor_wrapper: Any, is_sparse: bool = False) -> Any:
            """Read a constant, also one that an operator before it has computed already.

            DENSIFY leaves its result aside as a number; DEQUANTIZE after it reads the file instead, finds no
            bytes there, and fails with TypeError. Models with sparse float16 weights are written so (mediapipe's
            pose_detection and face_detection_full_range_sparse).
            """
            if not is_sparse and self.is_prefetched(tensor_wrapper.tensor_idx):
                return self.get_prefetched_node(tensor_wrapper.tensor_idx)
            return super().get_tensor_value(tensor_wrapper, is_sparse)

    return Converter


def _refusal(error: BaseException, where: str) -> str:
    if isinstance(error, ModelImportError):
        return f"{where}: {error}"
    if isinstance(error, (NotImplementedError, tvm.error.OpNotImplemented)):
        return f"{where}: TVM's importer refuses it: {last_line(error)}"
    return f"{where}: it cannot be imported ({last_line(error)}); the file may be cut short or damaged"
