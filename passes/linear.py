"""Matmuls without the reshapes around them.

torch.export spells a linear layer over (b, s, d) as reshape to (b*s, d), matmul with a (d, n) weight, perhaps a bias,
and reshape back. The matmul takes (b, s, d) as it is: each row of the result is the same dot products. The
reshape in front goes, and the one behind too unless it splits the last axis. Where several layers share the
reshape in front it goes with the last of them.

The matmuls of attention come as reshape of (b, h, m, k) and (b, h, k, n) to three axes, matmul, and reshape back to
(b, h, m, n). They take four axes as they are, too. (rules.md R16.)
"""

from __future__ import annotations

from dataclasses import dataclass

from relax_glue.ir import Extent, Graph, Node, Value, is_static, product, same, same_shape
from relax_glue.ir.views import RESHAPES, emit_movement
from relax_glue.movement import Permute, Reshape
from relax_glue.rewrite import Decline, Replacement, RuleSet, rule

MATMUL = "relax.matmul"
ADD = "relax.add"


@dataclass(frozen=True)
class _Linear:
    """A matmul and what is added to it: operand `bias` of `add`, if there is one."""

    matmul: Node
    add: Node | None = None
    bias: int = 1


def _linear(result: Value, graph: Graph) -> _Linear | None:
    """Return the linear layer that `result` is, whose parts have no other users, or None."""
    if result.op == MATMUL:
        return _Linear(result.node)
    width = (result.shape or (None,))[-1]
    for bias in (1, 0):
        vector, matmul = result.node.inputs[bias], result.node.inputs[1 - bias]
        if matmul.op == MATMUL and same_shape(vector.shape, (width,)) and graph.single_use(matmul):
            return _Linear(matmul.node, result.node, bias)
    return None


def _rows(matmul: Node) -> Value | None:
    """Return x where a matmul is reshape(x, (rows, d)) times a weight of rank 2, else None."""
    reshape, weight = matmul.inputs[0].node, matmul.inputs[1]
    if not isinstance(reshape.view, Reshape) or weight.ndim != 2:
        return None
    x, shape = reshape.inputs[0], reshape.view.shape
    if len(shape) != 2 or not x.shape or not same(shape[-1], x.shape[-1]):
        return None
    return x if x.ndim >= 2 else None


def _keeps_leading(rows: Value, view: Reshape, width: Extent) -> bool:
    """Return whether a reshape gives rows their leading axes back, and only splits the last one."""
    shape = rows.shape or ()
    lead, rest = view.shape[: len(shape) - 1], view.shape[len(shape) - 1 :]
    if not same_shape(lead, shape[:-1]):
        return False
    return same_shape(rest, (width,)) or (isinstance(width, int) and is_static(rest) and product(rest) == width)


@rule(
    "linear-without-reshapes",
    *RESHAPES,
    equation="reshape(matmul(reshape(x, (-1, d)), w) + b) -> matmul(x, w) + b",
    producers=(MATMUL, ADD),
    single_use=(0,),
    source="R16",
)
def linear_without_reshapes(node: Node, graph: Graph) -> Replacement | Decline:
    """Multiply x as it is."""
    result = node.inputs[0]
    linear = _linear(result, graph)
    rows = _rows(linear.matmul) if linear else None
    if linear is None or rows is None or not isinstance(node.view, Reshape):
        return Decline("no matmul of reshaped rows by a weight of rank 2, with or without a bias")
    if not _keeps_leading(rows, node.view, (result.shape or (None,))[-1]):
        return Decline("the leading axes do not come back")
    out = graph.rebuild(linear.matmul, [rows, linear.matmul.inputs[1]])
    if linear.add is not None:
        vector = linear.add.inputs[linear.bias]
        out = graph.rebuild(linear.add, [out, vector] if linear.bias else [vector, out])
    return emit_movement(graph, node.view, out)


_SWAP = (0, 2, 1)


@dataclass(frozen=True)
class _Operand:
    """An operand of a matmul over one batch axis: reshape(x), perhaps with its matrices transposed."""

    x: Value
    transposed: bool


def _operand(value: Value, graph: Graph) -> _Operand | None:
    """Return what is reshaped to `value`, if nothing else uses it in between, or None."""
    transposed = isinstance(value.node.view, Permute) and value.node.view.axes == _SWAP
    reshaped = value.node.inputs[0] if transposed else value
    if not isinstance(reshaped.node.view, Reshape) or not (graph.single_use(value) and graph.single_use(reshaped)):
        return None
    return _Operand(reshaped.node.inputs[0], transposed)


def _with_batch(graph: Graph, operand: _Operand, batch: tuple[Extent, ...], matrix: tuple[Extent, ...]) -> Value:
    """Return an operand with the batch axes given instead of the one."""
    if not operand.transposed:
        return emit_movement(graph, Reshape((*batch, *matrix)), operand.x)
    straight = emit_movement(graph, Reshape((*batch, *matrix[::-1])), operand.x)
    last = len(batch) + 1
    return emit_movement(graph, Permute((*range(len(batch)), last, last - 1)), straight)


@rule(
    "matmul-without-reshapes",
    *RESHAPES,
    equation="reshape(matmul(reshape(x), reshape(y))) -> matmul(x, y) where it splits the batch axis again",
    producers=(MATMUL,),
    single_use=(0,),
    source="R16",
)
def matmul_without_reshapes(node: Node, graph: Graph) -> Replacement | Decline:
    """Multiply over the batch axes that the result gets in the end."""
    matmul = node.inputs[0].node
    shapes = [v.shape or () for v in (*matmul.inputs, node.inputs[0])]
    if not isinstance(node.view, Reshape) or any(len(s) != 3 for s in shapes):
        return Decline("no matmul over one batch axis")
    if not (same(shapes[0][0], shapes[1][0]) and same_shape(node.view.shape[-2:], shapes[2][1:])):
        return Decline("a batch is broadcast, or the matrices are reshaped")
    operands = [_operand(v, graph) for v in matmul.inputs]
    if operands[0] is None or operands[1] is None:
        return Decline("an operand is no reshape, or has other users")
    batch = tuple(node.view.shape[:-2])
    x = _with_batch(graph, operands[0], batch, tuple(shapes[0][1:]))
    y = _with_batch(graph, operands[1], batch, tuple(shapes[1][1:]))
    return graph.rebuild(matmul, [x, y])


RULES = RuleSet.of(linear_without_reshapes, matmul_without_reshapes)
