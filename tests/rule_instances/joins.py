"""Instances of rules of concats and stacks."""

from __future__ import annotations

from itertools import pairwise, product

from tvm import relax
from tvm.relax import op

from relax_glue.testing import operators
from relax_glue.testing.graph import MAX_RANK, Value, fill, literal

from .moves import axis_of
from .scene import NoInstance, Scene


def concat(scene: Scene, exprs: list[relax.Expr], axis: int, rank: int) -> Value:
    return scene.call(op.concat(exprs, scene.choices.spelling(axis, rank)), moves=True)


def window(scene: Scene, value: Value, axis: int, begin: int, end: int, stride: int = 1) -> Value:
    return scene.call(op.strided_slice(value.expr, [axis], [begin], [end], [stride]), moves=True)


def single_concat(scene: Scene) -> Value:
    value = scene.tensor()
    axis = scene.choices.integer(0, value.rank - 1)
    count = 2 if scene.choices.one_in(5) else 1
    return concat(scene, [value.expr] * count, axis, value.rank)


def empty_operand(scene: Scene) -> Value:
    value = scene.tensor()
    axis = scene.choices.integer(0, value.rank - 1)
    exprs = [value.expr]
    for _ in range(scene.choices.integer(1, 2)):
        extents = value.extents
        extents[axis] = 1 if scene.choices.one_in(4) else 0
        static = all(isinstance(extent, int) for extent in extents)
        other = scene.constant(extents, value.dtype) if static and scene.choices.one_in(2) else None
        exprs.append(other if other is not None else scene.parameter(extents, value.dtype).expr)
    return concat(scene, exprs if scene.choices.one_in(2) else exprs[::-1], axis, value.rank)


def nested_concat(scene: Scene) -> Value:
    value = scene.tensor()
    axis = scene.choices.integer(0, value.rank - 1)
    inner_axis = axis if not scene.choices.one_in(4) else scene.choices.integer(0, value.rank - 1)
    inner = concat(scene, [value.expr, scene.tensor(value.extents, value.dtype).expr], inner_axis, value.rank)
    outer = scene.tensor(inner.extents, value.dtype)
    return concat(scene, [outer.expr, inner.expr], axis, value.rank)


def adjacent_slices(scene: Scene) -> Value:
    """Cut an axis up and join the pieces in order, from the end, or with one left out."""
    value = scene.tensor()
    axis = axis_of(scene, value, 2)
    size = value.array.shape[axis]
    if scene.choices.one_in(3):
        sections = scene.choices.item([n for n in range(2, size + 1) if size % n == 0])
        pieces = scene.call_tuple(op.split(value.expr, sections, axis), moves=True)
    else:
        cuts = [0, *scene.choices.subset(range(1, size))[:3], size]
        pieces = [window(scene, value, axis, a, b) for a, b in pairwise(cuts)]
    if scene.choices.one_in(4):
        pieces = [window(scene, piece, axis, -1, -piece.array.shape[axis] - 1, -1) for piece in reversed(pieces)]
    if scene.choices.one_in(4):
        pieces = [pieces[k] for k in scene.choices.permutation(len(pieces))]
    others = [scene.tensor(value.extents, value.dtype)] if scene.choices.one_in(4) else []
    return concat(scene, [v.expr for v in [*pieces, *others]], axis, value.rank)


def reversed_elements(scene: Scene) -> Value:
    """Join single elements, or windows with a stride, so that a stride continues from one to the next."""
    value = scene.tensor()
    axis = axis_of(scene, value, 3)
    size = value.array.shape[axis]
    order = list(range(size))[:: scene.choices.item((1, -1, 2))]
    pieces = [window(scene, value, axis, k, k + 1) for k in order]
    return concat(scene, [piece.expr for piece in pieces], axis, value.rank)


def interleaved(scene: Scene) -> Value:
    """Join all phases of one or two strided axes, in the order of nested loops or another."""
    ranks = scene.choices.integer(1, 3)
    shape = [scene.choices.item((4, 2, 6, 3)) for _ in range(ranks)]
    place = scene.choices.integer(0, ranks)
    shape.insert(place, scene.symbol(2) if scene.choices.one_in(4) else 2)
    value = scene.tensor(shape)
    strided = scene.choices.subset([axis for axis in range(value.rank) if axis != place])[:2]
    steps = {axis: scene.choices.item([s for s in (2, 3) if shape[axis] % s == 0]) for axis in strided}
    order = strided if scene.choices.one_in(2) else strided[::-1]
    phases = list(product(*(range(steps[axis]) for axis in order)))
    if scene.choices.one_in(4):
        phases = [phases[k] for k in scene.choices.permutation(len(phases))]
    pieces = []
    for phase in phases:
        piece = value
        for axis, begin in zip(order, phase, strict=True):
            piece = window(scene, piece, axis, begin, shape[axis], steps[axis])
        pieces.append(piece)
    # slices of slices are another rule's: with one strided axis they are slices of the operand itself
    return concat(scene, [piece.expr for piece in pieces], scene.choices.integer(0, value.rank - 1), value.rank)


