"""One ONNX node as a repair sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from relax_glue.errors import ModelImportError
from relax_glue.frontend.naming import variable_name
from relax_glue.frontend.symbolic import Arithmetic, Element, EntryChecks, Joins, SymbolicTensor

# The operands that say where or how large, and not what. They are given to a repair as they are known, by
# `OnnxNode.elements`, and become tensors only where the node is left to TVM's converter.
SHAPE_OPERANDS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "ConstantOfShape": (0,),
        "Expand": (1,),
        "Pad": (1,),
        "Range": (0, 1, 2),
        "Reshape": (1,),
        "Resize": (1, 2, 3),
        "Slice": (1, 2, 3, 4),
        "Split": (1,),
        "Tile": (1,),
        "TopK": (1,),
        "Upsample": (1,),
    }
)


@dataclass(frozen=True)
class Facts:
    """What one import knows beyond its nodes.

    Attributes
    ----------
    arithmetic : Arithmetic
        What is known of the free extents.
    checks : EntryChecks
        What the model asks of them.
    joins : Joins
        Makes extents equal that ONNX says are equal.
    """

    arithmetic: Arithmetic
    checks: EntryChecks
    joins: Joins


@dataclass(frozen=True)
class OnnxNode:
    """One node with its operands as Relax expressions.

    Attributes
    ----------
    op_type, name : str
        The operator and the node's name.
    inputs : list
        The operands, None for an optional one left out; a `SymbolicTensor` where `SHAPE_OPERANDS` names the operand
        and it is computed from free extents. A repair may put another operand in its place, and leave the rest to
        TVM's converter.
    attrs : dict
        The attributes; what is said of the operands holds here too.
    outputs : list of str
        The names of the results that something reads; "" for the others.
    bb : relax.BlockBuilder
        Where the importer builds.
    opset : int
        The version of the operator set.
    facts : Facts
        One for the whole import.
    """

    op_type: str
    name: str
    inputs: list[Any]
    attrs: dict[str, Any]
    outputs: list[str]
    bb: relax.BlockBuilder
    opset: int
    facts: Facts

    def input(self, index: int) -> Any:
        """Return an operand, None if the node does not have it."""
        return self.inputs[index] if index < len(self.inputs) else None

    def constant(self, index: int) -> np.ndarray | None:
        """Return the value of an operand, None if it is not there or not known."""
        operand = self.input(index)
        if isinstance(operand, SymbolicTensor):
            return operand.array()
        return operand.value.numpy() if isinstance(operand, tvm.ir.GenericConst) else None

    def elements(self, index: int) -> list[Element] | None:
        """Return the elements of an operand, known or as expressions; None if it is not there or computed."""
        operand = self.input(index)
        if isinstance(operand, SymbolicTensor):
            return list(operand.elements.flat)
        known = self.constant(index)
        return None if known is None else [value.item() for value in known.flat]

    def text(self, name: str, default: str) -> str:
        """Return an attribute that is a string."""
        value = self.attrs.get(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def emit(self, expr: relax.Expr) -> relax.Expr:
        """Bind an intermediate result to a variable."""
        return self.bb.normalize(expr)

    def require_equal(self, left: Element, right: Element) -> None:
        """Ask that two integers be equal whenever the node runs.

        Raises
        ------
        ModelImportError
            They never are.
        """
        arithmetic = self.facts.arithmetic
        if arithmetic.same(left, right):
            return
        if (isinstance(left, int) and isinstance(right, int)) or arithmetic.equal(left, right) is False:
            raise self.refuse(f"it needs {left} and {right} to be equal")
        self.facts.checks.equal(left, right, variable_name(self.name))

    def require_least(self, value: Element, least: int) -> None:
        """Ask that a free extent be no less than a number."""
        arithmetic = self.facts.arithmetic
        if not isinstance(value, int) and not arithmetic.same(value, arithmetic.maximum(value, least)):
            self.facts.checks.at_least(value, least, variable_name(self.name))

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
