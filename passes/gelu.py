"""GELU spelled in arithmetic becomes `nn.gelu` or `nn.gelu_tanh`.

    0.5 * x * (1 + erf(x / sqrt(2)))                                   ->  gelu(x)
    0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))       ->  gelu_tanh(x)

PyTorch's ONNX exporter writes the first for every transformer below opset 20, in one of several orders. TensorRT has a
layer for each. The arithmetic is read as a polynomial of x and of the erf or tanh, so its order does not matter; the
constants have to be right as far as the dtype can tell. (rules.md X08.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from tvm import relax

from relax_glue.ir import Graph, Node, Value, same_shape
from relax_glue.rewrite import FLOAT_REASSOC, Decline, Replacement, rule

from .polynomial import Monomial, PolynomialReader, equals

FLOATS = ("float16", "float32")
_ARITHMETIC = ("relax.multiply", "relax.add", "relax.divide", "relax.subtract", "relax.power", "relax.square")
_STEPS = 6  # how far an erf or tanh, and x below it, are looked for


@dataclass(frozen=True)
class _Form:
    """One of the two functions: what the erf or tanh is taken of, as a polynomial of x, and the operator."""

    inner: Mapping[Monomial, float]
    make: str


_FORMS = {
    "relax.erf": _Form({(1,): math.sqrt(0.5)}, "gelu"),
    "relax.tanh": _Form({(1,): math.sqrt(2 / math.pi), (3,): math.sqrt(2 / math.pi) * 0.044715}, "gelu_tanh"),
}
_OUTER: Mapping[Monomial, float] = {(1, 0): 0.5, (1, 1): 0.5}  # of x and the erf or tanh


@rule(
    "gelu-by-hand",
    "relax.multiply",
    "relax.divide",
    equation="0.5 * x * (1 + erf(x / sqrt(2))) -> gelu(x); with tanh likewise -> gelu_tanh(x)",
    soundness=FLOAT_REASSOC,
    source="X08",
)
def gelu_by_hand(node: Node, graph: Graph) -> Replacement | Decline:
    """Compute in one layer what exporters spell in five to nine operators."""
    if node.value.dtype not in FLOATS:
        return Decline("the dtype is not float32 or float16")
    bent = next((v for v in _below(node.value) if v.op in _FORMS), None)
    if bent is None:
        return Decline("there is no erf or tanh in it")
    tolerance = 4 * float(np.finfo(node.value.dtype).eps)
    form = _FORMS[bent.op]
    for x in _below(bent.node.inputs[0]):
        inner, outer = PolynomialReader([x]), PolynomialReader([x, bent])
        if not equals(inner.read(bent.node.inputs[0]), form.inner, tolerance):
            continue
        if not equals(outer.read(node.value), _OUTER, tolerance) or not same_shape(x.shape, node.value.shape):
            continue
        if not _is_closed({*inner.inside, *outer.inside, bent.node}, node, graph):
            return Decline("a part of it has other users")
        return graph.emit(getattr(relax.op.nn, form.make), x)
    return Decline("the arithmetic or its constants are those of another function")


def _below(value: Value) -> Iterator[Value]:
    """Yield a value and those that it is made of by arithmetic, the nearest first; constants are left out."""
    level = [value]
    for _ in range(_STEPS):
        yield from level
        level = list(dict.fromkeys(v for u in level if u.op in _ARITHMETIC for v in u.node.inputs if v.array is None))


def _is_closed(inside: set[Node], root: Node, graph: Graph) -> bool:
    """Return whether nothing but the root is seen outside."""
    inner = inside - {root}
    return all(not graph.is_output(n) and inside.issuperset(n.users) for n in inner)
