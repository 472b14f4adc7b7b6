"""Extents that are only known at run time, as TensorRT shape tensors.

A symbolic extent of a Relax type is an expression over the extents of the region's inputs: `n`, `2 * n`,
`(h - 1) // 2 + 1`. TensorRT computes such numbers on the host from shape tensors: int64 tensors of one element
here, made by a shape layer of an input and elementwise layers, each expression once. A converter never does that
by hand: it gives a `Dim` wherever a layer takes an extent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import tvm
from tvm import tirx

from ..errors import ConversionError
from .expressions import Number, inexpressible, key_of, kind_of, simplified, variables_of

if TYPE_CHECKING:
    from .network import Network


@dataclass(frozen=True)
class Extent:
    """A dimension that is only known at run time: the extent of a layer's input at `axis`."""

    axis: int


# a number, the extent of the layer's own input, or an expression of a Relax type
Dim: TypeAlias = Number | Extent

# What TensorRT has as elementwise layers on shape tensors.
_OPERATIONS: dict[str, str] = {
    "Add": "SUM",
    "Sub": "SUB",
    "Mul": "PROD",
    "FloorDiv": "FLOOR_DIV",
    "Div": "DIV",
    "Min": "MIN",
    "Max": "MAX",
}
_INVERSES: dict[str, str] = {"Add": "SUB", "Sub": "SUM", "Mul": "FLOOR_DIV"}
_REMAINDERS: dict[str, str] = {"FloorMod": "FLOOR_DIV", "Mod": "DIV"}


