"""Instances of rules of slices, flips and splits."""

from __future__ import annotations

from tvm.relax import op

from relax_glue.testing import indexing, operators
from relax_glue.testing.graph import Value

from . import layers
from .moves import RESHAPES, axis_of, broadcast, filling, pad, random_indices, take, thin
from .scene import NoInstance, Scene

INT64_MAX = 2**63 - 1


def any_slice(scene: Scene, value: Value) -> Value:
    return scene.step(value, operators.strided_slice)


def cut(scene: Scene, value: Value, axis: int) -> Value:
    """Slice one axis, somewhere and at some stride, forwards or backwards."""
    size = value.array.shape[axis]
    if not size:
        raise NoInstance("nothing is left to cut")
    begin = scene.choices.integer(0, size - 1)
    end = scene.choices.integer(begin + 1, size)
    stride = scene.choices.item((1, 1, 2, -1))
    bounds = (begin, end) if stride > 0 else (end - 1, begin - 1 if begin else -size - 1)
    name = scene.choices.spelling(axis, value.rank) if value.static else axis
    return scene.call(op.strided_slice(value.expr, [name], [bounds[0]], [bounds[1]], [stride]), moves=True)


def nop_slice(scene: Scene) -> Value:
    value = scene.tensor()
    if scene.choices.one_in(4):
        return any_slice(scene, value)
    axes = scene.choices.subset(range(value.rank))
    dims = [value.dims[axis] for axis in axes]
    ends = [dim if isinstance(dim, int) and scene.choices.one_in(2) else INT64_MAX for dim in dims]
    return scene.call(op.strided_slice(value.expr, axes, [0] * len(axes), ends), moves=True)


def slice_of_slice(scene: Scene) -> Value:
    return any_slice(scene, scene.step(scene.tensor(), operators.strided_slice, operators.split))


def slice_of_concat(scene: Scene) -> Value:
    value = scene.tensor()
    axis = axis_of(scene, value)
    other = scene.tensor(value.extents, value.dtype)
    joined = scene.call(op.concat([value.expr, other.expr, value.expr], axis), moves=True)
    return cut(scene, joined, axis) if not scene.choices.one_in(3) else any_slice(scene, joined)


def slice_of_take(scene: Scene) -> Value:
    value = scene.tensor()
    axis = axis_of(scene, value)
    rank_one = not scene.choices.one_in(5)
    taken = take(scene, value, random_indices(scene, value.array.shape[axis], rank_one), axis)
    if axis >= taken.rank or scene.choices.one_in(4):
        return any_slice(scene, taken)
    return cut(scene, taken, axis)


def slice_of_permute(scene: Scene) -> Value:
    return any_slice(scene, scene.step(scene.tensor(), operators.permute_dims))


def slice_of_broadcast(scene: Scene) -> Value:
    return any_slice(scene, broadcast(scene, thin(scene)))


def slice_of_pad(scene: Scene) -> Value:
    value = scene.tensor()
    if scene.choices.one_in(4):
        return any_slice(scene, scene.step(value, indexing.pad))
    return any_slice(scene, pad(scene, value, -1 if scene.choices.one_in(6) else 0, 2, filling(scene, value.dtype)))


def slice_of_reshape(scene: Scene) -> Value:
    return any_slice(scene, scene.step(scene.tensor(), *RESHAPES))


def slice_spelled(scene: Scene) -> Value:
    return any_slice(scene, scene.tensor())


def flip(scene: Scene, value: Value, axis: int) -> Value:
    return scene.call(op.flip(value.expr, scene.choices.spelling(axis, value.rank)), moves=True)


def flip_of_flip(scene: Scene) -> Value:
    value = scene.tensor()
    axis = scene.choices.integer(0, value.rank - 1)
    once = flip(scene, value, axis)
    return flip(scene, once, axis if not scene.choices.one_in(4) else scene.choices.integer(0, value.rank - 1))


