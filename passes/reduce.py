"""Reductions and the reshapes around them: one reduction with the right `keepdims`, or none.

    reshape(mean(x, A, keepdims=False)) that puts the ones back  ->  mean(x, A, keepdims=True), and the other way
    mean(reshape(x, (n, c, h*w)), 2)                             ->  mean(x, (2, 3))
    max(x, A) over extents of 1                                  ->  reshape(x)

The last is exact for integers and for `prod` only: TVM's float `max` of one -inf is the lowest finite number, its
float `sum` of one -0.0 is 0.0, and a rule of its own says so. Reducing several axes instead of the one they were
joined to may add in another order, which is exact for max and min alone. (rules.md R13, R14, R21, R25.)
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from relax_glue.ir import Extent, Graph, Node, Value, same, same_shape
from relax_glue.ir.views import RESHAPES, emit_movement, normal_axis
from relax_glue.movement import Reshape
from relax_glue.rewrite import FLOAT_REASSOC, NAN_SENSITIVE, Decline, Replacement, RuleSet, rule

SELECTIONS = ("relax.max", "relax.min")
SUMS = ("relax.sum", "relax.mean", "relax.prod")
MOMENTS = ("relax.variance", "relax.std")
REDUCTIONS = (*SELECTIONS, *SUMS, *MOMENTS)
NO_SHAPE = Decline("a shape is unknown or its elements are not proved to stay")


def reduced_axes(node: Node) -> tuple[int, ...]:
    """Return the axes that a reduction reduces, sorted and counted from the front."""
    rank = node.inputs[0].ndim
    axes = node.attrs.axis
    return tuple(range(rank)) if axes is None else tuple(sorted({normal_axis(int(a), rank) for a in axes}))


def reduced_shape(shape: Sequence[Extent], axes: Sequence[int], keepdims: bool) -> tuple[Extent, ...]:
    """Return the shape of a reduction of `axes`."""
    if keepdims:
        return tuple(1 if a in axes else e for a, e in enumerate(shape))
    return tuple(e for a, e in enumerate(shape) if a not in axes)


def emit_reduction(graph: Graph, like: Node, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    """Add the reduction of `like` over other axes."""
    make = getattr(relax.op, like.op.removeprefix("relax."))
    return graph.emit(lambda e: make(e, list(axes), keepdims), x)


@rule(
    "reshape-of-reduction",
    *RESHAPES,
    equation="reshape(reduce(x, A, keepdims)) -> reduce(x, A, not keepdims) where that has the shape",
    producers=REDUCTIONS,
    single_use=(0,),
    source="R13",
)
def reshape_of_reduction(node: Node, graph: Graph) -> Replacement | Decline:
    """Let the reduction itself keep the ones, or drop them."""
    reduction = node.inputs[0].node
    x = reduction.inputs[0]
    if not isinstance(node.view, Reshape) or x.shape is None:
        return NO_SHAPE
    axes, keepdims = reduced_axes(reduction), not reduction.attrs.keepdims
    if not same_shape(node.view.shape, reduced_shape(x.shape, axes, keepdims)):
        return Decline("it does more than keep or drop the reduced axes")
    return emit_reduction(graph, reduction, x, axes, keepdims)


@rule(
    "reduction-of-ones",
    *SELECTIONS,
    *SUMS,
    equation="reduce(x, A) -> reshape(x) where the extents of A are 1",
    source="R21",
)
def reduction_of_ones(node: Node, graph: Graph) -> Replacement | Decline:
    """Spell a reduction of single elements as a reshape."""
    if node.op != "relax.prod" and not str(node.value.dtype).startswith(("int", "uint")):
        return Decline("TVM's float result differs for infinities or signed zeros")
    return _single_elements(node, graph)


@rule(
    "float-reduction-of-ones",
    *SELECTIONS,
    "relax.sum",
    "relax.mean",
    equation="reduce(x, A) -> reshape(x) where the extents of A are 1",
    soundness=NAN_SENSITIVE,
    source="R21",
)
def float_reduction_of_ones(node: Node, graph: Graph) -> Replacement | Decline:
    """Do so where an infinity or -0.0 becomes what it is, not what TVM's reduction makes of it."""
    return _single_elements(node, graph)


