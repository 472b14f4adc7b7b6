"""Data layouts of convolutions and pools.

TensorRT's spatial layers take NCHW or NCDHW. Any other order of the axes costs one shuffle before and one
after, which `Network` merges with the shuffles around. One spatial axis becomes two, the first of extent 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from ..network import Network

_SPATIAL = "DHW"
_Value = TypeVar("_Value")


def data_axes(spatial: int) -> str:
    """Return the order of axes that TensorRT takes, such as "NCHW" for 2."""
    return "NC" + _SPATIAL[3 - spatial :]


def kernel_axes(spatial: int, transposed: bool) -> str:
    """Return the order of kernel axes that TensorRT takes: OI, or IO where the convolution is transposed."""
    return ("IO" if transposed else "OI") + _SPATIAL[3 - spatial :]


def refuse_layout(layout: str, axes: str) -> str | None:
    """Say why a layout is no permutation of `axes`, or return None."""
    if sorted(layout) == sorted(axes):
        return None
    return f"the layout {layout} is no permutation of {axes}"


def permutation(source: str, target: str) -> list[int] | None:
    """Return the permutation from one layout to another, None when they are equal."""
    return None if source == target else [source.index(axis) for axis in target]


def padded(values: Sequence[_Value], spatial: int, neutral: _Value) -> tuple[_Value, ...]:
    """Return one number for each spatial axis of the layer, which has two where the operator has one."""
    return (neutral, *values) if spatial == 1 else tuple(values)


def split_padding(padding: Sequence[int], spatial: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split Relax's padding, all starts and then all ends, in two, one number for each axis of the layer."""
    return padded(padding[:spatial], spatial, 0), padded(padding[spatial:], spatial, 0)


def to_layer(network: Network, x: Any, layout: str, axes: str) -> Any:
    """Bring data, or a kernel, into the order `axes`, with two spatial axes at least."""
    perm = permutation(layout, axes)
    if len(axes) > 3:
        return x if perm is None else network.transpose(x, perm)
    ordered = [x.shape[index] for index in perm] if perm is not None else list(x.shape)
    dims = (0, 0, 1, -1) if -1 in ordered else (*ordered[:2], 1, ordered[2])
    return network.reshape(x, dims) if perm is None else network.shuffle(x, first=perm, dims=dims)


def from_layer(network: Network, x: Any, axes: str, layout: str) -> Any:
    """Undo `to_layer` for the result of the layer."""
    perm = permutation(axes, layout)
    if len(axes) > 3:
        return x if perm is None else network.transpose(x, perm)
    extents = list(x.shape)
    dims = (0, 0, -1) if -1 in extents else (*extents[:2], extents[3])
    return network.shuffle(x, dims=dims, second=perm)


def permutation_of(layer: Any) -> list[int] | None:
    """Return which axis of its input each axis of a shuffle layer's result is, None where it reshapes.

    The only reshape that is looked through is the one of `from_layer`, which drops the first spatial axis.
    """
    given, result = list(layer.get_input(0).shape), list(layer.get_output(0).shape)
    axes = list(layer.first_transpose)[: len(given)]
    if len(result) == 3 and len(given) == 4 and axes == sorted(axes) and given[2] == 1:
        del axes[2]
    if len(result) != len(axes):
        return None
    axes = [axes[axis] for axis in list(layer.second_transpose)[: len(result)]]
    # extents that agree leave no reshape between the transposes but the identity
    return axes if -1 not in given and [given[axis] for axis in axes] == result else None
