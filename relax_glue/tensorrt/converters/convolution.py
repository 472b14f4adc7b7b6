"""Convolutions and transposed convolutions over one to three spatial axes, in any layout.

Constant kernels are brought into TensorRT's order in numpy; computed ones are the layer's second input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax

from ..extents import Dim
from ..registry import Refusal, converter
from ..slices import add_slice
from .arith import extent_of, open_dims, refuse_arithmetic
from .gemm import convolution_product, transposed_product
from .layouts import (
    data_axes,
    from_layer,
    kernel_axes,
    padded,
    refuse_layout,
    split_padding,
    to_layer,
)
from .limits import FLOATS, constant_of, dtype_of, shape_of, static_shape

if TYPE_CHECKING:
    from ..network import Network

_CONV = {"relax.nn.conv1d": 1, "relax.nn.conv2d": 2, "relax.nn.conv3d": 3}
_DECONV = {f"{name}_transpose": spatial for name, spatial in _CONV.items()}


def _accepts(call: relax.Call) -> Refusal | str | None:
    transposed = call.op.name in _DECONV
    spatial = _DECONV[call.op.name] if transposed else _CONV[call.op.name]
    said = refuse_arithmetic(call, FLOATS)
    if said is not None:
        return said
    attrs = call.attrs
    axes = data_axes(spatial)
    refused = (
        refuse_layout(attrs.data_layout, axes)
        or refuse_layout(attrs.out_layout or attrs.data_layout, axes)
        or refuse_layout(attrs.kernel_layout, kernel_axes(spatial, transposed))
    )
    if refused is not None:
        return Refusal(refused, "convert the layout first")
    if static_shape(call.args[1]) is None:
        return Refusal("the shape of the kernel is symbolic", "bind the symbolic dimensions to numbers")
    if extent_of(call.args[0], attrs.data_layout.index("C")) is None:
        return Refusal("the number of channels is symbolic", "bind the symbolic dimensions to numbers")
    return _refuse_transposed(call) if transposed else None


def _refuse_transposed(call: relax.Call) -> Refusal | None:
    """Refuse what the layer lacks where the kernel that could make up for it is not known."""
    if _spreads_kernel(call) and constant_of(call.args[1]) is None:
        return Refusal(
            f"the kernel is computed, with strides {list(call.attrs.strides)} and dilation "
            f"{list(call.attrs.dilation)}; the layer takes one or the other",
            "make the kernel a constant",
        )
    return None


def _spreads_kernel(call: relax.Call) -> bool:
    """Say whether a dilation has to be zeros in the kernel: the layer has no dilation with a stride."""
    return max(call.attrs.dilation) > 1 and max(call.attrs.strides) > 1


def _growth(call: relax.Call, spatial: int) -> tuple[int, ...]:
    """Return by how much output_padding exceeds the padding at each axis' end."""
    _, post = split_padding(call.attrs.padding, spatial)
    extra = padded(call.attrs.output_padding, spatial, 0)
    return tuple(more - end for more, end in zip(extra, post, strict=True))


@converter(*_CONV, accepts=_accepts)
def convolution(network: Network, call: relax.Call) -> Any:
    """One convolution layer, between shuffles where the layout is not TensorRT's, or a product (`gemm`)."""
    multiplied = convolution_product(network, call)
    if multiplied is not None:
        return multiplied
    spatial = _CONV[call.op.name]
    axes = data_axes(spatial)
    layer = _layer(network, call, spatial, dtype_of(call), transposed=False)
    layer.pre_padding, layer.post_padding = split_padding(call.attrs.padding, spatial)
    return from_layer(network, layer.get_output(0), axes, call.attrs.out_layout or call.attrs.data_layout)


