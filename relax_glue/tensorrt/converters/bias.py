"""A constant added to each channel of a convolution is the layer's bias.

Importers write `add(conv(x, w), constant)`. The constant goes into the layer where nothing else reads the
convolution; half precision then rounds once instead of twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax

from .layouts import permutation_of

if TYPE_CHECKING:
    from ..network import Network


def fold_bias(network: Network, call: relax.Call) -> Any | None:
    """Return the result of an addition whose constant became a bias, or None when none did."""
    for data, other in (call.args, reversed(call.args)):
        constant = network.array(other)
        if constant is None or network.array(data) is not None or constant.dtype.kind == "V":
            continue  # bfloat16 weights of a layer cannot be read back
        folded = _folded(network, network.tensor(data), constant)
        if folded is not None:
            return folded
    return None


def _folded(network: Network, tensor: Any, constant: np.ndarray) -> Any | None:
    trt = network.trt
    layer, channel, inner = network.layer_of(tensor), 1, tensor
    if isinstance(layer, trt.IShuffleLayer):  # on the convolution's way back to its layout
        axes = permutation_of(layer)
        if axes is None or 1 not in axes:
            return None
        inner, channel = layer.get_input(0), axes.index(1)
        layer = network.layer_of(inner)
    if not isinstance(layer, trt.IConvolutionLayer | trt.IDeconvolutionLayer) or layer.bias.size:
        return None
    bias = _per_channel(constant, channel, len(tensor.shape), int(layer.num_output_maps))
    if bias is None:
        return None
    layer.bias = network.weights(bias)
    network.forget(inner.name)  # what it was called no longer is its value
    return network.take_over(tensor)


def _per_channel(constant: np.ndarray, channel: int, rank: int, maps: int) -> np.ndarray | None:
    """Return a constant as one number for each channel, None where it varies along another axis."""
    if constant.ndim > rank:
        return None
    shape = (1,) * (rank - constant.ndim) + constant.shape
    others = [extent for axis, extent in enumerate(shape) if axis != channel]
    if any(extent != 1 for extent in others):
        return None
    return np.broadcast_to(constant.reshape(-1), (maps,)).copy()
