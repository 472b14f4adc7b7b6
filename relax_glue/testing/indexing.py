"""The operators of glue that read by index: take, gather_elements, slice_scatter, pad, resize2d and kin."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm.relax import op

from relax_glue.testing.graph import MAX_ELEMENTS, MAX_RANK, Graph, literal


def take(graph: Graph) -> None:
    """Take by a scalar, a vector or a matrix of constant indices, in each mode.

    Mode 'fast' reads outside the tensor for an index out of range, negative ones included (issue 19531), so
    its indices lie in range.
    """
    value = graph.operand(lambda v: bool(v.axes(1)))
    if value is None:
        return
    axis = graph.choices.item(value.axes(1))
    size = value.array.shape[axis]
    mode = graph.choices.item(["fast", "wrap", "clip"])
    shape = graph.choices.item([(2,), (), (1,), (3,), (2, 2), (1, 3)])
    if value.rank - 1 + len(shape) > MAX_RANK or value.array.size // size * int(np.prod(shape)) > MAX_ELEMENTS:
        return
    low, high = (0, size - 1) if mode == "fast" else (-size - 1, size + 1)
    drawn = [graph.choices.integer(low, high) for _ in range(int(np.prod(shape)))]
    indices = np.array(drawn, graph.choices.item(["int64", "int32"])).reshape(shape)
    numpy_indices = np.clip(indices, 0, size - 1) if mode == "clip" else indices % size
    call = op.take(value.expr, literal(indices), graph.choices.spelling(axis, value.rank), mode)
    graph.emit(call, np.take(value.array, numpy_indices, axis))


def gather_elements(graph: Graph) -> None:
    """Read one entry per entry of a constant index tensor, along an axis."""
    value = graph.operand(lambda v: v.static and bool(v.axes(1)) and v.array.size > 0)
    if value is None:
        return
    axis = graph.choices.item(value.axes(1))
    shape = list(value.array.shape)
    shape[axis] = graph.choices.integer(1, shape[axis])
    indices = np.random.default_rng(axis).integers(0, value.array.shape[axis], shape)
    call = op.gather_elements(value.expr, literal(indices), graph.choices.spelling(axis, value.rank))
    graph.emit(call, np.take_along_axis(value.array, indices, axis))


def slice_scatter(graph: Graph) -> None:
    """Overwrite a window of an axis with a constant."""
    value = graph.operand(lambda v: v.static and bool(v.axes(1)) and v.array.size > 0)
    if value is None:
        return
    axis = graph.choices.item(value.axes(1))
    size = value.array.shape[axis]
    start = graph.choices.integer(0, size - 1)
    end = graph.choices.integer(start + 1, size)
    step = graph.choices.integer(1, 2)
    window = (slice(None),) * axis + (slice(start, end, step),)
    update, update_array = graph.constant(value.array[window].shape, value.dtype)
    result = value.array.copy()
    result[window] = update_array
    graph.emit(op.slice_scatter(value.expr, update, start, end, step, axis), result)


_NUMPY_PAD: dict[str, Any] = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def pad(graph: Graph) -> None:
    """Pad with a constant, by reflection, with the edge, or around.

    An empty tensor is padded with a constant only: circular padding of one divides by zero in TVM.
    """
    value = graph.operand(lambda v: v.rank > 0)
    if value is None:
        return
    mode = graph.choices.item(list(_NUMPY_PAD)) if value.array.size else "constant"
    widths = [(0, 0)] * value.rank
    least = {"constant": 0, "reflect": 2, "replicate": 1, "circular": 2}[mode]
    for axis in graph.choices.subset(value.axes(least), least=0):
        most = 2 if mode in ("constant", "replicate") else min(2, value.array.shape[axis] - 1)
        widths[axis] = (graph.choices.integer(0, most), graph.choices.integer(0, most))
    fillings = [0.0, 1.0, 3.0] if value.dtype != "bool" else [0.0, 1.0]
    filling = graph.choices.item(fillings) if mode == "constant" else 0.0
    options = {"constant_values": np.array(filling).astype(value.dtype)} if mode == "constant" else {}
    array = np.pad(value.array, widths, _NUMPY_PAD[mode], **options)
    if array.size <= MAX_ELEMENTS:
        flat = [width for pair in widths for width in pair]
        graph.emit(op.nn.pad(value.expr, flat, mode, filling), array)


def resize2d(graph: Graph) -> None:
    """Resize to the nearest pixel: by whole factors with rounding or floor, by any ratio with floor."""
    value = graph.operand(lambda v: v.rank == 4 and v.static and v.array.size > 0)
    if value is None:
        return
    layout = graph.choices.item(["NCHW", "NHWC"])
    axes = (2, 3) if layout == "NCHW" else (1, 2)
    rounds = graph.choices.one_in(2)
    sizes = []
    for axis in axes:
        size = value.array.shape[axis]
        sizes.append(size * graph.choices.integer(1, 2) if rounds else graph.choices.integer(1, 2 * size))
    array = value.array
    for axis, size in zip(axes, sizes, strict=True):
        array = np.take(array, np.arange(size) * array.shape[axis] // size, axis)
    if array.size > MAX_ELEMENTS:
        return
    coordinates, rounding = ("half_pixel", "round") if rounds else ("asymmetric", "floor")
    call = op.image.resize2d(
        value.expr,
        tuple(sizes),
        layout=layout,
        method="nearest_neighbor",
        coordinate_transformation_mode=coordinates,
        rounding_method=rounding,
    )
    graph.emit(call, array)


def layout_transform(graph: Graph) -> None:
    """Change the layout by an index map that permutes; TVM has no bool one (its padding is float32)."""
    value = graph.operand(lambda v: v.static and v.dtype != "bool" and v.rank in (2, 3, 4) and v.array.size > 0)
    if value is None:
        return
    order = graph.choices.permutation(value.rank)
    maps = {
        2: lambda a, b: _pick(order, (a, b)),
        3: lambda a, b, c: _pick(order, (a, b, c)),
        4: lambda a, b, c, d: _pick(order, (a, b, c, d)),
    }
    graph.emit(op.layout_transform(value.expr, maps[value.rank]), value.array.transpose(order))


def _pick(order: list[int], items: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(items[i] for i in order)
