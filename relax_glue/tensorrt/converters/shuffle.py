"""Reshapes and permutes: one shuffle layer, or none where the network can merge it into the one before it.

Since the extents come from the type of the result, it makes no difference whether the target shape is written in
the call or bound to a variable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import relax

from ...ir.shapes import same
from ...movement import layout_axes
from ..registry import Refusal, converter
from .limits import dims_of, rank_of, refuse_tensors, shape_of

if TYPE_CHECKING:
    from ..network import Network


def _accepts_reshape(call: relax.Call) -> Refusal | str | None:
    return refuse_tensors(call) or _refuse_loss(call)


def _refuse_loss(call: relax.Call) -> str | None:
    """Refuse what is no reshape: squeeze of an axis whose extent is symbolic, which may not be 1."""
    if call.op.name != "relax.squeeze" or call.attrs.axis is None:
        return None
    given = shape_of(call.args[0])
    bad = [given[int(axis)] for axis in call.attrs.axis if given[int(axis)] != 1]
    return f"it drops an axis of the extent {bad[0]}, which need not be 1" if bad else None


@converter(
    "relax.reshape",
    "relax.flatten",
    "relax.nn.batch_flatten",
    "relax.expand_dims",
    "relax.squeeze",
    accepts=_accepts_reshape,
    glue=True,
)
def reshape(network: Network, call: relax.Call) -> Any:
    """Keep the elements in order and give them the result's shape."""
    x, given, wanted = network.tensor(call.args[0]), shape_of(call.args[0]), shape_of(call)
    changed = [pair for pair in zip(given, wanted, strict=False) if not same(*pair)]
    # with all extents but one, that one is equal too, whether it is written so or not: the elements are as many
    return x if len(given) == len(wanted) and len(changed) <= 1 else network.reshape(x, dims_of(call))


def _accepts_permute(call: relax.Call) -> Refusal | None:
    return refuse_tensors(call)


@converter("relax.permute_dims", accepts=_accepts_permute, glue=True)
def permute_dims(network: Network, call: relax.Call) -> Any:
    """Transpose; without axes, reverse them."""
    x = network.tensor(call.args[0])
    rank = len(x.shape)
    axes = call.attrs.axes
    perm = [int(axis) % rank for axis in axes] if axes is not None else list(reversed(range(rank)))
    return network.transpose(x, perm)


def _accepts_layout_transform(call: relax.Call) -> Refusal | str | None:
    if layout_axes(call.attrs.index_map) is None:
        return f"the index map {call.attrs.index_map} is not a permutation of the axes"
    return refuse_tensors(call)


@converter("relax.layout_transform", accepts=_accepts_layout_transform, glue=True)
def layout_transform(network: Network, call: relax.Call) -> Any:
    """Permute: final index i is initial index `axes[i]`."""
    return network.transpose(network.tensor(call.args[0]), layout_axes(call.attrs.index_map) or ())


def _accepts_pixel_shuffle(call: relax.Call) -> Refusal | str | None:
    said = refuse_tensors(call)
    if said is not None:
        return said
    rank = rank_of(call)
    return f"rank {rank} + 2 dimensions are needed in between, TensorRT has 8" if rank > 6 else None


@converter("relax.nn.pixel_shuffle", accepts=_accepts_pixel_shuffle, glue=True)
def pixel_shuffle(network: Network, call: relax.Call) -> Any:
    """Split the channels into (C, r, r), move the two r behind the extents they scale, and merge."""
    *batch, channels, height, width = shape_of(call.args[0])
    factor = int(call.attrs.upscale_factor)
    lead = len(batch)
    split = [*batch, channels // factor**2, factor, factor, height, width]
    perm = [*range(lead), *(lead + axis for axis in (0, 3, 1, 4, 2))]
    x = network.reshape(network.tensor(call.args[0]), split)
    return network.shuffle(x, first=perm, dims=shape_of(call))
