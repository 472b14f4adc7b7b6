"""Broadcasts: none where the consumer broadcasts by itself, else after the computation instead of before it.

    f(broadcast_to(x), y)                   ->  f(x, y)                  where y has the full extents
    f(broadcast_to(x), broadcast_to(y))     ->  broadcast_to(f(x, y))    where f(x, y) is smaller
    broadcast_to(broadcast_to(x))           ->  broadcast_to(x)
    broadcast_to(x) that only adds ones     ->  reshape(x)
    tile(x), repeat(x) of extents of 1      ->  broadcast_to(x)
    f(constant of one value, y)             ->  f(constant of one element, y)

TVM's TensorRT table has no broadcast_to, tile or repeat, and each of them writes a tensor that its consumer
could have read from fewer bytes. Broadcasts only vanish or move towards results, so the rules end. A `tile` or
`repeat` of larger extents is one TensorRT layer and stays. (rules.md B01 to B08, C08.)
"""

from __future__ import annotations

from collections.abc import Sequence

from relax_glue.ir import Extent, Graph, Node, Value, same, same_shape
from relax_glue.ir.views import RESHAPES, emit_movement, moves_nothing
from relax_glue.movement import Broadcast, Repeat, Reshape, Tile
from relax_glue.rewrite import FOLD, Decline, Replacement, RuleSet, rule

from .base import family
from .pointwise import BINARY, UNARY, WHERE, broadcast_shape, is_splat

BROADCAST = "relax.broadcast_to"
NO_SHAPE = Decline("the shape is unknown")


def _source(value: Value, graph: Graph) -> Value:
    """Return what a broadcast is of, or the value itself.

    A scalar constant gets an axis: TVM writes scalars into kernels, where it makes x * 0.0 a 0.0 even for NaN.
    """
    if not isinstance(value.node.view, Broadcast):
        return value
    source = value.node.inputs[0]
    return graph.constant(source.array.reshape(1)) if source.array is not None and source.ndim == 0 else source


def _sources(node: Node, graph: Graph) -> list[Value]:
    """Return the operands of a node without their broadcasts; nothing where none is a broadcast, as is usual."""
    if not any(isinstance(v.node.view, Broadcast) for v in node.inputs):
        return []
    return [_source(v, graph) for v in node.inputs]


@rule("nop-broadcast", BROADCAST, equation="broadcast_to(x, shape(x)) -> x", kind=FOLD, source="B01")
def nop_broadcast(node: Node, graph: Graph) -> Replacement | Decline:
    """Drop a broadcast to the operand's own shape."""
    if not isinstance(node.view, Broadcast):
        return NO_SHAPE
    return node.inputs[0] if moves_nothing(node.view, node.inputs[0].shape or ()) else Decline("the shape changes")


@rule(
    "broadcast-of-broadcast",
    BROADCAST,
    equation="broadcast_to(broadcast_to(x, s), t) -> broadcast_to(x, t)",
    producers=(BROADCAST,),
    source="B04",
)
def broadcast_of_broadcast(node: Node, graph: Graph) -> Replacement | Decline:
    """Broadcast the first operand of a chain directly: both align at the right."""
    if not isinstance(node.view, Broadcast) or not isinstance(node.inputs[0].node.view, Broadcast):
        return NO_SHAPE
    return emit_movement(graph, node.view, node.inputs[0].node.inputs[0])


@rule(
    "broadcast-of-leading-ones",
    BROADCAST,
    equation="broadcast_to(reshape(x), s) -> broadcast_to(x, s), where the reshape adds or drops leading ones",
    producers=RESHAPES,
    source="B04",
)
def broadcast_of_leading_ones(node: Node, graph: Graph) -> Replacement | Decline:
    """Leave leading ones to the broadcast, which adds them by itself and repeats those that are there."""
    inner, x = node.inputs[0].node.view, node.inputs[0].node.inputs[0]
    if not isinstance(node.view, Broadcast) or not isinstance(inner, Reshape) or x.shape is None:
        return NO_SHAPE
    if not same_shape(_without_leading_ones(x.shape), _without_leading_ones(inner.shape)):
        return Decline("the reshape does more than add or drop leading ones")
    if x.ndim > len(node.view.shape):
        return Decline("the operand has more axes than the result")
    return emit_movement(graph, node.view, x)


def _without_leading_ones(shape: Sequence[Extent]) -> Sequence[Extent]:
    first = next((axis for axis, extent in enumerate(shape) if not same(extent, 1)), len(shape))
    return shape[first:]


def _adds_leading_ones(x: Value, shape: Sequence[object]) -> bool:
    more = len(shape) - x.ndim
    return more > 0 and all(same(e, 1) for e in shape[:more]) and same_shape(x.shape, tuple(shape[more:]))


@rule(
    "broadcast-to-reshape",
    BROADCAST,
    equation="broadcast_to(x, (1, .., *shape(x))) -> reshape(x)",
    source="B04",
)
def broadcast_to_reshape(node: Node, graph: Graph) -> Replacement | Decline:
    """Spell a broadcast that repeats nothing as a reshape."""
    if not isinstance(node.view, Broadcast):
        return NO_SHAPE
    if not _adds_leading_ones(node.inputs[0], node.view.shape):
        return Decline("it repeats elements")
    return emit_movement(graph, Reshape(node.view.shape), node.inputs[0])


