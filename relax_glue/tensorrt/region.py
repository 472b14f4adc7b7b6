"""A region function as a flat list of operator calls.

A region function comes in two forms: with each operator wrapped in a local function (attribute `Composite`),
as MergeCompositeFunctions and the partitioner make them, or with the operators standing in its body. Tuples,
aliases and composite parameters are only ways to pass values on, so they are followed here, once; what is
left is what a network has layers for. Values are counted too: a layer may be merged into the one before it
only if nobody else reads that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import tvm
from tvm import relax

from ..errors import ConversionError
from ..ir.rename import with_symbols_of


@dataclass(frozen=True)
class Input:
    """A tensor that the region is called with.

    Attributes
    ----------
    name : str
        Unique in the region.
    param : int
        The position of the parameter.
    item : int or None
        The position in it, when the parameter is a tuple.
    ty : relax.TensorType
        Its type.
    """

    name: str
    param: int
    item: int | None
    ty: relax.TensorType = field(compare=False)


@dataclass(frozen=True)
class Result:
    """Output number `item` of step number `step`."""

    step: int
    item: int


@dataclass(frozen=True)
class ShapeInput:
    """Symbols that the region is called with: a ShapeType parameter.

    Attributes
    ----------
    name : str
        Unique in the region.
    param : int
        The position of the parameter.
    place : int
        The position among the parameters of ShapeType.
    extents : tuple[tvm.ir.Expr, ...]
        What it holds.
    """

    name: str
    param: int
    place: int
    extents: tuple[tvm.ir.Expr, ...] = field(compare=False)

    @property
    def ty(self) -> relax.ShapeType:
        """Its type."""
        return relax.ShapeType(list(self.extents))


Value: TypeAlias = "Input | Result | relax.Expr | tuple[Value, ...]"


@dataclass
class Step:
    """One operator call.

    Attributes
    ----------
    call : relax.Call
        The call; its variables are looked up in `scope`.
    name : str
        The name of the variable that is bound to it, seen from the region's body.
    scope : Mapping[relax.Var, Value]
        What each variable in its arguments stands for.
    uses : list[int]
        For each output, how often it is read: by later steps and as a result of the region.
    """

    call: relax.Call
    name: str
    scope: Mapping[relax.Var, Value]
    uses: list[int] = field(default_factory=list)


@dataclass
class Region:
    """A region function, flat.

    `inputs` and `shapes` stand in parameter order, `steps` in order, `outputs` in result order.
    """

    name: str
    inputs: list[Input]
    shapes: list[ShapeInput]
    steps: list[Step]
    outputs: list[Value]

    @property
    def arguments(self) -> list[Input | ShapeInput]:
        """What the region is called with, tuples taken apart, in parameter order."""
        given: list[Input | ShapeInput] = [*self.inputs, *self.shapes]
        return sorted(given, key=lambda each: each.param)


def flatten(function: relax.Function) -> Region:
    """Return the calls of a region function in order, with composites inlined.

    Raises
    ------
    ConversionError
        When the function holds what a network cannot: control flow, match_cast, calls of other functions, or
        values that are neither tensors, shapes nor scalars.
    """
    return _Flattener(function).region


class _Flattener:
    """Follows the values through one function; `region` is the result."""

    def __init__(self, function: relax.Function) -> None:
        attrs = function.attrs or {}
        name = str(attrs["global_symbol"]) if "global_symbol" in attrs else "region"
        self.region = Region(name, [], [], [], [])
        self._values: dict[relax.Var, Value] = {}
        self._functions: dict[relax.Var, relax.Function] = {}
        self._names: dict[str, int] = {}
        for index, param in enumerate(function.params):
            self._values[param] = self._param(param, index)
        returned = self._body(function, "")
        self.region.outputs.extend(leaves(returned))
        self._count()

    def _param(self, param: relax.Var, index: int) -> Value:
        if isinstance(param.ty, relax.TensorType):
            return self._input(param.name, index, None, param.ty)
        if isinstance(param.ty, relax.TupleType):
            fields = list(param.ty.fields)
            if all(isinstance(ty, relax.TensorType) for ty in fields):
                return tuple(self._input(f"{param.name}.{item}", index, item, ty) for item, ty in enumerate(fields))
        if isinstance(param.ty, relax.ShapeType):
            extents = tuple(param.ty.values or ())
            self.region.shapes.append(ShapeInput(self._unique(param.name), index, len(self.region.shapes), extents))
            return relax.ShapeExpr(extents)
        raise ConversionError(
            f"parameter {param.name} of {self.region.name} is a {param.ty}: a region takes tensors and shapes"
        )

    def _input(self, hint: str, index: int, item: int | None, ty: relax.TensorType) -> Input:
        made = Input(self._unique(hint), index, item, ty)
        self.region.inputs.append(made)
        return made

    def _unique(self, hint: str) -> str:
        count = self._names[hint] = self._names.get(hint, 0) + 1
        return hint if count == 1 else f"{hint}_{count}"

    def _body(self, function: relax.Function, prefix: str) -> Value:
        """Walk the bindings of the region (prefix "") or of a composite bound to `prefix`."""
        returned = function.body.body
        for block in function.body.blocks:
            for binding in block.bindings:
                if isinstance(binding, relax.MatchCast):
                    raise ConversionError(
                        f"{binding.var.name} in {self.region.name} is a match_cast, which checks a shape at "
                        f"run time; keep it outside the region"
                    )
                name = _name(binding.var, returned, prefix)
                self._bind(binding.var, binding.value, name)
        return self._value(returned)

    def _bind(self, var: relax.Var, value: relax.Expr, name: str) -> None:
        if isinstance(value, relax.Function):
            self._functions[var] = value
        elif isinstance(value, relax.Call):
            self._values[var] = self._call(value, name)
        else:
            self._values[var] = self._value(value)

    def _call(self, call: relax.Call, name: str) -> Value:
        if isinstance(call.op, tvm.ir.Op):
            return self._step(call, name)
        function = call.op if isinstance(call.op, relax.Function) else self._functions.get(call.op)
        if function is None:
            raise ConversionError(f"{name} in {self.region.name} calls {call.op}: a region calls no other function")
        function = with_symbols_of(function, call.args)  # TVM gives each composite symbols of its own
        for param, arg in zip(function.params, [self._value(arg) for arg in call.args], strict=True):
            self._values[param] = arg
        return self._body(function, name)

    def _step(self, call: relax.Call, name: str) -> Value:
        scope = {var: self._value(var) for var in _variables(call.args)}
        number = len(self.region.steps)
        self.region.steps.append(Step(call, name, scope))
        if isinstance(call.ty, relax.TupleType):
            return tuple(Result(number, item) for item in range(len(call.ty.fields)))
        return Result(number, 0)

    def _value(self, expr: relax.Expr) -> Value:
        if isinstance(expr, relax.Var):
            if expr not in self._values:
                raise ConversionError(f"{expr.name} in {self.region.name} is not a value that a tensor can have")
            return self._values[expr]
        if isinstance(expr, relax.Tuple):
            return tuple(self._value(item) for item in expr.fields)
        if isinstance(expr, relax.TupleGetItem):
            whole = self._value(expr.tuple_value)
            if isinstance(whole, tuple):
                return whole[int(expr.index)]
        if isinstance(expr, relax.Call | relax.Function | relax.If | relax.SeqExpr | relax.TupleGetItem):
            raise ConversionError(f"{type(expr).__name__} in {self.region.name} where a plain value is expected")
        return expr

    def _count(self) -> None:
        for step in self.region.steps:
            fields = step.call.ty.fields if isinstance(step.call.ty, relax.TupleType) else [step.call.ty]
            step.uses = [0] * len(fields)
        read = [step.scope[var] for step in self.region.steps for var in _variables(step.call.args)]
        for value in leaves((*read, *self.region.outputs)):
            if isinstance(value, Result):
                self.region.steps[value.step].uses[value.item] += 1


def leaves(value: Value) -> Iterator[Value]:
    """Yield the values in `value`, which may be a nested tuple, from left to right."""
    if isinstance(value, tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def _variables(args: Iterable[relax.Expr]) -> Iterator[relax.Var]:
    """Yield the variables in call arguments, one for each place where it stands; symbols are no values."""
    for arg in args:
        if tvm.ir.is_prim_expr(arg):
            continue
        if isinstance(arg, relax.Var):
            yield arg
        elif isinstance(arg, relax.Tuple):
            yield from _variables(arg.fields)
        elif isinstance(arg, relax.TupleGetItem):
            yield from _variables([arg.tuple_value])


def _name(var: relax.Var, returned: relax.Expr, prefix: str) -> str:
    """Name a binding: what a composite returns is called as the composite's own variable."""
    if not prefix:
        return str(var.name)
    return prefix if var.same_as(returned) else f"{prefix}.{var.name}"
