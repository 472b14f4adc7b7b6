"""A region function without its composites: the same calls, standing in one dataflow block.

It is the region as TVM can compile it (when an engine cannot be had, and as what engines are checked
against), and the form in which a region is written down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax, tirx

from .region import Input, Region, Result, Value, flatten


@dataclass(frozen=True)
class Plain:
    """A plain function and what it came from.

    Attributes
    ----------
    function : relax.Function
        The signature of the region; with lifted constants, these are further parameters.
    region : Region
        The region, flat.
    constants : list[tvm.ir.GenericConst]
        The lifted constants, in the order of their parameters.
    """

    function: relax.Function
    region: Region
    constants: list[tvm.ir.GenericConst]


def plain_function(function: relax.Function) -> relax.Function:
    """Return a region function with its composites inlined and its codegen attribute gone.

    Parameters
    ----------
    function : relax.Function
        A region.

    Raises
    ------
    ConversionError
        When the region holds more than operator calls.
    """
    return _Writer(function).write()


def lift_constants(function: relax.Function) -> Plain:
    """Return the plain function with each constant as a parameter `constant<i>` behind its own."""
    writer = _Writer(function, lift=True)
    return Plain(writer.write(), writer.region, writer.constants)


def with_every_step(function: relax.Function) -> Plain:
    """Return the plain function that yields what all its calls do, in order, then its own results.

    Its parameters are those of the region, tuples taken apart.
    """
    writer = _Writer(function, flat=True)
    return Plain(writer.write(writer.every_step), writer.region, [])


class _Writer:
    """Emits the steps of a region into a new function."""

    def __init__(self, function: relax.Function, *, lift: bool = False, flat: bool = False) -> None:
        self.region = flatten(function)
        self.constants: list[tvm.ir.GenericConst] = []
        self._lift = lift
        self._source = function
        given = self.region.arguments
        sources = given if flat else list(function.params)
        self._params = [relax.Var(str(source.name), source.ty) for source in sources]
        self._inputs = dict(zip(given, self._params, strict=True)) if flat else {}
        self._lifted: dict[tvm.ir.GenericConst, relax.Var] = {}
        self._steps: list[relax.Var] = []
        self._builder = relax.BlockBuilder()
        for step in self.region.steps:
            for value in step.scope.values():
                self._find_constants(value)
            for arg in step.call.args:
                self._find_constants(arg)
        for value in self.region.outputs:
            self._find_constants(value)

    def write(self, result: Callable[[], relax.Expr] | None = None) -> relax.Function:
        """Emit the function; `result` makes what it returns, the region's own results if left out."""
        params = [*self._params, *self._lifted.values()]
        with self._builder.function("region", params, attrs=None):
            with self._builder.dataflow():
                for step in self.region.steps:
                    args = [self._arg(arg, step.scope) for arg in step.call.args]
                    call = relax.Call(step.call.op, args, step.call.attrs, step.call.ty_args)
                    self._steps.append(self._builder.emit(call, step.name.replace(".", "_")))
                returned = (result or self._results)()
                returned = self._builder.emit_output(returned)
            self._builder.emit_func_output(returned)
        return self._builder.get()["region"]

    def every_step(self) -> relax.Expr:
        items: list[relax.Expr] = []
        for var in self._steps:
            if isinstance(var.ty, relax.TupleType):
                items.extend(relax.TupleGetItem(var, index) for index in range(len(var.ty.fields)))
            else:
                items.append(var)
        return relax.Tuple(items + [self._value(value) for value in self.region.outputs])

    def _results(self) -> relax.Expr:
        return rebuild(self._source.ret_ty, iter([self._value(value) for value in self.region.outputs]))

    def _find_constants(self, value: Value) -> None:
        if isinstance(value, tvm.ir.GenericConst):
            if self._lift and value not in self._lifted:
                self._lifted[value] = relax.Var(f"constant{len(self.constants)}", value.ty)
                self.constants.append(value)
        elif isinstance(value, tuple):
            for item in value:
                self._find_constants(item)
        elif isinstance(value, relax.Tuple):
            for item in value.fields:
                self._find_constants(item)

    def _arg(self, arg: relax.Expr, scope: Mapping[relax.Var, Value]) -> relax.Expr:
        if tvm.ir.is_prim_expr(arg):  # a number, or a symbol, which is a variable too, as in arange(0, n)
            return arg
        if isinstance(arg, relax.Var):
            return self._value(scope[arg])
        if isinstance(arg, relax.Tuple):
            return relax.Tuple([self._arg(item, scope) for item in arg.fields])
        if isinstance(arg, relax.TupleGetItem):
            whole = self._arg(arg.tuple_value, scope)
            return whole.fields[arg.index] if isinstance(whole, relax.Tuple) else relax.TupleGetItem(whole, arg.index)
        return self._value(arg)

    def _value(self, value: Value) -> relax.Expr:
        if isinstance(value, Input) and value in self._inputs:
            return self._inputs[value]
        if isinstance(value, Input):
            param = self._params[value.param]
            return param if value.item is None else relax.TupleGetItem(param, value.item)
        if isinstance(value, Result):
            var = self._steps[value.step]
            return relax.TupleGetItem(var, value.item) if isinstance(var.ty, relax.TupleType) else var
        if isinstance(value, tuple):
            return relax.Tuple([self._value(item) for item in value])
        return self._lifted.get(value, value)


def rebuild(ty: relax.Type, items: Iterator[relax.Expr]) -> relax.Expr:
    """Put flat values back into the (nested) tuples of a type."""
    if isinstance(ty, relax.TupleType):
        return relax.Tuple([rebuild(field, items) for field in ty.fields])
    return next(items)


def tensor_types(ty: relax.Type) -> list[relax.TensorType]:
    """Return the tensor types in a (nested tuple) type, from left to right."""
    if isinstance(ty, relax.TupleType):
        return [leaf for field in ty.fields for leaf in tensor_types(field)]
    return [ty]


def static_shape(ty: relax.TensorType) -> tuple[int, ...] | None:
    """Return the extents of a tensor type, or None if one of them is symbolic or the shape is unknown."""
    values: Sequence[tirx.PrimExpr] | None = getattr(ty.shape, "values", None)
    if values is None or not all(isinstance(extent, tirx.IntImm) for extent in values):
        return None
    return tuple(int(extent) for extent in values)
