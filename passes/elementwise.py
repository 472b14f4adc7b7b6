"""Pointwise operators that do nothing, or the same thing twice.

Only what keeps every bit is on by default, NaN, infinities and the sign of zero included: x - 0.0 is x, x + 0.0 is
not (-0.0 becomes 0.0), x + -0.0 is. TVM's clip gives the upper bound for NaN and its relu gives 0, so clip(clip(x))
and relu(clip(x)) are clips, but clip(relu(x)) is one only if NaN may have another result.
(rules.md B12, B17 to B19, B22, B23.)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from relax_glue.ir import Graph, Node, Value, same_shape
from relax_glue.ir.views import emit_movement
from relax_glue.movement import Broadcast, Concat, Flip, Permute, Repeat, Reshape, Slice, Stack, Tile
from relax_glue.rewrite import FOLD, NAN_SENSITIVE, Decline, Replacement, RuleSet, rule

from .base import family
from .pointwise import ASTYPE, WHERE, casts_bytes

CLIP = "relax.clip"
RELU = "relax.nn.relu"


def _is_integer(dtype: str | None) -> bool:
    return str(dtype).startswith(("int", "uint"))


def _all_one(array: np.ndarray, dtype: str | None) -> bool:
    return dtype != "bool" and bool((array == 1).all())


def _all_zero(array: np.ndarray, dtype: str | None) -> bool:
    """Return whether all elements are 0, and +0.0 where they are floats: -0.0 - -0.0 is 0.0."""
    zero = dtype != "bool" and bool((array == 0).all())
    return zero and (_is_integer(dtype) or not bool(np.signbit(array).any()))


def _all_neutral(array: np.ndarray, dtype: str | None) -> bool:
    """Return whether all elements are what an addition leaves alone: -0.0 for floats, 0 for integers."""
    zero = dtype != "bool" and bool((array == 0).all())
    return zero and (_is_integer(dtype) or bool(np.signbit(array).all()))


def _all_integer_one(array: np.ndarray, dtype: str | None) -> bool:
    return _is_integer(dtype) and _all_one(array, dtype)


def _all_true(array: np.ndarray, dtype: str | None) -> bool:
    return dtype == "bool" and bool(array.all())


def _all_false(array: np.ndarray, dtype: str | None) -> bool:
    return dtype == "bool" and not bool(array.any())


_Test = Callable[[np.ndarray, "str | None"], bool]

# operator -> the operands that may be the unit, and whether a constant is it
_UNITS: dict[str, tuple[tuple[int, ...], _Test]] = {
    "relax.add": ((0, 1), _all_neutral),
    "relax.subtract": ((1,), _all_zero),
    "relax.multiply": ((0, 1), _all_one),
    "relax.divide": ((1,), _all_one),
    "relax.floor_divide": ((1,), _all_integer_one),
    "relax.power": ((1,), _all_one),
    "relax.logical_and": ((0, 1), _all_true),
    "relax.logical_or": ((0, 1), _all_false),
    "relax.logical_xor": ((0, 1), _all_false),
}


def _as_result(graph: Graph, x: Value, node: Node) -> Replacement | Decline:
    """Return x, repeated to the shape of what it replaces."""
    if x.shape is None or node.value.shape is None or x.dtype != node.value.dtype:
        return Decline("a shape is unknown or the dtype changes")
    return emit_movement(graph, Broadcast(node.value.shape), x)


@rule("unit-operand", *_UNITS, equation="x * 1 | x / 1 | x - 0 | x + -0.0 | x ** 1 -> x", kind=FOLD, source="B12")
def unit_operand(node: Node, graph: Graph) -> Replacement | Decline:
    """Drop an operation with a constant that leaves every bit of x alone."""
    sides, is_unit = _UNITS[node.op]
    for side in sides:
        constant = node.inputs[side]
        if constant.array is not None and constant.array.size and is_unit(constant.array, constant.dtype):
            return _as_result(graph, node.inputs[1 - side], node)
    return Decline("no operand is a constant that leaves x alone")


IDEMPOTENT = (RELU, "relax.abs", "relax.ceil", "relax.floor", "relax.round", "relax.trunc", "relax.sign")
INVOLUTIONS = ("relax.negative", "relax.logical_not", "relax.bitwise_not")


@rule("same-twice", *IDEMPOTENT, equation="relu(relu(x)) -> relu(x)", kind=FOLD, producers=IDEMPOTENT, source="B19")
def same_twice(node: Node, graph: Graph) -> Replacement | Decline:
    """Drop an operator whose operand is its own result already."""
    return node.inputs[0] if node.inputs[0].op == node.op else Decline("the operand is another operator's")


@rule("back-and-forth", *INVOLUTIONS, equation="-(-x) -> x", kind=FOLD, producers=INVOLUTIONS, source="B19")
def back_and_forth(node: Node, graph: Graph) -> Replacement | Decline:
    """Drop an operator that undoes itself, and its operand."""
    inner = node.inputs[0].node
    if node.op == "relax.logical_not" and node.value.dtype != "bool":
        return Decline("the operand is no bool")  # not not 2 is 1
    return inner.inputs[0] if inner.op == node.op else Decline("the operand is another operator's")


def _bounds(node: Node) -> tuple[float, float] | None:
    """Return the bounds of a clip or relu, or None where they are no numbers in order."""
    if node.op == RELU:
        return 0.0, float("inf")
    low, high = (getattr(arg, "value", None) for arg in list(node.expr.args)[1:3])
    if not isinstance(low, (int, float)) or not isinstance(high, (int, float)):
        return None
    return (low, high) if low <= high else None


@rule(
    "clip-of-clip",
    CLIP,
    RELU,
    equation="clip(clip(x, a, b), c, d) -> clip(x, clip(a, c, d), clip(b, c, d)), relu the same",
    producers=(CLIP,),
    source="B17, B18",
)
def clip_of_clip(node: Node, graph: Graph) -> Replacement | Decline:
    """Clip once. For NaN both give clip(b, c, d)."""
    return _one_clip(node, graph)


@rule(
    "clip-of-relu",
    CLIP,
    equation="clip(relu(x), c, d) -> clip(x, clip(0, c, d), d)",
    soundness=NAN_SENSITIVE,
    producers=(RELU,),
    source="B18",
)
def clip_of_relu(node: Node, graph: Graph) -> Replacement | Decline:
    """Clip once. For NaN the relu gives 0 and the clip d."""
    return _one_clip(node, graph)


def _one_clip(node: Node, graph: Graph) -> Replacement | Decline:
    inner, outer = _bounds(node.inputs[0].node), _bounds(node)
    if inner is None or outer is None:
        return Decline("the bounds are not in order")
    low, high = (_clipped(bound, *outer) for bound in inner)
    return graph.emit(lambda e: relax.op.clip(e, low, high), node.inputs[0].node.inputs[0])


def _clipped(value: float, low: float, high: float) -> float:
    """Clip a number as TVM's kernel does: of 0.0 and -0.0 it takes the bound."""
    below = value if value < high else high
    return below if below > low else low