def _single_elements(node: Node, graph: Graph) -> Replacement | Decline:
    x, shape = node.inputs[0], node.value.shape
    if x.shape is None or shape is None or 0 in shape:
        return NO_SHAPE
    if any(not same(x.shape[a], 1) for a in reduced_axes(node)):
        return Decline("an axis that it reduces is not 1")
    return emit_movement(graph, Reshape(shape), x)


def blocks(before: Sequence[Extent], after: Sequence[Extent]) -> list[tuple[list[int], list[int]]] | None:
    """Return the smallest runs of axes of two shapes that hold the same elements, or None.

    (2, 3, 4) and (6, 4): axes 0 and 1 against axis 0, then 2 against 1. A symbolic extent is a run of itself.
    """
    found: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(before) or j < len(after):
        run = _next_block(before[i:], after[j:])
        if run is None:
            return None
        found.append((list(range(i, i + run[0])), list(range(j, j + run[1]))))
        i, j = i + run[0], j + run[1]
    return found


def _next_block(before: Sequence[Extent], after: Sequence[Extent]) -> tuple[int, int] | None:
    """Return how many leading axes of two shapes are the first run of each."""
    if before and after and same(before[0], after[0]):
        return 1, 1
    if before and same(before[0], 1):
        return 1, 0
    if after and same(after[0], 1):
        return 0, 1
    i = j = 0
    left = right = 1
    while left != right or not i:
        extents, at = (before, i) if left <= right else (after, j)
        if at == len(extents) or not isinstance(extents[at], int):
            return None
        if left <= right:
            left, i = left * extents[at], i + 1
        else:
            right, j = right * extents[at], j + 1
    return (i, j) if j else None


def _axes_before(x: Value, view: Reshape, axes: Sequence[int]) -> tuple[int, ...] | None:
    """Return the axes of `x` that become exactly `axes` in a reshape of it, or None."""
    runs = blocks(x.shape or (), view.shape)
    if runs is None:
        return None
    found: list[int] = []
    for old, new in runs:
        reduced = [a in axes for a in new if not same(view.shape[a], 1)]
        if any(reduced) and not all(reduced):
            return None
        if any(reduced):
            found += old
    return tuple(found)


def _reduction_of_reshape(node: Node, graph: Graph) -> Replacement | Decline:
    """Reduce the operand of the reshape over the axes that it had before."""
    view, x = node.inputs[0].node.view, node.inputs[0].node.inputs[0]
    if not isinstance(view, Reshape) or x.shape is None:
        return NO_SHAPE
    axes = _axes_before(x, view, reduced_axes(node))
    if not axes:
        return Decline("the axes that it reduces are no whole axes before the reshape")
    for keepdims in (bool(node.attrs.keepdims), not node.attrs.keepdims):
        if same_shape(node.value.shape, reduced_shape(x.shape, axes, keepdims)):
            return emit_reduction(graph, node, x, axes, keepdims)
    return Decline("a reshape would still be needed")


reduction_of_reshape = rule(
    "reduction-of-reshape",
    *SELECTIONS,
    equation="max(reshape(x), A) -> max(x, the axes that the reshape joined to A)",
    producers=RESHAPES,
    source="R14",
)(_reduction_of_reshape)

sum_of_reshape = rule(
    "sum-of-reshape",
    *SUMS,
    *MOMENTS,
    equation="mean(reshape(x), A) -> mean(x, the axes that the reshape joined to A)",
    soundness=FLOAT_REASSOC,
    producers=RESHAPES,
    source="R14, R25",
)(_reduction_of_reshape)

RULES = RuleSet.of(
    reshape_of_reduction, reduction_of_ones, float_reduction_of_ones, reduction_of_reshape, sum_of_reshape
)
