"""Resize in all its spellings.

relax.image.resize2d takes a size and derives the scale from it, so it computes what ONNX means only where the scale is
the ratio of the sizes. Everything else is still a fixed linear map along each axis, and is written as that: a take for
nearest, and a product with a constant matrix for linear and cubic.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from tvm import relax

from .node import OnnxNode, dtype_of, extents_of

METHODS = MappingProxyType({"nearest": "nearest_neighbor", "linear": "linear", "cubic": "cubic"})
NATIVE_COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
EXACT = 1e-6  # relative: scales are float32, so 2.6666667 on 3 is 8


@dataclass(frozen=True)
class Sampling:
    """How positions of the output fall on positions of the input.

    Attributes
    ----------
    mode, coordinates, rounding : str
        The ONNX attributes mode, coordinate_transformation_mode and nearest_mode.
    cubic_a : float
        The coefficient of the cubic kernel.
    exclude_outside : bool
        Whether what falls outside the input has no weight, rather than the weight of the border.
    """

    mode: str
    coordinates: str
    rounding: str
    cubic_a: float
    exclude_outside: bool

    @staticmethod
    def of(node: OnnxNode) -> Sampling:
        """Read the attributes; opset 10 had none of them, and meant asymmetric and floor."""
        old = node.opset < 11
        return Sampling(
            {"bilinear": "linear"}.get(node.text("mode", "nearest"), node.text("mode", "nearest")),
            node.text("coordinate_transformation_mode", "asymmetric" if old else "half_pixel"),
            node.text("nearest_mode", "floor" if old else "round_prefer_floor"),
            float(node.attrs.get("cubic_coeff_a", -0.75)),
            bool(node.attrs.get("exclude_outside", 0)),
        )

    def positions(self, extent: int, size: int, scale: float) -> np.ndarray:
        """Return for each of `size` outputs its position, in units of the `extent` inputs."""
        at = np.arange(size, dtype="float64")
        if self.coordinates == "asymmetric":
            return at / scale
        if self.coordinates == "align_corners":
            return at * (extent - 1) / (size - 1) if size > 1 else np.zeros(size)
        if self.coordinates == "pytorch_half_pixel" and size == 1:
            return np.zeros(size)
        shift = 0.0
        if self.coordinates == "half_pixel_symmetric":
            shift = extent / 2 * (1 - size / (scale * extent))
        return shift + (at + 0.5) / scale - 0.5

    def nearest(self, extent: int, size: int, scale: float) -> np.ndarray:
        """Return for each output the index of the input that it copies."""
        at = self.positions(extent, size, scale)
        chosen = {
            "round_prefer_floor": np.ceil(at - 0.5),
            "round_prefer_ceil": np.floor(at + 0.5),
            "floor": np.floor(at),
            "ceil": np.ceil(at),
        }[self.rounding]
        return np.clip(chosen, 0, extent - 1).astype("int64")

    def weights(self, extent: int, size: int, scale: float) -> np.ndarray:
        """Return the matrix (extent, size) whose columns are the weights of the inputs for each output."""
        at = self.positions(extent, size, scale)
        first = np.floor(at).astype("int64")
        matrix = np.zeros((extent, size))
        taps = (0, 1) if self.mode == "linear" else (-1, 0, 1, 2)
        for tap in taps:
            index = first + tap
            weight = self.kernel(np.abs(at - index))
            if self.exclude_outside:
                weight = np.where((index < 0) | (index >= extent), 0.0, weight)
            np.add.at(matrix, (np.clip(index, 0, extent - 1), np.arange(size)), weight)
        return matrix / matrix.sum(axis=0) if self.exclude_outside else matrix

    def kernel(self, distance: np.ndarray) -> np.ndarray:
        """Return the weight of an input at a distance, 0 or more, from the position."""
        if self.mode == "linear":
            return np.maximum(0.0, 1 - distance)
        a = self.cubic_a
        near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        far = ((distance - 5) * distance + 8) * distance * a - 4 * a
        return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


def resize(node: OnnxNode) -> relax.Expr | None:
    """Resize of known size: relax.image.resize2d where that is exact, else one fixed map for each axis.

    TVM's converter refuses opset 10 (scales are the second operand there), operands that are present but empty, the
    attribute axes and resizing of one axis only where the rank is 3 (a call_tir). It takes the ratio of the sizes for
    the scale (0.6 on 4 gives 2, and the scale 0.5), and does not read half_pixel_symmetric and antialias.
    """
    sampling = Sampling.of(node)
    if sampling.coordinates == "tf_crop_and_resize":
        return None
    extents = extents_of(node.inputs[0])
    if extents is None:
        raise node.refuse("the extents of its input are not known; fix the input shapes through input_shapes")
    sizes, scales = _target(node, extents)
    changed = [axis for axis, extent in enumerate(extents) if sizes[axis] is not extent and sizes[axis] != extent]
    changed += [axis for axis, scale in enumerate(scales) if scale != 1 and axis not in changed]
    if node.attrs.get("antialias", 0) and any(scales[axis] < 1 for axis in changed):
        raise node.refuse("antialias when scaling down has no counterpart in Relax; export it with antialias=0")
    if not changed:
        return node.inputs[0]
    if not all(isinstance(extents[axis], int) for axis in changed):
        return _resize2d(node, sampling, sizes) if _is_native(node, sampling, extents, sizes, scales, changed) else None
    if _is_native(node, sampling, extents, sizes, scales, changed):
        return _resize2d(node, sampling, sizes)
    return _along_axes(node, sampling, extents, sizes, scales, changed)


def upsample(node: OnnxNode) -> relax.Expr | None:
    """Upsample, the older name of Resize; TVM's converter raises TypeError on every one of them."""
    if node.opset < 9:
        node.inputs.append(relax.const(np.array(node.attrs["scales"], "float32"), "float32"))
    result = resize(node)
    if result is None:
        raise node.refuse("its scales or the extents of its input are not known")
    return result


