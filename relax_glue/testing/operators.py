"""One function per operator of glue: draw its attributes, emit the call, say what it is in numpy.

An operator that finds no operand it can take does nothing. What is left out on purpose, since TVM 0.27
refuses or miscompiles it although it is valid, is named at the place; see also `arithmetic` and `idioms`.
"""

from __future__ import annotations

import math

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax import op

from relax_glue.testing.graph import MAX_ELEMENTS, MAX_RANK, Array, Graph, Value

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)


def strided_slice(graph: Graph) -> None:
    """Slice one or several axes, in each spelling that importers write."""
    value = graph.operand(lambda v: bool(_sliceable(v)))
    if value is None:
        return
    axes = graph.choices.subset(_sliceable(value))
    bounds = [_bounds(graph, value, axis) for axis in axes]
    begin, end, strides = (list(part) for part in zip(*bounds, strict=True))
    index = [slice(None)] * value.rank
    for axis, bound in zip(axes, bounds, strict=True):
        index[axis] = slice(*bound)
    # TVM lowers a slice of a tensor with a symbolic extent only if no axis is negative.
    names = [graph.choices.spelling(axis, value.rank) for axis in axes] if value.static else axes
    plain = all(stride == 1 for stride in strides) and not graph.choices.one_in(3)
    call = op.strided_slice(value.expr, names, begin, end, None if plain else strides)
    graph.emit(call, value.array[tuple(index)])


def _sliceable(value: Value) -> list[int]:
    """Return the axes to slice: not those whose extent is a formula, over which TVM's simplifier takes long."""
    return [axis for axis, dim in enumerate(value.dims) if isinstance(dim, int) or dim.isidentifier()]


def _bounds(graph: Graph, value: Value, axis: int) -> tuple[int, int, int]:
    """Draw begin, end and stride for an axis.

    Relax refuses a begin past the end against the stride's direction (issue 19532, and 2:1 alike), so an
    empty slice is drawn only with begin equal to end.
    """
    choices, size = graph.choices, value.array.shape[axis]
    if not isinstance(value.dims[axis], int):
        return choices.item([(0, INT64_MAX, 1), (1, INT64_MAX, 1), (0, -1, 1), (-1, INT64_MIN, -1), (0, 1, 1)])
    stride = choices.item([1, 1, 1, 2, 3, -1, -2])
    low, high = sorted((choices.integer(0, size), size - choices.integer(0, size)))
    if stride > 0:
        begins = [low, low - size] if low < size else [low, size + 1]
        ends = [high, INT64_MAX, size + 2] if high == size else [high, high - size]
        return choices.item(begins), choices.item(ends), stride
    if low == high:
        low, high = 0, size
    begins = [high - 1, high - 1 - size, INT64_MAX] if high == size else [high - 1, high - 1 - size]
    ends = [INT64_MIN, -size - 1] if low == 0 else [low - 1, low - 1 - size]
    return choices.item(begins), choices.item(ends), stride


def split(graph: Graph) -> None:
    """Split by sections or by indices, and take all parts, some, or none out of the tuple.

    One section has no tuple type (its items cannot be taken), sections that do not divide the extent kill
    the process, and a part of extent 0 is refused, so none of these is drawn.
    """
    value = graph.operand(lambda v: bool(v.axes(2)))
    if value is None:
        return
    axis = graph.choices.item(value.axes(2))
    size = value.array.shape[axis]
    if graph.choices.one_in(2):
        how: int | list[int] = graph.choices.subset(range(1, size))[:3]
    else:
        how = graph.choices.item([n for n in range(2, size + 1) if size % n == 0])
    parts = np.split(value.array, how, axis)
    var = graph.emit_tuple(op.split(value.expr, how, graph.choices.spelling(axis, value.rank)), parts)
    for index in graph.choices.subset(range(len(parts)), least=0):
        graph.emit(relax.TupleGetItem(var, index), parts[index])


def concat(graph: Graph) -> None:
    """Join one to four tensors that agree beside the axis: others, the same again, constants, empty ones."""
    value = graph.operand(lambda v: v.rank > 0)
    if value is None:
        return
    axis = graph.choices.item(range(value.rank))
    pieces: list[tuple[relax.Expr, Array]] = [(value.expr, value.array)]
    for _ in range(graph.choices.integer(0, 3)):
        pieces.insert(graph.choices.integer(0, len(pieces)), _neighbour(graph, value, axis))
    joined = np.concatenate([array for _, array in pieces], axis)
    if joined.size > MAX_ELEMENTS:
        return
    graph.emit(op.concat([expr for expr, _ in pieces], graph.choices.spelling(axis, value.rank)), joined)