@rule("nop-astype", ASTYPE, equation="astype(x, dtype(x)) -> x", kind=FOLD, source="B23")
def nop_astype(node: Node, graph: Graph) -> Replacement | Decline:
    """Drop a cast to the operand's own dtype."""
    same_type = node.inputs[0].dtype is not None and node.inputs[0].dtype == node.value.dtype
    return node.inputs[0] if same_type else Decline("the dtype changes")


# dtype -> (bits of the largest exact integer, bits of the exponent) of a float
_FLOATS = {"bfloat16": (8, 8), "float16": (11, 5), "float32": (24, 8), "float64": (53, 11)}
_INTEGERS = {f"{kind}int{bits}": bits for kind in ("", "u") for bits in (8, 16, 32, 64)}


def is_lossless(source: str, target: str) -> bool:
    """Return whether every value of dtype `source` is one of dtype `target`."""
    if source == target or (source == "bool" and target in (*_FLOATS, *_INTEGERS)):
        return True
    if source in _FLOATS and target in _FLOATS:
        return all(a <= b for a, b in zip(_FLOATS[source], _FLOATS[target], strict=True))
    if source in _INTEGERS and target in _FLOATS:
        bits = _INTEGERS[source] - (not source.startswith("u"))
        # float16 holds the integers up to 2048 only, but its largest number is 65504
        return bits <= _FLOATS[target][0]
    if source in _INTEGERS and target in _INTEGERS:
        grows = _INTEGERS[target] - _INTEGERS[source]
        return grows > 0 and (source.startswith("u") or not target.startswith("u"))
    return False


