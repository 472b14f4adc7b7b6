"""Operators that compute the same with some of their axes joined or cut.

    f(reshape(x), reshape(y))  ->  reshape(f'(x, y))

A `Regroup` is what a reshape does to axes: runs of axes become other runs that hold the same elements. A pointwise
operator follows any of it; one that knows an axis (a softmax, concat, slice, pad) follows where that axis stays one by
itself. All of it keeps every bit, since no operator sees its elements in another order.
(rules.md R08 to R10, R12, R15, R17 to R19, R22.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import relax

from relax_glue.ir import Extent, Graph, Node, Value, same, same_shape
from relax_glue.ir.views import emit_movement, normal_axis
from relax_glue.movement import Broadcast, Concat, Flip, Movement, Pad, Repeat, Slice, Split, Take, Tile

from .axis_norms import NORMS, OF_CHANNELS, build_norm, normalised_axes
from .axis_order import ONE_AXIS, POINTWISE, lifted, with_axis
from .reduce import REDUCTIONS, blocks, emit_reduction, reduced_axes


@dataclass(frozen=True)
class _Run:
    """Axes `old` with extents `before`, which become axes with extents `after`."""

    old: tuple[int, ...]
    before: tuple[Extent, ...]
    after: tuple[Extent, ...]

    @property
    def kept(self) -> bool:
        """Whether it is one axis that stays one, whatever its extent."""
        return len(self.before) == len(self.after) == 1


@dataclass(frozen=True)
class Regroup:
    """What becomes of the axes of a tensor."""

    runs: tuple[_Run, ...]

    @staticmethod
    def between(before: Sequence[Extent], after: Sequence[Extent]) -> Regroup | None:
        """Return what reshapes `before` to `after`, or None where their extents have no common runs."""
        found = blocks(before, after)
        if found is None:
            return None
        return Regroup(tuple(_Run(tuple(o), tuple(before[a] for a in o), tuple(after[a] for a in n)) for o, n in found))

    @property
    def rank(self) -> int:
        """The number of axes that there are in the end."""
        return sum(len(run.after) for run in self.runs)

    def axis(self, axis: int) -> int | None:
        """Return the number that an axis gets, or None where it does not stay one by itself."""
        position = 0
        for run in self.runs:
            if axis in run.old:
                return position if run.kept else None
            position += len(run.after)
        return None

    def moved(self, axis: int) -> int:
        """Return the number that an axis gets which stays one by itself.

        Raises
        ------
        ValueError
            It does not.
        """
        found = self.axis(axis)
        if found is None:
            raise ValueError(f"axis {axis} does not stay one axis")
        return found

    def shape(self, shape: Sequence[Extent]) -> tuple[Extent, ...] | None:
        """Return what becomes of a shape of the same rank, or None.

        A run holds the extents that it was made for, or is 1 throughout, as in an operand that is broadcast; an axis
        that stays one may have any extent but 0, which Relax's reshape reads as "copy".
        """
        if any(same(extent, 0) for extent in shape):
            return None
        found: list[Extent] = []
        for run in self.runs:
            own = tuple(shape[a] for a in run.old)
            if run.kept:
                found += own
            elif same_shape(own, run.before):
                found += run.after
            elif all(same(e, 1) for e in own):
                found += [1] * len(run.after)
            else:
                return None
        return tuple(found)


def _known_axes(node: Node) -> tuple[int, ...]:
    """Return the axes that have to stay axes by themselves for a node to follow."""
    view = node.view
    if node.op in POINTWISE:
        return ()
    if node.op in ONE_AXIS:
        return (normal_axis(int(node.attrs.axis), node.inputs[0].ndim),)
    if node.op in NORMS:
        return normalised_axes(node)
    if node.op in REDUCTIONS:
        return reduced_axes(node)
    match view:
        case Concat(axis) | Split(axis, _) | Flip(axis) | Repeat(_, axis) | Take(axis, _, _):
            return (axis,)
        case Slice():
            return tuple(view.cuts(node.inputs[0].shape or ()))
        case Pad(before, after):
            return tuple(a for a, widths in enumerate(zip(before, after, strict=True)) if any(widths))
        case Tile(repeats):
            return tuple(a for a, count in enumerate(repeats) if count != 1)
    return ()


def follows(node: Node, operands: Sequence[int], regroup: Regroup) -> bool:
    """Return whether a node computes the same with its axes regrouped.

    Parameters
    ----------
    node : Node
        One for which `axis_order.following` names operands.
    operands : sequence of int
        Those operands.
    regroup : Regroup
        Of the axes of its result.
    """
    results = [node.shape_of(k) for k in _items(node)]
    rank = len(results[0] or ())
    shapes = [lifted(node.inputs[k].shape or (), rank) for k in operands] + [s or () for s in results]
    if any(regroup.shape(s) is None for s in shapes):
        return False
    axes = [regroup.axis(a) for a in _known_axes(node)]
    if None in axes or node.op in OF_CHANNELS:
        return False
    # one TensorRT layer stays one: it normalises the last axes
    return node.op not in NORMS or axes == list(range(regroup.rank - len(axes), regroup.rank))


def _items(node: Node) -> Sequence[int | None]:
    return range(len(node.ty.fields)) if isinstance(node.ty, relax.TupleType) else (None,)


def build(graph: Graph, node: Node, regroup: Regroup, inputs: Sequence[Value]) -> Value:
    """Add a node that follows, of operands that are reshaped; for a split, return its tuple."""
    if node.op in POINTWISE:
        return graph.rebuild(node, inputs)
    if node.op in ONE_AXIS:
        return with_axis(graph, node, regroup.moved(_known_axes(node)[0]), inputs)
    if node.op in NORMS:
        return build_norm(graph, node, regroup.moved, inputs)
    if node.op in REDUCTIONS:
        return emit_reduction(graph, node, inputs[0], sorted(map(regroup.moved, reduced_axes(node))), True)
    view = node.view
    if isinstance(view, Split):
        bounds = list(view.bounds[1:-1])
        return graph.emit(lambda e: relax.op.split(e, bounds, regroup.moved(view.axis)), inputs[0])
    operands = inputs if isinstance(view, Concat) else inputs[:1]
    return emit_movement(graph, regrouped(view, regroup, node, inputs[0].shape or ()), *operands)


def regrouped(movement: Movement, regroup: Regroup, node: Node, shape: Sequence[Extent]) -> Movement:
    """Return a movement of an operand that is reshaped to `shape`, with the result reshaped likewise."""

    def spread(values: Sequence[int], neutral: int) -> tuple[int, ...]:
        found = [neutral] * regroup.rank
        for axis in _known_axes(node):
            found[regroup.moved(axis)] = values[axis]
        return tuple(found)

    match movement:
        case Concat(axis):
            return Concat(regroup.moved(axis))
        case Flip(axis):
            return Flip(regroup.moved(axis))
        case Repeat(count, axis):
            return Repeat(count, regroup.moved(axis))
        case Take(axis, indices_shape, indices):
            return Take(regroup.moved(axis), indices_shape, indices)
        case Broadcast(target):
            return Broadcast(regroup.shape(target) or ())
        case Tile(repeats):
            return Tile(spread(repeats, 1))
        case Pad(before, after, mode, value):
            return Pad(spread(before, 0), spread(after, 0), mode, value)
        case Slice(begin, size, stride):
            cut = Slice.whole(shape)
            for axis in _known_axes(node):
                cut = cut.with_axis(regroup.moved(axis), begin[axis], size[axis], stride[axis])
            return cut
    raise TypeError(f"{movement!r} has no axes to regroup")
