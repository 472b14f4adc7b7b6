"""Operators that take a shape as an operand, where that shape is computed from free extents.

TVM's importer takes a shape that it can follow through Shape, Gather and Concat, and refuses one that went through
arithmetic. Here every such operand is known as expressions (`frontend/symbolic`), whatever it was computed by.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import numpy_helper
from tvm import relax, tirx

from relax_glue.frontend.symbolic import Element, Quotient, SymbolicTensor

from .node import OnnxNode, dtype_of, extents_of, scalar


def reshape(node: OnnxNode) -> relax.Expr | None:
    """Reshape on free extents: 0 and -1 are written out, and what they leave open is asked at the entry.

    TVM refuses (n, 64, h * w), and types -1 as n * 12 * h // n, which it cannot prove equal to 12 * h afterwards.
    """
    extents, target = extents_of(node.inputs[0]), node.elements(1)
    if target is None or extents is None:
        if node.input(1) is not None and node.constant(1) is None:
            raise node.refuse(_COMPUTED.format("its target"))
        return None
    if all(isinstance(e, int) for e in [*extents, *target]):
        return None
    return reshape_to(node, node.inputs[0], _spelled(node, extents, target))


_COMPUTED = "{} is computed from values while the model runs; only what follows from the shapes of the inputs can be"


def _spelled(node: OnnxNode, extents: list[Element], target: list[Element]) -> list[Element]:
    """Write out 0 (the extent at the same place) and -1 (what is left)."""
    kept = not node.attrs.get("allowzero", 0)
    wanted = list(target)
    for axis, extent in enumerate(target):
        if isinstance(extent, int) and extent == 0 and kept:
            if axis >= len(extents):
                raise node.refuse(f"its target has a 0 at axis {axis}, where its input has no axis")
            wanted[axis] = extents[axis]
    open_axes = [axis for axis, extent in enumerate(wanted) if isinstance(extent, int) and extent == -1]
    if len(open_axes) > 1:
        raise node.refuse(f"its target {target} leaves more than one extent open")
    for axis in open_axes:
        rest = math.prod(extent for place, extent in enumerate(wanted) if place != axis)
        wanted[axis] = node.facts.arithmetic.floor_divide(math.prod(extents), rest)
    return wanted


def reshape_to(node: OnnxNode, x: relax.Expr, wanted: list[Element]) -> relax.Expr:
    """Return a reshape, after asking that the number of elements be the same if that is not proved."""
    extents = extents_of(x) or []
    simplify = node.facts.arithmetic.simplify
    node.require_equal(simplify(math.prod(wanted)), simplify(math.prod(extents)))
    return relax.op.reshape(x, relax.ShapeExpr([simplify(extent) for extent in wanted]))


def flatten(node: OnnxNode) -> relax.Expr | None:
    """Flatten on free extents, with both extents written out, for the reason given at Reshape."""
    extents = extents_of(node.inputs[0])
    if extents is None or all(isinstance(extent, int) for extent in extents):
        return None
    axis = node.attrs.get("axis", 1)
    axis += len(extents) if axis < 0 else 0
    return reshape_to(node, node.inputs[0], [math.prod(extents[:axis]), math.prod(extents[axis:])])


def expand(node: OnnxNode) -> relax.Expr | None:
    """Expand to free extents; TVM's converter fails on a symbolic extent of its input, and asks no equality."""
    x, target = node.inputs[0], node.elements(1)
    extents = extents_of(x)
    if target is None:
        raise node.refuse(_COMPUTED.format("its target"))
    if extents is None or all(isinstance(e, int) for e in [*extents, *target]):
        return None
    # -1 stands for the extent that is there; ONNX does not say so, but PyTorch's exporters count on it
    asked = [1 if isinstance(extent, int) and extent == -1 else extent for extent in target]
    fitted, wanted = node.facts.joins.stretch(node.name, x, asked)
    if len(wanted) == len(extents) and all(map(node.facts.arithmetic.same, extents_of(fitted) or [], wanted)):
        return fitted
    return relax.op.broadcast_to(fitted, relax.ShapeExpr(wanted))


def constant_of_shape(node: OnnxNode) -> relax.Expr | None:
    """ConstantOfShape of free extents as relax.full; TVM takes only a shape that it followed itself."""
    target = node.elements(0)
    if target is None:
        raise node.refuse(_COMPUTED.format("its shape"))
    given = node.attrs.get("value")
    value = np.zeros(1, np.float32) if given is None else numpy_helper.to_array(given)
    return relax.op.full(relax.ShapeExpr(target), scalar(value.reshape(-1)[0], value.dtype), value.dtype.name)


