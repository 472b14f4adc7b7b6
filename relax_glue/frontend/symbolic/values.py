"""Small tensors of a model's shape arithmetic, and nodes on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .arithmetic import Arithmetic, Element

if TYPE_CHECKING:
    import onnx

MAX_ELEMENTS = 1 << 12  # what is larger is data


@dataclass(frozen=True, eq=False)
class SymbolicTensor:
    """A small tensor whose elements are known, or known as expressions. Two of them are equal if they are the same.

    Attributes
    ----------
    elements : numpy.ndarray of object
        See `arithmetic.Element`.
    dtype : numpy.dtype
        The element type of the ONNX value.
    """

    elements: np.ndarray
    dtype: np.dtype

    @staticmethod
    def of(elements: Sequence[Element] | Element, dtype: str | np.dtype = "int64") -> SymbolicTensor:
        """Make a tensor of a list, or of a single element as rank 0."""
        listed = list(elements) if isinstance(elements, Sequence) else None
        array = np.empty(() if listed is None else (len(listed),), object)
        array[...] = elements if listed is None else listed
        return SymbolicTensor(array, np.dtype(dtype))

    @staticmethod
    def known(array: np.ndarray) -> SymbolicTensor:
        """Make a tensor of numbers."""
        return SymbolicTensor(array.astype(object), array.dtype)

    def array(self) -> np.ndarray | None:
        """Return the numbers, None where an element is an expression."""
        if all(isinstance(element, (bool, int, float)) for element in self.elements.flat):
            return self.elements.astype(self.dtype)
        return None


@dataclass(frozen=True)
class ShapeNode:
    """A node to evaluate: the message, its model, and its operands."""

    node: onnx.NodeProto
    model: onnx.ModelProto
    inputs: Sequence[SymbolicTensor | None]
    arithmetic: Arithmetic

    def operand(self, index: int) -> SymbolicTensor | None:
        """Return an operand, None if the node does not have it."""
        return self.inputs[index] if index < len(self.inputs) else None

    def numbers(self, index: int) -> np.ndarray | None:
        """Return an operand as numbers, None if it is not there or not known."""
        operand = self.operand(index)
        return None if operand is None else operand.array()

    def attribute(self, name: str, default: Any) -> Any:
        """Return an attribute."""
        from onnx import helper

        found = next((entry for entry in self.node.attribute if entry.name == name), None)
        return default if found is None else helper.get_attribute_value(found)