@converter(*_DECONV, accepts=_accepts)
def transposed_convolution(network: Network, call: relax.Call) -> Any:
    """One deconvolution layer. TensorRT has no output padding: it is less padding at the end, then zeros.

    The layer has no bfloat16, so that is computed in float32. A product may do better (`gemm`).
    """
    multiplied = transposed_product(network, call)
    if multiplied is not None:
        return multiplied
    spatial = _DECONV[call.op.name]
    axes = data_axes(spatial)
    dtype = dtype_of(call)
    layer = _layer(network, call, spatial, "float32" if dtype == "bfloat16" else dtype, transposed=True)
    growth = _growth(call, spatial)
    layer.pre_padding = split_padding(call.attrs.padding, spatial)[0]
    layer.post_padding = tuple(max(-more, 0) for more in growth)
    out = _grow(network, layer.get_output(0), growth, [1, *_spatial_extents(call)][-len(growth) :])
    out = from_layer(network, out, axes, call.attrs.out_layout or call.attrs.data_layout)
    return network.cast(out, dtype)


def _layer(network: Network, call: relax.Call, spatial: int, dtype: str, transposed: bool) -> Any:
    """Add the layer with all but its padding, which the two operators have in different ways."""
    attrs = call.attrs
    x = network.cast(to_layer(network, network.tensor(call.args[0]), attrs.data_layout, data_axes(spatial)), dtype)
    order = kernel_axes(spatial, transposed)
    extents_of = dict(zip(attrs.kernel_layout, static_shape(call.args[1]) or (), strict=True))
    window = padded([extents_of[axis] for axis in order[2:]], spatial, 1)
    dilation = padded(attrs.dilation, spatial, 1)
    groups = int(attrs.groups)
    maps = extents_of["O"] * (groups if transposed else 1)
    kernel = network.array(call.args[1])
    if kernel is not None:
        kernel = kernel.transpose([attrs.kernel_layout.index(axis) for axis in order])
        kernel = kernel.reshape((*kernel.shape[:2], *window)).astype(dtype)
        if transposed and _spreads_kernel(call):
            kernel, dilation = _spread(kernel, dilation), (1,) * len(window)
            window = kernel.shape[2:]
    computed = None  # an input's layers stand before the one that reads it
    if kernel is None:
        computed = to_layer(network, network.tensor(call.args[1]), attrs.kernel_layout, order)
        computed = network.cast(computed, dtype)
    elif dtype == "bfloat16":  # as weights of the layer, Python could not read it back
        computed = network.constant(kernel)
    weights = network.trt.Weights() if kernel is None or computed is not None else network.weights(kernel)
    add = network.net.add_deconvolution_nd if transposed else network.net.add_convolution_nd
    layer = network.name(add(x, maps, window, weights))
    if computed is not None:
        layer.set_input(1, computed)
    layer.stride_nd = padded(attrs.strides, spatial, 1)
    layer.dilation_nd = dilation
    layer.num_groups = groups
    return layer


def _spread(kernel: np.ndarray, dilation: tuple[int, ...]) -> np.ndarray:
    """Put zeros between the taps of a kernel."""
    extents = [(extent - 1) * step + 1 for extent, step in zip(kernel.shape[2:], dilation, strict=True)]
    found = np.zeros((*kernel.shape[:2], *extents), kernel.dtype)
    found[(slice(None), slice(None), *(slice(None, None, step) for step in dilation))] = kernel
    return found


def _spatial_extents(call: relax.Call) -> list[Dim]:
    """Return the extents of the spatial axes of the result."""
    known, layout = shape_of(call), call.attrs.out_layout or call.attrs.data_layout
    return [known[layout.index(name)] for name in data_axes(_DECONV[call.op.name])[2:]]


def _grow(network: Network, x: Any, growth: tuple[int, ...], extents: Sequence[Dim]) -> Any:
    """Append zeros to each spatial axis that has to grow, until it has its extent."""
    if max(growth) <= 0:
        return x
    size = open_dims(x.shape)
    for axis, (more, extent) in enumerate(zip(growth, extents, strict=True), start=2):
        size[axis] = extent if more > 0 else size[axis]
    return add_slice(network, x, (0,) * len(size), size, mode="FILL", suffix="output_padding")
