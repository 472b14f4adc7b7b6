"""What ONNX nodes of the operator sets 1 to 6 mean, where later ones mean something else.

TVM's importer reads them as it reads the later ones. Where a later one would be valid too, the numbers are wrong
without a word: of 2x3x4x3 and 3 elements, added along axis 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

BROADCASTING = frozenset({"Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "PRelu", "Sub", "Xor"})
"""Operators whose second operand begins at an axis of the first one, where it now ends with the last axis."""

NUMPY_BROADCASTING = 7  # the operator set since which operands are broadcast as in numpy


def with_aligned_axes(
    op_type: str, opset: int, inputs: Sequence[Any], attrs: dict[str, Any], bb: relax.BlockBuilder
) -> list[Any]:
    """Return the operands of a node with the axes of the second one where its operator set puts them.

    Parameters
    ----------
    op_type, opset
        The operator and its set.
    inputs : sequence of relax.Expr or None
        The operands.
    attrs : dict
        The attributes; "axis" and "broadcast", which say how operands were broadcast, are taken out.
    bb : relax.BlockBuilder
        Where the importer builds.
    """
    if opset >= NUMPY_BROADCASTING or op_type not in BROADCASTING:
        return list(inputs)
    attrs.pop("broadcast", None)
    axis = attrs.pop("axis", 1 if op_type == "PRelu" else None)  # the slopes are those of the channels
    first, second = inputs
    if axis is None:
        return [first, second]
    begin = axis % first.ty.ndim if first.ty.ndim else 0
    behind = first.ty.ndim - begin - second.ty.ndim
    if behind <= 0:
        return [first, second]
    axes = list(range(second.ty.ndim, second.ty.ndim + behind))
    return [first, bb.emit(relax.op.expand_dims(second, axes))]
