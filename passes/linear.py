"""Linear layers: a matmul of rows without the reshapes around it.

torch.export spells a linear layer over (b, s, d) as reshape to (b*s, d), matmul with a (d, n) weight, perhaps a bias,
and reshape back. The matmul takes (b, s, d) as it is: each row of the result is the same dot products. The
reshape in front goes, and the one behind too unless it splits the last axis. Where several layers share the
reshape in front it goes with the last of them. (rules.md R16.)
"""

from __future__ import annotations

from dataclasses import dataclass

from relax_glue.ir import Extent, Graph, Node, Value, is_static, product, same, same_shape
from relax_glue.ir.views import RESHAPES, emit_movement
from relax_glue.movement import Reshape
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


RULES = RuleSet.of(linear_without_reshapes)