def _neighbour(graph: Graph, value: Value, axis: int) -> tuple[relax.Expr, Array]:
    """Draw an operand that can be joined to `value` along `axis`."""

    def fits(other: Value) -> bool:
        beside = [d for i, d in enumerate(other.dims) if i != axis]
        return other.dtype == value.dtype and beside == [d for i, d in enumerate(value.dims) if i != axis]

    if all(isinstance(d, int) for i, d in enumerate(value.dims) if i != axis) and graph.choices.one_in(4):
        shape = list(value.array.shape)
        shape[axis] = graph.choices.item([1, 2, 0])
        return graph.constant(shape, value.dtype)
    other = graph.operand(lambda v: v.rank == value.rank and fits(v)) or value
    return other.expr, other.array


def stack(graph: Graph) -> None:
    """Stack one to three tensors of one shape along a new axis."""
    value = graph.operand(lambda v: v.rank < MAX_RANK and v.array.size * 3 <= MAX_ELEMENTS)
    if value is None:
        return
    first = value
    pieces = [first]
    for _ in range(graph.choices.integer(0, 2)):
        pieces.append(graph.operand(lambda v: v.dims == first.dims and v.dtype == first.dtype) or first)
    axis = graph.choices.integer(0, value.rank)
    call = op.stack([piece.expr for piece in pieces], graph.choices.spelling(axis, value.rank + 1))
    graph.emit(call, np.stack([piece.array for piece in pieces], axis))


def reshape(graph: Graph) -> None:
    """Reshape by merging neighbours and cutting static extents, sometimes with -1 for one of them."""
    value = graph.operand()
    if value is None:
        return
    target = _merge(graph, [(e, s) for e, s in zip(value.extents, value.array.shape, strict=True)])
    target = _factor(graph, target)
    sizes = [size for _, size in target]
    if value.array.size == 0 and not _zeros_stay(value.array.shape, sizes):
        return
    extents = [extent for extent, _ in target]
    if extents and value.array.size and graph.choices.one_in(4):
        extents[graph.choices.integer(0, len(extents) - 1)] = -1
    array = value.array.reshape(sizes)
    graph.emit(op.reshape(value.expr, extents), array)


_Extent = tuple[int | tvm.ir.Expr, int]


def _merge(graph: Graph, extents: list[_Extent]) -> list[_Extent]:
    """Merge a drawn run of neighbours into their product."""
    if not extents:
        return extents
    low = graph.choices.integer(0, len(extents) - 1)
    high = graph.choices.integer(low, len(extents) - 1)
    run = extents[low : high + 1]
    extent = run[0][0]
    for other, _ in run[1:]:
        extent = extent * other
    return [*extents[:low], (extent, math.prod(size for _, size in run)), *extents[high + 1 :]]


