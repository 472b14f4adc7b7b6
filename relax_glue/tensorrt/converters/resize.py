"""image.resize2d, image.resize3d, image.grid_sample, image.affine_grid.

Nearest-neighbour resizing is a choice of rows, and TVM's choice is computed here as TVM computes it. Where
one of the resize layer's modes makes the same choice, with no coordinate so close to a boundary that rounding
could move it, that mode is used; where none does (as for "round", which takes a tie to the even row), gather
layers with the row numbers are. So every nearest mode is exact.

Linear and cubic resizing differ between TVM and TensorRT only in rounding, for the coordinate modes that both
have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax

from ...ir.shapes import is_static, same
from ..expressions import Number
from ..extents import Dim, Extent, resolved
from ..registry import Refusal, converter
from .limits import FLOATS, MOVABLE, dtype_of, numpy_of, rank_of, refuse_tensors, shape_of, shown
from .nearest import COORDINATES, ROUNDINGS, layer_mode, tvm_rows
from .rows import computed_rows

if TYPE_CHECKING:
    from ..network import Network


_FACTORS = tuple(2**power for power in range(6))
_EXAMPLE = 8  # rows: more than any pattern of the factors needs
_LAYOUTS = {4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}
_SMOOTH = {
    "half_pixel": "HALF_PIXEL",
    "pytorch_half_pixel": "HALF_PIXEL",
    "align_corners": "ALIGN_CORNERS",
    "asymmetric": "ASYMMETRIC",
}


def _spatial(call: relax.Call) -> list[int]:
    """Return the axes that are resized."""
    rank = rank_of(call)
    first = 1 if str(call.attrs.layout).endswith("C") else 2
    return list(range(first, first + rank - 2))


def _sizes(call: relax.Call) -> list[tuple[Number, Number]]:
    """Return (input, output) extents of the resized axes."""
    given, wanted = shape_of(call.args[0]), shape_of(call)
    return [(given[axis], wanted[axis]) for axis in _spatial(call)]


def _accepts_resize(call: relax.Call) -> Refusal | str | None:
    method = str(call.attrs.method)
    said = refuse_tensors(call, MOVABLE if method == "nearest_neighbor" else FLOATS, args=[0])
    if said is not None:
        return said
    layouts = _LAYOUTS.get(rank_of(call.args[0]), ())
    if str(call.attrs.layout) not in layouts:
        return f"the layout {call.attrs.layout}; it has to be one of {', '.join(layouts)}"
    if dtype_of(call.args[0]) != str(call.ty.dtype):
        return f"it also casts {dtype_of(call.args[0])} to {call.ty.dtype}"
    if method == "nearest_neighbor":
        return _refuse_nearest(call)
    return _refuse_smooth(call, method, _sizes(call))


def _refuse_nearest(call: relax.Call) -> str | None:
    coordinates, rounding = str(call.attrs.coordinate_transformation_mode), str(call.attrs.rounding_method)
    if coordinates not in COORDINATES:
        return f"the coordinate mode {coordinates!r}"
    return None if not rounding or rounding in ROUNDINGS else f"the rounding method {rounding!r}"


def _refuse_smooth(call: relax.Call, method: str, sizes: Sequence[tuple[Number, Number]]) -> Refusal | str | None:
    coordinates = str(call.attrs.coordinate_transformation_mode)
    if method not in ("linear", "cubic"):
        return f"the method {method!r}"
    if method == "cubic" and len(sizes) != 2:
        return "cubic interpolation of three axes"
    if coordinates not in _SMOOTH:
        return Refusal(f"the coordinate mode {coordinates!r} with {method} interpolation", "use half_pixel")
    if coordinates == "align_corners" and any(isinstance(after, int) and after == 1 for _, after in sizes):
        return "align_corners to an extent of 1, which divides by 0"
    return None


@converter("relax.image.resize2d", "relax.image.resize3d", accepts=_accepts_resize, glue=True)
def resize(network: Network, call: relax.Call) -> Any:
    """Resize the spatial axes; for channels-last data, between two permutes."""
    x = network.tensor(call.args[0])
    if str(call.attrs.method) != "nearest_neighbor":
        return _channels_first(network, call, x, _smooth)
    found = _nearest_mode(call)
    if found is None or dtype_of(call.args[0]) not in FLOATS:
        return _pick(network, call, x)

    def nearest(network: Network, call: relax.Call, x: Any, dims: Sequence[Dim]) -> Any:
        trt = network.trt
        layer = _resize_layer(network, x, dims)
        layer.resize_mode = trt.InterpolationMode.NEAREST
        layer.coordinate_transformation = trt.ResizeCoordinateTransformation.__members__[found[0]]
        layer.nearest_rounding = trt.ResizeRoundMode.__members__[found[1]]
        return network.name(layer).get_output(0)

    return _channels_first(network, call, x, nearest)


def _nearest_mode(call: relax.Call) -> tuple[str, str] | None:
    """Return the coordinate transformation and the rounding of the layer that picks TVM's rows, or None.

    Symbolic extents are fine where one is the other times a power of two: every coordinate is exact then, and the
    rows repeat, so that one size shows how it is for all of them.
    """
    coordinates, rounding = str(call.attrs.coordinate_transformation_mode), str(call.attrs.rounding_method)
    sizes = [_example(before, after, coordinates) for before, after in _sizes(call)]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return None
    return layer_mode(known, [tvm_rows(before, after, coordinates, rounding) for before, after in known])


def _example(before: Number, after: Number, coordinates: str) -> tuple[int, int] | None:
    """Return extents whose rows are picked as those of all sizes are, the extents themselves if they are known."""
    if isinstance(before, int) and isinstance(after, int):
        return before, after
    if coordinates == "align_corners":
        return None
    for factor in _FACTORS:
        if same(after, before * factor):
            return _EXAMPLE, _EXAMPLE * factor
        # a single row is the first one, but not in the layer
        if same(before, after * factor) and coordinates != "pytorch_half_pixel":
            return _EXAMPLE * factor, _EXAMPLE
    return None


def _pick(network: Network, call: relax.Call, x: Any) -> Any:
    """Gather the rows of each axis; an axis that stays as it is needs no layer."""
    coordinates, rounding = str(call.attrs.coordinate_transformation_mode), str(call.attrs.rounding_method)
    for axis, (before, after) in zip(_spatial(call), _sizes(call), strict=True):
        if isinstance(before, int) and isinstance(after, int):
            rows = tvm_rows(before, after, coordinates, rounding)
            if before == after and (rows == np.arange(after)).all():
                continue
            chosen = network.constant(rows)
        else:
            chosen = computed_rows(network, before, after, coordinates, rounding)
        x = network.name(network.net.add_gather(x, chosen, axis), f"axis{axis}").get_output(0)
    return x


def _channels_first(network: Network, call: relax.Call, x: Any, add: Any) -> Any:
    known, given = shape_of(call), shape_of(call.args[0])
    rank = len(known)
    last = str(call.attrs.layout).endswith("C")
    perm = [0, rank - 1, *range(1, rank - 1)] if last else list(range(rank))
    kept = [not isinstance(extent, int) and same(extent, given[axis]) for axis, extent in enumerate(known)]
    dims: list[Dim] = [Extent(place) if kept[axis] else known[axis] for place, axis in enumerate(perm)]
    if not last:
        return add(network, call, x, dims)
    resized = add(network, call, network.transpose(x, perm), dims)
    return network.transpose(resized, [0, *range(2, rank), 1])


def _smooth(network: Network, call: relax.Call, x: Any, dims: Sequence[Dim]) -> Any:
    trt = network.trt
    coordinates = str(call.attrs.coordinate_transformation_mode)
    layer = _resize_layer(network, x, dims)
    layer.resize_mode = trt.InterpolationMode.__members__[str(call.attrs.method).upper()]
    layer.coordinate_transformation = trt.ResizeCoordinateTransformation.__members__[_SMOOTH[coordinates]]
    if coordinates == "pytorch_half_pixel":  # a single output pixel is the first, not the middle one
        layer.selector_for_single_pixel = trt.ResizeSelector.UPPER
    if str(call.attrs.method) == "cubic":
        layer.cubic_coeff = float(call.attrs.cubic_alpha)
        layer.exclude_outside = bool(int(call.attrs.cubic_exclude))
    return network.name(layer).get_output(0)


def _resize_layer(network: Network, x: Any, dims: Sequence[Dim]) -> Any:
    static = [dim for dim in resolved(dims, tuple(x.shape)) if isinstance(dim, int)]
    if len(static) == len(dims):
        layer = network.net.add_resize(x)
        layer.shape = static
        return layer
    size = network.extents.vector(dims, x)
    layer = network.net.add_resize(x)
    layer.set_input(1, size)
    return layer


_SAMPLING = {"nearest": "NEAREST", "bilinear": "LINEAR", "bicubic": "CUBIC"}
_PADDING = {"zeros": "FILL", "border": "CLAMP", "reflection": "REFLECT"}


def _accepts_grid_sample(call: relax.Call) -> Refusal | str | None:
    said = refuse_tensors(call, FLOATS)
    if said is not None:
        return said
    if str(call.attrs.layout) != "NCHW" or rank_of(call.args[0]) != 4:
        return f"the layout {call.attrs.layout} of rank {rank_of(call.args[0])}; it has to be NCHW"
    if str(call.attrs.method) not in _SAMPLING or str(call.attrs.padding_mode) not in _PADDING:
        return f"the method {call.attrs.method!r} with the padding mode {call.attrs.padding_mode!r}"
    lone = not all(isinstance(extent, int) and extent > 1 for extent in shape_of(call.args[0])[2:])
    if str(call.attrs.padding_mode) == "reflection" and bool(call.attrs.align_corners) and lone:
        return "reflection between the corners of an extent that is 1 or symbolic"
    grid = shape_of(call.args[1])
    if len(grid) != 4 or not isinstance(grid[1], int) or grid[1] != 2:
        return f"the grid is {call.args[1].ty}; it has to have its two coordinates along axis 1, as (N, 2, H, W)"
    if len({dtype_of(arg) for arg in call.args}) > 1:
        return f"the grid is {dtype_of(call.args[1])}, the data {dtype_of(call.args[0])}"
    return None


@converter("relax.image.grid_sample", accepts=_accepts_grid_sample)
def grid_sample(network: Network, call: relax.Call) -> Any:
    """Sample at the coordinates of a grid, which TensorRT wants as (N, H, W, 2)."""
    trt = network.trt
    grid = network.transpose(network.tensor(call.args[1]), [0, 2, 3, 1])
    layer = network.net.add_grid_sample(network.tensor(call.args[0]), grid)
    layer.interpolation_mode = trt.InterpolationMode.__members__[_SAMPLING[str(call.attrs.method)]]
    layer.sample_mode = trt.SampleMode.__members__[_PADDING[str(call.attrs.padding_mode)]]
    layer.align_corners = bool(call.attrs.align_corners)
    return network.name(layer).get_output(0)


def _accepts_affine_grid(call: relax.Call) -> Refusal | str | None:
    said = refuse_tensors(call, FLOATS, args=[0])
    if said is not None:
        return said
    size = shape_of(call)[2:]
    if not is_static(size):
        return Refusal(f"the grid has the symbolic size {shown(size)}", "bind the symbolic dimensions to numbers")
    if bool(call.attrs.align_corners) and min(size) < 2:
        return f"corners of a grid of {size}, which divides by 0"
    return None


@converter("relax.image.affine_grid", accepts=_accepts_affine_grid)
def affine_grid(network: Network, call: relax.Call) -> Any:
    """Multiply the matrices with the constant coordinates of a grid, x first, over -1 to 1."""
    theta = network.tensor(call.args[0])
    shape = shape_of(call)
    align = bool(call.attrs.align_corners)
    axes = [np.linspace(-1, 1, size) if align else (2 * np.arange(size) + 1) / size - 1 for size in shape[2:]]
    rows = np.stack([*reversed(np.meshgrid(*axes, indexing="ij")), np.ones(shape[2:])]).reshape(1, len(axes) + 1, -1)
    fixed = network.constant(rows.astype(numpy_of(call)))
    plain = network.trt.MatrixOperation.NONE
    layer = network.net.add_matrix_multiply(theta, plain, fixed, plain)
    return network.reshape(network.name(layer).get_output(0), shape)
