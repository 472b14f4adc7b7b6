"""Instances of rules of layers: convolutions, poolings, resizes, normalisation, matmuls, and what is beside them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax
from tvm.relax import op

from relax_glue.testing.graph import Value, literal

from .moves import FILLINGS, broadcast
from .scene import Extent, NoInstance, Scene

SPATIAL = "DHW"
DIMS = (2, 2, 1, 3)


def layouts(n: int) -> tuple[str, str]:
    """Return the layouts with channels first and last of n spatial axes."""
    axes = SPATIAL[3 - n :]
    return f"NC{axes}", f"N{axes}C"


def image(scene: Scene, layout: str, channels: int, dtype: str, least: int = 2) -> Value:
    """Draw an operand of a layer; now and then its batch is symbolic."""
    sizes: dict[str, Extent] = {"N": scene.choices.integer(1, 2), "C": channels}
    if scene.choices.one_in(5):
        sizes["N"] = scene.symbol(2)
    return scene.tensor([sizes[x] if x in sizes else scene.choices.integer(least, 5) for x in layout], dtype)


def weight(scene: Scene, layout: str, out: int, into: int, kernel: Sequence[int], dtype: str) -> relax.Expr:
    """Draw a kernel, mostly constant."""
    spatial = iter(kernel)
    shape = [{"O": out, "I": into}.get(letter) or next(spatial) for letter in layout]
    return scene.parameter(shape, dtype).expr if scene.choices.one_in(8) else scene.constant(shape, dtype)


def conv(scene: Scene, value: Value, layout: str, channels: int, out: int, kernel_layout: str) -> Value:
    n = len(layout) - 2
    kernel = [scene.choices.integer(1, 2) for _ in range(n)]
    grouped = channels == out and scene.choices.one_in(3)
    options = {
        "strides": [scene.choices.integer(1, 2) for _ in range(n)],
        "padding": [scene.choices.integer(0, 1) for _ in range(2 * n)],
        "groups": channels if grouped else 1,
    }
    make = getattr(op.nn, f"conv{n}d")
    into = 1 if grouped else channels
    kernel_expr = weight(scene, kernel_layout, out, into, kernel, value.dtype)
    return scene.call(make(value.expr, kernel_expr, data_layout=layout, kernel_layout=kernel_layout, **options))


def conv_transpose(scene: Scene, value: Value, layout: str, channels: int, out: int, kernel_layout: str) -> Value:
    n = len(layout) - 2
    make = getattr(op.nn, f"conv{n}d_transpose")
    kernel = weight(scene, kernel_layout, out, channels, [2] * n, value.dtype)
    strides = [scene.choices.integer(1, 2) for _ in range(n)]
    return scene.call(make(value.expr, kernel, strides=strides, data_layout=layout, kernel_layout=kernel_layout))


def kernel_layouts(n: int) -> tuple[str, str]:
    return f"OI{SPATIAL[3 - n :]}", f"{SPATIAL[3 - n :]}IO"


def any_conv(scene: Scene, dtype: str = "float32") -> Value:
    n = scene.choices.item(DIMS)
    layout = scene.choices.item(layouts(n))
    channels = scene.choices.integer(1, 3)
    value = image(scene, layout, channels, dtype)
    out = channels if scene.choices.one_in(2) else scene.choices.integer(1, 3)
    if n == 2 and layout == "NCHW" and scene.choices.one_in(3):  # TVM builds no other
        return conv_transpose(scene, value, layout, channels, out, "IOHW")
    return conv(scene, value, layout, channels, out, scene.choices.item(kernel_layouts(n)))


# -- normalisation and scales ------------------------------------------------------------------------------


def batch_norm(scene: Scene) -> Value:
    dtype = "float32"  # TVM's own normalisation of float16 gives float32 where float16 is declared
    value = scene.tensor(ranks=(4, 3, 2), dtypes=(dtype,))
    axis = scene.choices.item(value.axes())
    extent = value.array.shape[axis]
    gamma, beta, mean = (scene.constant([extent], dtype) for _ in range(3))
    variance = literal((np.abs(scene.data([extent], dtype).astype("float64")) + 0.5).astype(dtype))
    if scene.choices.one_in(8):
        mean = scene.parameter([extent], dtype).expr
    spelled = scene.choices.spelling(axis, value.rank)
    options = {
        "epsilon": scene.choices.item((1e-5, 1e-3)),
        "center": not scene.choices.one_in(5),
        "scale": not scene.choices.one_in(5),
        "training": scene.choices.one_in(10),
    }
    items = scene.call_tuple(op.nn.batch_norm(value.expr, gamma, beta, mean, variance, axis=spelled, **options))
    if scene.choices.one_in(4):
        scene.keep(items[1:])
    return items[0]


def per_channel(scene: Scene, value: Value, axis: int) -> relax.Expr:
    """Draw a constant that varies along one axis, along no axis, or along another one."""
    shape = [1] * value.rank
    if not scene.choices.one_in(4) and isinstance(value.dims[axis], int):
        shape[axis] = value.array.shape[axis]
    if scene.choices.one_in(8):
        shape = [1] * (value.rank - 1) + [value.array.shape[-1]]
    while len(shape) > 1 and shape[0] == 1 and scene.choices.one_in(2):
        shape = shape[1:]
    return scene.constant(shape, value.dtype)


def times(scene: Scene, value: Value, constant: relax.Expr) -> Value:
    pair = (value.expr, constant) if scene.choices.one_in(2) else (constant, value.expr)
    return scene.call(op.multiply(*pair))


def channel_axis(scene: Scene, value: Value) -> int:
    """Return the axis of the channels, of either layout."""
    return scene.choices.item((1, value.rank - 1))


def scale_into_conv(scene: Scene) -> Value:
    value = any_conv(scene, scene.dtype(("float32", "float32", "float16")))
    return times(scene, value, per_channel(scene, value, channel_axis(scene, value)))


def any_matmul(scene: Scene, dtype: str) -> Value:
    value = scene.tensor(ranks=(2, 3), dtypes=(dtype,))
    width = scene.choices.integer(1, 4)
    shape = [value.extents[-1], width]
    static = all(isinstance(extent, int) for extent in shape)
    if value.rank == 3 and scene.choices.one_in(4):
        shape = [1, *shape]
    constant = static and not scene.choices.one_in(8)
    weights = scene.constant(shape, dtype) if constant else scene.parameter(shape, dtype).expr
    return scene.call(op.matmul(value.expr, weights))


def scale_into_matmul(scene: Scene) -> Value:
    value = any_matmul(scene, scene.dtype(("float32", "float32", "float16")))
    return times(scene, value, per_channel(scene, value, value.rank - 1))


def scale_before_shift(scene: Scene) -> Value:
    value = any_conv(scene) if scene.choices.one_in(2) else any_matmul(scene, "float32")
    axis = channel_axis(scene, value)
    shifted = scene.call(op.add(value.expr, per_channel(scene, value, axis)))
    return times(scene, shifted, per_channel(scene, value, axis))


# -- pads before layers ------------------------------------------------------------------------------------


def pad_spatial(scene: Scene, value: Value, layout: str, filling: float) -> Value:
    """Pad the spatial axes, and now and then another one."""
    widths: list[int] = []
    for letter in layout:
        most = 1 if letter in SPATIAL or (letter == "N" and scene.choices.one_in(12)) else 0
        widths += [scene.choices.integer(0, most), scene.choices.integer(0, most)]
    mode = "constant" if not scene.choices.one_in(12) else "replicate"
    return scene.call(op.nn.pad(value.expr, widths, mode, filling), moves=True)


def pad_into_conv(scene: Scene) -> Value:
    n = scene.choices.item(DIMS)
    layout = scene.choices.item(layouts(n))
    channels = scene.choices.integer(1, 3)
    value = image(scene, layout, channels, "float32")
    padded = pad_spatial(scene, value, layout, 0.0 if not scene.choices.one_in(6) else scene.choices.item(FILLINGS))
    kernel_layout = scene.choices.item(kernel_layouts(n))
    return conv(scene, padded, layout, channels, scene.choices.integer(1, 3), kernel_layout)


def zeros_into_conv(scene: Scene) -> Value:
    """Convolve an image with zeros, or now and then something else, put before or behind it."""
    n = scene.choices.item(DIMS)
    layout = scene.choices.item(layouts(n))
    channels = scene.choices.integer(1, 3)
    value = image(scene, layout, channels, "float32")
    axis = scene.choices.item([k for k, letter in enumerate(layout) if letter in SPATIAL])
    if scene.choices.one_in(12):
        axis = layout.index("C")
    parts = [value.expr]
    for place in scene.choices.item(((0,), (1,), (0, 2), (1, 2))):
        if value.static:
            shape = [scene.choices.integer(1, 2) if k == axis else e for k, e in enumerate(value.array.shape)]
            zeros = np.full(shape, 0.0 if not scene.choices.one_in(8) else scene.choices.item((1.0, -0.0)), "float32")
            parts.insert(place, literal(zeros))
        else:
            parts.insert(place, value.expr)
    joined = scene.call(op.concat(parts, axis), moves=True)
    into = joined.array.shape[layout.index("C")]
    kernel_layout = scene.choices.item(kernel_layouts(n))
    return conv(scene, joined, layout, into, scene.choices.integer(1, 3), kernel_layout)


def pad_after_activation(scene: Scene) -> Value:
    """Pad, activate, and convolve or pool."""
    n = scene.choices.item((2, 2, 1))
    layout = scene.choices.item(layouts(n))
    channels = scene.choices.integer(1, 3)
    value = image(scene, layout, channels, "float32", least=3)
    padded = pad_spatial(scene, value, layout, 0.0 if not scene.choices.one_in(6) else scene.choices.item(FILLINGS))
    alpha = scene.choices.item((0.1, 0.1, -0.1))
    low = scene.choices.item((0, 0, -1, 1))
    makes = (op.nn.relu, op.nn.silu, op.nn.gelu, op.tanh, op.abs, lambda x: op.nn.leakyrelu(x, alpha))
    makes = (*makes, lambda x: op.clip(x, low, 6), lambda x: op.clip(x, low, 6))
    active = scene.call(scene.choices.item(makes)(padded.expr))
    if scene.choices.one_in(10):
        return active
    if scene.choices.one_in(3):
        return pool(scene, active, layout, scene.choices.item(("avg", "avg", "max")))
    kernel_layout = scene.choices.item(kernel_layouts(n))
    return conv(scene, active, layout, channels, scene.choices.integer(1, 3), kernel_layout)


def slice_into_conv(scene: Scene) -> Value:
    """Convolve every second or third pixel, mostly with a kernel of one; now and then by two convolutions."""
    n = scene.choices.item(DIMS)
    layout = scene.choices.item(layouts(n))
    channels = scene.choices.integer(1, 3)
    value = image(scene, layout, channels, "float32", least=3)
    axes = [
        axis for axis, letter in enumerate(layout) if letter in SPATIAL or (letter == "C" and scene.choices.one_in(12))
    ]
    begins = [int(scene.choices.one_in(12)) for _ in axes]
    steps = [scene.choices.item((2, 1, 3, 2)) for _ in axes]
    ends = [value.array.shape[axis] - int(scene.choices.one_in(6)) for axis in axes]
    cut = scene.call(op.strided_slice(value.expr, axes, begins, ends, steps), moves=True)
    if not cut.array.size:
        raise NoInstance("the slice keeps nothing")
    channels = cut.array.shape[layout.index("C")]
    kernel_layout = scene.choices.item(kernel_layouts(n))
    if scene.choices.one_in(6):
        return conv(scene, cut, layout, channels, scene.choices.integer(1, 3), kernel_layout)
    make = getattr(op.nn, f"conv{n}d")
    for _ in range(scene.choices.item((1, 1, 2))):
        kernel = weight(scene, kernel_layout, scene.choices.integer(1, 3), channels, [1] * n, value.dtype)
        options = {"strides": [scene.choices.integer(1, 2) for _ in range(n)], "data_layout": layout}
        result = scene.call(make(cut.expr, kernel, kernel_layout=kernel_layout, **options))
        scene.keep([result])
    return result


def pool(scene: Scene, value: Value, layout: str, kind: str) -> Value:
    n = len(layout) - 2
    own = not scene.choices.one_in(3)
    options = {
        "pool_size": [scene.choices.integer(2, 3) for _ in range(n)],
        "strides": [scene.choices.integer(1, 2) for _ in range(n)],
        "padding": [0 if own else scene.choices.integer(0, 1) for _ in range(2 * n)],
        "ceil_mode": scene.choices.one_in(6),
        "count_include_pad": scene.choices.one_in(2),
        "layout": layout,
    }
    return scene.call(getattr(op.nn, f"{kind}_pool{n}d")(value.expr, **options))


def _pad_into_pool(scene: Scene, kind: str, fillings: Sequence[float], dtype: str) -> Value:
    layout = scene.choices.item(layouts(scene.choices.item(DIMS)))
    value = image(scene, layout, scene.choices.integer(1, 2), dtype, least=3)
    return pool(scene, pad_spatial(scene, value, layout, scene.choices.item(fillings)), layout, kind)


def pad_into_avg_pool(scene: Scene) -> Value:
    return _pad_into_pool(scene, "avg", (0.0, 0.0, 0.0, 1.0, -0.0), "float32")


def pad_into_max_pool(scene: Scene) -> Value:
    dtype = scene.dtype(("float32", "float32", "float16"))
    lowest = float(np.finfo(dtype).min)
    return _pad_into_pool(scene, "max", (lowest, lowest, -np.inf, 0.0), dtype)


def adaptive(scene: Scene, value: Value, layout: str, sizes: list[int]) -> Value:
    n = len(layout) - 2
    return scene.call(getattr(op.nn, f"adaptive_avg_pool{n}d")(value.expr, sizes, layout=layout))


def adaptive_to_one(scene: Scene) -> Value:
    layout = scene.choices.item(layouts(scene.choices.item(DIMS)))
    value = image(scene, layout, 2, "float32")
    return adaptive(scene, value, layout, [1 if not scene.choices.one_in(12) else 2 for _ in layout[2:]])


def adaptive_pool(scene: Scene) -> Value:
    layout = scene.choices.item(layouts(scene.choices.item(DIMS)))
    value = image(scene, layout, 2, "float32")
    sizes = []
    for letter, size in zip(layout, value.array.shape, strict=True):
        if letter in SPATIAL:
            uneven = scene.choices.one_in(8)
            sizes.append(scene.choices.item([m for m in range(1, size + 1) if uneven or size % m == 0]))
    return adaptive(scene, value, layout, sizes)


# -- resizes -----------------------------------------------------------------------------------------------

MODES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "tf_half_pixel_for_nn")
ROUNDINGS = ("round", "floor", "round_prefer_floor", "round_prefer_ceil", "ceil")


def resize(scene: Scene, value: Value, layout: str, sizes: list[int], method: str) -> Value:
    make = op.image.resize2d if len(sizes) == 2 else op.image.resize3d
    # TVM divides by zero for the corners of one element
    modes = [mode for mode in MODES if 1 not in sizes or mode != "align_corners"]
    options = {
        "layout": layout,
        "method": method,
        "coordinate_transformation_mode": scene.choices.item(modes),
        "rounding_method": scene.choices.item(ROUNDINGS),
    }
    return scene.call(make(value.expr, tuple(sizes), **options), moves=method == "nearest_neighbor")


def resized(scene: Scene, method: str, factors: Sequence[int], ones: int) -> Value:
    """Resize by whole factors axes of which one in `ones` is 1."""
    layout = scene.choices.item(layouts(scene.choices.item((2, 2, 3))))
    shape: list[Extent] = []
    for letter in layout:
        extent = scene.choices.integer(2, 4) if letter in SPATIAL else scene.choices.integer(1, 2)
        shape.append(1 if letter in SPATIAL and scene.choices.one_in(ones) else extent)
    if scene.choices.one_in(5):
        shape[0] = scene.symbol(shape[0])
    value = scene.tensor(shape, dtypes=("float32", "float32", "float16", "int8", "uint8"))
    extents = [size for letter, size in zip(layout, value.array.shape, strict=True) if letter in SPATIAL]
    sizes = [size * (scene.choices.item((1, 2, 3)) if size == 1 else scene.choices.item(factors)) for size in extents]
    if scene.choices.one_in(8):
        sizes[0] += 1
    return resize(scene, value, layout, sizes, method)


def resize_to_broadcast(scene: Scene) -> Value:
    return resized(scene, "nearest_neighbor", (1,), 2)


def nearest(scene: Scene) -> Value:
    return resized(scene, "nearest_neighbor", (2, 1, 3, 4), 4)


def linear_to_broadcast(scene: Scene) -> Value:
    return resized(scene, "linear", (1,), 2)


# -- matmuls and layouts -----------------------------------------------------------------------------------


def broadcast_into_matmul(scene: Scene) -> Value:
    """Multiply matrices of which one operand repeats a batch that the other one has."""
    batch: list[Extent] = scene.shape((1, 2), (2, 3))
    if scene.choices.one_in(4):
        batch[0] = scene.symbol(2)
    m, k, n = (scene.choices.integer(1, 3) for _ in range(3))
    dtype = scene.dtype(("float32", "float16", "float32"))
    thin = [1 if scene.choices.one_in(2) else extent for extent in batch]
    kept = thin[scene.choices.integer(0, 1) if thin[0] is batch[0] or thin[0] == 1 else 0 :]
    small = scene.tensor([*(kept if thin[0] == 1 else thin), m, k], dtype)
    left = scene.call(op.broadcast_to(small.expr, [*batch, m, k]), moves=True)
    other = [extent if not scene.choices.one_in(8) else 1 for extent in batch]
    right = scene.tensor([*other, k, n], dtype)
    if scene.choices.one_in(3):
        return scene.call(op.matmul(left.expr, right.expr))
    turned = scene.tensor([*other, n, m], dtype)
    return scene.call(op.matmul(turned.expr, left.expr))


def conv_channels_last(scene: Scene) -> Value:
    n = scene.choices.item(DIMS)
    channels = scene.choices.integer(1, 3)
    layout = layouts(n)[not scene.choices.one_in(6)]
    value = image(scene, layout, channels, "float32")
    return conv(scene, value, layout, channels, scene.choices.integer(1, 3), scene.choices.item(kernel_layouts(n)))


def pool_channels_last(scene: Scene) -> Value:
    n = scene.choices.item(DIMS)
    layout = layouts(n)[not scene.choices.one_in(6)]
    value = image(scene, layout, scene.choices.integer(1, 3), "float32", least=3)
    kind = scene.choices.item(("max", "avg", "adaptive"))
    if kind != "adaptive":
        return pool(scene, value, layout, kind)
    return adaptive(scene, value, layout, [scene.choices.integer(1, 2) for _ in range(n)])


def resize_channels_last(scene: Scene) -> Value:
    return resized(scene, scene.choices.item(("nearest_neighbor", "linear")), (2, 1), 6)


# -- channels in another order -----------------------------------------------------------------------------


def reordered(scene: Scene, value: Value, axis: int) -> Value:
    """Reorder an axis: by a take, backwards, or as a shuffle of channels does."""
    extent = value.array.shape[axis]
    kind = scene.choices.item(("take", "flip", "shuffle", "shuffle"))
    if kind == "take":
        order = scene.choices.permutation(extent)
        if scene.choices.one_in(8):
            order[0] = order[-1]  # one channel twice
        return scene.call(op.take(value.expr, literal(np.array(order, "int64")), axis), moves=True)
    if kind == "flip":
        return scene.call(op.strided_slice(value.expr, [axis], [extent - 1], [-extent - 1], [-1]), moves=True)
    parts = scene.choices.item([n for n in range(1, extent + 1) if extent % n == 0])
    shape = value.extents
    apart = scene.call(op.reshape(value.expr, [*shape[:axis], parts, extent // parts, *shape[axis + 1 :]]), moves=True)
    axes = list(range(apart.rank))
    axes[axis : axis + 2] = axes[axis + 1], axes[axis]
    if scene.choices.one_in(10):
        axes = scene.choices.permutation(apart.rank)
    turned = scene.call(op.permute_dims(apart.expr, axes), moves=True)
    return scene.call(op.reshape(turned.expr, shape), moves=True)


def between(scene: Scene, value: Value, axis: int) -> Value:
    """Compute element by element, with constants along an axis."""
    for _ in range(scene.choices.item((0, 0, 1, 2))):
        if scene.choices.one_in(3):
            value = scene.call(op.nn.relu(value.expr))
        else:
            value = times(scene, value, per_channel(scene, value, axis))
    return value


def flat_channels_last(scene: Scene) -> Value:
    """Flatten an image with its channels last, before a matrix product."""
    extents = [scene.choices.integer(1, 3) for _ in range(3)]
    batch = scene.symbol(2) if scene.choices.one_in(4) else scene.choices.integer(1, 2)
    value = scene.tensor([batch, *extents], "float32")
    axes = [0, 2, 3, 1] if not scene.choices.one_in(4) else [0, *(1 + k for k in scene.choices.permutation(3))]
    turned = scene.call(op.permute_dims(value.expr, axes), moves=True)
    flat = scene.call(op.reshape(turned.expr, [value.extents[0], int(np.prod(extents))]), moves=True)
    between_ = between(scene, flat, 1)
    return scene.call(op.matmul(between_.expr, scene.constant([flat.array.shape[1], 3], "float32")))


def channel_order_into_weight(scene: Scene) -> Value:
    if scene.choices.one_in(3):
        return flat_channels_last(scene)
    channels = scene.choices.item((4, 6, 2, 3))
    if scene.choices.one_in(3):
        value = scene.tensor([scene.choices.integer(1, 3), channels], "float32")
        value = between(scene, reordered(scene, value, 1), 1)
        weights = scene.constant([channels, 2], "float32")
        return scene.call(op.matmul(value.expr, weights))
    n = scene.choices.item(DIMS)
    layout = scene.choices.item(layouts(n))
    axis = layout.index("C") if not scene.choices.one_in(10) else 1
    value = image(scene, layout, channels, "float32")
    value = between(scene, reordered(scene, value, axis), axis)
    return conv(scene, value, layout, channels, scene.choices.integer(1, 3), scene.choices.item(kernel_layouts(n)))


def repeated_batch(scene: Scene) -> Value:
    """Multiply by what is broadcast in its matrices, which is no repetition of them."""
    wide = broadcast(scene, scene.tensor([1, 1, 2], "float32"))
    return scene.call(op.matmul(wide.expr, scene.tensor([2, 2], "float32").expr))


DRAWERS = {
    "batch-norm-to-scale": (batch_norm,),
    "scale-into-conv": (scale_into_conv,),
    "scale-into-matmul": (scale_into_matmul,),
    "scale-before-shift": (scale_before_shift,),
    "pad-into-conv": (pad_into_conv,),
    "zeros-into-conv": (zeros_into_conv,),
    "pad-after-activation": (pad_after_activation,),
    "slice-into-conv": (slice_into_conv,),
    "channel-order-into-weight": (channel_order_into_weight,),
    "pad-into-avg-pool": (pad_into_avg_pool,),
    "pad-into-max-pool": (pad_into_max_pool,),
    "adaptive-pool-to-mean": (adaptive_to_one,),
    "adaptive-pool-to-pool": (adaptive_pool,),
    "resize-to-broadcast": (resize_to_broadcast,),
    "nearest-normal-form": (nearest,),
    "linear-to-broadcast": (linear_to_broadcast,),
    "broadcast-into-matmul": (broadcast_into_matmul,),
    "conv-to-channels-first": (conv_channels_last,),
    "pool-to-channels-first": (pool_channels_last,),
    "resize-to-channels-first": (resize_channels_last,),
}
