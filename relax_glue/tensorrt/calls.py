"""The extents of one call of an engine with symbolic shapes: checked, and what they mean for its context.

Variables are read from the arguments, and all other extents are checked against them, the outputs' too, which
TVM's virtual machine has computed by itself. That is done once for each combination of extents.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from ..errors import ExecutionError
from .artifact import Artifact
from .profiles import Profile
from .signature import ShapeSpec, TensorSpec
from .sizes import Size, evaluate, text, variables

Extents: TypeAlias = tuple[int, ...]
REMEMBERED = 256


@dataclass(eq=False)
class Call:
    """One combination of extents that a region can be called with.

    Attributes
    ----------
    profiles : tuple[int, ...]
        The optimisation profiles that hold them; none where all results are empty, and there is nothing to run.
    inputs, outputs : tuple[Extents, ...]
        The extents of each tensor.
    shapes : tuple[ctypes.Array, ...]
        The values of each shape parameter, in memory of their own, since TensorRT reads them by address.
    is_known : bool
        Whether TensorRT has said that its outputs have these extents.
    """

    profiles: tuple[int, ...]
    inputs: tuple[Extents, ...]
    outputs: tuple[Extents, ...]
    shapes: tuple[Any, ...] = ()
    is_known: bool = False


class Calls:
    """The calls of one region.

    Parameters
    ----------
    artifact : Artifact
        Its signature and ranges.
    """

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._expected: list[tuple[str, Sequence[Size]]] = [
            *((f"{_role(spec)} {spec.name}", spec.shape) for spec in artifact.arguments),
            *((f"output {spec.name}", spec.shape) for spec in artifact.outputs),
        ]
        self._shapes = [isinstance(spec, ShapeSpec) for spec in artifact.arguments]
        self.of = lru_cache(maxsize=REMEMBERED)(self._check)

    def _check(self, extents: tuple[Extents, ...]) -> Call:
        """Return the call with these extents of the arguments and outputs; of a shape they are what it holds.

        Raises
        ------
        ExecutionError
            When they contradict each other, or no profile holds them.
        """
        made = self._artifact
        arguments, outputs = extents[: len(self._shapes)], extents[len(self._shapes) :]
        inputs = tuple(numbers for numbers, is_shape in zip(arguments, self._shapes, strict=True) if not is_shape)
        shapes = tuple(numbers for numbers, is_shape in zip(arguments, self._shapes, strict=True) if is_shape)
        if all(0 in output for output in outputs):
            return Call((), inputs, outputs)
        values = made.values(arguments)
        fitting = tuple(index for index, profile in enumerate(made.profiles) if profile.holds(values))
        if not fitting:
            raise ExecutionError(_out_of_range(made, values))
        for (what, sizes), numbers in zip(self._expected, extents, strict=True):
            self._compare(what, sizes, numbers, values)
        return Call(fitting, inputs, outputs, tuple((ctypes.c_int64 * len(shape))(*shape) for shape in shapes))

    def _compare(self, what: str, sizes: Sequence[Size], shape: Extents, values: Mapping[str, int]) -> None:
        for axis, (size, extent) in enumerate(zip(sizes, shape, strict=True)):
            wanted = evaluate(size, values)
            if extent != wanted:
                because = "" if isinstance(size, int) else f", which is {text(size)} with {_listed(size, values)}"
                raise ExecutionError(
                    f"{what} of {self._artifact.symbol} has the extent {extent} at axis {axis}, and its engine needs "
                    f"{wanted}{because}"
                )


def _role(spec: TensorSpec | ShapeSpec) -> str:
    return "shape" if isinstance(spec, ShapeSpec) else "input"


def _listed(size: Size, values: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {values[name]}" for name in dict.fromkeys(variables(size)))


def _out_of_range(artifact: Artifact, values: Mapping[str, int]) -> str:
    """Name the variables that no profile holds; where each is held by one of them, all of them."""
    profiles = artifact.profiles
    outside = [name for name in values if not any(profile.holds({name: values[name]}) for profile in profiles)]
    named = outside or list(values)
    called = ", ".join(f"{name} = {values[name]} ({_place(artifact, name)})" for name in named)
    if outside:
        ranges = "; ".join(f"{name} {_union(profiles, name)}" for name in outside)
    else:
        ranges = "; or ".join(map(str, profiles))
    example = ", ".join(f"{name!r}: (min, opt, max)" for name in named)
    return (
        f"{artifact.symbol} is called with {called}, and its engine is built for {ranges}: compile the model with "
        f"BuildOptions(profiles={{{example}}}) whose ranges hold that, or call it with other sizes"
    )


def _union(profiles: Sequence[Profile], name: str) -> str:
    return " or ".join(dict.fromkeys(str(profile.by_name[name]) for profile in profiles))


def _place(artifact: Artifact, name: str) -> str:
    for spec in artifact.inputs:
        if name in spec.shape:
            return f"axis {spec.shape.index(name)} of input {spec.name}"
    return "a shape parameter"
