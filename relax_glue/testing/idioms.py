"""Chains that real models hold: what exporters and importers make of one layer of the framework.

A random chain hardly ever lines up the way a rule needs it; these do, and each has a variant that looks
alike and is something else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax
from tvm.relax import op

from relax_glue.testing.graph import MAX_ELEMENTS, MAX_RANK, Graph, Value, literal

INT64_MAX = 2**63 - 1


def _slice(graph: Graph, value: Value, axis: int, begin: int, end: int, stride: int = 1) -> Value:
    window = (slice(None),) * axis + (slice(begin, end, stride),)
    return graph.emit(op.strided_slice(value.expr, [axis], [begin], [end], [stride]), value.array[window])


def _concat(graph: Graph, values: Sequence[Value], axis: int) -> Value:
    call = op.concat([value.expr for value in values], axis)
    return graph.emit(call, np.concatenate([value.array for value in values], axis))


def _permute(graph: Graph, value: Value, axes: Sequence[int]) -> Value:
    return graph.emit(op.permute_dims(value.expr, list(axes)), value.array.transpose(axes))


def _reshape(graph: Graph, value: Value, sizes: Sequence[int]) -> Value:
    return graph.emit(op.reshape(value.expr, tuple(sizes)), value.array.reshape(sizes))


def _static(value: Value) -> bool:
    return value.static and value.array.size > 0


def split_and_concat(graph: Graph) -> None:
    """Split, then join the parts again: all in order, all in another order, or some."""
    value = graph.operand(lambda v: bool(v.axes(2)))
    if value is None:
        return
    axis = graph.choices.item(value.axes(2))
    size = value.array.shape[axis]
    sections = graph.choices.item([n for n in range(2, size + 1) if size % n == 0])
    parts = np.split(value.array, sections, axis)
    var = graph.emit_tuple(op.split(value.expr, sections, axis), parts)
    order = graph.choices.permutation(sections)
    order = order[: sections - 1] if graph.choices.one_in(4) else order
    items = [graph.emit(relax.TupleGetItem(var, index), parts[index]) for index in order]
    _concat(graph, items, axis)


def roll(graph: Graph) -> None:
    """Rotate an axis: x[k:] before x[:k], or the same cuts in order, or a cut that overlaps."""
    value = graph.operand(lambda v: bool(v.axes(2)))
    if value is None:
        return
    axis = graph.choices.item(value.axes(2))
    cut = graph.choices.integer(1, value.array.shape[axis] - 1)
    head_end = cut if not graph.choices.one_in(4) else cut + 1
    tail = _slice(graph, value, axis, cut, INT64_MAX)
    head = _slice(graph, value, axis, 0, head_end)
    pieces = [tail, head] if not graph.choices.one_in(3) else [head, tail]
    _concat(graph, pieces, axis)


def concat_and_slice(graph: Graph) -> None:
    """Join a tensor with itself or another and slice the result within one piece or across the seam."""
    value = graph.operand(lambda v: bool(v.axes(1)) and v.array.size * 2 <= MAX_ELEMENTS)
    if value is None:
        return
    first = value
    axis = graph.choices.item(value.axes(1))
    other = graph.operand(lambda v: v.dims == first.dims and v.dtype == first.dtype) or first
    joined = _concat(graph, [first, other], axis)
    length = joined.array.shape[axis]
    begin = graph.choices.integer(0, length - 1)
    end = graph.choices.integer(begin + 1, length)
    _slice(graph, joined, axis, begin, end, graph.choices.item([1, 1, 2]))


def slice_chain(graph: Graph) -> None:
    """Slice an axis twice, the second time past what the first left."""
    value = graph.operand(lambda v: bool(v.axes(3)))
    if value is None:
        return
    axis = graph.choices.item(value.axes(3))
    size = value.array.shape[axis]
    begin = graph.choices.integer(0, size - 2)
    inner = _slice(graph, value, axis, begin, graph.choices.integer(begin + 1, size), graph.choices.item([1, 2]))
    _slice(graph, inner, axis, 0, graph.choices.item([INT64_MAX, size, 1]), graph.choices.item([1, 2]))


def permute_pair(graph: Graph) -> None:
    """Permute, maybe compute, and permute back (or not quite back)."""
    value = graph.operand(lambda v: v.rank >= 2)
    if value is None:
        return
    order = graph.choices.permutation(value.rank)
    middle = _permute(graph, value, order)
    if graph.may_compute and value.dtype != "bool" and graph.choices.one_in(2):
        relu = np.where(middle.array > 0, middle.array, np.zeros((), value.dtype))
        middle = graph.compute(op.nn.relu(middle.expr), relu)
    back = [int(axis) for axis in np.argsort(order)]
    _permute(graph, middle, back if not graph.choices.one_in(4) else order)


def reshape_permute_reshape(graph: Graph) -> None:
    """Factor an axis, permute, and merge: channel shuffle, pixel shuffle, attention heads, windows."""
    value = graph.operand(lambda v: _static(v) and 1 <= v.rank < MAX_RANK - 1 and bool(v.axes(2)))
    if value is None:
        return
    shape = list(value.array.shape)
    axis = graph.choices.item(value.axes(2))
    divisor = graph.choices.item([d for d in range(1, shape[axis] + 1) if shape[axis] % d == 0])
    factored = _reshape(graph, value, [*shape[:axis], divisor, shape[axis] // divisor, *shape[axis + 1 :]])
    order = list(range(factored.rank))
    order[axis], order[axis + 1] = axis + 1, axis
    if graph.choices.one_in(2):
        order = graph.choices.permutation(factored.rank)
    permuted = _permute(graph, factored, order)
    low = graph.choices.integer(0, permuted.rank - 2)
    sizes = permuted.array.shape
    _reshape(graph, permuted, [*sizes[:low], sizes[low] * sizes[low + 1], *sizes[low + 2 :]])


def focus(graph: Graph) -> None:
    """Stack the four phases of a grid along the channels, in YOLOv5's order or another."""
    value = graph.operand(lambda v: v.rank == 4 and v.static and all(e % 2 == 0 and e for e in v.array.shape[2:]))
    if value is None:
        return
    phases = [(0, 0), (1, 0), (0, 1), (1, 1)]
    order = [phases[i] for i in graph.choices.permutation(4)]
    pieces = []
    for row, column in order:
        half = _slice(graph, value, 2, row, INT64_MAX, 2)
        pieces.append(_slice(graph, half, 3, column, INT64_MAX, 2))
    _concat(graph, pieces, 1)