@rule(
    "repetition-of-ones",
    "relax.tile",
    "relax.repeat",
    equation="tile(x, r) | repeat(x, k, a) of extents of 1 -> broadcast_to(x)",
    source="B07",
)
def repetition_of_ones(node: Node, graph: Graph) -> Replacement | Decline:
    """Spell the repetition of single elements as a broadcast, and of nothing as x."""
    shape, result = node.inputs[0].shape or (), node.value.shape
    if result is None or not isinstance(node.view, (Tile, Repeat)):
        return NO_SHAPE
    if broadcast_shape([shape, result]) is None or not _repeats_ones(node.view, shape):
        return Decline("it repeats an extent that is not 1")
    return emit_movement(graph, Broadcast(result), node.inputs[0])


def _repeats_ones(view: Tile | Repeat, shape: Sequence[object]) -> bool:
    if isinstance(view, Repeat):
        return view.count == 1 or same(shape[view.axis], 1)
    own = view.repeats[len(view.repeats) - len(shape) :]
    return all(r == 1 or same(e, 1) for r, e in zip(own, shape, strict=True))


@rule(
    "broadcast-into-consumer",
    *BINARY,
    WHERE,
    equation="f(broadcast_to(x, s), y) -> f(x, y) where the result keeps its shape",
    kind=FOLD,
    source="B02",
)
def broadcast_into_consumer(node: Node, graph: Graph) -> Replacement | Decline:
    """Read the operand of each broadcast that the other operands make needless."""
    operands, sources = list(node.inputs), _sources(node, graph)
    for k, source in enumerate(sources):
        tried = [*operands[:k], source, *operands[k + 1 :]]
        # with both operands broadcast, dropping both would shrink the result: the second one stays then
        if same_shape(broadcast_shape(v.shape for v in tried), node.value.shape):
            operands = tried
    if operands == node.inputs:
        return Decline("no operand is a broadcast that the others make needless")
    return graph.rebuild(node, operands)


@rule(
    "broadcast-after-pointwise",
    *BINARY,
    *UNARY,
    WHERE,
    equation="f(broadcast_to(x, s), broadcast_to(y, s)) -> broadcast_to(f(x, y), s)",
    source="B03",
)
def broadcast_after_pointwise(node: Node, graph: Graph) -> Replacement | Decline:
    """Compute on the small operands, then broadcast once."""
    sources = _sources(node, graph)
    if not sources:
        return Decline("no broadcast makes it larger")
    small, shape = broadcast_shape(v.shape for v in sources), node.value.shape
    if small is None or shape is None or same_shape(small, shape):
        return Decline("no broadcast makes it larger")
    if not any(_dies_with(v.node, node, graph) for v in node.inputs if isinstance(v.node.view, Broadcast)):
        return Decline("the broadcasts have other users")
    return emit_movement(graph, Broadcast(shape), graph.rebuild(node, sources))


def _dies_with(producer: Node, user: Node, graph: Graph) -> bool:
    return producer.users.get(user, 0) == graph.uses(producer)


@rule(
    "broadcast-into-matmul",
    "relax.matmul",
    equation="matmul(broadcast_to(x, s), y) -> matmul(x, y) where the result keeps its shape",
    kind=FOLD,
    source="B06",
)
def broadcast_into_matmul(node: Node, graph: Graph) -> Replacement | Decline:
    """Leave batch axes of 1 to the matmul, which repeats them by itself."""
    operands, sources = list(node.inputs), _sources(node, graph)
    for k, source in enumerate(sources):
        tried = [*operands[:k], source, *operands[k + 1 :]]
        if _same_product(node, tried):
            operands = tried
    if operands == node.inputs:
        return Decline("no operand is a broadcast of batch axes that the other one makes needless")
    return graph.rebuild(node, operands)


def _same_product(node: Node, operands: Sequence[Value]) -> bool:
    """Return whether a matmul of these operands multiplies the same matrices, as often."""
    shapes = [v.shape for v in operands]
    if any(s is None or len(s) < 2 for s in shapes) or node.value.shape is None:
        return False
    matrices = all(same_shape((s or ())[-2:], (v.shape or ())[-2:]) for s, v in zip(shapes, node.inputs, strict=True))
    return matrices and same_shape(broadcast_shape((s or ())[:-2] for s in shapes), node.value.shape[:-2])


@rule(
    "splat-to-element",
    *BINARY,
    WHERE,
    equation="f(constant of one value, y) -> f(constant of one element, y) where the result keeps its shape",
    source="C08",
)
def splat_to_element(node: Node, graph: Graph) -> Replacement | Decline:
    """Keep one element of a constant whose elements have all the same bits.

    It keeps its axes, as a scalar would not be safe (see `_source`). What follows a convolution
    stays a vector: it may become the convolution's bias.
    """
    if any(v.op.startswith("relax.nn.conv") for v in node.inputs):
        return Decline("it may be the bias of a convolution")
    for k, value in enumerate(node.inputs):
        if value.array is None or value.array.size < 2 or not is_splat(value.array):
            continue
        others = [v.shape for i, v in enumerate(node.inputs) if i != k]
        shape = (1,) * value.ndim
        if same_shape(broadcast_shape([shape, *others]), node.value.shape):
            element = graph.constant(value.array.reshape(-1)[:1].reshape(shape))
            return graph.rebuild(node, [*node.inputs[:k], element, *node.inputs[k + 1 :]])
    return Decline("no operand is a constant of one value that the others broadcast")


RULES = RuleSet.of(
    nop_broadcast,
    broadcast_of_broadcast,
    broadcast_of_leading_ones,
    broadcast_to_reshape,
    repetition_of_ones,
    broadcast_into_consumer,
    broadcast_after_pointwise,
    broadcast_into_matmul,
    splat_to_element,
)


CanonicalizeBroadcast = family(
    "CanonicalizeBroadcast",
    RULES,
    "Drop broadcasts that a consumer does by itself, and compute before those that stay.",
)
