"""NonMaxSuppression: the operator of TVM is another one in five places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from relax_glue.frontend.naming import names, variable_name

from .node import OnnxNode, dtype_of, extents_of, scalar
from .rows import first, note_most

_FLOAT, _INDEX = np.dtype("float32"), np.dtype("int64")
_TINY = float(np.finfo(_FLOAT).tiny)
_ALL = 2**63 - 1
_ROOM = 1 << 16  # boxes of one class; more than any model wants, and 100 MB for 80 classes

# What is never negative, and what is not where its operands are not.
_NEVER_NEGATIVE = names("abs exp nn.relu nn.softmax sigmoid square")
_AS_OPERANDS = names(
    """
    add astype broadcast_to concat divide dynamic_strided_slice expand_dims flatten gather_elements gather_nd max mean
    min minimum multiply nn.max_pool2d permute_dims prod repeat reshape split sqrt squeeze strided_slice sum take tile
    topk where
    """
)
_WITH_INDICES = names("dynamic_strided_slice gather_elements gather_nd take topk")


def non_max_suppression(node: OnnxNode) -> relax.Expr:
    """NonMaxSuppression with the meaning that ONNX gives it.

    TVM's converter takes 0.5 and 0.0 for thresholds that are left out, where ONNX has 0 and none; and 0.5 and 0.0 for
    those that are computed. Its kernel marks what is suppressed by a score of -1, looks only at scores above 0, and
    suppresses at the threshold, where ONNX does so above it: with a threshold of 0 it gives nothing. A limit above
    int32, which exporters write for "all", ends in an error, since room is made for that many. Boxes of unknown extents
    crash the process, since type inference reads a shape that is not there. And the result has a row for every box
    there is; what follows is compiled for the wrong shape.
    """
    boxes, scores = node.inputs[:2]
    extents, of_scores = extents_of(boxes), extents_of(scores)
    if extents is None or of_scores is None:
        raise node.refuse("the number of boxes or of scores is not known, even as a symbolic extent")
    limit, computed = _limit(node, extents[1])
    chosen_scores, threshold = _scores(node, scores)
    both = node.emit(
        relax.op.vision.all_class_non_max_suppression(
            _corners(node, boxes) if node.attrs.get("center_point_box", 0) else boxes,
            chosen_scores,
            scalar(limit, _INDEX),
            _overlap(node),
            threshold,
        )
    )
    rows, count = node.emit(relax.TupleGetItem(both, 0)), node.emit(relax.TupleGetItem(both, 1))
    chosen = first(node, rows, 0, count)
    number = tirx.Var(variable_name(f"{node.name}_boxes"), "int64")
    note_most(node, number, [limit, *of_scores[:2]])
    found = node.bb.match_cast(chosen, relax.TensorType((number, 3), "int64"))
    return found if computed is None else _limited(node, found, computed, of_scores)


def _limit(node: OnnxNode, boxes: Any) -> tuple[int, relax.Expr | None]:
    """Return how many boxes of a class TVM is to choose at the most, and the limit if it is computed.

    One that is left out is 0, as ONNX says.
    """
    given, operand = node.constant(2), node.input(2)
    most = node.facts.arithmetic.largest(boxes)
    limit = 0 if operand is None else _ALL if given is None else int(given.reshape(-1)[0])
    if most is None and limit > _ROOM:
        wanted = "the limit is computed" if given is None else f"the limit is {limit}"
        raise node.refuse(
            f"no upper bound is known for the number of boxes, {boxes}, and TVM makes room for as many of each class "
            f"as may be chosen ({wanted}); fix the input shapes, give ranges of the free axes, or export with a limit"
        )
    return limit if most is None else min(limit, most), operand if given is None else None


def _limited(node: OnnxNode, rows: relax.Expr, limit: relax.Expr, scores: Sequence[Any]) -> relax.Expr:
    """Return the first rows of each class: those of a class stand together, the best first."""
    batches, classes = scores[:2]
    if not isinstance(batches, int) or not isinstance(classes, int):
        raise node.refuse("the number of boxes is computed, and that of batches or classes is free; fix one of them")
    emit, one = node.emit, scalar(1, _INDEX)
    columns = emit(relax.op.split(rows, 3, axis=1))
    batch, kind = (emit(relax.op.reshape(emit(relax.TupleGetItem(columns, k)), (-1,))) for k in (0, 1))
    group = emit(relax.op.add(emit(relax.op.multiply(batch, scalar(classes, _INDEX))), kind))
    groups = relax.const(np.arange(batches * classes)[:, None], "int64")
    belongs = emit(relax.op.astype(emit(relax.op.equal(emit(relax.op.expand_dims(group, 0)), groups)), "int64"))
    count = emit(relax.op.sum(belongs, axis=[1]))
    start = emit(relax.op.subtract(emit(relax.op.cumsum(count, axis=0)), count))
    place = emit(relax.op.cumsum(emit(relax.op.full_like(group, one)), axis=0))
    before = emit(relax.op.take(start, group, axis=0))
    rank = emit(relax.op.subtract(emit(relax.op.subtract(place, before)), one))
    kept = emit(relax.op.nonzero(emit(relax.op.less(rank, _rank0(node, limit)))))
    number = tirx.Var(variable_name(f"{node.name}_kept"), "int64")
    note_most(node, number, [rows.ty.shape.values[0]])
    at = node.bb.match_cast(kept, relax.TensorType((1, number), "int64"))
    return emit(relax.op.take(rows, emit(relax.op.reshape(at, (number,))), axis=0))


def _corners(node: OnnxNode, boxes: relax.Expr) -> relax.Expr:
    """Return boxes that are given by their centres, widths and heights as y1, x1, y2, x2."""
    parts = node.emit(relax.op.split(boxes, 4, axis=2))
    x, y, width, height = (node.emit(relax.TupleGetItem(parts, k)) for k in range(4))
    half = scalar(0.5, dtype_of(boxes))
    across, down = (node.emit(relax.op.multiply(side, half)) for side in (width, height))
    sides = [
        node.emit(make(centre, reach))
        for make in (relax.op.subtract, relax.op.add)
        for centre, reach in ((y, down), (x, across))
    ]
    return node.emit(relax.op.concat(sides, axis=2))


def _overlap(node: OnnxNode) -> relax.Expr:
    """Return the least overlap that suppresses: the float after the threshold."""
    operand, known = node.input(3), node.constant(3)
    if operand is None or known is not None:
        threshold = np.float32(0.0 if known is None else known.reshape(-1)[0])
        return scalar(max(np.nextafter(threshold, np.float32(np.inf)), np.float32(_TINY)), _FLOAT)
    above = node.emit(relax.op.multiply(_rank0(node, operand), scalar(1 + np.finfo(_FLOAT).eps, _FLOAT)))
    return node.emit(relax.op.maximum(above, scalar(_TINY, _FLOAT)))


def _rank0(node: OnnxNode, operand: relax.Expr) -> relax.Expr:
    return node.emit(relax.op.reshape(operand, ()))


def _scores(node: OnnxNode, scores: relax.Expr) -> tuple[relax.Expr, relax.Expr]:
    """Return scores above 0 in the same order for the boxes that may be chosen, and the threshold that tells them."""
    operand, known = node.input(4), node.constant(4)
    if known is not None and known.reshape(-1)[0] >= 0:
        return scores, scalar(known.reshape(-1)[0], _FLOAT)
    zero = scalar(0.0, _FLOAT)
    never_negative = _is_never_negative(node, scores)
    positive = node.emit(relax.op.maximum(scores, scalar(_TINY, _FLOAT))) if never_negative else _ranked(node, scores)
    if operand is None or (known is not None and never_negative):
        return positive, zero
    threshold = _rank0(node, operand) if known is None else scalar(known.reshape(-1)[0], _FLOAT)
    may_be_chosen = node.emit(relax.op.greater(scores, threshold))
    return node.emit(relax.op.where(may_be_chosen, positive, zero)), zero


def _ranked(node: OnnxNode, scores: relax.Expr) -> relax.Expr:
    """Return 1, 1/2, 1/3, ... in the order of the scores; of equal ones the first stays first."""
    order = node.emit(relax.op.argsort(scores, axis=2, descending=True, dtype="int32"))
    places = node.emit(relax.op.argsort(order, axis=2, descending=False, dtype="int32"))
    counted = node.emit(relax.op.add(node.emit(relax.op.astype(places, "float32")), scalar(1.0, _FLOAT)))
    return node.emit(relax.op.divide(scalar(1.0, _FLOAT), counted))


def _is_never_negative(node: OnnxNode, expr: relax.Expr, depth: int = 32) -> bool:
    """Return whether a tensor is known to have no element below 0, by the operators that give it."""
    if isinstance(expr, tvm.ir.GenericConst):
        return bool(np.all(expr.value.numpy() >= 0))
    if isinstance(expr, relax.Var):
        value = node.bb.lookup_binding(expr)
        return value is not None and depth > 0 and _is_never_negative(node, value, depth - 1)
    if isinstance(expr, relax.TupleGetItem):
        return _is_never_negative(node, expr.tuple_value, depth)
    if isinstance(expr, relax.Tuple):
        return all(_is_never_negative(node, field, depth) for field in expr.fields)
    if not isinstance(expr, relax.Call) or not isinstance(expr.op, tvm.ir.Op):
        return False
    name = expr.op.name.removeprefix("relax.")
    if name in _NEVER_NEGATIVE:
        return True
    return name in _AS_OPERANDS and all(_is_never_negative(node, arg, depth) for arg in _tensors(expr))


def _tensors(call: relax.Call) -> list[relax.Expr]:
    """Return the operands that are data: indices, conditions and bounds say where it goes."""
    name = call.op.name.removeprefix("relax.")
    if name == "where":
        return list(call.args[1:])
    if name in _WITH_INDICES:
        return [call.args[0]]
    return [arg for arg in call.args if isinstance(arg.ty, relax.TensorType) or _holds_tensors(arg)]


def _holds_tensors(arg: relax.Expr) -> bool:
    return isinstance(arg.ty, relax.TupleType) and any(isinstance(field, relax.TensorType) for field in arg.ty.fields)