class Extents:
    """The shape tensors of one network.

    Parameters
    ----------
    network : Network
        The network; its inputs have to be made known by `define` and `define_later`.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self._made: dict[Hashable, Any] = {}
        self._known: dict[Hashable, Callable[[], Any]] = {}
        self._later: dict[Hashable, Callable[[], Any]] = {}
        self._compound: list[tvm.ir.Expr] = []

    def define(self, extent: tvm.ir.Expr, tensor: Any, axis: int) -> None:
        """Make known that the input `tensor` has a symbolic extent at `axis`."""
        extent = simplified(extent)
        if inexpressible(extent) is not None or isinstance(extent, int):
            return
        if key_of(extent) in self._known:
            return
        self._known[key_of(extent)] = lambda: self._picked(self._shape(tensor), axis)
        if not isinstance(extent, tirx.Var):
            self._compound.append(extent)

    def define_later(self, extents: Sequence[tvm.ir.Expr], tensor: Callable[[], Any]) -> None:
        """Make known that a vector holds these extents; it is made where one follows from no input."""
        for place, extent in enumerate(extents):
            self._later[key_of(extent)] = functools.partial(self._picked_later, tensor, place)

    def _picked_later(self, vector: Callable[[], Any], place: int) -> Any:
        """Return an element as the extent of a tensor that has so many.

        TensorRT takes an input for a shape tensor, whose values it has on the host, only where an extent depends on
        it; read as data alone, it would be expected on the GPU.
        """
        layer = self._network.net.add_slice(self._numbers([0]), (0,), (1,), (0,))
        layer.set_input(2, self._picked(vector(), place))
        return self._shape(self._network.name(layer, "extent").get_output(0))

    def value(self, extent: Number) -> Any:
        """Return an extent as an int64 shape tensor of one element.

        Raises
        ------
        ConversionError
            When it holds a variable that is no extent of the region's inputs, or an operation that TensorRT
            lacks.
        """
        extent = simplified(extent)
        key = key_of(extent)
        if key not in self._made:
            self._made[key] = self._made_of(extent, key)
        return self._made[key]

    def vector(self, dims: Sequence[Dim], tensor: Any) -> Any:
        """Return dims as an int64 shape tensor; `Extent(i)` is the extent of `tensor` at axis i."""
        shape = tuple(tensor.shape)
        parts: list[Any] = []
        numbers: list[int] = []
        whole = None
        for dim in resolved(dims, shape):
            if isinstance(dim, int):
                numbers.append(dim)
                continue
            if numbers:
                parts.append(self._numbers(numbers))
                numbers = []
            if isinstance(dim, Extent):
                whole = self._shape(tensor) if whole is None else whole
                parts.append(self._picked(whole, dim.axis))
            else:
                parts.append(self.value(dim))
        if numbers:
            parts.append(self._numbers(numbers))
        return self.joined(parts)

    def _made_of(self, extent: Number, key: Hashable) -> Any:
        if isinstance(extent, int):
            return self._numbers([extent])
        if key in self._known:
            return self._known[key]()
        solved = self._solved(extent)
        if solved is not None:
            return solved
        if isinstance(extent, tirx.Var):
            return self._given(extent)
        a, b = self.value(extent.a), self.value(extent.b)
        kind = kind_of(extent)
        if kind in _OPERATIONS:
            return self._operation(_OPERATIONS[kind], a, b)
        quotient = self._operation(_REMAINDERS[kind], a, b)
        return self._operation("SUB", a, self._operation("PROD", quotient, b))

    def _given(self, variable: tirx.Var) -> Any:
        """Return a variable that only a shape parameter has."""
        if key_of(variable) not in self._later:
            raise ConversionError(
                f"the extent {variable} cannot be computed from the shapes of the region's inputs; give the region an "
                f"input of which it is an extent"
            )
        return self._later[key_of(variable)]()

    def _solved(self, term: tvm.ir.Expr) -> Any | None:
        """Return a term of an input's extent, such as n in 2 * n + 1 or h // 2 in h // 2 + 1, by undoing the rest.

        None where there is none, or where the term follows from what is known anyway.
        """
        if kind_of(term) in _INVERSES or self._is_known(term):
            return None
        for extent in self._compound:
            found = self._undone(extent, key_of(term), functools.partial(self.value, extent))
            if found is not None:
                return found()
        return None

    def _undone(self, extent: tvm.ir.Expr, term: Hashable, value: Callable[[], Any]) -> Callable[[], Any] | None:
        """Return how the term follows from the value of `extent`; None where it does not."""
        if key_of(extent) == term:
            return value
        inverse = _INVERSES.get(kind_of(extent))
        if inverse is None:
            return None
        for part, other in ((extent.a, extent.b), (extent.b, extent.a)):
            if not self._is_known(other) or (inverse == "FLOOR_DIV" and not isinstance(other, tirx.IntImm)):
                continue
            if kind_of(extent) == "Sub" and part is not extent.a:
                undo = functools.partial(self._undo, "SUB", functools.partial(self.value, other), value)
            else:
                undo = functools.partial(self._undo, inverse, value, functools.partial(self.value, other))
            found = self._undone(part, term, undo)
            if found is not None:
                return found
        return None

    def _undo(self, op: str, a: Callable[[], Any], b: Callable[[], Any]) -> Any:
        return self._operation(op, a(), b())

    def _is_known(self, extent: tvm.ir.Expr) -> bool:
        return all(key_of(variable) in self._known for variable in variables_of(extent))

    # Layers

    def _shape(self, tensor: Any) -> Any:
        return self._network.name(self._network.net.add_shape(tensor), "shape").get_output(0)

    def _picked(self, vector: Any, place: int) -> Any:
        layer = self._network.net.add_slice(vector, (place,), (1,), (1,))
        return self._network.name(layer, "extent").get_output(0)

    def _numbers(self, numbers: Iterable[int]) -> Any:
        return self._network.constant(np.array(list(numbers), dtype=np.int64))

    def _operation(self, op: str, a: Any, b: Any) -> Any:
        member = self._network.trt.ElementWiseOperation.__members__[op]
        return self._network.name(self._network.net.add_elementwise(a, b, member), "extent").get_output(0)

    def joined(self, parts: Sequence[Any]) -> Any:
        """Return shape tensors one after the other."""
        if len(parts) == 1:
            return parts[0]
        layer = self._network.net.add_concatenation(list(parts))
        layer.axis = 0
        return self._network.name(layer, "dims").get_output(0)


def resolved(dims: Iterable[Dim], shape: Sequence[int]) -> list[Dim]:
    """Return dims with what is known of the layer's input, whose shape is `shape`, put in as numbers."""
    found: list[Dim] = []
    for dim in dims:
        if isinstance(dim, Extent):
            found.append(int(shape[dim.axis]) if shape[dim.axis] >= 0 else dim)
        elif isinstance(dim, tvm.tirx.IntImm):
            found.append(int(dim))
        else:
            found.append(dim if isinstance(dim, int) else simplified(dim))
    return found