def _target(node: OnnxNode, extents: list[Any]) -> tuple[list[Any], list[float]]:
    """Return the size and the scale of every axis."""
    axes = [axis % len(extents) for axis in node.attrs.get("axes", range(len(extents)))]
    scales_at = 1 if node.opset < 11 else 2
    given_scales, given_sizes = _present(node, scales_at), _present(node, 3)
    if given_scales is None and given_sizes is None:
        raise node.refuse("its size is computed while the model runs; fix the input shapes through input_shapes")
    sizes: list[Any] = list(extents)
    scales = [1.0] * len(extents)
    if given_sizes is not None:
        _by_sizes(node, axes, [int(size) for size in given_sizes], extents, sizes, scales)
        return sizes, scales
    for axis, scale in zip(axes, given_scales if given_scales is not None else (), strict=True):
        scales[axis] = float(scale)
        sizes[axis] = _scaled(node, extents[axis], float(scale))
    return sizes, scales


def _present(node: OnnxNode, index: int) -> np.ndarray | None:
    """Return a constant operand; an empty one stands for one left out."""
    value = node.constant(index)
    if value is None and node.input(index) is not None:
        raise node.refuse("its size is computed while the model runs; fix the input shapes through input_shapes")
    return value if value is not None and value.size else None


def _scaled(node: OnnxNode, extent: Any, scale: float) -> Any:
    if scale == 1:
        return extent
    if isinstance(extent, int):
        # A float32 scale such as 2.6666667 must not lose the last pixel to rounding.
        return int(np.floor(extent * scale * (1 + EXACT)))
    if scale != int(scale):
        raise node.refuse(f"scale {scale} on a free axis gives no whole size; fix the axis through input_shapes")
    return extent * int(scale)