def interleaved_at_once(scene: Scene) -> Value:
    """Join phases that are each cut by one slice of both axes, as the focus layer comes from an exporter."""
    shape = [scene.choices.item((2, 1, 3)), scene.choices.item((4, 2, 6)), scene.choices.item((4, 2, 8))]
    value = scene.tensor([scene.symbol(2), *shape[1:]] if scene.choices.one_in(4) else shape)
    phases = [(0, 0), (1, 0), (0, 1), (1, 1)]
    if not scene.choices.one_in(2):
        phases = [(0, 0), (0, 1), (1, 0), (1, 1)]
    if scene.choices.one_in(5):
        phases = [phases[k] for k in scene.choices.permutation(4)]
    pieces = [
        scene.call(op.strided_slice(value.expr, [1, 2], list(phase), shape[1:], [2, 2]), moves=True).expr
        for phase in phases
    ]
    return concat(scene, pieces, scene.choices.integer(0, 2), 3)


def all_elements(scene: Scene) -> Value:
    """Take an axis apart element by element, and join or stack the elements along an axis."""
    value = scene.tensor()
    axis = axis_of(scene, value)
    size = value.array.shape[axis]
    order = list(range(size)) if not scene.choices.one_in(4) else scene.choices.permutation(size)
    rest = [extent for a, extent in enumerate(value.extents) if a != axis]
    place = scene.choices.integer(0, len(rest))
    shape = [*rest[:place], 1, *rest[place:]]
    if rest and scene.choices.one_in(3):
        place, shape = min(place, len(rest) - 1), rest
    pieces = []
    for k in order:
        thin = window(scene, value, axis, k, k + 1)
        pieces.append(scene.call(op.reshape(thin.expr, shape), moves=True).expr)
    return concat(scene, pieces, place, len(shape))


def repeated_operand(scene: Scene) -> Value:
    value = scene.tensor()
    axis = scene.choices.integer(0, value.rank - 1)
    if not scene.choices.one_in(5):
        extents = value.extents
        extents[axis] = 1
        value = scene.tensor(extents, value.dtype)
    exprs = [value.expr] * scene.choices.integer(1, 4)
    if scene.choices.one_in(5):
        exprs.append(scene.tensor(value.extents, value.dtype).expr)
    return concat(scene, exprs, axis, value.rank)


def adjacent_constants(scene: Scene) -> Value:
    value = scene.tensor(static=True)
    axis = scene.choices.integer(0, value.rank - 1)
    exprs: list[relax.Expr] = [value.expr]
    for _ in range(scene.choices.integer(1, 4)):
        shape = list(value.array.shape)
        shape[axis] = scene.choices.integer(1, 2)
        exprs.insert(scene.choices.integer(0, len(exprs)), literal(fill(shape, value.dtype, len(exprs))))
    return concat(scene, exprs, axis, value.rank)


def stack(scene: Scene) -> Value:
    value = scene.tensor(ranks=(1, 2, 3, 0))
    first = scene.step(value, operators.reshape) if scene.choices.one_in(3) else value
    if first.rank >= MAX_RANK:
        raise NoInstance("there is no axis left to stack along")
    others = [
        first if scene.choices.one_in(4) else scene.tensor(first.extents, first.dtype)
        for _ in range(scene.choices.integer(0, 2))
    ]
    axis = scene.choices.spelling(scene.choices.integer(0, first.rank), first.rank + 1)
    stacked = scene.call(op.stack([v.expr for v in [first, *others]], axis), moves=True)
    if scene.choices.one_in(8) and first.dtype != "bool":
        return scene.call(op.max(stacked.expr, [axis]))
    return stacked


DRAWERS = {
    "single-concat": (single_concat,),
    "empty-concat-operand": (empty_operand,),
    "nested-concat": (nested_concat,),
    "adjacent-slices": (adjacent_slices, reversed_elements),
    "interleaved-slices": (interleaved_at_once, interleaved),
    "stack-of-all-elements": (all_elements,),
    "repeated-operand": (repeated_operand,),
    "adjacent-constants": (adjacent_constants,),
    "stack-to-concat": (stack,),
}