def any_flip(scene: Scene) -> Value:
    value = scene.tensor()
    return flip(scene, value, scene.choices.integer(0, value.rank - 1))


def slice_scatter(scene: Scene) -> Value:
    """Overwrite a window of an axis, as long as the bounds say or as they do not."""
    value = scene.tensor()
    axis = axis_of(scene, value)
    size = value.array.shape[axis]
    start = scene.choices.integer(0, size - 1)
    end = scene.choices.integer(start + 1, size)
    step = scene.choices.item((1, 1, 2))
    extents = value.extents
    extents[axis] = len(range(start, end, step))
    update = scene.tensor(extents, value.dtype)
    name = scene.choices.spelling(axis, value.rank)
    return scene.call(op.slice_scatter(value.expr, update.expr, start, end, step, name), moves=True)


# -- splits ------------------------------------------------------------------------------------------------


def split(scene: Scene, value: Value, axis: int, how: int | list[int]) -> list[Value]:
    """Split, and use all of the items, or but some."""
    items = scene.call_tuple(op.split(value.expr, how, scene.choices.spelling(axis, value.rank)), moves=True)
    return items if scene.choices.one_in(2) else scene.choices.subset(items)


def together(scene: Scene, items: list[Value]) -> Value:
    """Use items: each is computed with, and the last is the result."""
    used = [scene.call(op.nn.relu(item.expr)) if item.dtype != "bool" else item for item in items]
    scene.keep(used)
    return used[-1]


def pieces_of(scene: Scene, size: int) -> int | list[int]:
    divisors = [n for n in range(2, size + 1) if size % n == 0]
    if divisors and scene.choices.one_in(2):
        return scene.choices.item(divisors)
    return scene.choices.subset(range(1, size))[:3]


def nop_split(scene: Scene) -> Value:
    value = scene.tensor()
    axis = scene.choices.integer(0, value.rank - 1)
    if scene.choices.one_in(6) and value.axes(2):
        axis = scene.choices.item(value.axes(2))
        return together(scene, split(scene, value, axis, pieces_of(scene, value.array.shape[axis])))
    return scene.call(op.split(value.expr, 1, scene.choices.spelling(axis, value.rank)), moves=True)


def split_of_concat(scene: Scene) -> Value:
    value = scene.tensor()
    axis = axis_of(scene, value)
    count = scene.choices.integer(2, 3)
    operands = [value, *(scene.tensor(value.extents, value.dtype) for _ in range(count - 1))]
    joined = scene.call(op.concat([v.expr for v in operands], axis), moves=True)
    size = value.array.shape[axis]
    how = scene.choices.item((count, [size], [size, 2 * size] if count > 2 else [size], pieces_of(scene, count * size)))
    other = scene.choices.item(joined.axes(2)) if scene.choices.one_in(6) else axis
    if other != axis:
        how = pieces_of(scene, joined.array.shape[other])
    return together(scene, split(scene, joined, other, how))


def split_of_slice(scene: Scene) -> Value:
    inner = scene.step(scene.tensor(), operators.strided_slice, operators.split)
    axis = axis_of(scene, inner, 2)
    return together(scene, split(scene, inner, axis, pieces_of(scene, inner.array.shape[axis])))


def split_with_unused_items(scene: Scene) -> Value:
    value = scene.tensor()
    axis = axis_of(scene, value, 2)
    return together(scene, split(scene, value, axis, pieces_of(scene, value.array.shape[axis])))


# -- slices of what layers compute -------------------------------------------------------------------------