def windows(graph: Graph) -> None:
    """Partition an NHWC grid into windows of two by two, and maybe put it together again."""
    value = graph.operand(lambda v: v.rank == 4 and _static(v) and v.array.shape[1] % 2 == v.array.shape[2] % 2 == 0)
    if value is None:
        return
    n, h, w, c = value.array.shape
    cut = _reshape(graph, value, [n, h // 2, 2, w // 2, 2, c])
    moved = _permute(graph, cut, [0, 1, 3, 2, 4, 5])
    parts = _reshape(graph, moved, [n * (h // 2) * (w // 2), 2, 2, c])
    if graph.choices.one_in(2):
        grid = _reshape(graph, parts, [n, h // 2, w // 2, 2, 2, c])
        _reshape(graph, _permute(graph, grid, [0, 1, 3, 2, 4, 5]), [n, h, w, c])


def unbind_and_stack(graph: Graph) -> None:
    """Take an axis apart into slices without it, and stack some of them again."""
    value = graph.operand(lambda v: any(v.array.shape[axis] <= 4 for axis in v.axes(1)))
    if value is None:
        return
    axis = graph.choices.item([axis for axis in value.axes(1) if value.array.shape[axis] <= 4])
    pieces = []
    for index in graph.choices.permutation(value.array.shape[axis]):
        thin = _slice(graph, value, axis, index, index + 1)
        pieces.append(graph.emit(op.squeeze(thin.expr, [axis]), np.squeeze(thin.array, axis)))
    call = op.stack([piece.expr for piece in pieces], axis)
    graph.emit(call, np.stack([piece.array for piece in pieces], axis))


def upsample_by_broadcast(graph: Graph) -> None:
    """Repeat each entry of an axis through expand_dims, broadcast_to and reshape; before it, not behind: tile."""
    value = graph.operand(lambda v: _static(v) and 1 <= v.rank < MAX_RANK and v.array.size * 2 <= MAX_ELEMENTS)
    if value is None:
        return
    shape = list(value.array.shape)
    axis = graph.choices.integer(0, value.rank - 1)
    place = axis if graph.choices.one_in(3) else axis + 1
    thin = graph.emit(op.expand_dims(value.expr, place), np.expand_dims(value.array, place))
    wide_shape = [*shape[:place], 2, *shape[place:]]
    wide = graph.emit(op.broadcast_to(thin.expr, wide_shape), np.broadcast_to(thin.array, wide_shape))
    _reshape(graph, wide, [*shape[:axis], 2 * shape[axis], *shape[axis + 1 :]])


def pad_and_crop(graph: Graph) -> None:
    """Pad an axis and slice it back, exactly or one off."""
    value = graph.operand(lambda v: bool(v.axes(1)) and v.array.size * 3 <= MAX_ELEMENTS)
    if value is None:
        return
    axis = graph.choices.item(value.axes(1))
    size = value.array.shape[axis]
    widths = [(0, 0)] * value.rank
    widths[axis] = (1, 1)
    flat = [width for pair in widths for width in pair]
    padded = graph.emit(op.nn.pad(value.expr, flat, "constant", 1.0), np.pad(value.array, widths, constant_values=1))
    begin = graph.choices.item([1, 0])
    _slice(graph, padded, axis, begin, begin + size)


def take_range(graph: Graph) -> None:
    """Take what a slice could: evenly spaced indices of an axis, up or down; or all but evenly spaced."""
    value = graph.operand(lambda v: bool(v.axes(2)))
    if value is None:
        return
    axis = graph.choices.item(value.axes(2))
    size = value.array.shape[axis]
    step = graph.choices.item([1, 2, -1])
    indices = np.arange(size)[::step]
    if graph.choices.one_in(4):
        indices = np.roll(indices, 1)
    graph.emit(op.take(value.expr, literal(indices), axis), np.take(value.array, indices, axis))


def merge_and_unmerge(graph: Graph) -> None:
    """Reshape to a flat form and back, with glue that respects, or breaks, the rows in between."""
    value = graph.operand(lambda v: _static(v) and v.rank >= 2)
    if value is None:
        return
    shape = value.array.shape
    rows = math.prod(shape[:-1])
    flat = _reshape(graph, value, [rows, shape[-1]] if graph.choices.one_in(2) else [rows * shape[-1]])
    if graph.choices.one_in(2):
        flat = graph.emit(op.flip(flat.expr, 0), np.flip(flat.array, 0))
    _reshape(graph, flat, shape)
