"""Resize in all its spellings.

relax.image.resize2d takes a size and derives the scale from it, so it computes what ONNX means only where the scale is
the ratio of the sizes. Everything else is still a fixed linear map along each axis, and is written as that: a take for
nearest, and a product with a constant matrix for linear and cubic.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

import numpy as np
from tvm import relax

from relax_glue.frontend.symbolic import Element, Quotient

from .node import OnnxNode, dtype_of, extents_of

METHODS = MappingProxyType({"nearest": "nearest_neighbor", "linear": "linear", "cubic": "cubic"})
NATIVE_COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
OTHER_COORDINATES = ("half_pixel_symmetric", "tf_half_pixel_for_nn")
MAX_DENOMINATOR = 1 << 10
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
        if self.coordinates == "tf_half_pixel_for_nn":
            return (at + 0.5) / scale
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


@dataclass(frozen=True)
class Target:
    """What a Resize makes of each axis.

    Attributes
    ----------
    extents, sizes : list of int or tirx.PrimExpr
        What there is, and what there is to be.
    scales : list of float or None
        By what, for an axis whose scale is a number.
    exact : list of bool
        Whether the scale is the ratio of the sizes, as relax.image.resize2d takes it.
    """

    extents: list[Element]
    sizes: list[Element]
    scales: list[float | None]
    exact: list[bool]

    def changed(self, node: OnnxNode) -> list[int]:
        """Return the axes that do not stay as they are."""
        same = node.facts.arithmetic.same
        return [
            axis
            for axis, (extent, size, scale) in enumerate(zip(self.extents, self.sizes, self.scales, strict=True))
            if not same(extent, size) or scale not in (1, None)
        ]


def resize(node: OnnxNode) -> relax.Expr | None:
    """Resize: relax.image.resize2d where that is exact, else one fixed map for each axis of known size.

    TVM's converter refuses opset 10 (scales are the second operand there), operands that are present but empty, the
    attribute axes, sizes computed from free extents, and resizing of one axis only where the rank is 3 (a call_tir). It
    takes the ratio of the sizes for the scale (0.6 on 4 gives 2, and the scale 0.5), and does not read
    half_pixel_symmetric and antialias.
    """
    sampling = Sampling.of(node)
    if sampling.coordinates == "tf_crop_and_resize":
        return None
    if sampling.coordinates not in NATIVE_COORDINATES + OTHER_COORDINATES:
        raise node.refuse(f"ONNX has no coordinate_transformation_mode '{sampling.coordinates}'")
    extents = extents_of(node.inputs[0])
    if extents is None:
        raise node.refuse("the extents of its input are not known; fix the input shapes through input_shapes")
    target = _target(node, extents)
    changed = target.changed(node)
    if node.attrs.get("antialias", 0) and any(_shrinks(node, target, axis) for axis in changed):
        raise node.refuse("antialias when scaling down has no counterpart in Relax; export it with antialias=0")
    if not changed:
        return node.inputs[0]
    known = all(isinstance(side[axis], int) for axis in changed for side in (target.extents, target.sizes))
    if not known:
        return _free_resize(node, sampling, target, changed)
    if _is_native(node, sampling, target, changed):
        return _resize2d(node, sampling, target.sizes)
    return _along_axes(node, sampling, target, changed)


def _shrinks(node: OnnxNode, target: Target, axis: int) -> bool:
    return node.facts.arithmetic.less(target.sizes[axis], target.extents[axis]) is not False


def _free_resize(node: OnnxNode, sampling: Sampling, target: Target, changed: list[int]) -> relax.Expr:
    """Return a resize2d of free extents, after asking at the entry for what makes it exact."""
    if not _has_native_form(node, sampling, len(target.extents), changed):
        raise node.refuse(
            f"mode '{sampling.mode}' with coordinates '{sampling.coordinates}' on axes {changed} of rank "
            f"{len(target.extents)} and free extents; relax.image.resize2d takes 'nearest', 'linear' and 'cubic' of "
            f"floats with {', '.join(NATIVE_COORDINATES)} on the last two of four axes, other forms need their axes "
            "fixed through input_shapes"
        )
    if sampling.coordinates == "align_corners":
        for axis in changed:  # TVM divides by size - 1
            node.require_least(target.sizes[axis], 2)
    whole = {axis: _whole_extent(node, target, axis) for axis in changed if not target.exact[axis]}
    if whole:
        ends = list(whole.values())
        cut = relax.op.strided_slice(node.inputs[0], list(whole), [0] * len(whole), ends, assume_inbound=True)
        node.inputs[0] = node.emit(cut)
    return _resize2d(node, sampling, target.sizes)


def _whole_extent(node: OnnxNode, target: Target, axis: int) -> Element:
    """Return how much of an axis a scale below 1 reads, where that is a whole number for every size.

    To a half, 9 rows give 4, at the scale 0.5 and not 4 / 9: the last row is not read, so it can go.
    """
    inverse = 1 / (target.scales[axis] or 1)
    if inverse < 1 or abs(inverse - round(inverse)) > EXACT * inverse:
        node.require_equal(*_sides_of_ratio(node, target, axis))
        return target.extents[axis]
    return node.facts.arithmetic.multiply(target.sizes[axis], round(inverse))


def _sides_of_ratio(node: OnnxNode, target: Target, axis: int) -> tuple[Element, Element]:
    """Return two integers that are equal where the scale is the ratio of the sizes."""
    ratio = _simple_ratio(target.scales[axis] or 1)
    multiply = node.facts.arithmetic.multiply
    return (
        multiply(target.sizes[axis], ratio.denominator),
        multiply(target.extents[axis], ratio.numerator),
    )


def upsample(node: OnnxNode) -> relax.Expr | None:
    """Upsample, the older name of Resize; TVM's converter raises TypeError on every one of them."""
    if node.opset < 9:
        node.inputs.append(relax.const(np.array(node.attrs["scales"], "float32"), "float32"))
    result = resize(node)
    if result is None:
        raise node.refuse("its scales or the extents of its input are not known")
    return result


