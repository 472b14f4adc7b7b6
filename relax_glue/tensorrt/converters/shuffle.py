"""Reshapes and permutes: one shuffle layer, or none where `Network` can merge it into the one before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import relax

from ..registry import Refusal, converter
from .limits import extents, rank_of, refuse_tensors, static_shape

if TYPE_CHECKING:
    from ..network import Network


def _accepts_permute(call: relax.Call) -> Refusal | str | None:
    return refuse_tensors(call, static=False)


@converter("relax.permute_dims", accepts=_accepts_permute, glue=True)
def permute_dims(network: Network, call: relax.Call) -> Any:
    """Transpose; without axes, reverse them."""
    x = network.tensor(call.args[0])
    rank = len(x.shape)
    axes = call.attrs.axes
    perm = [int(axis) % rank for axis in axes] if axes is not None else list(reversed(range(rank)))
    return network.transpose(x, perm)
