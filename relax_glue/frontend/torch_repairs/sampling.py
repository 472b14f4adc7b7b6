"""Upsampling, adaptive pooling and grid_sample.

relax.image.resize2d takes the ratio of the sizes for the scale, and for nearest the centre of a pixel. PyTorch floors
for nearest, and goes by the factor where one is given: 1.5 on 5 gives 7, and the scale stays 1.5. What resize2d does
not compute is a fixed map along each axis all the same: a take for nearest, else a product with a constant matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
from tvm import relax, tirx

from ..repairs.resize import METHODS, Sampling, times
from .node import TorchNode, as_tensor

_GRID_METHODS = ("bilinear", "nearest", "bicubic")
_GRID_PADDING = ("zeros", "border", "reflection")


def upsample(mode: str) -> Callable[[TorchNode], relax.Expr | None]:
    """Return the repair of upsample_*2d for one ONNX mode: nearest, linear or cubic."""

    def convert(node: TorchNode) -> relax.Expr | None:
        x = node["input"]
        sizes, extents = node.result_shape[2:], x.ty.shape.values[2:]
        known = [int(extent) for extent in extents if isinstance(extent, tirx.IntImm)]
        if len(known) != 2 or not all(isinstance(size, int) for size in sizes):
            return None
        scales = _scales(node, known, sizes)
        coordinates = "asymmetric" if mode == "nearest" else "half_pixel"
        if node.arguments.get("align_corners"):
            coordinates = "align_corners"
        if _is_native(mode, coordinates, known, sizes, scales):
            return node.emit(
                relax.op.image.resize2d(
                    x,
                    sizes,
                    layout="NCHW",
                    method=METHODS[mode],
                    coordinate_transformation_mode=coordinates,
                    rounding_method="floor" if mode == "nearest" else "round",
                    cubic_alpha=-0.75,
                )
            )
        sampling = Sampling(mode, coordinates, "floor", -0.75, False)
        for axis, (extent, size, scale) in enumerate(zip(known, sizes, scales, strict=True), 2):
            if mode == "nearest":
                x = node.emit(relax.op.take(x, relax.const(_nearest(extent, size, scale), "int64"), axis))
                continue
            x = node.emit(times(x, sampling.weights(extent, size, scale).astype(str(x.ty.dtype)), axis, 4))
        return x

    return convert


def _scales(node: TorchNode, extents: list[int], sizes: tuple[int, ...]) -> list[float]:
    factors = node.arguments.get("scale_factors")
    if factors:
        return [float(factor) for factor in factors]
    return [size / extent for extent, size in zip(extents, sizes, strict=True)]


def _is_native(mode: str, coordinates: str, extents: list[int], sizes: tuple[int, ...], scales: list[float]) -> bool:
    """Tell whether resize2d computes exactly this."""
    if coordinates == "align_corners":
        return 1 not in sizes
    pairs = list(zip(extents, sizes, scales, strict=True))
    if mode == "nearest":  # by whole numbers no rounding of a position can fall on the other side
        return all(size % extent == 0 and scale == size // extent for extent, size, scale in pairs)
    return all(abs(extent * scale - size) < 1e-6 * size for extent, size, scale in pairs)


def _nearest(extent: int, size: int, scale: float) -> np.ndarray:
    """Return the index that each output copies, with PyTorch's rounding: in float32."""
    places = np.floor(np.arange(size, dtype="float32") * np.float32(1 / scale))
    return np.minimum(places, extent - 1).astype("int64")


def upsample_antialias(mode: str) -> Callable[[TorchNode], relax.Expr | None]:
    """Return the repair of upsampling with antialias, linear or cubic: two products with constant matrices.

    TVM leaves the antialias out of linear, and has no cubic.
    """

    def convert(node: TorchNode) -> relax.Expr | None:
        x = node["self"]
        extents = x.ty.shape.values[2:]
        if node["align_corners"] or not all(isinstance(extent, tirx.IntImm) for extent in extents):
            return None
        known = [int(extent) for extent in extents]
        sizes = node.result_shape[2:]
        given = [node.arguments.get(name) for name in ("scales_h", "scales_w")]
        factors = _scales(node, known, sizes) if None in given else [float(factor or 1) for factor in given]
        for axis, (extent, size, factor) in enumerate(zip(known, sizes, factors, strict=True), 2):
            matrix = _widening_kernels(mode, extent, size, factor)
            x = node.emit(times(x, matrix.astype(str(x.ty.dtype)), axis, 4))
        return x

    return convert


