"""What a region is called with and what it fills: names, dtypes, and extents, which may be symbolic.

Where extents are symbolic, each variable is the extent of an input at some axis, or one of the values of a shape
parameter: Relax asks that of every function. So the variables of a call are read from its arguments, and every
other extent is checked against them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import relax, tirx

from ..errors import ConversionError
from .plain import tensor_types
from .region import Region, ShapeInput
from .sizes import Size, evaluate, from_json, size_of, text


@dataclass(frozen=True)
class TensorSpec:
    """A tensor that crosses the border of a region: its name, its extents (numbers, or sizes), and its dtype."""

    name: str
    shape: tuple[Size, ...]
    dtype: str

    @property
    def is_static(self) -> bool:
        """Whether every extent is a number."""
        return all(isinstance(size, int) for size in self.shape)

    def extents(self, values: Mapping[str, int]) -> tuple[int, ...]:
        """Return the extents for these values of the variables."""
        return tuple(evaluate(size, values) for size in self.shape)

    def to_json(self) -> list[Any]:
        """Return the spec as JSON holds it."""
        return [self.name, self.shape, self.dtype]

    @staticmethod
    def of_json(value: Sequence[Any]) -> TensorSpec:
        """Read what `to_json` returned."""
        name, shape, dtype = value
        return TensorSpec(name, tuple(from_json(size) for size in shape), dtype)

    def __str__(self) -> str:
        comma = "," if len(self.shape) == 1 else ""
        return f"({', '.join(map(text, self.shape))}{comma}) {self.dtype}"


@dataclass(frozen=True)
class ShapeSpec:
    """A shape parameter of a region, which gives extents that no input has.

    Attributes
    ----------
    name : str
        The name of the parameter.
    before : int
        How many tensors stand before it in a call.
    shape : tuple[Size, ...]
        What it holds.
    """

    name: str
    before: int
    shape: tuple[Size, ...]

    def to_json(self) -> list[Any]:
        """Return the spec as JSON holds it."""
        return [self.name, self.before, self.shape]

    @staticmethod
    def of_json(value: Sequence[Any]) -> ShapeSpec:
        """Read what `to_json` returned."""
        name, before, shape = value
        return ShapeSpec(name, before, tuple(from_json(size) for size in shape))


@dataclass(frozen=True)
class Signature:
    """The arguments of a region.

    Attributes
    ----------
    shapes : tuple[ShapeSpec, ...]
        Its shape parameters.
    inputs, outputs : tuple[TensorSpec, ...]
        Its tensors.
    names : Mapping[str, str]
        Its variables, and by which name each was declared.
    """

    shapes: tuple[ShapeSpec, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    names: Mapping[str, str]


def signature_of(region: Region, results: relax.Type) -> Signature:
    """Return the signature of a region.

    Parameters
    ----------
    region : Region
        The region, flat.
    results : relax.Type
        The type of what it returns.

    Raises
    ------
    ConversionError
        When an input or result has no known rank, an extent is no arithmetic, or a variable of it is known from no
        argument.
    """
    names = _Names()
    inputs = tuple(_tensor(region.name, given.name, given.ty, names) for given in region.inputs)
    shapes = tuple(_shape(region, given, names) for given in region.shapes)
    outputs = tuple(
        _tensor(region.name, f"output {index}", ty, names) for index, ty in enumerate(tensor_types(results))
    )
    given: list[TensorSpec | ShapeSpec] = [*inputs, *shapes]
    known = {size for spec in given for size in spec.shape if isinstance(size, str)}
    for name in names.declared:
        if name not in known:
            raise ConversionError(
                f"the symbolic extent {name} of {region.name} follows from none of its arguments; give it an input "
                f"with that extent"
            )
    return Signature(shapes, inputs, outputs, names.declared)


@dataclass
class _Names:
    """One name for each variable of a region: two that were given the same name are told apart by a number."""

    declared: dict[str, str] = field(default_factory=dict)
    _of: dict[tirx.Var, str] = field(default_factory=dict)

    def __call__(self, variable: tirx.Var) -> str:
        if variable not in self._of:
            declared = str(variable.name)
            name, number = declared, 1
            while name in self.declared:
                number += 1
                name = f"{declared}_{number}"
            self._of[variable] = name
            self.declared[name] = declared
        return self._of[variable]


def _tensor(region: str, name: str, ty: relax.TensorType, names: _Names) -> TensorSpec:
    values = getattr(ty.shape, "values", None)
    if values is None:
        raise ConversionError(
            f"{name} of {region} is {ty}: an engine needs its extents; give the model's inputs shapes"
        )
    return TensorSpec(name, tuple(size_of(extent, names) for extent in values), str(ty.dtype))


def _shape(region: Region, given: ShapeInput, names: _Names) -> ShapeSpec:
    before = sum(tensor.param < given.param for tensor in region.inputs)
    return ShapeSpec(given.name, before, tuple(size_of(extent, names) for extent in given.extents))


def values_of(expected: Iterable[Sequence[Size]], given: Iterable[Sequence[int]]) -> dict[str, int]:
    """Return the value of each variable, read where it first stands by itself.

    Parameters
    ----------
    expected : Iterable[Sequence[Size]]
        For each argument, its extents, or what it holds if it is a shape.
    given : Iterable[Sequence[int]]
        The numbers of a call.
    """
    values: dict[str, int] = {}
    for sizes, numbers in zip(expected, given, strict=True):
        for size, number in zip(sizes, numbers, strict=True):
            if isinstance(size, str):
                values.setdefault(size, int(number))
    return values
