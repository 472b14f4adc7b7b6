"""Layer normalisation spelled in arithmetic becomes `nn.layer_norm`, with its scale and shift in it.

    d = x - mean(x, A);  d / sqrt(mean(d * d, A) + eps)  ->  layer_norm(x, 1, 0)
    layer_norm(x, g, b) * c + s                          ->  layer_norm(x, g * c, b * c + s)

PyTorch's ONNX exporter writes this below opset 17, nine operators for what is one layer of TensorRT; and in float16 the
layer sums in float32. (rules.md X07, B27.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

from relax_glue.ir import Graph, Node, Value, is_static, same_shape
from relax_glue.rewrite import FLOAT_REASSOC, Decline, Replacement, RuleSet, rule

from .base import family
from .gelu import FLOATS, gelu_by_hand
from .reduce import reduced_axes

NORM = "relax.nn.layer_norm"
NO_NORM = Decline("it is no difference from a mean over the root of a mean square")


@rule(
    "layer-norm-by-hand",
    "relax.divide",
    "relax.multiply",
    equation="d = x - mean(x, A); d / sqrt(mean(d * d, A) + eps) -> layer_norm(x, 1, 0), A the last axes",
    soundness=FLOAT_REASSOC,
    source="X07, B27",
)
def layer_norm_by_hand(node: Node, graph: Graph) -> Replacement | Decline:
    """Normalise in one layer what exporters spell in seven operators."""
    found = next((f for d, root in _quotients(node) if (f := _normalised(d, root)) is not None), None)
    if found is None:
        return NO_NORM
    x, axes, eps, inside = found
    if x.dtype not in FLOATS or not same_shape(x.shape, node.value.shape):
        return Decline("the dtype is not float32 or float16, or a shape is unknown")
    extents = (x.shape or ())[-len(axes) :]
    if axes != tuple(range(x.ndim - len(axes), x.ndim)) or not is_static(extents):
        return Decline("the axes are not the last ones, or their extents are symbolic")
    if any(graph.is_output(n) or not set(n.users) <= {*inside, node} for n in inside):
        return Decline("a part of it has other users")
    gamma, beta = (graph.constant(np.full(extents, v, x.dtype)) for v in (1, 0))
    return graph.emit(lambda *e: relax.op.nn.layer_norm(*e, axes=list(axes), epsilon=eps), x, gamma, beta)


def _quotients(node: Node) -> list[tuple[Value, Value]]:
    """Return what may be the difference and the root of d / root or d * (1 / root), the second as its square."""
    left, right = node.inputs
    if node.op == "relax.divide":
        return [(left, right.node.inputs[0])] if right.op == "relax.sqrt" else []
    return [(d, r.node.inputs[0]) for d, r in ((left, right), (right, left)) if r.op == "relax.rsqrt"]


def _normalised(d: Value, square: Value) -> tuple[Value, tuple[int, ...], float, list[Node]] | None:
    """Return x, the axes, eps and the nodes in between, where d is x - mean(x) and `square` its variance plus eps."""
    if d.op != "relax.subtract" or square.op != "relax.add":
        return None
    x, mean = d.node.inputs
    variance, eps = _variance_and_eps(square)
    if variance is None or mean.op != "relax.mean" or mean.node.inputs[0] != x or not _keeps(mean.node):
        return None
    squared = variance.node.inputs[0]
    axes = reduced_axes(mean.node)
    if not _keeps(variance.node) or reduced_axes(variance.node) != axes or not _is_square(squared, d):
        return None
    roots = [user for user in square.node.users if user.op in ("relax.sqrt", "relax.rsqrt")]
    return x, axes, eps, [d.node, mean.node, squared.node, variance.node, square.node, *roots]


def _variance_and_eps(square: Value) -> tuple[Value | None, float]:
    for mean, eps in (square.node.inputs, square.node.inputs[::-1]):
        if mean.op == "relax.mean" and eps.array is not None and eps.array.size == 1:
            return mean, float(eps.array.reshape(-1)[0])
    return None, 0.0


def _keeps(reduction: Node) -> bool:
    return bool(reduction.attrs.keepdims)


def _is_square(value: Value, d: Value) -> bool:
    operands = value.node.inputs
    if value.op == "relax.multiply":
        return operands[0] == operands[1] == d
    if value.op == "relax.power":
        exponent = operands[1].array
        return operands[0] == d and exponent is not None and exponent.size == 1 and float(exponent.reshape(-1)[0]) == 2
    return value.op == "relax.square" and operands[0] == d


@rule(
    "scale-into-layer-norm",
    "relax.multiply",
    "relax.add",
    equation="layer_norm(x, g, b) * c -> layer_norm(x, g * c, b * c); ... + c -> layer_norm(x, g, b + c)",
    soundness=FLOAT_REASSOC,
    source="X07",
)
def scale_into_layer_norm(node: Node, graph: Graph) -> Replacement | Decline:
    """Let the layer scale and shift by the constants that follow it."""
    for norm, other in (node.inputs, node.inputs[::-1]):
        if norm.op == NORM and other.array is not None:
            return _with_constant(node, norm.node, other.array, graph)
    return Decline("it is no layer_norm and a constant")


def _with_constant(node: Node, norm: Node, constant: np.ndarray, graph: Graph) -> Replacement | Decline:
    gamma, beta = (v.array for v in norm.inputs[1:])
    if gamma is None or beta is None or not graph.single_use(norm.value):
        return Decline("its scale or shift is not constant, or it has other users")
    if not same_shape(node.value.shape, norm.value.shape) or gamma.dtype != constant.dtype:
        return Decline("the result is larger, or of another dtype")
    vector = _over(constant, gamma.shape)
    if vector is None:
        return Decline("the constant varies along other axes")
    scale = vector if node.op == "relax.multiply" else np.ones_like(vector)
    shift = np.zeros_like(vector) if node.op == "relax.multiply" else vector
    new = [g.astype("float64") for g in (gamma, beta)]
    new = [new[0] * scale, new[1] * scale + shift]
    rounded = [a.astype(gamma.dtype) for a in new]
    if not all(np.isfinite(a).all() for a in rounded):
        return Decline("a product leaves the range of the type")
    return graph.rebuild(norm, [norm.inputs[0], *(graph.constant(a) for a in rounded)])


def _over(constant: np.ndarray, shape: Sequence[int]) -> np.ndarray | None:
    """Return a constant that varies along the last axes only, in their shape, or None."""
    lead = constant.ndim - len(shape)
    if lead > 0 and constant.shape[:lead] != (1,) * lead:
        return None
    return np.broadcast_to(constant.reshape(constant.shape[max(lead, 0) :]), shape)


RULES = RuleSet.of(gelu_by_hand, layer_norm_by_hand, scale_into_layer_norm)


RecognizeIdioms = family(
    "RecognizeIdioms", RULES, "Call gelu and layer_norm by their names where they are spelled in arithmetic."
)
