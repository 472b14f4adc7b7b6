"""Reshapes and permutes of a network under construction, in as few shuffle layers as there can be.

A shuffle layer transposes, reshapes and transposes again. So a permute_dims or reshape whose input only it
reads, and which a shuffle layer with a free slot makes, fills that slot and adds no layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .extents import Dim, Extent, resolved

if TYPE_CHECKING:
    from .network import Network


@dataclass
class _Shuffle:
    """A shuffle layer made here. `stage`: 1 first transpose set, 2 reshape set, 3 second transpose set.

    `computed`: the reshape is a shape tensor, which a further reshape cannot replace.
    """

    layer: Any
    stage: int
    computed: bool = False


class Shuffles:
    """The shuffle layers of one network."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._made: dict[str, _Shuffle] = {}
        self._sole: set[str] = set()
        self._seen: set[str] = set()

    def count(self, tensor: str, uses: int) -> None:
        """Note how often the result of a call is read; one tensor can be the result of more than one call."""
        if uses != 1:
            self._sole.discard(tensor)
        elif tensor not in self._seen:
            self._sole.add(tensor)
        self._seen.add(tensor)

    def is_sole(self, tensor: str) -> bool:
        """Say whether a tensor is the result of one call and read once."""
        return tensor in self._sole

    def knows(self, tensor: Any) -> bool:
        """Say whether a shuffle layer of `add` makes the tensor."""
        return tensor.name in self._made

    def take_over(self, tensor: Any) -> Any:
        """Name the layer that makes the tensor after the call at hand; return the tensor, renamed."""
        known = self._made[tensor.name]
        return self._renamed(tensor, known, known.stage)

    def reshape(self, tensor: Any, dims: Sequence[Dim]) -> Any:
        """Reshape; see `Network.reshape`."""
        numbers = static_dims(tensor, dims)
        if numbers is None:
            return self.add(tensor, dims=dims)
        known = self._open(tensor)
        if known is None or known.stage == 3 or known.computed or 0 in numbers:
            return self.add(tensor, dims=numbers)
        known.layer.reshape_dims = numbers
        return self._renamed(tensor, known, 2)

    def transpose(self, tensor: Any, perm: Sequence[int]) -> Any:
        """Permute; see `Network.transpose`."""
        known = self._open(tensor)
        if known is None:
            return self.add(tensor, first=perm)
        if known.stage == 1:
            known.layer.first_transpose = [known.layer.first_transpose[axis] for axis in perm]
            return self._renamed(tensor, known, 1)
        if known.stage == 3:
            perm = [known.layer.second_transpose[axis] for axis in perm]
        known.layer.second_transpose = perm
        return self._renamed(tensor, known, 3)

    def add(
        self,
        tensor: Any,
        first: Sequence[int] | None = None,
        dims: Sequence[Dim] | None = None,
        second: Sequence[int] | None = None,
    ) -> Any:
        """Add a layer; see `Network.shuffle`."""
        numbers = [dim for dim in dims or () if isinstance(dim, int)]
        computed = dims is not None and len(numbers) < len(dims)
        vector = self._network.extents.vector(dims, tensor) if dims is not None and computed else None
        layer = self._network.net.add_shuffle(tensor)
        if first is not None:
            layer.first_transpose = first
        if vector is not None:
            layer.set_input(1, vector)
        elif dims is not None:
            layer.reshape_dims = numbers
        if second is not None:
            layer.second_transpose = second
        made = self._network.name(layer).get_output(0)
        stage = 3 if second is not None else 2 if dims is not None else 1
        self._made[made.name] = _Shuffle(layer, stage, computed)
        return made

    def _open(self, tensor: Any) -> _Shuffle | None:
        return self._made.get(tensor.name) if tensor.name in self._sole else None

    def _renamed(self, tensor: Any, known: _Shuffle, stage: int) -> Any:
        """Name the layer after the call at hand, whose value it now yields."""
        self._sole.discard(tensor.name)
        del self._made[tensor.name]
        self._network.forget(tensor.name)
        known.stage = stage
        made = self._network.name(known.layer).get_output(0)
        self._made[made.name] = known
        return made


def static_dims(tensor: Any, dims: Sequence[Dim]) -> list[int] | None:
    """Return the dims as a shuffle layer has them, where -1 is the rest and 0 the same as in the input.

    None means that they have to be computed at run time.
    """
    known = resolved(dims, tuple(tensor.shape))
    unknown = [place for place, dim in enumerate(known) if not isinstance(dim, int)]
    if len(unknown) > 1 or -1 in known:
        unknown = [place for place in unknown if known[place] != Extent(place)]
    if len(unknown) > (0 if -1 in known else 1):
        return None
    return [dim if isinstance(dim, int) else -1 if place in unknown else 0 for place, dim in enumerate(known)]