def _widening_kernels(mode: str, extent: int, size: int, scale: float) -> np.ndarray:
    """Return the matrix (extent, size) of kernels that widen when the image shrinks."""
    width = max(1.0, 1 / scale)
    centres = (np.arange(size) + 0.5) / scale
    distance = np.abs(np.arange(extent)[:, None] + 0.5 - centres) / width
    # Of cubic kernels PyTorch takes -0.5 here, as PIL does, and -0.75 where there is no antialias.
    weights = Sampling(mode, "half_pixel", "floor", -0.5, False).kernel(distance)
    return weights / weights.sum(axis=0)


def adaptive_max_pool(node: TorchNode) -> list[relax.Expr | None] | None:
    """Adaptive max pooling, which TVM does not have: one axis after the other, the largest of each window."""
    x = node["self"]
    read = [user.args[1] for user in node.fx.users]
    sizes = [int(size) for size in node["output_size"]]
    first = x.ty.ndim - len(sizes)
    if 1 in read or not all(isinstance(extent, tirx.IntImm) for extent in x.ty.shape.values[first:]):
        return None
    for axis, size in enumerate(sizes, first):
        x = _largest_of_windows(node, x, axis, size)
    return [x, None]


def _largest_of_windows(node: TorchNode, x: relax.Expr, axis: int, size: int) -> relax.Expr:
    shape = list(x.ty.shape.values)
    extent = int(shape[axis])
    if extent % size == 0:
        windows = node.emit(relax.op.reshape(x, [*shape[:axis], size, extent // size, *shape[axis + 1 :]]))
        return node.emit(relax.op.max(windows, [axis + 1]))
    largest = []
    for place in range(size):
        begin, end = place * extent // size, -(-(place + 1) * extent // size)
        window = node.emit(relax.op.strided_slice(x, [axis], [begin], [end]))
        largest.append(node.emit(relax.op.max(window, [axis], True)))
    return node.emit(relax.op.concat(largest, axis))


def avg_pool(pool: Callable[..., relax.Expr]) -> Callable[[TorchNode], relax.Expr | None]:
    """Return the repair of an average pooling with an empty stride, for the kernel's, or a divisor of its own.

    PyTorch writes the empty list where an argument follows it: `avg_pool2d(x, 2, ceil_mode=True)`. TVM hands it on,
    which Relax refuses, and drops the divisor.
    """

    def convert(node: TorchNode) -> relax.Expr | None:
        kernel, divisor = node["kernel_size"], node.arguments.get("divisor_override")
        if node["stride"] and divisor is None:
            return None
        x, ceil = node["self"], bool(node["ceil_mode"])
        stride, counted = node["stride"] or kernel, True if divisor else bool(node["count_include_pad"])
        if divisor and ceil:
            return None
        kept = {"padding": node["padding"], "ceil_mode": ceil, "count_include_pad": counted}
        pooled = _batched(node, x, len(kernel), lambda batch: pool(batch, kernel, stride, **kept))
        return pooled if divisor is None else node.emit(relax.op.multiply(pooled, as_tensor(prod(kernel) / divisor, x)))

    return convert


def max_pool(pool: Callable[..., relax.Expr]) -> Callable[[TorchNode], list[relax.Expr | None] | None]:
    """Return the repair of a max pooling with an empty stride, for the reason given at `avg_pool`."""

    def convert(node: TorchNode) -> list[relax.Expr | None] | None:
        if node["stride"] or 1 in [user.args[1] for user in node.fx.users]:
            return None
        kernel, ceil = node["kernel_size"], bool(node["ceil_mode"])
        kept = {"padding": node["padding"], "dilation": node["dilation"], "ceil_mode": ceil}
        return [_batched(node, node["self"], len(kernel), lambda batch: pool(batch, kernel, kernel, **kept)), None]

    return convert


def _batched(node: TorchNode, x: relax.Expr, rank: int, pool: Callable[[relax.Expr], relax.Expr]) -> relax.Expr:
    """Pool a tensor that may lack the axis of the batch, which PyTorch lets one leave out."""
    if x.ty.ndim == rank + 2:
        return node.emit(pool(x))
    return node.emit(relax.op.squeeze(node.emit(pool(node.emit(relax.op.expand_dims(x, [0])))), [0]))


def grid_sample(node: TorchNode) -> relax.Expr:
    """grid_sample with the grid as (N, 2, H, W), which Relax wants; TVM hands on PyTorch's (N, H, W, 2) unchanged."""
    grid = node.emit(relax.op.permute_dims(node["grid"], [0, 3, 1, 2]))
    return node.emit(
        relax.op.image.grid_sample(
            node["input"],
            grid,
            method=_GRID_METHODS[int(node["interpolation_mode"])],
            layout="NCHW",
            padding_mode=_GRID_PADDING[int(node["padding_mode"])],
            align_corners=bool(node["align_corners"]),
        )
    )