def _target(node: OnnxNode, extents: list[Element]) -> Target:
    """Return the size and the scale of every axis."""
    axes = [axis % len(extents) for axis in node.attrs.get("axes", range(len(extents)))]
    scales, sizes = _present(node, 1 if node.opset < 11 else 2), _present(node, 3)
    if scales is None and sizes is None:
        raise node.refuse("its size is computed while the model runs; fix the input shapes through input_shapes")
    target = Target(extents, list(extents), [1.0] * len(extents), [True] * len(extents))
    if sizes is not None:
        _by_sizes(node, axes, sizes, target)
        return target
    for axis, scale in zip(axes, scales or (), strict=True):
        _by_scale(node, axis, scale, target)
    return target


def _present(node: OnnxNode, index: int) -> list[Element] | None:
    """Return an operand; an empty one stands for one left out."""
    elements = node.elements(index)
    if elements is None and node.input(index) is not None:
        raise node.refuse("its size is computed while the model runs; fix the input shapes through input_shapes")
    return elements or None


def _by_scale(node: OnnxNode, axis: int, scale: Element, target: Target) -> None:
    """Fill in the size of an axis from its scale: a number, or a quotient of sizes as an exporter calculates it."""
    extent, arithmetic = target.extents[axis], node.facts.arithmetic
    if isinstance(scale, Quotient):
        size = arithmetic.divide(arithmetic.multiply(extent, scale.numerator), scale.denominator)
        node.require_equal(arithmetic.multiply(size, scale.denominator), arithmetic.multiply(extent, scale.numerator))
        target.sizes[axis], target.scales[axis] = size, None
        return
    target.scales[axis] = float(scale)
    if isinstance(extent, int):
        # A float32 scale such as 2.6666667 must not lose the last pixel to rounding.
        target.sizes[axis] = int(np.floor(extent * scale * (1 + EXACT)))
        target.exact[axis] = abs(extent * scale - target.sizes[axis]) <= EXACT * max(1, target.sizes[axis])
        return
    ratio = _simple_ratio(float(scale))
    target.sizes[axis] = arithmetic.floor_divide(arithmetic.multiply(extent, ratio.numerator), ratio.denominator)
    target.exact[axis] = arithmetic.same(*_sides_of_ratio(node, target, axis))


