"""One ONNX node as a repair sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from relax_glue.errors import ModelImportError


@dataclass(frozen=True)
class OnnxNode:
    """One node with its operands as Relax expressions.

    Attributes
    ----------
    op_type, name : str
        The operator and the node's name.
    inputs : list
        The operands, None for an optional one left out. A repair may put another operand in its place, and leave the
        rest to TVM's converter.
    attrs : dict
        The attributes; what is said of the operands holds here too.
    outputs : list of str
        The names of the results that something reads; "" for the others.
    bb : relax.BlockBuilder
        Where the importer builds.
    opset : int
        The version of the operator set.
    bounds : dict
        For each symbolic extent that depends on values, the largest value it can have. One for the whole import.
    """

    op_type: str
    name: str
    inputs: list[Any]
    attrs: dict[str, Any]
    outputs: list[str]
    bb: relax.BlockBuilder
    opset: int
    bounds: dict[Any, int]

    def input(self, index: int) -> Any:
        """Return an operand, None if the node does not have it."""
        return self.inputs[index] if index < len(self.inputs) else None

    def constant(self, index: int) -> np.ndarray | None:
        """Return the value of an operand, None if it is not there or not known."""
        operand = self.input(index)
        return operand.value.numpy() if isinstance(operand, tvm.ir.GenericConst) else None

    def text(self, name: str, default: str) -> str:
        """Return an attribute that is a string."""
        value = self.attrs.get(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def emit(self, expr: relax.Expr) -> relax.Expr:
        """Bind an intermediate result to a variable."""
        return self.bb.normalize(expr)

    def refuse(self, reason: str) -> ModelImportError:
        """Return the error for a form that has no meaning in Relax."""
        return ModelImportError(f"node '{self.name}' ({self.op_type}) cannot be converted: {reason}")


def dtype_of(expr: Any) -> np.dtype:
    """Return the element type of a tensor."""
    return np.dtype(str(expr.ty.dtype))


def extents_of(expr: Any) -> list[Any] | None:
    """Return the extents of a tensor, an int for each static one; None where not even symbols are known."""
    shape = expr.ty.shape
    if not isinstance(shape, relax.ShapeExpr):
        return None
    return [int(extent) if isinstance(extent, tirx.IntImm) else extent for extent in shape.values]


def scalar(value: Any, dtype: np.dtype) -> relax.Expr:
    """Return a constant of rank 0 of exactly this type; relax.const alone would narrow 64 bits to 32."""
    return relax.const(np.array(value, dtype), dtype.name)
