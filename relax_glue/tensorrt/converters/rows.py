"""The rows that nearest-neighbour resizing picks where the size is only known at run time: TVM's formula in layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..expressions import Number, clamped
from .arith import binary, scalar, unary
from .counting import counted, extent_as
from .nearest import COORDINATES, Sizes, rounding_of

if TYPE_CHECKING:
    from ..network import Network

_ROUND = {"rint": "ROUND", "ceil": "CEIL", "floor": "FLOOR"}


@dataclass(frozen=True)
class _Tensor:
    """A tensor that calculates as a numpy array does, by one layer for each operator."""

    network: Network
    tensor: Any

    def _with(self, op: str, other: _Tensor | float) -> _Tensor:
        operand = other.tensor if isinstance(other, _Tensor) else float(other)
        return _Tensor(self.network, binary(self.network, op, self.tensor, operand))

    def __add__(self, other: _Tensor | float) -> _Tensor:
        return self._with("SUM", other)

    def __sub__(self, other: _Tensor | float) -> _Tensor:
        return self._with("SUB", other)

    def __mul__(self, other: _Tensor | float) -> _Tensor:
        return self._with("PROD", other)

    def __truediv__(self, other: _Tensor | float) -> _Tensor:
        return self._with("DIV", other)


def computed_rows(network: Network, before: Number, after: Number, coordinates: str, rounding: str) -> Any:
    """Return the row that TVM picks for each row of the output, as `tvm_rows` does for known extents.

    Parameters
    ----------
    network : Network
        The network.
    before, after : Number
        Extents of the input and the output.
    coordinates, rounding : str
        Names as in `relax.image.resize2d`.

    Returns
    -------
    trt.ITensor
        int32, of `after` elements.
    """
    places = counted(network, after, "float32")
    most = 2**31 - 1
    extents = (before, after, before - 1, clamped(after - 1, 1, most), clamped(after - 1, 0, 1))
    numbers = (_Tensor(network, _number(network, extent, places)) for extent in extents)
    added, function = rounding_of(rounding, coordinates)
    found = COORDINATES[coordinates](_Tensor(network, places), Sizes(*numbers))
    found = unary(network, _ROUND[function], (found + added).tensor)
    found = binary(network, "MAX", found, 0.0)
    last = _number(network, before - 1, places)
    return network.cast(binary(network, "MIN", found, last), "int32")


def _number(network: Network, extent: Number, like: Any) -> Any:
    found = extent_as(network, extent, like)
    return scalar(network, found, like) if isinstance(found, int) else found
