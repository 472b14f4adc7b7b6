"""Reshapes: `reshape`, `flatten`, `nn.batch_flatten`, `expand_dims` and `squeeze` become one `reshape`, in full.

The reshapes around a reduction go into its `keepdims` or its axes (`passes.reduce`), those around a matmul or a
pointwise operator go away (`passes.linear`, `passes.between_reshapes`).

TensorRT makes one shuffle layer of each of them, and TVM's TensorRT table takes neither `flatten` nor `squeeze`
without axes. In one form a chain of them is one reshape, and a chain that ends where it began is none. A
squeeze of an axis that is not proved to be 1 is no reshape and stays. (rules.md R01 to R07.)
"""

from __future__ import annotations

from relax_glue.ir import Graph, Node
from relax_glue.ir.views import RESHAPES, emit_movement, moves_nothing
from relax_glue.movement import Reshape
from relax_glue.rewrite import FOLD, Decline, Replacement, RuleSet, rule

from . import between_reshapes, linear, reduce
from .base import family

NOT_PROVED = Decline("the result is not proved to hold the operand's elements in another shape")


@rule("nop-reshape", *RESHAPES, equation="reshape(x, shape(x)) -> x", kind=FOLD, source="R01")
def nop_reshape(node: Node, graph: Graph) -> Replacement | Decline:
    """Drop a reshape to the operand's own shape; equal by proof, not by name."""
    if not isinstance(node.view, Reshape):
        return NOT_PROVED
    if not moves_nothing(node.view, node.inputs[0].shape or ()):
        return Decline("the shape changes")
    return node.inputs[0]


@rule(
    "reshape-of-reshape",
    *RESHAPES,
    equation="reshape(reshape(x, s), t) -> reshape(x, t)",
    producers=RESHAPES,
    source="R02, R05 to R07",
)
def reshape_of_reshape(node: Node, graph: Graph) -> Replacement | Decline:
    """Reshape the first operand of a chain directly."""
    inner = node.inputs[0].node
    if not isinstance(node.view, Reshape) or not isinstance(inner.view, Reshape):
        return NOT_PROVED
    return emit_movement(graph, node.view, inner.inputs[0])


@rule(
    "reshape-normal-form",
    *RESHAPES[1:],
    equation="flatten | batch_flatten | expand_dims | squeeze (x) -> reshape(x, full shape)",
    source="R03, R04",
)
def reshape_normal_form(node: Node, graph: Graph) -> Replacement | Decline:
    """Spell every reshape as `reshape`."""
    if not isinstance(node.view, Reshape):
        return NOT_PROVED
    return emit_movement(graph, node.view, node.inputs[0])


RULES = (
    RuleSet.of(nop_reshape, reshape_of_reshape, reshape_normal_form)
    + reduce.RULES
    + linear.RULES
    + between_reshapes.RULES
)


CanonicalizeReshape = family(
    "CanonicalizeReshape",
    RULES,
    "Bring reshape, flatten, batch_flatten, expand_dims and squeeze to one reshape, or none.",
)
