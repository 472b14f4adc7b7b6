"""concat and stack: a concatenation layer; constants among the parts become constant layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import relax

from ..extents import Dim, Extent
from ..registry import Refusal, converter
from .limits import extents, refuse_tensors, tensor_types

if TYPE_CHECKING:
    from ..network import Network


def _accepts_concat(call: relax.Call) -> Refusal | str | None:
    said = refuse_tensors(call)
    if said is not None:
        return said
    dtypes = {str(ty.dtype) for ty in tensor_types(call.args[0].ty)}
    return f"the parts have the dtypes {sorted(dtypes)}" if len(dtypes) > 1 else None


@converter("relax.concat", accepts=_accepts_concat, glue=True)
def concat(network: Network, call: relax.Call) -> Any:
    """Put tensors one after the other; without an axis they have rank 1."""
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis)
    return _concatenate(network, network.tensors(call.args[0]), axis)


@converter("relax.stack", accepts=_accepts_concat, glue=True)
def stack(network: Network, call: relax.Call) -> Any:
    """Give each tensor a new axis of extent 1, and put them one after the other along it."""
    rank = len(extents(call.ty) or [])
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis) % rank
    dims: list[Dim] = [Extent(place) for place in range(rank - 1)]
    dims.insert(axis, 1)
    return _concatenate(network, [network.reshape(part, dims) for part in network.tensors(call.args[0])], axis)


def _concatenate(network: Network, parts: list[Any], axis: int) -> Any:
    layer = network.net.add_concatenation(parts)
    layer.axis = axis % len(parts[0].shape)
    return network.name(layer).get_output(0)
