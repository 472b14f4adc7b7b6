"""One operator for all that compute the same of the same operands.

    f(x, y), f(x, y)  ->  one f(x, y), which the users of both read

Exporters write the same permute for q, k and v, the same mean for a difference and a variance, the same slice for each
branch. The operators of numpy's evaluators are merged, which compute their result from their operands alone, and
softmaxes; not layers, of which TensorRT would then have to keep a result for two readers that it could have fused.
Two results of a block stay two. (rules.md C09, T03, B29.)
"""

from __future__ import annotations

import tvm_ffi

from relax_glue.evaluate import EVALUATORS
from relax_glue.ir import Graph, Node, Value
from relax_glue.ir.operands import call_with
from relax_glue.rewrite import FOLD, Decline, Replacement, RuleSet, rule

from .base import family
from .between_reshapes import SOFTMAXES

_LOOKED_AT = 64  # users of an operand: looking at all is quadratic where a thousand share one


@rule(
    "merge-equal",
    *sorted({*EVALUATORS, *SOFTMAXES} - {"relax.matmul"}),
    equation="f(x, y), f(x, y) -> one f(x, y), read by the users of both",
    kind=FOLD,
    source="C09, T03, B29",
)
def merge_equal(node: Node, graph: Graph) -> Replacement | Decline:
    """Let the users of an operator read an earlier one that computes the same of the same operands."""
    if not node.inputs:
        return Decline("it has no operands")
    items = getattr(node.ty, "fields", None)
    if items is not None and graph.uses_of(Value(node)):
        return Decline("its whole tuple is used")
    twin = _twin(node)
    if twin is None:
        return Decline("no earlier operator computes the same of the same operands")
    if graph.is_output(node) and graph.is_output(twin):
        return Decline("both are results")
    return Value(twin) if items is None else [Value(twin, k) for k in range(len(items))]


def _twin(node: Node) -> Node | None:
    """Return an earlier node that computes the same, or None."""
    source = min((v.node for v in node.inputs), key=lambda n: len(n.users))
    if len(source.users) > _LOOKED_AT:
        return None
    for other in source.users:
        if other.op == node.op and other.order < node.order and other.inputs == node.inputs and _same(other, node):
            return other
    return None


def _same(one: Node, other: Node) -> bool:
    """Return whether two calls of one operator on the same operands are the same, and known to have one type."""
    operands = [v.expr for v in one.inputs]
    calls = (call_with(one.expr, operands), call_with(other.expr, operands))
    return bool(tvm_ffi.structural_equal(*calls) and tvm_ffi.structural_equal(one.ty, other.ty))


RULES = RuleSet.of(merge_equal)


MergeEqual = family("MergeEqual", RULES, "Let one operator stand for all that compute the same of the same operands.")
