"""Slice layers, which cut, step, flip, broadcast, tile and pad.

A slice layer reads `start + i * stride` along each axis. A stride of 0 repeats an element, a negative one goes
backwards, and the mode says what is read outside the input: nothing (STRICT_BOUNDS), the input again (WRAP),
the nearest element (CLAMP), the mirror image (REFLECT), or a value (FILL).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .extents import Dim, Extent, resolved

if TYPE_CHECKING:
    from .network import Network


def add_slice(
    network: Network,
    tensor: Any,
    start: Sequence[Dim],
    size: Sequence[Dim],
    stride: Sequence[int] | None = None,
    *,
    mode: str = "STRICT_BOUNDS",
    fill: Any = None,
    suffix: str = "",
) -> Any:
    """Add a slice layer.

    Parameters
    ----------
    network : Network
        The network.
    tensor : trt.ITensor
        The input.
    start : Sequence[Dim]
        For each axis, where to begin.
    size : Sequence[Dim]
        The extents of the result.
    stride : Sequence[int], optional
        For each axis, how far to step; 1 if left out.
    mode : str
        The name of a `trt.SampleMode`.
    fill : trt.ITensor, optional
        The scalar that FILL reads outside the input.
    suffix : str
        Appended to the layer's name where it is not the only one of its call.

    Returns
    -------
    trt.ITensor
        The result.
    """
    shape = tuple(tensor.shape)
    windows = [resolved(dims, shape) for dims in (start, size)]
    computed = [None if _static(dims) else network.extents.vector(dims, tensor) for dims in windows]
    first, count = ([dim if isinstance(dim, int) else 1 for dim in dims] for dims in windows)
    layer = network.net.add_slice(tensor, first, count, stride or [1] * len(shape))
    layer.mode = getattr(network.trt.SampleMode, mode)
    for place, vector in enumerate(computed, start=1):
        if vector is not None:
            layer.set_input(place, vector)
    if fill is not None:
        layer.set_input(4, fill)
    return network.name(layer, suffix).get_output(0)


def _static(dims: Sequence[Dim]) -> bool:
    return all(isinstance(dim, int) for dim in dims)


def broadcast(network: Network, tensor: Any, size: Sequence[Dim]) -> Any:
    """Repeat a tensor along its axes of extent 1, and new leading ones, until it has the extents `size`."""
    tensor = network.align(tensor, rank=len(size))[0]
    shape = tuple(tensor.shape)
    stride = [0 if extent == 1 else 1 for extent in shape]
    wanted: list[Dim] = [Extent(axis) if extent < 0 else size[axis] for axis, extent in enumerate(shape)]
    if all(dim in (extent, Extent(axis)) for axis, (dim, extent) in enumerate(zip(wanted, shape, strict=True))):
        return tensor
    return add_slice(network, tensor, [0] * len(shape), wanted, stride)
