"""Slices moved before the movement that they cut, where less is moved then.

The slice goes to the operand and the movement is made of what is left. A movement with other users stays as well,
so the slice goes through it only where the result costs no operator more than before.
(rules.md S30 to S32, T10.)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from relax_glue.ir import Graph, Node
from relax_glue.ir.shapes import Extent, product, same, same_shape
from relax_glue.ir.views import RESHAPES, emit_movement
from relax_glue.movement import Broadcast, Pad, Permute, Reshape, Slice
from relax_glue.rewrite import Decline, Replacement, rule

SLICE = "relax.strided_slice"
NO_VIEW = Decline("the bounds or the extents are not static")


@rule(
    "slice-of-permute",
    SLICE,
    equation="strided_slice(permute_dims(x)) -> permute_dims(strided_slice(x))",
    producers=("relax.permute_dims",),
    single_use=(0,),
    source="T10",
)
def slice_of_permute(node: Node, graph: Graph) -> Replacement | Decline:
    """Cut first, then transpose the smaller tensor."""
    inner = node.inputs[0].node
    if not isinstance(node.view, Slice) or not isinstance(inner.view, Permute):
        return NO_VIEW
    cut = Slice.whole(inner.inputs[0].shape or ())
    for axis, source in enumerate(inner.view.axes):
        cut = cut.with_axis(source, node.view.begin[axis], node.view.size[axis], node.view.stride[axis])
    return emit_movement(graph, inner.view, emit_movement(graph, cut, inner.inputs[0]))


@rule(
    "slice-of-broadcast",
    SLICE,
    equation="strided_slice(broadcast_to(x)) -> broadcast_to(strided_slice(x))",
    producers=("relax.broadcast_to",),
    source="S31",
)
def slice_of_broadcast(node: Node, graph: Graph) -> Replacement | Decline:
    """Broadcast to the smaller shape; axes are aligned at the right, and one that is broadcast is not cut."""
    inner = node.inputs[0].node
    if not isinstance(node.view, Slice) or not isinstance(inner.view, Broadcast):
        return NO_VIEW
    x = inner.inputs[0]
    shape = x.shape or ()
    lead = len(inner.view.shape) - len(shape)
    cut = Slice.whole(shape)
    for axis, extent in enumerate(shape):
        if same(extent, inner.view.shape[lead + axis]):
            window = (node.view.begin[lead + axis], node.view.size[lead + axis], node.view.stride[lead + axis])
            cut = cut.with_axis(axis, *window)
    if cut.cuts(shape) and not graph.single_use(node.inputs[0]):
        return Decline("the broadcast has other users, and the operand would be cut as well")
    return emit_movement(graph, Broadcast(node.view.size), emit_movement(graph, cut, x))


@rule(
    "slice-of-pad",
    SLICE,
    equation="strided_slice(pad(x)) -> strided_slice(x) | pad(strided_slice(x), less)",
    producers=("relax.nn.pad",),
    source="S30, P09",
)
def slice_of_pad(node: Node, graph: Graph) -> Replacement | Decline:
    """Cut the operand and pad what is left; the pad goes where nothing of the padding is kept."""
    inner = node.inputs[0].node
    if not isinstance(node.view, Slice) or not isinstance(inner.view, Pad):
        return NO_VIEW
    x, pad = inner.inputs[0], inner.view
    found = _pad_after_slice(pad, node.view, x.shape or ())
    if isinstance(found, Decline):
        return found
    cut, less = found
    if any(less.before) or any(less.after):
        if pad.mode != "constant":
            return Decline(f"padding of mode {pad.mode!r} is kept, which is made of elements that would be cut")
        if not graph.single_use(node.inputs[0]):
            return Decline("the pad has other users, and padding is kept")
    return emit_movement(graph, less, emit_movement(graph, cut, x))


def _pad_after_slice(pad: Pad, view: Slice, shape: Sequence[Extent]) -> tuple[Slice, Pad] | Decline:
    """Return the slice and the pad that do what a slice of a pad does."""
    cut, before, after = Slice.whole(shape), [0] * len(shape), [0] * len(shape)
    for axis, extent in enumerate(shape):
        begin, size, stride = view.begin[axis], view.size[axis], view.stride[axis]
        low, high = pad.before[axis], pad.after[axis]
        if low == 0 and high == 0:
            cut = cut.with_axis(axis, begin, size, stride)
            continue
        if low < 0 or high < 0 or not isinstance(extent, int):
            return Decline("a width is negative or the extent is symbolic")
        # element k of the window is element begin + stride * k - low of the operand, or padding
        inside = [k for k in range(size) if 0 <= begin + stride * k - low < extent]
        if not inside:
            return Decline("nothing but padding is kept")
        cut = cut.with_axis(axis, begin + stride * inside[0] - low, len(inside), stride)
        before[axis], after[axis] = inside[0], size - 1 - inside[-1]
    return cut, Pad(tuple(before), tuple(after), pad.mode, pad.value)


@rule(
    "slice-of-reshape",
    SLICE,
    equation="strided_slice(reshape(x)) -> reshape(strided_slice(x))",
    producers=RESHAPES,
    single_use=(0,),
    source="S32",
)
def slice_of_reshape(node: Node, graph: Graph) -> Replacement | Decline:
    """Cut first, where the elements that are kept are a box of the operand as well."""
    inner = node.inputs[0].node
    if not isinstance(node.view, Slice) or not isinstance(inner.view, Reshape):
        return NO_VIEW
    cut = slice_before_reshape(node.view, inner.inputs[0].shape or (), node.inputs[0].shape or ())
    if cut is None:
        return Decline("what is kept is no box of the reshaped operand")
    return emit_movement(graph, Reshape(node.view.size), emit_movement(graph, cut, inner.inputs[0]))


def slice_before_reshape(view: Slice, before: Sequence[Extent], after: Sequence[Extent]) -> Slice | None:
    """Return the slice of an operand of shape `before` that keeps what `view` keeps of its reshape to `after`.

    Parameters
    ----------
    view : Slice
        A slice of a tensor of shape `after`.
    before, after : sequence of extents
        The shapes on both sides of the reshape.

    Returns
    -------
    cut : Slice or None
        A slice of which the kept elements stand in the same row-major order, or None where there is none.
    """
    groups = reshape_groups(before, after)
    if groups is None:
        return None
    cut = Slice.whole(before)
    for inputs, outputs in groups:
        window = [(view.begin[a], view.size[a], view.stride[a]) for a in outputs]
        if all(b == 0 and s == 1 and same(n, after[a]) for a, (b, n, s) in zip(outputs, window, strict=True)):
            continue
        box = _box([before[a] for a in inputs], [after[a] for a in outputs], window)
        if box is None:
            return None
        for axis, one in zip(inputs, box, strict=True):
            cut = cut.with_axis(axis, *one)
    return cut


Window = tuple[int, int, int]


def _box(before: list[int], after: list[int], window: list[Window]) -> list[Window] | None:
    """Return the windows of axes `before` that keep what `window` keeps of axes `after`, of as many elements."""
    wide = [a for a, n in enumerate(before) if n != 1]
    kept = [a for a, n in enumerate(after) if n != 1]
    if len(wide) == 1 and len(kept) == 1:
        return [window[kept[0]] if a == wide[0] else (0, 1, 1) for a in range(len(before))]
    run = _run(after, window)
    return None if run is None else _box_of_run(before, *run)


def _run(shape: list[int], window: list[Window]) -> tuple[int, int] | None:
    """Return the first and past-the-last row-major position of a window, or None where it has gaps."""
    low, high, inner, whole = 0, 1, 1, True
    for extent, (begin, size, stride) in zip(reversed(shape), reversed(window), strict=True):
        # inside an axis that is not whole, only single elements further out leave no gap
        if size != 1 and (stride != 1 or not whole):
            return None
        low, high = low + begin * inner, high + (begin + size - 1) * inner
        whole = whole and size == extent
        inner *= extent
    return low, high


def _box_of_run(shape: list[int], low: int, high: int) -> list[Window] | None:
    """Return the window of `shape` that is the row-major positions low..high-1, or None where it is no box."""
    found: list[Window] = []
    for axis, extent in enumerate(shape):
        inner = product(shape[axis + 1 :])
        first, last = low // inner, (high - 1) // inner
        if first != last:
            whole = low % inner == 0 and high % inner == 0
            rest: list[Window] = [(0, n, 1) for n in shape[axis + 1 :]]
            return [*found, (first, last - first + 1, 1), *rest] if whole else None
        found.append((first, 1, 1) if extent > 1 else (0, 1, 1))
        low, high = low - first * inner, high - first * inner
    return found


Group = tuple[list[int], list[int]]


def reshape_groups(before: Sequence[Extent], after: Sequence[Extent]) -> list[Group] | None:
    """Return the smallest groups of axes of two shapes that hold the same elements, in order.

    A symbolic extent is a group of its own on both sides: (n, 6) and (n, 2, 3) are [0], [0] and [1], [1, 2].
    None where the shapes are not proved to match in this way.
    """
    symbols = [[a for a, e in enumerate(shape) if not isinstance(e, int)] for shape in (before, after)]
    if not same_shape([before[a] for a in symbols[0]], [after[a] for a in symbols[1]]):
        return None
    groups: list[Group] = []
    starts = [0, 0]
    for left, right in zip([*symbols[0], len(before)], [*symbols[1], len(after)], strict=True):
        between = _static_groups(before, range(starts[0], left), after, range(starts[1], right))
        if between is None:
            return None
        groups += between
        if left < len(before):
            groups.append(([left], [right]))
        starts = [left + 1, right + 1]
    return groups


def _static_groups(before: Sequence[int], left: range, after: Sequence[int], right: range) -> list[Group] | None:
    """Return the groups of consecutive axes `left` and `right`, which end where the running products meet."""
    products = [list(accumulate((shape[a] for a in axes), mul)) for shape, axes in ((before, left), (after, right))]
    total = product([before[a] for a in left])
    if total != product([after[a] for a in right]):
        return None
    ends = sorted({*products[0]} & {*products[1]} | {total})
    groups: list[Group] = [([], []) for _ in ends]
    for side, axes in enumerate((left, right)):
        for axis, end in zip(axes, products[side], strict=True):
            groups[bisect_left(ends, end)][side].append(axis)
    return groups


THROUGH = (slice_of_permute, slice_of_broadcast, slice_of_pad, slice_of_reshape)
