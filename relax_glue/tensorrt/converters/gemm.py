"""Convolutions as matrix products, where TensorRT's kernels for them leave most of the GPU idle.

TensorRT-RTX 1.5 computes a float32 convolution without TF32 in tiles of 128 pixels by 128 channels, whatever its
size: a map of 20 x 20 pixels and 64 channels is four tiles, so four of an H200's 132 multiprocessors work. For matrix
products it has tiles of many sizes. Measured there, with both as CUDA graphs: YOLO11n 2.57 ms as convolutions and
0.83 ms as products, densenet121 9.65 and 1.50, mobilenet_v3_small 0.80 and 0.26. With tensor cores convolutions are
the faster ones (YOLO11n 0.57 against 0.78 ms with TF32, 0.46 against 0.54 in float16), where rows of channels are
multiples of 16 bytes: shufflenet_v2_x1_0 in float16, with its 58 and 116 channels, takes 0.31 and as products 0.24 ms.
So products are made of float32 convolutions without TF32, and of 1x1 convolutions of float16 with such channels; and
only for results of fewer tiles than there are multiprocessors, for beyond, the convolution computes the activation
with it and the product does not (`products.py`; `BuildOptions.conv_as_matmul` decides).

    1x1, stride 1         W (O, C) x data (C, pixels)
    else                  W (O, taps C) x patches (taps C, pixels), the shifted data of all taps, concatenated
    transposed, kernel    W (taps O, C) x data (C, pixels), whose taps are then laid between the pixels
      as large as stride

Patches are im2col (Chellapilla, Puri and Simard, High performance convolutional neural networks for document
processing, 2006). Data with the channels last are multiplied from the left, and need no transpose.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from tvm import relax

from ..expressions import Number
from ..extents import Extent
from ..slices import add_slice
from .layouts import data_axes
from .limits import dtype_of, shape_of
from .matmul import product

if TYPE_CHECKING:
    from ..network import Network

_Number = TypeVar("_Number")

TILE = 128  # pixels and channels of what one thread block of the convolution kernel computes

_ALIGNED = 8  # channels of float16 that tensor cores of a convolution take at once
_MOST_TAPS = 49  # each is a layer: 7x7, the largest stem in use
_MOST_BYTES = 32 << 20  # of patches; they are written and read, and should stay in the L2 cache


@dataclass(frozen=True)
class _Product:
    """A convolution as it is multiplied.

    Attributes
    ----------
    data, shape : Sequence[Number]
        The extents of the operand and of the result, which have one layout.
    sizes : tuple[int, ...]
        Those of the result as numbers, the greatest where they are symbolic.
    last : bool
        Whether the channels are the last axis; else they are the second.
    weight : numpy.ndarray
        The kernel as (O, *taps, C).
    strides, dilation, before, after : tuple[int, ...]
        For each spatial axis.
    """

    data: Sequence[Number]
    shape: Sequence[Number]
    sizes: tuple[int, ...]
    last: bool
    weight: np.ndarray
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def taps(self) -> tuple[int, ...]:
        """The extents of the kernel."""
        return self.weight.shape[1:-1]

    @property
    def padded(self) -> bool:
        """Whether zeros are read around the operand."""
        return any(self.before) or any(self.after)

    @property
    def is_plain(self) -> bool:
        """Whether each pixel is computed of the one in its place."""
        return math.prod(self.taps) == 1 and max(self.strides) == 1 and not self.padded

    @property
    def pixels(self) -> int:
        """How many pixels the result has, of the whole batch."""
        return math.prod(self.sizes) // self.weight.shape[0]

    def spatial(self, shape: Sequence[Number]) -> tuple[Number, ...]:
        """Return the spatial extents of a shape."""
        return tuple(shape[1:-1] if self.last else shape[2:])


def convolution_product(network: Network, call: relax.Call) -> Any | None:
    """Return the result of a convolution as a product, or None where the layer is to be used."""
    found = _product(network, call)
    if found is None:
        return None
    maps = found.weight.shape[0]
    if not _gains(network, found):
        return None
    if math.ceil(found.pixels / TILE) * math.ceil(maps / TILE) >= network.products.tiles:
        return None
    patches = _patches(network, network.tensor(call.args[0]), found)
    if patches is None:
        return None
    return network.reshape(_multiply(network, found.weight.reshape(maps, -1), patches, found.last), found.shape)


def _gains(network: Network, found: _Product) -> bool:
    """Say whether products of this type are worth it."""
    if found.weight.dtype == np.float32:
        return network.products.float32
    maps, *_, channels = found.weight.shape
    return found.is_plain and (maps % _ALIGNED != 0 or channels % _ALIGNED != 0)


def transposed_product(network: Network, call: relax.Call) -> Any | None:
    """Return the result of a transposed convolution whose taps do not overlap as a product, else None."""
    found = _product(network, call)
    if found is None or found.taps != found.strides or found.padded or max(found.dilation) > 1:
        return None
    if any(call.attrs.output_padding) or found.weight.dtype != np.float32 or not network.products.float32:
        return None
    maps, channels, spatial = found.weight.shape[0], found.weight.shape[-1], len(found.taps)
    extents, batch = found.spatial(found.data), found.data[0]
    # (*taps, O) where the channels are last, (O, *taps) where they are first
    weight = np.moveaxis(found.weight, 0, -2) if found.last else found.weight
    flat = _flat(network, network.tensor(call.args[0]), found)
    many = _multiply(network, weight.reshape(-1, channels), flat, found.last)
    if found.last:
        many = network.reshape(many, (batch, *extents, *found.taps, maps))
        order = [0, *itertools.chain(*((1 + k, 1 + spatial + k) for k in range(spatial))), 1 + 2 * spatial]
    else:
        many = network.reshape(many, (batch, maps, *found.taps, *extents))
        order = [0, 1, *itertools.chain(*((2 + spatial + k, 2 + k) for k in range(spatial)))]
    return network.reshape(network.transpose(many, order), found.shape)


def _product(network: Network, call: relax.Call) -> _Product | None:
    """Read a convolution with one group, constant weights and extents that can be judged."""
    if not network.products.tiles:
        return None
    attrs, data, shape = call.attrs, shape_of(call.args[0]), shape_of(call)
    kernel, sizes = network.array(call.args[1]), network.products.numbers(shape)
    if not data or sizes is None or kernel is None:
        return None
    dtype = dtype_of(call)
    if int(attrs.groups) != 1 or dtype not in ("float32", "float16") or dtype_of(call.args[0]) != dtype:
        return None
    spatial, layout = len(data) - 2, str(attrs.data_layout)
    names = data_axes(spatial)[2:]
    if layout not in (f"NC{names}", f"N{names}C") or str(attrs.out_layout or layout) != layout or 0 in sizes:
        return None
    weight = kernel.transpose([str(attrs.kernel_layout).index(axis) for axis in ("O", *names, "I")])
    padding = [int(extent) for extent in attrs.padding]
    return _Product(
        data,
        shape,
        sizes,
        layout[-1] == "C",
        weight.astype(dtype, copy=False),
        tuple(map(int, attrs.strides)),
        tuple(map(int, attrs.dilation)),
        tuple(padding[:spatial]),
        tuple(padding[spatial:]),
    )


def _multiply(network: Network, weight: np.ndarray, data: Any, last: bool) -> Any:
    """Multiply (pixels, K) by the weight's transpose, or the weight by (N, K, pixels)."""
    if last:
        return product(network, data, network.constant(np.ascontiguousarray(weight.T)))
    return product(network, network.constant(np.ascontiguousarray(weight[None])), data)