def range_(node: OnnxNode) -> relax.Expr | None:
    """Range with free ends as relax.arange over its number of steps, then scaled and shifted.

    TVM computes the ends as tensors, and refuses them because they are float32. Exporters write the positions of a grid
    so: Range(0.0, Cast(width), 1.0).
    """
    ends = [node.elements(index) for index in range(3)]
    if any(end is None or len(end) != 1 for end in ends):
        raise node.refuse(_COMPUTED.format("one of its ends"))
    start, limit, step = (end[0] for end in ends if end is not None)
    if isinstance(step, (relax.Expr, Quotient)) or step == 0:
        raise node.refuse(f"its step is {step}; it has to be a number other than 0")
    dtype = _element_type(node.inputs[0])
    count = _number_of_steps(node, start, limit, step)
    if count is None:
        raise node.refuse(f"the number of its steps from {start} to {limit} by {step} cannot be written as an integer")
    if isinstance(count, int):
        return _scaled(node, relax.const(np.arange(count), "int64"), start, step, dtype)
    return _scaled(node, relax.op.arange(0, count, 1, "int64"), start, step, dtype)


def _element_type(operand: Any) -> np.dtype:
    return operand.dtype if isinstance(operand, SymbolicTensor) else dtype_of(operand)


def _number_of_steps(node: OnnxNode, start: Element, limit: Element, step: float) -> Element | None:
    arithmetic = node.facts.arithmetic
    length = arithmetic.subtract(limit, start)
    steps = None if length is None else arithmetic.divide(arithmetic.multiply(length, 1.0), float(step))
    if steps is None:
        return None
    count = arithmetic.ceil(steps)
    return None if count is None else arithmetic.maximum(count, 0)


def _scaled(node: OnnxNode, steps: relax.Expr, start: Element, step: Element, dtype: np.dtype) -> relax.Expr:
    if dtype.name != "int64":
        steps = relax.op.astype(node.emit(steps), dtype.name)
    if step != 1:
        steps = relax.op.multiply(node.emit(steps), scalar(step, dtype))
    if isinstance(start, (int, float)) and start == 0:
        return steps
    first = materialise(node.bb, SymbolicTensor.of(start, dtype))
    return relax.op.add(node.emit(steps), first)


def tile(node: OnnxNode) -> relax.Expr | None:
    """Tile by known counts as relax.tile, which TVM builds as a call_tir.

    By free counts, which relax.tile does not take, it is a broadcast between two reshapes.
    """
    repeats, extents = node.elements(1), extents_of(node.inputs[0])
    if repeats is None or extents is None:
        raise node.refuse(_COMPUTED.format("its counts"))
    if all(isinstance(count, int) for count in repeats):
        return relax.op.tile(node.inputs[0], repeats)
    multiply = node.facts.arithmetic.multiply
    apart = [part for extent in extents for part in (1, extent)]
    spread = [part for pair in zip(repeats, extents, strict=True) for part in pair]
    x = node.emit(relax.op.reshape(node.inputs[0], relax.ShapeExpr(apart)))
    x = node.emit(relax.op.broadcast_to(x, relax.ShapeExpr(spread)))
    joined = [multiply(count, extent) for count, extent in zip(repeats, extents, strict=True)]
    return relax.op.reshape(x, relax.ShapeExpr(joined))


def materialise(bb: relax.BlockBuilder, value: SymbolicTensor) -> relax.Expr:
    """Return a tensor of expressions as a tensor that is computed when the model runs."""
    known = value.array()
    if known is not None:
        return relax.const(known, value.dtype.name)
    listed = list(value.elements.flat)
    tops = [element.numerator if isinstance(element, Quotient) else element for element in listed]
    whole = [int(element) if isinstance(element, float) and element.is_integer() else element for element in tops]
    fractions = np.array([element if isinstance(element, float) else 0 for element in whole])
    result = _vector(bb, [0 if isinstance(element, float) else element for element in whole], value.dtype)
    bottoms = [element.denominator if isinstance(element, Quotient) else 1 for element in listed]
    if any(not isinstance(bottom, int) or bottom != 1 for bottom in bottoms):
        result = bb.emit(relax.op.divide(result, _vector(bb, bottoms, value.dtype)))
    if fractions.any():
        result = bb.emit(relax.op.add(result, relax.const(fractions.astype(value.dtype), value.dtype.name)))
    if value.elements.ndim == 1:
        return result
    return bb.emit(relax.op.reshape(result, value.elements.shape))


def _vector(bb: relax.BlockBuilder, extents: list[Element], dtype: np.dtype) -> relax.Expr:
    if all(isinstance(extent, int) for extent in extents):
        return relax.const(np.array(extents, dtype), dtype.name)
    integers = [tirx.IntImm("int64", extent) if isinstance(extent, int) else extent for extent in extents]
    result = bb.emit(relax.op.shape_to_tensor(relax.ShapeExpr(integers)))
    return result if dtype.name == "int64" else bb.emit(relax.op.astype(result, dtype.name))