def thin_cut(scene: Scene, value: Value, axis: int) -> Value:
    """Keep half of an axis or less, mostly."""
    size = value.array.shape[axis]
    if size < 2 or scene.choices.one_in(12):
        return any_slice(scene, value)
    count = scene.choices.integer(1, size // 2)
    begin = scene.choices.integer(0, size - count)
    stride = 2 if begin + 2 * count <= size and scene.choices.one_in(4) else 1
    name = scene.choices.spelling(axis, value.rank) if value.static else axis
    end = begin + stride * (count - 1) + 1
    return scene.call(op.strided_slice(value.expr, [name], [begin], [end], [stride]), moves=True)


def activated(scene: Scene, value: Value, other: Value | None = None) -> Value:
    """Compute element by element, also along two ways that come together, or with another tensor."""
    for _ in range(scene.choices.integer(1, 3)):
        kind = scene.choices.item(("relu", "silu", "bias", "sum", "softmax"))
        if kind == "relu":
            value = scene.call(op.nn.relu(value.expr))
        elif kind == "silu":
            gate = scene.call(op.sigmoid(value.expr))
            value = scene.call(op.multiply(value.expr, gate.expr))
        elif kind == "bias":
            axis = scene.choices.integer(0, value.rank - 1)
            value = scene.call(op.add(value.expr, layers.per_channel(scene, value, axis)))
        elif kind == "softmax" and value.rank > 1:
            value = scene.call(op.nn.softmax(value.expr, scene.choices.spelling(value.rank - 1, value.rank)))
        elif other is not None:
            value = scene.call(op.add(value.expr, other.expr))
    return value


def slice_of_channels(scene: Scene) -> Value:
    """Cut the channels, or now and then the pixels, of an activated convolution."""
    n = scene.choices.item(layers.DIMS)
    layout = scene.choices.item(layers.layouts(n))
    channels, out = scene.choices.item(((4, 4), (1, 4), (2, 6), (3, 5)))
    value = layers.image(scene, layout, channels, "float32")
    kernel_layout = scene.choices.item(layers.kernel_layouts(n))
    found = activated(scene, layers.conv(scene, value, layout, channels, out, kernel_layout))
    axis = layout.index("C") if not scene.choices.one_in(8) else scene.choices.item(found.axes())
    return thin_cut(scene, found, axis)


def slice_of_tokens(scene: Scene) -> Value:
    """Cut the rows or columns of a residual block: x + f(norm(x))."""
    tokens, width = scene.choices.item((4, 2, 5)), scene.choices.item((4, 6))
    batch = scene.symbol(2) if scene.choices.one_in(4) else scene.choices.integer(1, 2)
    x = scene.tensor([batch, tokens, width], "float32")
    if scene.choices.one_in(2):
        x = scene.call(op.matmul(x.expr, scene.constant([width, width], "float32")))
    normal = x
    if scene.choices.one_in(2):
        scales = [scene.constant([width], "float32") for _ in range(2)]
        normal = scene.call(op.nn.layer_norm(x.expr, *scales, axes=[-1]))
    y = scene.call(op.matmul(normal.expr, scene.constant([width, width], "float32")))
    if scene.choices.one_in(3):
        apart = scene.call(op.reshape(y.expr, [*y.extents[:2], 2, width // 2]), moves=True)
        y = scene.call(op.reshape(apart.expr, y.extents), moves=True)
    found = activated(scene, y, x)
    return thin_cut(scene, found, scene.choices.item((1, 1, 2)))


DRAWERS = {
    "slice-before-layers": (slice_of_channels, slice_of_tokens),
    "nop-slice": (nop_slice,),
    "slice-of-slice": (slice_of_slice,),
    "slice-of-concat": (slice_of_concat,),
    "slice-of-take": (slice_of_take,),
    "slice-of-permute": (slice_of_permute,),
    "slice-of-broadcast": (slice_of_broadcast,),
    "slice-of-pad": (slice_of_pad,),
    "slice-of-reshape": (slice_of_reshape,),
    "slice-normal-form": (slice_spelled,),
    "flip-of-flip": (flip_of_flip,),
    "flip-to-slice": (any_flip,),
    "slice-scatter-to-concat": (slice_scatter,),
    "nop-split": (nop_split,),
    "split-of-concat": (split_of_concat,),
    "split-of-slice": (split_of_slice,),
    "split-to-slices": (split_with_unused_items,),
}