def _flat(network: Network, x: Any, found: _Product) -> Any:
    """Bring the pixels of a tensor to one axis, and the batch too where the channels are last."""
    channels = x.shape[-1 if found.last else 1]
    return network.reshape(x, (-1, channels) if found.last else (Extent(0), channels, -1))


def _patches(network: Network, x: Any, found: _Product) -> Any | None:
    """Return what the kernel is multiplied with, its K in the order (*taps, C); None where that is too much."""
    if found.is_plain:
        return _flat(network, x, found)
    extents = found.spatial(found.data)
    whole = all(isinstance(n, int) and n % taps == 0 for n, taps in zip(extents, found.taps, strict=True))
    if found.taps == found.strides and whole and not found.padded and max(found.dilation) == 1:
        return _blocks(network, x, found)
    count = math.prod(found.taps)
    if count > _MOST_TAPS or found.pixels * count * found.weight.shape[-1] * 4 > _MOST_BYTES:
        return None
    return _flat(network, _shifted(network, x, found), found)


def _blocks(network: Network, x: Any, found: _Product) -> Any:
    """Cut the pixels into blocks of the kernel's extents, as the patch embedding of a transformer does."""
    spatial, batch, channels = len(found.taps), found.data[0], found.weight.shape[-1]
    extents = found.spatial(found.shape)
    cut = list(itertools.chain(*zip(extents, found.taps, strict=True)))
    start = 1 if found.last else 2
    blocks, taps = ([start + 2 * k + one for k in range(spatial)] for one in (0, 1))
    if found.last:
        x = network.transpose(network.reshape(x, (batch, *cut, channels)), [0, *blocks, *taps, 1 + 2 * spatial])
        return network.reshape(x, (-1, math.prod(found.taps) * channels))
    x = network.transpose(network.reshape(x, (batch, channels, *cut)), [0, *taps, 1, *blocks])
    return network.reshape(x, (batch, math.prod(found.taps) * channels, -1))


def _shifted(network: Network, x: Any, found: _Product) -> Any:
    """Return the data that each tap reads, zeros around it, concatenated along the channels."""
    size = _around(found.last, (found.data[0], found.weight.shape[-1]), found.spatial(found.shape))
    stride = _around(found.last, (1, 1), found.strides)
    shifted = []
    for tap in itertools.product(*map(range, found.taps)):
        start = [k * step - zeros for k, step, zeros in zip(tap, found.dilation, found.before, strict=True)]
        first = _around(found.last, (0, 0), start)
        suffix = "tap" + "_".join(map(str, tap))
        shifted.append(add_slice(network, x, first, size, stride, mode="FILL", suffix=suffix))
    if len(shifted) == 1:
        return shifted[0]
    layer = network.net.add_concatenation(shifted)
    layer.axis = len(found.data) - 1 if found.last else 1
    return network.name(layer, "patches").get_output(0)


def _around(last: bool, ends: tuple[_Number, _Number], spatial: Sequence[_Number]) -> tuple[_Number, ...]:
    """Return numbers for the axes of a layout: those of the batch and the channels, and the spatial ones."""
    return (ends[0], *spatial, ends[1]) if last else (*ends, *spatial)
