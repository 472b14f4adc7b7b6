"""Clips and ReLUs spelled with maximum and minimum.

Importers and hand-written models spell ReLU6 and hard-swish as maximum and minimum with scalars; TensorRT has one
activation layer for each of clip and ReLU. TVM computes maximum(x, c) as x > c ? x : c, so a NaN becomes c, and
clip(x, l, h) as maximum(minimum(x, h), l): the order of the two decides what a NaN becomes, and only the exact
spelling is rewritten unless "nan_sensitive" rules are asked for. (rules.md B16 to B18, H10.)
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from relax_glue.ir import Graph, Node, Value, same_shape
from relax_glue.rewrite import (
    NAN_SENSITIVE,
    Decline,
    Replacement,
    RuleSet,
    rule,
)

from .base import family
from .pointwise import is_splat

NOT_SCALAR = Decline("no second operand is a constant scalar that leaves the shape alone")


def scalar_operand(node: Node) -> tuple[Value, float] | None:
    """Return (x, c) of f(x, c) where c is a constant of one value and the result has the shape of x, or None."""
    x, other = node.inputs
    array = other.array
    if array is None or x.op == "constant":
        return None
    if not is_splat(array) or not same_shape(x.shape, node.shape_of(None)):
        return None
    return x, array.flat[0].item()


@rule("maximum-to-relu", "relax.maximum", equation="maximum(x, 0) -> relu(x)", source="B17")
def maximum_to_relu(node: Node, graph: Graph) -> Replacement | Decline:
    """A maximum with zero is a ReLU; maximum(0, x) is not, since it lets a NaN through."""
    found = scalar_operand(node)
    if found is None:
        return NOT_SCALAR
    if found[1] != 0 or np.signbit(found[1]):
        return Decline("the constant is not +0")
    return graph.emit(relax.op.nn.relu, found[0])


def _clip(node: Node, graph: Graph, lower: float, upper: float, x: Value) -> Replacement | Decline:
    if not lower <= upper:
        return Decline("the lower bound lies above the upper")
    if isinstance(upper, int) and upper >= 2**63:
        return Decline("a bound is too large for an attribute of clip")  # 2**64 - 1, which a uint64 can be
    return graph.emit(lambda e: relax.op.clip(e, lower, upper), x)


@rule(
    "minimum-maximum-to-clip",
    "relax.maximum",
    equation="maximum(minimum(x, h), l) -> clip(x, l, h), l <= h",
    producers=("relax.minimum",),
    single_use=(0,),
    source="B17",
)
def minimum_maximum_to_clip(node: Node, graph: Graph) -> Replacement | Decline:
    """This is how TVM itself computes a clip."""
    outer, inner = scalar_operand(node), scalar_operand(node.inputs[0].node)
    if outer is None or inner is None:
        return NOT_SCALAR
    return _clip(node, graph, outer[1], inner[1], inner[0])


def _is_float(node: Node) -> bool:
    return (node.value.dtype or "").startswith(("float", "bfloat"))


def _maximum_first(node: Node, graph: Graph) -> tuple[float, float, Value] | Decline:
    """Return (l, h, x) of minimum(maximum(x, l), h), where relu(x) is maximum(x, 0)."""
    outer = scalar_operand(node)
    if outer is None:
        return NOT_SCALAR
    inner = node.inputs[0].node
    if inner.op == "relax.nn.relu":
        return (0.0 if _is_float(node) else 0), outer[1], inner.inputs[0]
    found = scalar_operand(inner)
    return NOT_SCALAR if found is None else (found[1], outer[1], found[0])


@rule(
    "maximum-minimum-to-clip-integers",
    "relax.minimum",
    equation="minimum(maximum(x, l), h) -> clip(x, l, h), l <= h, integers",
    producers=("relax.maximum", "relax.nn.relu"),
    single_use=(0,),
    source="B17",
)
def maximum_minimum_to_clip_integers(node: Node, graph: Graph) -> Replacement | Decline:
    """Integers have no NaN, so the order does not matter."""
    if _is_float(node):
        return Decline("a NaN would become the other bound")
    found = _maximum_first(node, graph)
    return found if isinstance(found, Decline) else _clip(node, graph, *found)


@rule(
    "maximum-minimum-to-clip",
    "relax.minimum",
    equation="minimum(maximum(x, l), h) -> clip(x, l, h), l <= h",
    producers=("relax.maximum", "relax.nn.relu"),
    single_use=(0,),
    soundness=NAN_SENSITIVE,
    source="B16, B18",
)
def maximum_minimum_to_clip(node: Node, graph: Graph) -> Replacement | Decline:
    """As an ONNX Clip arrives from TVM's importer; a NaN becomes h instead of l."""
    found = _maximum_first(node, graph)
    return found if isinstance(found, Decline) else _clip(node, graph, *found)


RULES = RuleSet.of(minimum_maximum_to_clip, maximum_minimum_to_clip_integers, maximum_minimum_to_clip, maximum_to_relu)


RecognizeClip = family(
    "RecognizeClip",
    RULES,
    'Turn maximum and minimum with scalars into ReLU and clip; with "nan_sensitive", the maximum of floats may come '
    "before the minimum.",
)
