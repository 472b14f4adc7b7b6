"""Binary operators spelled as reductions over a stack.

TVM's ONNX importer writes Max, Min and Sum, of two operands too, as broadcast_to of each, stack, and a reduction
over the new axis: three walls where one elementwise layer would do. (rules.md B30.)
"""

from __future__ import annotations

from collections.abc import Iterable

from tvm import relax

from relax_glue.ir import Graph, Node
from relax_glue.rewrite import (
    FLOAT_REASSOC,
    NAN_SENSITIVE,
    Decline,
    Replacement,
    RuleSet,
    rule,
)

from .base import family

_BINARY = {"relax.max": relax.op.maximum, "relax.min": relax.op.minimum, "relax.sum": relax.op.add}


def _reduce_of_stack(node: Node, graph: Graph, ops: Iterable[str]) -> Replacement | Decline:
    stack = node.inputs[0].node
    attrs = node.attrs
    axes = None if attrs.axis is None else [int(a) % stack.value.ndim for a in attrs.axis]
    if axes != [int(stack.attrs.axis or 0) % stack.value.ndim] or bool(attrs.keepdims):
        return Decline("the axis that is reduced is not the one that was stacked")
    if node.op not in ops or len(stack.inputs) < 2:
        return Decline("it is one operand, or another reduction")
    result = stack.inputs[0]
    for other in stack.inputs[1:]:
        result = graph.emit(_BINARY[node.op], result, other)
    return result


_REDUCTIONS = tuple(_BINARY)


@rule(
    "sum-of-stack",
    "relax.sum",
    equation="sum(stack((x, y), a), a) -> x + y",
    soundness=FLOAT_REASSOC,
    producers=("relax.stack",),
    single_use=(0,),
    source="B30",
)
def sum_of_stack(node: Node, graph: Graph) -> Replacement | Decline:
    """As an ONNX Sum arrives; TVM's sum starts from 0, so -0 + -0 is 0 there."""
    return _reduce_of_stack(node, graph, _REDUCTIONS)


@rule(
    "maximum-of-stack-integers",
    "relax.max",
    "relax.min",
    equation="max(stack((x, y), a), a) -> maximum(x, y), integers; min likewise",
    producers=("relax.stack",),
    single_use=(0,),
    source="B30",
)
def maximum_of_stack_integers(node: Node, graph: Graph) -> Replacement | Decline:
    """As an ONNX Max of integers arrives from TVM's importer."""
    if (node.value.dtype or "").startswith(("float", "bfloat")):
        return Decline("infinities differ: TVM's max starts from the lowest finite value")
    return _reduce_of_stack(node, graph, _REDUCTIONS)


@rule(
    "maximum-of-stack",
    "relax.max",
    "relax.min",
    equation="max(stack((x, y), a), a) -> maximum(x, y); min likewise",
    soundness=NAN_SENSITIVE,
    producers=("relax.stack",),
    single_use=(0,),
    source="B30",
)
def maximum_of_stack(node: Node, graph: Graph) -> Replacement | Decline:
    """As an ONNX Max arrives; the maximum of two -inf is -inf here and the lowest finite value there."""
    return _reduce_of_stack(node, graph, _REDUCTIONS)


RULES = RuleSet.of(sum_of_stack, maximum_of_stack_integers, maximum_of_stack)


RecognizeMaximum = family(
    "RecognizeMaximum",
    RULES,
    "Turn reductions over a stack, as ONNX Max, Min and Sum arrive, into binary operators; with "
    '"nan_sensitive", those of maximum and minimum of floats too.',
)
