"""TVM's TFLite converter with its faults mended: the one place for them, each with the case that shows it."""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.relax.frontend.tflite.tflite_frontend import OperatorConverter

from relax_glue.errors import ModelImportError

from .naming import last_line, variable_name


class Converter(OperatorConverter):
    """TVM's converter that names the operator it refuses, and its results after their tensors."""

    convert_map: dict[str, Any]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.convert_map = {name: self._named(name, convert) for name, convert in self.convert_map.items()}

    def _named(self, name: str, convert: Any) -> Any:
        def run(op: Any) -> Any:
            try:
                return self._emitted(convert(op=op), op)
            except ModelImportError:
                raise
            except Exception as error:
                raise ModelImportError(f"{self._place(op, name)}: {last_line(error)}") from error

        return run

    def get_op_code_str(self, op: Any) -> str:
        """Return the operator's name; TVM does not tell which custom operator it refuses."""
        try:
            return str(super().get_op_code_str(op))
        except NotImplementedError as error:
            custom = self.model.OperatorCodes(op.OpcodeIndex()).CustomCode()
            if custom is None:
                raise
            raise ModelImportError(
                f"the custom operator {custom.decode()} has no meaning in Relax; convert the model without it"
            ) from error

    def _emitted(self, result: Any, op: Any) -> Any:
        """Bind a result to a variable that carries the name of its tensor."""
        value = self.bb.normalize(result) if isinstance(result, relax.Expr) else result
        if not isinstance(value, relax.Call) or not isinstance(value.ty, relax.TensorType):
            return value
        return self.bb.emit(value, name_hint=variable_name(self._results(op)[0]))

    def _results(self, op: Any) -> list[str]:
        return [tensor.tensor.Name().decode() for tensor in self.get_output_tensors(op)]

    def _place(self, op: Any, name: str) -> str:
        return f"the operator {name} that computes {', '.join(self._results(op))} cannot be converted"

    def get_tensor_value(self, tensor_wrapper: Any, is_sparse: bool = False) -> Any:
        """Read a constant, also one that an operator before it has computed already.

        DENSIFY leaves its result aside as a number; DEQUANTIZE after it reads the file instead, finds no
        bytes there, and fails with TypeError. Models with sparse float16 weights are written so (mediapipe's
        pose_detection and face_detection_full_range_sparse).
        """
        if not is_sparse and self.is_prefetched(tensor_wrapper.tensor_idx):
            return self.get_prefetched_node(tensor_wrapper.tensor_idx)
        return super().get_tensor_value(tensor_wrapper, is_sparse)
