"""Relax calls as movements, and movements as Relax calls.

`view_of` reads a call into the one normal form of `relax_glue.movement`; `emit_movement` writes it. Both know the
attributes of each operator; nothing else in relax_glue does. A call whose attributes cannot be made normal (a
symbolic bound, an unknown shape, an index that is not constant or out of range) has no view, and every rule
leaves it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import relax, tirx

from ..movement import (
    Broadcast,
    Concat,
    Flip,
    Movement,
    Pad,
    Permute,
    Repeat,
    Reshape,
    Slice,
    Split,
    Stack,
    Take,
    Tile,
    layout_axes,
)
from .graph import Graph
from .node import Node, Value
from .shapes import Extent, product, same, same_shape


def view_of(node: Node) -> Movement | None:
    """Return the movement that a node is, or None."""
    read = _READERS.get(node.op)
    if read is None or not node.inputs or any(v.shape is None for v in node.inputs):
        return None
    if 0 in (node.shape_of(None) or ()):
        return None  # an empty result is a constant (FoldConstants); reshape reads a target of 0 as "copy"
    return read(node)


def normal_axis(axis: int, rank: int) -> int:
    """Return an axis counted from the front."""
    return axis + rank if axis < 0 else axis


def _ints(expr: relax.Expr) -> list[int] | None:
    """Return the integers in a tuple of primitive values, or None where one is no literal."""
    fields = getattr(expr, "fields", None)
    if fields is None:
        return None
    found = []
    for field in fields:
        value = getattr(field, "value", field)
        if isinstance(value, tirx.IntImm):
            value = value.value
        if not isinstance(value, int):
            return None
        found.append(value)
    return found


def _reshape(node: Node) -> Movement | None:
    shape = node.shape_of(None)
    if shape is None or not _same_elements(node.inputs[0].shape or (), shape):
        return None
    return Reshape(shape)


def _same_elements(before: Sequence[Extent], after: Sequence[Extent]) -> bool:
    """Return whether two shapes are proved to hold as many elements.

    squeeze([0]) of f32(n, 3) has the type f32(3) and loses data where n is not 1: it is no reshape.
    """
    symbols = [[e for e in shape if not isinstance(e, int)] for shape in (before, after)]
    static = [product([e for e in shape if isinstance(e, int)]) for shape in (before, after)]
    if static[0] == static[1] and same_shape(*symbols):
        return True
    # (n, 49, 96) and (n * 49, 96), as a linear layer is spelled in an export with a free batch
    return any(symbols) and same(product(before), product(after))


def _permute(node: Node) -> Movement | None:
    rank = node.inputs[0].ndim
    axes = node.attrs.axes
    found = range(rank)[::-1] if axes is None else [normal_axis(int(a), rank) for a in axes]
    return Permute(tuple(found))


def _layout_transform(node: Node) -> Movement | None:
    """Read one that only reorders the axes; one that blocks them (NCHW to NCHW4c) has no view."""
    axes = layout_axes(node.attrs.index_map)
    return None if axes is None else Permute(axes)


def _strided_slice(node: Node) -> Movement | None:
    shape = node.inputs[0].shape or ()
    given = [_ints(arg) for arg in list(node.expr.args)[1:]]
    if len(given) < 3 or any(g is None for g in given):
        return None
    axes, begins, ends = given[:3]
    strides = given[3] if len(given) > 3 else [1] * len(axes or ())
    begin, size, stride = [0] * len(shape), list(shape), [1] * len(shape)
    for axis, b, e, s in zip(axes or (), begins or (), ends or (), strides or (), strict=True):
        axis = normal_axis(axis, len(shape))
        window = slice_window(shape[axis], b, e, s)
        if window is None:
            return None
        begin[axis], size[axis], stride[axis] = window
    if not same_shape(size, node.shape_of(None)):
        return None  # assume_inbound=True with a bound outside: the type is not what clamping gives
    return Slice(tuple(begin), tuple(size), tuple(stride))


def slice_window(extent: Extent, begin: int, end: int, stride: int) -> tuple[int, Extent, int] | None:
    """Return (first element, number of elements, stride) of a slice of one axis, as numpy counts.

    Negative bounds count from the end; bounds outside are clamped; an empty window is (0, 0, 1) and one of a
    single element has stride 1. For a symbolic extent only the whole axis has an answer, else None.
    """
    if stride == 0:
        return None
    if not isinstance(extent, int):
        whole = begin == 0 and stride == 1 and end >= np.iinfo(np.int32).max
        return (0, extent, 1) if whole else None
    window = range(extent)[slice(begin, end, stride)]
    if len(window) == 0:
        return 0, 0, 1
    return window.start, len(window), stride if len(window) > 1 else 1


def _split(node: Node) -> Movement | None:
    if not isinstance(node.ty, relax.TupleType):
        return None
    axis = normal_axis(int(node.attrs.axis), node.inputs[0].ndim)
    shapes = [node.shape_of(k) for k in range(len(node.ty.fields))]
    bounds = [0]
    for shape in shapes:
        if shape is None or not isinstance(shape[axis], int):
            return None
        bounds.append(bounds[-1] + shape[axis])
    extent = (node.inputs[0].shape or ())[axis]
    # TVM types split(x (5,), 4) as parts of 2, 2, 2, -1, which is more than there is (onnxruntime issue 15882)
    return Split(axis, tuple(bounds)) if bounds[-1] == extent and bounds == sorted(bounds) else None


def _concat(node: Node) -> Movement | None:
    axis = node.attrs.axis
    return Concat(0 if axis is None else normal_axis(int(axis), node.inputs[0].ndim))


def _stack(node: Node) -> Movement | None:
    return Stack(normal_axis(int(node.attrs.axis or 0), node.inputs[0].ndim + 1))


def _broadcast(node: Node) -> Movement | None:
    shape = node.shape_of(None)
    return None if shape is None else Broadcast(shape)


def _pad(node: Node) -> Movement | None:
    widths = [int(w) for w in node.attrs.pad_width]
    if len(widths) != 2 * node.inputs[0].ndim:
        return None
    value, mode = float(node.attrs.pad_value), str(node.attrs.pad_mode)
    if mode not in ("constant", "reflect", "replicate", "circular"):
        return None
    return Pad(tuple(widths[::2]), tuple(widths[1::2]), mode, value)


def _take(node: Node) -> Movement | None:
    array = node.inputs[1].array
    shape = node.inputs[0].shape or ()
    axis = node.attrs.axis
    if array is None or array.dtype.kind not in "iu" or (axis is None and len(shape) != 1):
        return None
    axis = 0 if axis is None else normal_axis(int(axis), len(shape))
    extent = shape[axis]
    if not isinstance(extent, int) or array.size > MAX_INDICES:
        return None
    indices = _bounded(array.astype("int64").ravel(), extent, str(node.attrs.mode))
    return None if indices is None else Take(axis, array.shape, tuple(indices.tolist()))


MAX_INDICES = 1 << 16


def _bounded(indices: np.ndarray, extent: int, mode: str) -> np.ndarray | None:
    """Return indices within 0..extent-1 by the operator's own mode, or None where it leaves them undefined.

    Mode "fast" does not look: a negative index reads outside (apache/tvm issue 19531).
    """
    if mode == "clip":
        indices = np.clip(indices, 0, extent - 1)
    elif mode == "wrap":
        indices = np.mod(indices, extent) if extent else indices
    inside = bool(np.all((indices >= 0) & (indices < extent)))
    return indices if inside else None


def _flip(node: Node) -> Movement | None:
    return Flip(normal_axis(int(node.attrs.axis), node.inputs[0].ndim))


def _tile(node: Node) -> Movement | None:
    repeats = [int(r) for r in node.attrs.repeats]
    return Tile((1,) * (node.inputs[0].ndim - len(repeats)) + tuple(repeats))


def _repeat(node: Node) -> Movement | None:
    axis = node.attrs.axis
    if axis is None:
        return None
    return Repeat(int(node.attrs.repeats), normal_axis(int(axis), node.inputs[0].ndim))


RESHAPES = (
    "relax.reshape",
    "relax.flatten",
    "relax.nn.batch_flatten",
    "relax.expand_dims",
    "relax.squeeze",
)

_READERS: dict[str, Callable[[Node], Movement | None]] = {
    **dict.fromkeys(RESHAPES, _reshape),
    "relax.permute_dims": _permute,
    "relax.layout_transform": _layout_transform,
    "relax.strided_slice": _strided_slice,
    "relax.split": _split,
    "relax.concat": _concat,
    "relax.stack": _stack,
    "relax.broadcast_to": _broadcast,
    "relax.nn.pad": _pad,
    "relax.take": _take,
    "relax.flip": _flip,
    "relax.tile": _tile,
    "relax.repeat": _repeat,
}


def emit_movement(graph: Graph, movement: Movement, *operands: Value) -> Value:
    """Add the call that a movement is, or return the operand where it moves nothing.

    Parameters
    ----------
    graph : Graph
        Where it goes.
    movement : Movement
        Anything but a `Split`.
    operands : Value
        Its operands, of known shape.
    """
    x = operands[0]
    if len(operands) == 1 and moves_nothing(movement, x.shape or ()):
        return x
    if isinstance(movement, Slice):
        return graph.emit(lambda e: _slice_call(e, movement, x.shape or ()), x)
    if isinstance(movement, Take):
        indices = graph.constant(np.array(movement.indices, dtype="int64").reshape(movement.shape))
        return graph.emit(lambda e, i: relax.op.take(e, i, movement.axis), x, indices)
    if isinstance(movement, (Concat, Stack)):
        make = relax.op.concat if isinstance(movement, Concat) else relax.op.stack
        return graph.emit(lambda es: make(es, movement.axis), operands)
    return graph.emit(lambda e: _call(e, movement), x)


def _call(expr: relax.Expr, movement: Movement) -> relax.Call:
    """Return the Relax call of a movement of one operand."""
    match movement:
        case Reshape(shape):
            return relax.op.reshape(expr, _shape_expr(shape))
        case Permute(axes):
            return relax.op.permute_dims(expr, list(axes))
        case Broadcast(shape):
            return relax.op.broadcast_to(expr, _shape_expr(shape))
        case Pad(before, after, mode, value):
            widths = [w for pair in zip(before, after, strict=True) for w in pair]
            return relax.op.nn.pad(expr, widths, mode, value)
        case Flip(axis):
            return relax.op.flip(expr, axis)
        case Tile(repeats):
            return relax.op.tile(expr, list(repeats))
        case Repeat(count, axis):
            return relax.op.repeat(expr, count, axis)
    raise TypeError(f"no Relax call is known for {movement!r}")


def _shape_expr(shape: Sequence[Extent]) -> relax.ShapeExpr:
    # A list of ints would read 0 as "copy the extent" in reshape (apache/tvm issue 20151).
    return relax.ShapeExpr([tvm.tirx.IntImm("int64", e) if isinstance(e, int) else e for e in shape])


def _slice_call(expr: relax.Expr, movement: Slice, shape: Sequence[Extent]) -> relax.Call:
    """Return a strided_slice of the axes that are cut, with bounds inside the extents."""
    return relax.op.strided_slice(expr, *_slice_arguments(movement, shape))


def _slice_arguments(movement: Slice, shape: Sequence[Extent]) -> tuple[list[int], ...]:
    """Return the axes, begins, ends and, where one is not 1, strides of a strided_slice."""
    axes, begins, ends, strides = [], [], [], []
    for axis, (b, n, s) in enumerate(zip(movement.begin, movement.size, movement.stride, strict=True)):
        if b == 0 and s == 1 and same(n, shape[axis]):
            continue
        end = min(b + s * n, shape[axis])
        axes.append(axis)
        begins.append(b)
        # with a negative stride the end of a full reversal is -1, which would count from the back
        ends.append(end if end >= 0 else -shape[axis] - 1)
        strides.append(s)
    found = (axes, begins, ends)
    return (*found, strides) if any(s != 1 for s in strides) else found


def is_normal_slice(node: Node) -> bool:
    """Return whether a strided_slice that has a view is spelled as `emit_movement` spells it."""
    given = tuple(_ints(arg) for arg in list(node.expr.args)[1:])
    return not node.attrs.assume_inbound and given == _slice_arguments(node.view, node.inputs[0].shape or ())


def is_normal_take(node: Node) -> bool:
    """Return whether a take that has a view names its axis and needs no mode to keep the indices inside.

    The dtype of the indices may be any integer type.
    """
    view: Take = node.view
    array = node.inputs[1].array
    plain = str(node.attrs.mode) == "fast" and node.attrs.axis is not None and int(node.attrs.axis) == view.axis
    return plain and array is not None and tuple(array.ravel().tolist()) == view.indices


def slice_of(value: Value) -> tuple[Value, Slice] | None:
    """Return what a value is a slice of, and which: it is a strided_slice, or an item of a split."""
    node, view = value.node, value.node.view
    if isinstance(view, Split) and value.index is not None:
        part = view.part(value.index, node.inputs[0].shape or ())
    elif isinstance(view, Slice):
        part = view
    else:
        return None
    return None if part.is_empty else (node.inputs[0], part)


def scatter_window(node: Node) -> tuple[int, int, int] | None:
    """Return (axis, start, step) of a slice_scatter with literal bounds inside the extent, else None.

    TVM's kernel neither counts negative bounds from the end nor clamps them.
    """
    bounds = _ints(relax.Tuple(list(node.expr.args)[2:]))
    if bounds is None or len(node.inputs) != 2 or any(v.shape is None for v in node.inputs):
        return None
    x, source = node.inputs
    shape, axis = list(x.shape or ()), normal_axis(int(node.attrs.axis), x.ndim)
    start, end, step = bounds
    extent = shape[axis]
    if not isinstance(extent, int) or not 0 <= start < end <= extent or step < 1:
        return None
    shape[axis] = len(range(start, end, step))
    return (axis, start, step) if same_shape(source.shape, shape) and source.dtype == x.dtype else None


def join(graph: Graph, axis: int, values: Sequence[Value]) -> Value:
    """Return a concat of values, or the value itself where there is one."""
    return values[0] if len(values) == 1 else emit_movement(graph, Concat(axis), *values)


def moves_nothing(movement: Movement, shape: Sequence[Extent]) -> bool:
    """Return whether a movement of one operand of shape `shape` returns it unchanged."""
    match movement:
        case Reshape(target) | Broadcast(target):
            return len(target) == len(shape) and all(map(same, target, shape))
        case Permute():
            return movement.is_identity
        case Slice(begin, size, stride):
            return not any(begin) and all(s == 1 for s in stride) and all(map(same, size, shape))
        case Pad(before, after):
            return not any(before) and not any(after)
        case Tile(repeats):
            return len(repeats) == len(shape) and all(r == 1 for r in repeats)
        case Repeat(count, _):
            return count == 1
        case Flip(axis):
            return isinstance(shape[axis], int) and shape[axis] <= 1
    return False
