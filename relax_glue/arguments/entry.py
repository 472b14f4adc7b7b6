"""What a function asks of the arguments of a call: by its signature, the declared ranges, and its checks.

Asked in this order, so that nothing is read before it is known to be there: that an argument is a tensor, its rank and
its dtype; extents that are numbers or variables; ranges; that nothing is divided by 0, which would end the process;
extents that are expressions; and what the importer noted as checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm import relax, tirx

from ..ir.bounds import LOWER_BOUND, UPPER_BOUND, attribute_bounds
from ..ir.checks import Check, checks_of
from ..ir.inputs import input_names
from ..ir.shapes import dtype_of
from ..ir.text import written
from .kernel import Kernel, Part

_LISTED = 8  # variables in one message
_DIVISIONS = (tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod)
_RESIZE = ": resize the input"


@dataclass(frozen=True)
class Axis:
    """An axis of an input: what it has in a call, and what it is to have."""

    input: relax.Var
    index: int
    given: tirx.PrimExpr
    wanted: tirx.PrimExpr

    @property
    def is_expression(self) -> bool:
        """Whether what it is to have is computed from other extents."""
        return not isinstance(self.wanted, (tirx.IntImm, tirx.Var))


class Entry:
    """The entry of one function.

    Parameters
    ----------
    name : str
        What the function is called.
    func : relax.Function
        It is not changed.
    kernel : Kernel
        Where its arguments are asked.
    """

    def __init__(self, name: str, func: relax.Function, kernel: Kernel) -> None:
        self._name = name
        self._func = func
        self._kernel = kernel
        self._names = input_names(func)
        self._bounds = attribute_bounds(func)
        self._places: dict[tirx.Var, Axis] = {}

    def ask(self) -> list[int]:
        """Add all that is asked to the kernel; return the places of the parameters that are its arguments."""
        inputs = _inputs(self._func)
        places = [place for place, param in enumerate(inputs) if isinstance(param.ty, relax.TensorType)]
        axes = [axis for index, place in enumerate(places) for axis in self._axes(index, inputs[place])]
        for axis in axes:
            if isinstance(axis.wanted, tirx.Var) and axis.wanted not in self._places:
                self._kernel.define(axis.wanted, axis.given)
                self._places[axis.wanted] = axis
        self._ask_of_extents(axis for axis in axes if not axis.is_expression)
        for symbol in self._places:
            self._ask_of_range(symbol)
        self._ask_of_divisors()
        self._ask_of_extents(axis for axis in axes if axis.is_expression and self._knows(axis.wanted))
        for check in checks_of(self._func):
            if self._knows(check.left, check.right):
                self._ask_of_check(check)
        return places

    # What is asked

    def _axes(self, index: int, param: relax.Var) -> list[Axis]:
        """Ask of an argument that it is a tensor of the right rank and dtype; return its axes."""
        ty, kernel, whose = param.ty, self._kernel, self._whose(param)
        dtype = dtype_of(ty)
        way_out = f"pass a {dtype or ''} tensor{_shape(ty)}".replace("  ", " ")
        kernel.require(kernel.argument(index).is_tensor(), f"{whose} is no tensor: {way_out}")
        tensor = kernel.tensor(kernel.argument(index))
        if ty.ndim >= 0:
            told = (f"{whose} has rank ", tensor.rank(), f", and has to have {ty.ndim}: {way_out}")
            kernel.require(tensor.rank() == ty.ndim, *told)
        if dtype is not None:
            told = (f"{whose} holds ", tensor, f", and has to hold {dtype}: {way_out}")
            kernel.require(tensor.has_dtype(dtype), *told)
        extents = getattr(ty.shape, "values", ())
        return [Axis(param, axis, tensor.extent(axis), extent) for axis, extent in enumerate(extents)]

    def _ask_of_extents(self, axes: Iterable[Axis]) -> None:
        for axis in axes:
            if self._places.get(axis.wanted) is axis:
                continue
            told: list[Part] = [f"{self._whose(axis.input)} has the extent ", axis.given]
            told += [f" on axis {axis.index}, and has to have "]
            if isinstance(axis.wanted, tirx.IntImm):
                told += [f"{axis.wanted.value}: resize it, or import the model with another shape for it"]
            else:
                told += [f"{written(axis.wanted)}, which is ", *self._valued(axis.wanted), _RESIZE]
            self._kernel.require(axis.given == axis.wanted, *told)

    def _ask_of_range(self, symbol: tirx.Var) -> None:
        least, most = (self._bounds[which].get(str(symbol.name)) for which in (LOWER_BOUND, UPPER_BOUND))
        axis, name = self._places[symbol], symbol.name
        begin = f"{self._whose(axis.input)} has {name} = "
        end = (
            f" on axis {axis.index}, and the range of {name} is {_range(least, most)}: resize it, or import the model "
            f"with a range that holds it, such as ranges={{'{name}': ("
        )
        if least:
            self._kernel.require(symbol > 0, f"{begin}0 on axis {axis.index}: pass an input that is not empty")
            self._kernel.require(symbol >= least, begin, symbol, end, symbol, f", {most})}}")
        if most is not None:
            self._kernel.require(symbol <= most, begin, symbol, f"{end}{max(least or 1, 1)}, ", symbol, ")}")

    def _ask_of_divisors(self) -> None:
        for divisor in filter(self._knows, _divisors(self._func)):
            told = f"sizes in {self._name} are divided by {written(divisor)}, which is "
            self._kernel.require(divisor != 0, told, *self._valued(divisor), ": pass an input that is not empty")

    def _ask_of_check(self, check: Check) -> None:
        left, right = check.left, check.right
        clamp = _clamp(left, right) or _clamp(right, left)
        if clamp is not None:
            self._ask_of_clamp(check.node, *clamp)
            return
        if isinstance(left, tirx.IntImm) or _factor(right, left) is not None:
            left, right = right, left
        needs = f"node '{check.node}' of {self._name} needs {written(left)}"
        factor = _factor(left, right)
        if factor is not None:
            told = [f"{needs} to be a multiple of {factor}, and it is ", *self._valued(left)]
        elif isinstance(right, tirx.IntImm):
            told = [f"{needs} to be {right.value}, and it is ", *self._valued(left)]
        else:
            told = [f"{needs} and {written(right)} to be equal, and they are ", left, " and ", right]
            told += self._with(left, right)
        self._kernel.require(left == right, *told, _RESIZE)

    def _ask_of_clamp(self, node: str, value: tirx.PrimExpr, least: int | None, most: int | None) -> None:
        """Ask that a value lies between two numbers, as far as no range asks it."""
        declared = [self._bounds[which].get(str(value)) for which in (LOWER_BOUND, UPPER_BOUND)]
        begin = f"node '{node}' of {self._name} needs {written(value)} to be at"
        told = ["and it is ", *self._valued(value), _RESIZE]
        if least is not None and least != declared[0]:
            self._kernel.require(value >= least, f"{begin} least {least}, ", *told)
        if most is not None and most != declared[1]:
            self._kernel.require(value <= most, f"{begin} most {most}, ", *told)

    # Words

    def _knows(self, *extents: tirx.PrimExpr) -> bool:
        return all(self._places.keys() >= set(tirx.analysis.undefined_vars(extent)) for extent in extents)

    def _input(self, param: relax.Var) -> str:
        name = str(param.name)
        return f"input '{self._names.get(name, name)}'"

    def _whose(self, param: relax.Var) -> str:
        return f"{self._input(param)} of {self._name}"

    def _valued(self, extent: tirx.PrimExpr) -> list[Part]:
        """Return what an extent is in the call, and by what."""
        if isinstance(extent, tirx.Var):
            return [extent, f" ({self._place(extent)})"]
        return [extent, *self._with(extent)]

    def _with(self, *extents: tirx.PrimExpr) -> list[Part]:
        """Return the variables of extents, with their values and places."""
        found = dict.fromkeys(symbol for extent in extents for symbol in tirx.analysis.undefined_vars(extent))
        told: list[Part] = []
        for symbol in list(found)[:_LISTED]:
            told += [f"{', ' if told else ' with '}{symbol.name} = ", symbol, f" ({self._place(symbol)})"]
        return told

    def _place(self, symbol: tirx.Var) -> str:
        axis = self._places[symbol]
        return f"axis {axis.index} of {self._input(axis.input)}"


def _inputs(func: relax.Function) -> Sequence[relax.Var]:
    """Return the parameters that are no weights, as TVM tells them apart when it checks arguments."""
    count = (func.attrs or {}).get("num_input")
    return list(func.params if count is None else func.params[: int(count)])


def _shape(ty: relax.TensorType) -> str:
    values = getattr(ty.shape, "values", None)
    if values is None:
        return "" if ty.ndim < 0 else f" of rank {ty.ndim}"
    return f" ({', '.join(map(written, values))}{',' if len(values) == 1 else ''})"


def _range(least: int | None, most: int | None) -> str:
    if most is None:
        return f"at least {least}"
    return f"{least} to {most}" if least else f"at most {most}"


def _clamp(value: tirx.PrimExpr, other: tirx.PrimExpr) -> tuple[tirx.PrimExpr, int | None, int | None] | None:
    """Return a value and the numbers it lies between, where `other` is max(min(value, most), least); else None."""
    ends: dict[type, int] = {}
    while isinstance(other, (tirx.Min, tirx.Max)) and type(other) not in ends:
        number, inner = (other.a, other.b) if isinstance(other.a, tirx.IntImm) else (other.b, other.a)
        if not isinstance(number, tirx.IntImm):
            return None
        ends[type(other)] = int(number.value)
        other = inner
    if not ends or not tvm_ffi.structural_equal(value, other):
        return None
    return value, ends.get(tirx.Max), ends.get(tirx.Min)


def _factor(value: tirx.PrimExpr, other: tirx.PrimExpr) -> int | None:
    """Return n where `other` is value // n * n; None for anything else."""
    if (
        not isinstance(other, tirx.Mul)
        or not isinstance(other.a, tirx.FloorDiv)
        or not isinstance(other.b, tirx.IntImm)
    ):
        return None
    is_same = tvm_ffi.structural_equal(other.a.b, other.b) and tvm_ffi.structural_equal(other.a.a, value)
    return int(other.b.value) if is_same else None


def _divisors(func: relax.Function) -> Iterator[tirx.PrimExpr]:
    """Yield what the extents in a function are divided by, numbers apart, each once."""
    found: dict[str, tirx.PrimExpr] = {}

    def note(division: tirx.FloorDiv | tirx.FloorMod | tirx.Div | tirx.Mod) -> None:
        if not isinstance(division.b, tirx.IntImm):
            found.setdefault(str(division.b), division.b)

    tvm_ffi.structural_walk(func, ((_DIVISIONS, note),))
    yield from found.values()
