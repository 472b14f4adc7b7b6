"""Operators between a reshape and the way back.

    reshape(f(reshape(x)))          ->  f(x)               where the result has x's shape
    reshape(f(reshape(x), c))       ->  f(x, reshape(c))   where c spans whole groups of axes, or has 1 there
    reshape(softmax(reshape(x), a)) ->  softmax(x, b)      where axis b of x is axis a of the reshape
    reshape(prelu(reshape(x), s))   ->  prelu(x, s', b)    where the slope varies along axis b of x only

f is pointwise. Swin adds its mask so: (w, h, n, n) gets an axis of 1 in front, and loses it again; ONNX models
spell a softmax over one axis of several so; TVM's TFLite importer flattens x before a prelu, and repeats the slope of
each channel for all its elements. Two reshapes go, at most one comes, and that one is folded where c
is a constant. (rules.md R08 to R10, R12 and R22, the cases that only remove.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

from relax_glue.ir import Extent, Graph, Node, Value, is_static, product, same, same_shape
from relax_glue.ir.views import RESHAPES, emit_movement, normal_axis
from relax_glue.movement import Reshape
from relax_glue.rewrite import Decline, Replacement, RuleSet, rule

from .pointwise import BINARY, UNARY, WHERE
from .reduce import blocks


def shape_before(shape: Sequence[Extent], result: Sequence[Extent], target: Sequence[Extent]) -> list[Extent] | None:
    """Return the shape in which an operand of a pointwise operator follows a reshape of the result.

    Parameters
    ----------
    shape : sequence of extents
        The operand's shape, which broadcasts to `result`.
    result, target : sequence of extents
        The shape of the operator's result, and what that is reshaped to.

    Returns
    -------
    shape : list of extents or None
        It broadcasts to `target` and then holds the same elements in the same places. None where the operand
        has extents of 1 in part of a group of axes that the reshape joins or cuts.
    """
    groups = blocks(target, result)
    if groups is None:
        return None
    own = [1] * (len(result) - len(shape)) + list(shape)
    found: list[Extent] = []
    for new, old in groups:
        whole = [same(own[a], result[a]) for a in old]
        if all(whole):
            found += [target[a] for a in new]
        elif all(same(own[a], 1) for a in old):
            found += [1] * len(new)
        else:
            return None
    return found


def _source(value: Value, target: Sequence[Extent]) -> Value | None:
    """Return x where a value is reshape(x) and x has the shape `target`, else None."""
    if not isinstance(value.node.view, Reshape):
        return None
    x = value.node.inputs[0]
    return x if same_shape(x.shape, target) else None


def _reshaped(graph: Graph, value: Value, shape: Sequence[Extent]) -> Value:
    """Return a value in another shape, folded where it is a constant.

    A scalar goes with every shape and stays one: TVM writes constant scalars into kernels, where x * 0.0 is 0.0, of -1
    too, which one with axes is not.
    """
    if value.ndim == 0:
        return value
    if value.array is not None:
        return graph.constant(value.array.reshape([int(e) for e in shape]))
    return emit_movement(graph, Reshape(tuple(shape)), value)


@rule(
    "pointwise-between-reshapes",
    *RESHAPES,
    equation="reshape(f(reshape(x), c)) -> f(x, reshape(c)) where the result has the shape of x",
    producers=(*BINARY, *UNARY, WHERE),
    single_use=(0,),
    source="R08 to R10, R12",
)
def pointwise_between_reshapes(node: Node, graph: Graph) -> Replacement | Decline:
    """Compute in the shape that x has and the result gets."""
    pointwise, result = node.inputs[0].node, node.inputs[0].shape
    if not isinstance(node.view, Reshape) or result is None or any(v.shape is None for v in pointwise.inputs):
        return Decline("a shape is unknown")
    target = node.view.shape
    sources = [_source(v, target) for v in pointwise.inputs]
    if not any(x is not None and graph.single_use(v) for x, v in zip(sources, pointwise.inputs, strict=True)):
        return Decline("no operand is a reshape of the result's shape that goes with it")
    others = [v for x, v in zip(sources, pointwise.inputs, strict=True) if x is None]
    shapes = [shape_before(v.shape or (), result, target) for v in others]
    if any(s is None for s in shapes):
        return Decline("an operand does not follow the reshape")
    if sum(_needs_reshape(v, s or ()) for v, s in zip(others, shapes, strict=True)) > 1:
        return Decline("more than one operand would need a reshape")
    follow = iter([_reshaped(graph, v, s or ()) for v, s in zip(others, shapes, strict=True)])
    return graph.rebuild(pointwise, [next(follow) if x is None else x for x in sources])


def _needs_reshape(value: Value, shape: Sequence[Extent]) -> bool:
    return value.array is None and value.ndim != 0 and not same_shape(value.shape, shape)


SOFTMAXES = ("relax.nn.softmax", "relax.nn.log_softmax")


@rule(
    "softmax-between-reshapes",
    *RESHAPES,
    equation="reshape(softmax(reshape(x), a)) -> softmax(x, b) where axis b of x is axis a of the reshape",
    producers=SOFTMAXES,
    single_use=(0,),
    source="R22",
)
def softmax_between_reshapes(node: Node, graph: Graph) -> Replacement | Decline:
    """Normalise the same rows in the shape that x has and the result gets."""
    softmax = node.inputs[0].node
    if not isinstance(node.view, Reshape):
        return Decline("a shape is unknown")
    x = _source(softmax.inputs[0], node.view.shape)
    if x is None or not graph.single_use(softmax.inputs[0]):
        return Decline("the operand is no reshape of the result's shape that goes with it")
    axis = normal_axis(int(softmax.attrs.axis), softmax.inputs[0].ndim)
    before = [old for old, new in blocks(x.shape or (), softmax.inputs[0].shape or ()) or () if new == [axis]]
    if len(before) != 1 or len(before[0]) != 1:
        return Decline("the axis is no axis of x")
    make = relax.op.nn.softmax if softmax.op == SOFTMAXES[0] else relax.op.nn.log_softmax
    return graph.emit(lambda e: make(e, before[0][0]), x)


PRELU = "relax.nn.prelu"


def _own_axis(slope: np.ndarray, shape: Sequence[int]) -> tuple[int, np.ndarray] | None:
    """Return the axis of `shape` along which alone a slope varies, and its values there, or None.

    `slope` holds one value for each element of `shape`, in order.
    """
    whole = slope.reshape(tuple(shape))
    for axis in reversed(range(whole.ndim)):
        line = whole[tuple(slice(None) if a == axis else slice(0, 1) for a in range(whole.ndim))]
        if np.broadcast_to(line, whole.shape).tobytes() == whole.tobytes():
            return axis, np.ascontiguousarray(line).reshape(-1)
    return None


@rule(
    "prelu-between-reshapes",
    *RESHAPES,
    equation="reshape(prelu(reshape(x), s, a)) -> prelu(x, s', b) where s varies along one axis b of x only",
    producers=(PRELU,),
    single_use=(0,),
    source="R08",
)
def prelu_between_reshapes(node: Node, graph: Graph) -> Replacement | Decline:
    """Give a channel its slope where the slope was repeated for each of the channel's elements."""
    if not isinstance(node.view, Reshape):
        return Decline("a shape is unknown")
    prelu = node.inputs[0].node
    flat, slope = prelu.inputs
    x = _source(flat, node.view.shape)
    if x is None or slope.array is None or not graph.single_use(flat):
        return Decline("the slope is no constant, or the operand no reshape that goes with it")
    axis = normal_axis(int(prelu.attrs.axis), flat.ndim)
    runs = [old for old, new in blocks(x.shape or (), flat.shape or ()) or () if new == [axis]]
    extents = [(x.shape or ())[a] for a in runs[0]] if runs else []
    if not extents or not is_static(extents) or product(extents) != slope.array.size:
        return Decline("the axis is no run of axes of x")
    found = _own_axis(slope.array, extents)
    if found is None:
        return Decline("the slope varies along several axes of x")
    own, values = runs[0][found[0]], graph.constant(found[1])
    return graph.emit(lambda e, s: relax.op.nn.prelu(e, s, own), x, values)


RULES = RuleSet.of(pointwise_between_reshapes, softmax_between_reshapes, prelu_between_reshapes)