def _factor(graph: Graph, extents: list[_Extent]) -> list[_Extent]:
    """Cut some static extents in two."""
    result: list[_Extent] = []
    for position, (extent, size) in enumerate(extents):
        room = MAX_RANK - len(result) - (len(extents) - position)
        divisors = [d for d in range(1, size + 1) if size % d == 0]
        if not isinstance(extent, int) or not divisors or room < 1 or graph.choices.one_in(2):
            result.append((extent, size))
            continue
        divisor = graph.choices.item(divisors)
        result += [(divisor, divisor), (size // divisor, size // divisor)]
    return result


def _zeros_stay(before: tuple[int, ...], after: list[int]) -> bool:
    """Say whether each literal 0 stands where the operand has a 0: elsewhere Relax reads it as 'copy'."""
    return 0 in after and all(i < len(before) and before[i] == 0 for i, size in enumerate(after) if size == 0)


def expand_dims(graph: Graph) -> None:
    """Add one or two axes of extent 1."""
    value = graph.operand(lambda v: v.rank < MAX_RANK)
    if value is None:
        return
    count = graph.choices.integer(1, min(2, MAX_RANK - value.rank))
    rank = value.rank + count
    axes = graph.choices.permutation(rank)[:count]
    names = [graph.choices.spelling(axis, rank) for axis in axes]
    graph.emit(op.expand_dims(value.expr, names), np.expand_dims(value.array, tuple(axes)))


def squeeze(graph: Graph) -> None:
    """Remove axes of extent 1: all, a list, none.

    All of them only where no extent is symbolic: at run time TVM would drop data along one that is not 1.
    """
    value = graph.operand(lambda v: 1 in v.dims)
    if value is None:
        return
    if value.static and graph.choices.one_in(3):
        graph.emit(op.squeeze(value.expr), np.squeeze(value.array))
        return
    units = [axis for axis, dim in enumerate(value.dims) if dim == 1]
    axes = graph.choices.subset(units, least=0 if graph.choices.one_in(4) else 1)
    names = [graph.choices.spelling(axis, value.rank) for axis in axes]
    graph.emit(op.squeeze(value.expr, names), np.squeeze(value.array, tuple(axes)))


def flatten(graph: Graph) -> None:
    """Flatten, wholly or behind the batch."""
    value = graph.operand()
    if value is None:
        return
    if value.rank >= 2 and graph.choices.one_in(2):
        rows = value.array.shape[0]
        array = value.array.reshape(rows, math.prod(value.array.shape[1:]))
        graph.emit(op.nn.batch_flatten(value.expr), array)
        return
    graph.emit(op.flatten(value.expr), value.array.reshape(-1))


def permute_dims(graph: Graph) -> None:
    """Permute the axes, or reverse them by giving none."""
    value = graph.operand()
    if value is None:
        return
    if graph.choices.one_in(5):
        graph.emit(op.permute_dims(value.expr), value.array.transpose())
        return
    axes = graph.choices.permutation(value.rank)
    names = [graph.choices.spelling(axis, value.rank) for axis in axes]
    graph.emit(op.permute_dims(value.expr, names), value.array.transpose(axes))


def broadcast_to(graph: Graph) -> None:
    """Widen extents of 1 and put new axes in front."""
    value = graph.operand()
    if value is None:
        return
    target = [
        graph.choices.item([2, 1, 3, 4]) if dim == 1 else extent
        for dim, extent in zip(value.dims, value.extents, strict=True)
    ]
    for _ in range(graph.choices.integer(0, min(2, MAX_RANK - value.rank))):
        target.insert(0, graph.choices.item([1, 2, 3]))
    lead = len(target) - value.rank
    sizes = [
        extent if isinstance(extent, int) else value.array.shape[axis - lead] for axis, extent in enumerate(target)
    ]
    if math.prod(sizes) <= MAX_ELEMENTS:
        graph.emit(op.broadcast_to(value.expr, target), np.broadcast_to(value.array, sizes))


def flip(graph: Graph) -> None:
    """Reverse an axis."""
    value = graph.operand(lambda v: v.rank > 0)
    if value is None:
        return
    axis = graph.choices.item(range(value.rank))
    graph.emit(op.flip(value.expr, graph.choices.spelling(axis, value.rank)), np.flip(value.array, axis))


def tile(graph: Graph) -> None:
    """Repeat the whole tensor, by as many counts as axes, fewer, or one more; for an empty one TVM divides by zero."""
    value = graph.operand(lambda v: v.array.size > 0)
    if value is None:
        return
    count = graph.choices.integer(max(value.rank - 1, 0), min(value.rank + 1, MAX_RANK))
    repeats = [graph.choices.item([1, 2, 3]) for _ in range(count)]
    if value.array.size * math.prod(repeats) <= MAX_ELEMENTS:
        graph.emit(op.tile(value.expr, repeats), np.tile(value.array, repeats))


def repeat(graph: Graph) -> None:
    """Repeat each entry along an axis, or of the flat tensor; TVM refuses a scalar."""
    value = graph.operand(lambda v: v.rank > 0 and v.array.size * 3 <= MAX_ELEMENTS)
    if value is None:
        return
    count = graph.choices.integer(1, 3)
    if value.static and graph.choices.one_in(4):
        graph.emit(op.repeat(value.expr, count), np.repeat(value.array, count))
        return
    axis = graph.choices.item(range(value.rank))
    name = graph.choices.spelling(axis, value.rank)
    graph.emit(op.repeat(value.expr, count, name), np.repeat(value.array, count, axis))


def match_cast(graph: Graph) -> None:
    """Assert the type a value has, or name one of its extents anew."""
    value = graph.operand(lambda v: v.rank > 0)
    if value is None:
        return
    extents = value.extents
    if graph.choices.one_in(3):
        extents[graph.choices.integer(0, value.rank - 1)] = tirx.Var(f"s{len(graph.values)}", "int64")
    graph.emit_cast(value, relax.TensorType(extents, value.dtype))


def block(graph: Graph) -> None:
    """End the block of bindings: what follows sees the parameters and some of the results."""
    bound = [value for value in graph.values if not isinstance(value.expr, relax.DataflowVar)]
    results = [value for value in graph.values if isinstance(value.expr, relax.DataflowVar)]
    kept = [Value(graph.export(value.expr), value.array, value.dims) for value in graph.choices.subset(results)]
    graph.end_block(dataflow=not graph.choices.one_in(2))
    graph.values = bound + kept
    graph.tuples.clear()
