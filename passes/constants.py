"""Constants: a call whose operands are all constants becomes a constant, computed in numpy.

TVM's own FoldConstant compiles a kernel for each such call (10 to 40 s on a detector); numpy takes milliseconds.
`relax_glue.evaluate` computes only what is certain to be what TVM's LLVM build gives, in the declared dtype.
(rules.md C01, C04, C05, C08, T21, G15.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import tvm
from tvm import relax

from relax_glue.evaluate import EVALUATORS, SHAPE_ONLY, byte_size, evaluate
from relax_glue.ir import Graph, Node, Value, is_static
from relax_glue.ir.read import VARIADIC
from relax_glue.rewrite import (
    EXACT,
    FLOAT_REASSOC,
    FOLD,
    Decline,
    Replacement,
    RewriteStats,
    Rule,
    RuleSet,
    check_soundness,
)

from .base import rule_pass

MAX_GROWTH = 4 << 20
"""Bytes that a folded constant may take more than its operands did: a broadcast or a tile of a constant can be
larger than the whole model, and TensorRT makes it for nothing."""

NOT_CONSTANT = Decline("an operand is not constant")
NOT_STATIC = Decline("the result's shape is not static")
NOT_EMPTY = Decline("the result has elements")


def fold_constants(
    max_growth: int = MAX_GROWTH, soundness: Sequence[str] = (EXACT, FLOAT_REASSOC), integers_only: bool = False
) -> Rule:
    """Make the rule that computes calls of constants.

    Parameters
    ----------
    max_growth : int
        Bytes that a result may take more than the operands of its call do together.
    soundness : sequence of str
        Which operators are computed: EXACT ones give the bits that LLVM gives; FLOAT_REASSOC ones (exp, tanh,
        float sums) may differ from it in the last bits.
    integers_only : bool
        Compute only what gives integers or booleans, as shape arithmetic does.
    """
    allowed = check_soundness(soundness)

    def apply(node: Node, graph: Graph) -> Replacement | Decline:
        """Compute a call of constants in numpy, in the declared dtype, or one that reads only the shape of x."""
        if any(v.op != "constant" for v in node.inputs) and not _reads_shape_only(node):
            return NOT_CONSTANT
        if integers_only and not _is_integral(node):
            return Decline("the result is no integer")
        return _fold(node, graph, max_growth, allowed)

    return Rule(
        "fold-constants",
        tuple(sorted(EVALUATORS)),
        "f(constants) -> constant",
        apply,
        FLOAT_REASSOC if FLOAT_REASSOC in allowed and not integers_only else EXACT,
        FOLD,
        source="C01, C04, C05",
    )


def _is_integral(node: Node) -> bool:
    return np.dtype(node.value.dtype or "float32").kind in "iub"


def _reads_shape_only(node: Node) -> bool:
    """Return whether only the shape of the operands matters, as in zeros_like."""
    return node.op in SHAPE_ONLY and all(v.op == "constant" for v in node.inputs[1:])


def _fold(node: Node, graph: Graph, max_growth: int, allowed: Sequence[str]) -> Replacement | Decline:
    size = byte_size(node.ty)
    if size is None:
        return NOT_STATIC
    if size - sum(v.array.nbytes for v in node.inputs if v.array is not None) > max_growth:
        return Decline(f"the constant would take {size} bytes, {max_growth} more than its operands at the most")
    result = evaluate(node.expr, _operands(node), node.ty, allow=allowed)
    if result is None:
        return Decline("numpy cannot compute it with certainty")
    if isinstance(result, tuple):
        return [graph.constant(np.asarray(r)) for r in result]
    return graph.constant(result)


def _operands(node: Node) -> list[np.ndarray | tuple[np.ndarray, ...] | None]:
    arrays = [v.array for v in node.inputs]
    if node.op not in VARIADIC:
        return list(arrays)
    count = len(node.expr.args[0].fields)
    return [tuple(a for a in arrays[:count] if a is not None), *arrays[count:]]


def _empty(node: Node, graph: Graph) -> Replacement | Decline:
    """Write a result without elements as a constant: TensorRT takes no empty tensor, and nothing is computed."""
    whole = not isinstance(node.ty, relax.TupleType)
    values = [node.value] if whole else [Value(node, k) for k in range(len(node.ty.fields))]
    if any(not is_static(v.shape) or v.dtype is None for v in values):
        return NOT_STATIC
    if not all(0 in (v.shape or ()) for v in values):
        return NOT_EMPTY
    return [graph.constant(np.zeros(v.shape or (), np.dtype(v.dtype))) for v in values]


FOLD_EMPTY = Rule(
    "fold-empty",
    tuple(sorted(EVALUATORS)),
    "f(x) with no elements -> empty constant",
    _empty,
    kind=FOLD,
    source="S12; apache/tvm issue 19532",
)


def constant_rules(soundness: Sequence[str] = (EXACT, FLOAT_REASSOC), max_growth: int = MAX_GROWTH) -> RuleSet:
    """Return the rules that compute what the soundness classes allow; see `fold_constants`."""
    return RuleSet.of(fold_constants(max_growth, soundness), FOLD_EMPTY)


RULES = constant_rules()


def FoldConstants(
    *,
    max_growth: int = MAX_GROWTH,
    soundness: Sequence[str] = (EXACT, FLOAT_REASSOC),
    exclude: Iterable[str] = (),
    stats: RewriteStats | None = None,
) -> tvm.transform.Pass:
    """Compute calls of constants in numpy, in the declared dtype.

    Parameters
    ----------
    max_growth : int
        Bytes that a constant may take more than the operands that it is computed from.
    soundness : sequence of str
        ("exact",) for the bits that LLVM gives; with "float_reassoc", as by default, exp, tanh, float sums and
        the like are computed too.
    exclude : iterable of str
        Names of rules to leave out.
    stats : RewriteStats, optional
        Where to count what the rules do.
    """
    return rule_pass("FoldConstants", constant_rules(soundness, max_growth), exclude, stats)