def _by_sizes(
    node: OnnxNode, axes: list[int], given: list[int], extents: list[Any], sizes: list[Any], scales: list[float]
) -> None:
    """Fill in sizes and scales from wanted sizes, under the policy for the aspect ratio."""
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    for axis, size in zip(axes, given, strict=True):
        if not isinstance(extents[axis], int):
            raise node.refuse(f"it resizes the free axis {axis} to {size}; fix the axis through input_shapes")
        sizes[axis], scales[axis] = size, size / extents[axis]
    if policy == "stretch":
        return
    common = (min if policy == "not_larger" else max)(scales[axis] for axis in axes)
    for axis in axes:
        sizes[axis], scales[axis] = int(np.floor(extents[axis] * common + 0.5)), common


def _is_native(
    node: OnnxNode, sampling: Sampling, extents: list[Any], sizes: list[Any], scales: list[float], changed: list[int]
) -> bool:
    """Tell whether relax.image.resize2d computes exactly this."""
    if sampling.mode not in METHODS or not set(changed) <= ({2, 3} if len(extents) == 4 else {2}):
        return False
    if (
        len(extents) not in (3, 4)
        or sampling.coordinates not in NATIVE_COORDINATES
        or dtype_of(node.inputs[0]).kind != "f"
    ):
        return False
    # For align_corners TVM divides by size - 1 on both axes, also where the only position is 0.
    if sampling.coordinates == "align_corners" and (len(extents) == 3 or 1 in sizes[2:]):
        return False
    return all(
        abs(extents[axis] * scales[axis] - sizes[axis]) <= EXACT * max(1, sizes[axis])
        for axis in changed
        if isinstance(extents[axis], int)
    )


def _resize2d(node: OnnxNode, sampling: Sampling, sizes: list[Any]) -> relax.Expr:
    """Return a resize2d; of a tensor of rank 3 with an axis of extent 1 put in and taken out."""
    x = node.inputs[0]
    flat = len(sizes) == 3
    result = relax.op.image.resize2d(
        relax.op.expand_dims(x, 2) if flat else x,
        relax.ShapeExpr([1, sizes[2]] if flat else sizes[2:]),
        layout="NCHW",
        method=METHODS[sampling.mode],
        coordinate_transformation_mode=sampling.coordinates,
        rounding_method=sampling.rounding,
        cubic_alpha=sampling.cubic_a,
        cubic_exclude=int(sampling.exclude_outside),
    )
    return relax.op.squeeze(result, [2]) if flat else result


def _along_axes(
    node: OnnxNode, sampling: Sampling, extents: list[Any], sizes: list[Any], scales: list[float], changed: list[int]
) -> relax.Expr:
    """Resize one axis after the other by a fixed map."""
    x, dtype = node.inputs[0], dtype_of(node.inputs[0])
    if sampling.mode != "nearest" and dtype.kind != "f":
        raise node.refuse(f"mode '{sampling.mode}' on {dtype.name} is not defined; cast it to a float type first")
    for axis in changed:
        if sampling.mode == "nearest":
            index = sampling.nearest(extents[axis], sizes[axis], scales[axis])
            x = node.emit(relax.op.take(x, relax.const(index, "int64"), axis))
            continue
        matrix = sampling.weights(extents[axis], sizes[axis], scales[axis]).astype(dtype)
        x = node.emit(times(x, matrix, axis, len(extents)))
    return x


def times(x: relax.Expr, matrix: np.ndarray, axis: int, rank: int) -> relax.Expr:
    """Multiply by a matrix (extent, size) along an axis of a tensor of this rank."""
    weights = relax.const(matrix, matrix.dtype.name)
    if axis == rank - 1:
        return relax.op.matmul(x, weights)
    swapped = list(range(rank))
    swapped[axis], swapped[-1] = swapped[-1], swapped[axis]
    return relax.op.permute_dims(relax.op.matmul(relax.op.permute_dims(x, swapped), weights), swapped)