def _simple_ratio(scale: float) -> Fraction:
    """Return the fraction that a float32 scale stands for."""
    return Fraction(scale).limit_denominator(MAX_DENOMINATOR)


def _by_sizes(node: OnnxNode, axes: list[int], given: list[Element], target: Target) -> None:
    """Fill in sizes and scales from wanted sizes, under the policy for the aspect ratio."""
    known = True
    for axis, size in zip(axes, given, strict=True):
        extent = target.extents[axis]
        target.sizes[axis] = size
        is_known = isinstance(extent, int) and isinstance(size, int)
        target.scales[axis] = size / extent if is_known else None
        known = known and is_known
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return
    if not known:
        raise node.refuse(f"keep_aspect_ratio_policy '{policy}' on a free axis; fix the axis through input_shapes")
    common = (min if policy == "not_larger" else max)(target.scales[axis] or 1 for axis in axes)
    for axis in axes:
        extent = target.extents[axis]
        size = int(np.floor(extent * common + 0.5))
        target.sizes[axis], target.scales[axis] = size, common
        target.exact[axis] = abs(extent * common - size) <= EXACT * max(1, size)


def _has_native_form(node: OnnxNode, sampling: Sampling, rank: int, changed: list[int]) -> bool:
    """Tell whether relax.image.resize2d has the mode, on these axes and this element type."""
    if sampling.mode not in METHODS or rank not in (3, 4) or not set(changed) <= ({2, 3} if rank == 4 else {2}):
        return False
    of_nearest = sampling.mode == "nearest" and sampling.coordinates == "tf_half_pixel_for_nn"
    return (of_nearest or sampling.coordinates in NATIVE_COORDINATES) and dtype_of(node.inputs[0]).kind == "f"


def _is_native(node: OnnxNode, sampling: Sampling, target: Target, changed: list[int]) -> bool:
    """Tell whether relax.image.resize2d computes exactly this."""
    rank = len(target.extents)
    if not _has_native_form(node, sampling, rank, changed):
        return False
    # For align_corners TVM divides by size - 1 on both axes, also where the only position is 0.
    ones = any(isinstance(size, int) and size == 1 for size in target.sizes[2:])
    if sampling.coordinates == "align_corners" and (rank == 3 or ones):
        return False
    return all(target.exact[axis] for axis in changed)


def _resize2d(node: OnnxNode, sampling: Sampling, sizes: list[Element]) -> relax.Expr:
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


def _along_axes(node: OnnxNode, sampling: Sampling, target: Target, changed: list[int]) -> relax.Expr:
    """Resize one axis after the other by a fixed map."""
    x, dtype = node.inputs[0], dtype_of(node.inputs[0])
    if sampling.mode != "nearest" and dtype.kind != "f":
        raise node.refuse(f"mode '{sampling.mode}' on {dtype.name} is not defined; cast it to a float type first")
    for axis in changed:
        extent, size, scale = target.extents[axis], target.sizes[axis], target.scales[axis] or 1.0
        if sampling.mode == "nearest":
            index = sampling.nearest(extent, size, scale)
            x = node.emit(relax.op.take(x, relax.const(index, "int64"), axis))
            continue
        matrix = sampling.weights(extent, size, scale).astype(dtype)
        x = node.emit(times(x, matrix, axis, len(target.extents)))
    return x


def times(x: relax.Expr, matrix: np.ndarray, axis: int, rank: int) -> relax.Expr:
    """Multiply by a matrix (extent, size) along an axis of a tensor of this rank."""
    weights = relax.const(matrix, matrix.dtype.name)
    if axis == rank - 1:
        return relax.op.matmul(x, weights)
    swapped = list(range(rank))
    swapped[axis], swapped[-1] = swapped[-1], swapped[axis]
    return relax.op.permute_dims(relax.op.matmul(relax.op.permute_dims(x, swapped), weights), swapped)