@rule(
    "astype-of-astype",
    ASTYPE,
    equation="astype(astype(x, wider), d) -> astype(x, d)",
    producers=(ASTYPE,),
    source="B23",
)
def astype_of_astype(node: Node, graph: Graph) -> Replacement | Decline:
    """Cast once, where the first cast kept every value."""
    x, dtype = node.inputs[0].node.inputs[0], node.value.dtype
    if x.dtype is None or dtype is None or not is_lossless(x.dtype, str(node.inputs[0].dtype)):
        return Decline("the first cast may change values")
    return x if x.dtype == dtype else graph.emit(lambda e: relax.op.astype(e, dtype), x)


_GLUE = (Permute, Reshape, Flip, Broadcast, Concat, Stack, Tile, Repeat)
"""Movements whose result has each element of their operands; a slice that turns an axis around is one too."""


@rule(
    "cast-before-movement",
    ASTYPE,
    equation="astype(move(x), float) -> move(astype(x, float)), x of uint8",
    single_use=(0,),
    source="B23",
)
def cast_before_movement(node: Node, graph: Graph) -> Replacement | Decline:
    """Move an image when it is a float: of uint8 TensorRT takes the cast alone, and leaves to TVM what is before."""
    moved, dtype = node.inputs[0], node.value.dtype
    view = moved.node.view if moved.index is None else None
    if not casts_bytes(node):
        return Decline("TensorRT takes a movement of the operand's dtype, or no cast of it")
    turns = isinstance(view, Slice) and same_shape(moved.shape, moved.node.inputs[0].shape)
    if view is None or not (turns or isinstance(view, _GLUE)):
        return Decline("the operand is no movement that keeps all elements")
    cast = [graph.emit(lambda e: relax.op.astype(e, dtype), x) for x in moved.node.inputs]
    return emit_movement(graph, view, *cast)


@rule("where-decided", WHERE, equation="where(all true, x, y) | where(c, x, x) -> x", kind=FOLD, source="B22")
def where_decided(node: Node, graph: Graph) -> Replacement | Decline:
    """Return the branch that every element takes."""
    condition, x, y = node.inputs
    if x == y or (condition.array is not None and bool(condition.array.all())):
        return _as_result(graph, x, node)
    if condition.array is not None and not bool(condition.array.any()):
        return _as_result(graph, y, node)
    return Decline("the condition is not constant, or both branches are taken")


@rule(
    "where-not", WHERE, equation="where(not c, x, y) -> where(c, y, x)", producers=("relax.logical_not",), source="B22"
)
def where_not(node: Node, graph: Graph) -> Replacement | Decline:
    """Exchange the branches instead of negating the condition."""
    condition = node.inputs[0].node.inputs[0]
    if condition.dtype != "bool":
        return Decline("the condition is no bool")
    return graph.rebuild(node, [condition, node.inputs[2], node.inputs[1]])


RULES = RuleSet.of(
    unit_operand,
    same_twice,
    back_and_forth,
    clip_of_clip,
    clip_of_relu,
    nop_astype,
    astype_of_astype,
    cast_before_movement,
    where_decided,
    where_not,
)


CanonicalizeElementwise = family(
    "CanonicalizeElementwise",
    RULES,
    "Drop pointwise operators that change no bit, and merge those that do the same thing twice.",
)
