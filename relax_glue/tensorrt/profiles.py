"""Ranges of symbolic extents: what the user gives, what the function itself says, and what an engine gets.

An engine of symbolic extents is built for ranges, TensorRT's optimisation profiles. They are given by the names of
the symbolic variables. What is not given is read from the function attributes that TVM has for this, which
importers set; what is known from neither is not invented.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from tvm import relax

from ..errors import BuildError
from ..ir.bounds import LOWER_BOUND, UPPER_BOUND, attribute_bounds


class Range(NamedTuple):
    """The values of one variable: the least, the one that kernels are chosen for, and the greatest."""

    min: int
    opt: int
    max: int

    @staticmethod
    def of(name: str, given: Any) -> Range:
        """Read a range: (min, opt, max), (min, max), or one number.

        Raises
        ------
        ValueError
            When it is none, or not in order, or begins below 1.
        """
        numbers = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else (given,)
        whole = all(hasattr(number, "__index__") and not isinstance(number, bool) for number in numbers)
        if not whole or not 1 <= len(numbers) <= 3:
            raise ValueError(f"profiles: {name} has the range {given!r}; give (min, opt, max), (min, max) or a number")
        least, most = int(numbers[0]), int(numbers[-1])
        found = Range(least, int(numbers[1]) if len(numbers) == 3 else usual(least, most), most)
        if not 1 <= found.min <= found.opt <= found.max:
            raise ValueError(f"profiles: {name} has the range {given!r}; it must be 1 <= min <= opt <= max")
        return found

    def __str__(self) -> str:
        return str(self.min) if self.min == self.max else f"{self.min} to {self.max}"


def usual(least: int, most: int) -> int:
    """Return the value to choose kernels for where nobody said: the greatest, whose calls take longest.

    It has to be a size that the model can take, and models that halve images want multiples: so it is the greatest
    multiple of 32 if the range holds one.
    """
    rounded = most - most % 32
    return rounded if rounded >= max(least, 1) else most


@dataclass(frozen=True)
class Profile:
    """Ranges of variables by name, in the order of the names."""

    ranges: tuple[tuple[str, Range], ...]

    @staticmethod
    def of(given: Mapping[str, Any]) -> Profile:
        """Read a mapping from names to ranges.

        Raises
        ------
        ValueError
            When a range is none.
        """
        return Profile(tuple(sorted((str(name), Range.of(str(name), value)) for name, value in given.items())))

    @cached_property
    def by_name(self) -> dict[str, Range]:
        """The range of each variable."""
        return dict(self.ranges)

    def to_json(self) -> dict[str, list[int]]:
        """Return the ranges as JSON holds them; `of` reads it."""
        return {name: list(found) for name, found in self.ranges}

    def holds(self, values: Mapping[str, int]) -> bool:
        """Say whether these values of variables are in their ranges."""
        return all(self.by_name[name].min <= value <= self.by_name[name].max for name, value in values.items())

    def __str__(self) -> str:
        return ", ".join(f"{name} {found}" for name, found in self.ranges)


def read_profiles(given: Any) -> tuple[Profile, ...]:
    """Read the option `profiles`: a mapping, a sequence of such, or None.

    Raises
    ------
    ValueError
        When it is something else, or a range in it is none.
    """
    if given is None:
        return ()
    several = [given] if isinstance(given, Mapping | Profile) else given
    if isinstance(several, str) or not isinstance(several, Sequence):
        raise ValueError(f"profiles={given!r}: give ranges by variable, such as {{'n': (1, 4, 16)}}, or several such")
    return tuple(_read_profile(each) for each in several)


def _read_profile(given: Any) -> Profile:
    if isinstance(given, Profile):
        return given
    if not isinstance(given, Mapping):
        raise ValueError(f"profiles holds {given!r}: give ranges by variable, such as {{'n': (1, 4, 16)}}")
    return Profile.of(given)


def with_bounds(function: relax.Function, callers: Iterable[relax.Function]) -> relax.Function:
    """Return a region function that carries what its callers' attributes say of its variables.

    Its variables have the names that they have in the callers. What it carries already is kept.
    """
    names = {str(variable.name) for variable in relax.analysis.defined_symbolic_vars(function)}
    found: dict[str, dict[str, int]] = {}
    for bounds in map(attribute_bounds, (function, *callers)):
        for attribute, known in bounds.items():
            for name in names & known.keys():
                found.setdefault(attribute, {}).setdefault(name, known[name])
    return function.with_attr(found) if found else function


def resolve(
    region: str, names: Mapping[str, str], given: Sequence[Profile], bounds: Mapping[str, Mapping[str, int]]
) -> tuple[Profile, ...]:
    """Return the profiles of a region.

    Parameters
    ----------
    region : str
        Its name, for the message.
    names : Mapping[str, str]
        Its variables, and by which name each was declared: two of them can have been given one name.
    given : Sequence[Profile]
        The user's, by declared names.
    bounds : Mapping[str, Mapping[str, int]]
        What `attribute_bounds` returns of it.

    Raises
    ------
    BuildError
        When the range of a variable is known from nowhere.
    """
    if not names:
        return ()
    known = {name: found for name in set(names.values()) if (found := _of_attributes(name, bounds)) is not None}
    profiles = [
        {variable: profile.by_name.get(name) or known.get(name) for variable, name in names.items()}
        for profile in given or (Profile(()),)
    ]
    missing = sorted({names[variable] for ranges in profiles for variable, found in ranges.items() if found is None})
    if missing:
        listed = ", ".join(missing)
        example = ", ".join(f"{name!r}: (min, opt, max)" for name in missing)
        raise BuildError(
            f"the range of {listed} in {region} is not known, and an engine is built for a range: give it with "
            f"BuildOptions(profiles={{{example}}}), or as the function attribute {UPPER_BOUND}"
        )
    # profiles that differ in variables of other regions are one here
    return tuple(dict.fromkeys(Profile.of(ranges) for ranges in profiles))


def _of_attributes(name: str, bounds: Mapping[str, Mapping[str, int]]) -> Range | None:
    """Return the range that attributes give a variable: TVM's lower bound may be 0, an engine's is 1."""
    most = bounds[UPPER_BOUND].get(name)
    if most is None or most < 1:
        return None
    least = min(max(1, bounds[LOWER_BOUND].get(name, 1)), most)
    return Range(least, usual(least, most), most)
