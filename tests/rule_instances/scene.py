"""Where an instance of a rule is drawn: parameters, calls and results, without a numpy value for each.

`relax_glue.testing` draws modules of which it knows the result; a rule is held against the module that it was
given, so here only the shapes have to be right and any operator can stand. The draws come from `random`, not from
hypothesis: a drawn instance takes a millisecond, and its seed names it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.sym import Analyzer

from relax_glue.ir.rename import rename
from relax_glue.testing.graph import Choices, Graph, Value, describe, fill, literal

FLOATS = ("float32", "float16")
SIGNED = ("int32", "int64", "int8")
NUMBERS = (*FLOATS, *SIGNED, "uint8")
DTYPES = (*NUMBERS, "bool")
EXTENTS = (2, 3, 4, 1, 6, 2, 3, 4, 1, 5, 8)

Extent = Any
Step = Callable[[Graph], None]


class NoInstance(Exception):
    """The draws do not fit together; the next seed is tried."""


@dataclass(frozen=True, eq=False)
class Instance:
    """A module with inputs.

    Attributes
    ----------
    module
        What the rule gets.
    reference
        What it has to compute: the module itself, or the same function where TVM cannot compile the module.
    inputs
        One array for each parameter.
    only_moves
        Whether it moves data and computes nothing.
    typed
        Whether the reference says of its result all that the module does.
    """

    module: tvm.IRModule
    reference: tvm.IRModule
    inputs: tuple[np.ndarray, ...]
    only_moves: bool
    typed: bool


class Scene:
    """One instance while it is drawn.

    Parameters
    ----------
    seed : str
        Names the instance.
    special : bool
        Whether floating-point inputs may hold NaN, infinities and -0.0.

    Attributes
    ----------
    given : Callable
        Makes what the rule gets of what was drawn; the two compute the same.
    reference : Callable, optional
        Makes of what was drawn, where TVM cannot compile that, the same function with one result.
    """

    def __init__(self, seed: str, special: bool):
        self.choices = Choices(random.Random(seed).randint)
        self.graph = Graph(self.choices, [], dataflow=True)
        self.special = special and self.choices.one_in(2)
        self._largest = None if special else 2.0  # of float16, whose sums of products are not to leave its range
        self.parameters: list[Value] = []
        self._builder = relax.BlockBuilder()
        self._sizes = Analyzer()
        self._symbols = 0
        self._kept: list[Value] = []
        self.reference: Callable[[tvm.IRModule], tvm.IRModule] | None = None
        self.given: Callable[[tvm.IRModule], tvm.IRModule] = lambda module: module

    # -- operands ----------------------------------------------------------------------------------------

    def dtype(self, among: Sequence[str] = DTYPES) -> str:
        return self.choices.item(among)

    def shape(self, ranks: Sequence[int] = (3, 2, 4, 1), extents: Sequence[int] = EXTENTS) -> list[int]:
        return [self.choices.item(extents) for _ in range(self.choices.item(ranks))]

    def parameter(self, shape: Sequence[Extent], dtype: str, array: np.ndarray | None = None) -> Value:
        """Add a parameter, whose entries are drawn where they are not given; symbols have sizes (see `symbol`)."""
        var = relax.Var(f"x{len(self.parameters)}", relax.TensorType(list(shape), dtype))
        value = describe(var, self.data(self.sizes(shape), dtype) if array is None else array)
        self.parameters.append(value)
        self.graph.values.append(value)
        return value

    def symbol(self, size: int) -> tirx.Var:
        """Make a symbolic extent that is `size` in the inputs."""
        var = tirx.Var(f"n{self._symbols}", "int64")
        self._symbols += 1
        self._sizes.bind(var, tirx.IntImm("int64", size))
        return var

    def tensor(
        self,
        shape: Sequence[Extent] | None = None,
        dtype: str | None = None,
        *,
        static: bool = False,
        ranks: Sequence[int] = (3, 2, 4, 1),
        dtypes: Sequence[str] = DTYPES,
    ) -> Value:
        """Draw an operand: a parameter, an item of a tuple, or a result; now and then with a symbolic extent."""
        extents = list(self.shape(ranks) if shape is None else shape)
        dtype = self.dtype(dtypes) if dtype is None else dtype
        if shape is None and not static and extents and self.choices.one_in(4):
            axis = self.choices.integer(0, len(extents) - 1)
            extents[axis] = self.symbol(extents[axis])
        return self.choices.item((self.parameter, self.parameter, self._item, self._result))(extents, dtype)

    def _item(self, shape: list[Extent], dtype: str) -> Value:
        """Draw an item of a split."""
        axes = [axis for axis, extent in enumerate(shape) if isinstance(extent, int) and extent]
        if not axes:
            return self.parameter(shape, dtype)
        axis = self.choices.item(axes)
        whole = self.parameter([2 * e if a == axis else e for a, e in enumerate(shape)], dtype)
        parts = np.split(whole.array, 2, axis)
        var = self.graph.emit_tuple(relax.op.split(whole.expr, 2, axis), parts)
        index = self.choices.integer(0, 1)
        return self.graph.emit(relax.TupleGetItem(var, index), parts[index])

    def _result(self, shape: list[Extent], dtype: str) -> Value:
        """Draw the result of an operator that no pattern here begins with."""
        value = self.parameter(shape, dtype)
        if value.array.ndim == 0 or value.array.size == 0 or dtype == "bool":
            return value
        return self.call(relax.op.cumsum(value.expr, 0, dtype))

    def constant(self, shape: Sequence[int], dtype: str, one_value: bool = False) -> relax.Expr:
        """Make a constant; of one value only where that is asked for."""
        array = self.data(list(shape), dtype)
        if one_value and array.size:
            array = np.full(array.shape, array.flat[self.choices.integer(0, array.size - 1)])
        return literal(array)

    def data(self, shape: Sequence[int], dtype: str) -> np.ndarray:
        """Make the entries of a parameter or constant."""
        array = fill(shape, dtype, self.choices.integer(0, 1 << 30), special=self.special)
        if dtype == "float16" and self._largest is not None and array.size:
            array = (array * (self._largest / max(float(np.abs(array).max()), 1.0))).astype(dtype)
        # fractions show another order of evaluation, integers meet equal values and zeros
        return (array / 7).astype(dtype) if dtype in FLOATS and self.choices.one_in(2) else array

    # -- calls -------------------------------------------------------------------------------------------

    def call(self, expr: relax.Expr, moves: bool = False) -> Value:
        """Bind a call that gives a tensor; its entries are not known, only its shape."""
        typed = self._typed(expr)
        if not isinstance(typed.ty.shape, relax.ShapeExpr):
            raise NoInstance("Relax does not know the shape of the result")
        return (self.graph.emit if moves else self.graph.compute)(typed, self._stand_in(typed.ty))

    def call_tuple(self, expr: relax.Expr, moves: bool = False) -> list[Value]:
        """Bind a call that gives a tuple, and its items."""
        typed = self._typed(expr)
        stand_ins = [self._stand_in(ty) for ty in typed.ty.fields]
        var = self.graph.emit_tuple(typed, stand_ins)
        self.graph.only_moves &= moves
        return [self.graph.emit(relax.TupleGetItem(var, k), array) for k, array in enumerate(stand_ins)]

    def bind(self, expr: relax.Expr) -> relax.Var:
        """Bind what is no tensor of known shape."""
        self.graph.only_moves = False
        var = self.graph.emit_tuple(expr, [])
        self.graph.tuples.pop()
        return var

    def bind_outside(self, expr: relax.Expr) -> relax.Var:
        """Bind a shape before the dataflow block: no type in one may hang on a variable of the block itself."""
        self.graph.end_block(dataflow=False)
        var = self.bind(expr)
        self.graph.end_block(dataflow=True)
        return var

    def known(self, expr: relax.Expr, array: np.ndarray) -> Value:
        """Return a constant as a value that operators can take."""
        return describe(expr, array)

    def unknown(self, expr: relax.Expr, array: np.ndarray) -> Value:
        """Bind a call whose result has a shape that Relax does not know; `array` has it."""
        self.graph.only_moves = False
        return Value(self.bind(expr), array, tuple(array.shape))

    def cast_shape(self, shape: relax.Expr, sizes: Sequence[int]) -> list[tirx.Var]:
        """Bind a match_cast that names the extents of a shape, which are `sizes`; return the names."""
        symbols = [self.symbol(size) for size in sizes]
        self.graph.match_cast(shape, relax.ShapeType(symbols))
        return symbols

    def step(self, value: Value, *steps: Step) -> Value:
        """Draw one of the steps of `relax_glue.testing` on a value alone; return the newest result."""
        kept, self.graph.values = self.graph.values, [value]
        with np.errstate(all="ignore"):
            self.choices.item(steps)(self.graph)
        made = self.graph.values[1:]
        self.graph.values = kept + made
        if not made:
            raise NoInstance("the step does not take this operand")
        return made[-1]

    def keep(self, values: Sequence[Value]) -> None:
        """Let values be results of the function."""
        self._kept += values

    def _typed(self, expr: relax.Expr) -> relax.Expr:
        return self._builder.normalize(expr)

    def _stand_in(self, ty: relax.Type) -> np.ndarray:
        return fill(self.sizes(ty.shape.values), str(ty.dtype), 0)

    def sizes(self, shape: Sequence[Extent]) -> list[int]:
        """Return what extents are in the inputs."""
        return [self._size(extent) for extent in shape]

    def _size(self, extent: Extent) -> int:
        if isinstance(extent, (int, tirx.IntImm)):
            return int(extent)
        return int(self._sizes.simplify(extent))

    # -- the end -----------------------------------------------------------------------------------------

    def finish(self, result: Value) -> Instance:
        """Close the function: the result, now and then computed with, beside values that are shared so."""
        if self.reference is not None:
            return self._close([self.graph.export(result.expr)])
        choices = self.choices
        if choices.one_in(4) and result.dtype != "bool":
            result = self.call(relax.op.nn.relu(result.expr))
        inner = [v for v in self.graph.values if isinstance(v.expr, relax.DataflowVar) and v is not result]
        shared = [v.expr for v in inner if v in self._kept or choices.one_in(8)]
        shared += [var for var, _ in self.graph.tuples if choices.one_in(12)]
        return self._close([self.graph.export(expr) for expr in [*shared, result.expr]])

    def _close(self, fields: list[relax.Expr]) -> Instance:
        body = fields[0] if len(fields) == 1 else relax.Tuple(fields)
        module = self.graph.finish(self.parameters, body)
        inputs = tuple(p.array for p in self.parameters)
        reference = module if self.reference is None else self.reference(module)
        typed = self.reference is None
        return Instance(self.given(module), reference, inputs, self.graph.only_moves, typed)


def forget(module: tvm.IRModule) -> tvm.IRModule:
    """Return a module whose bindings know the ranks of their results, and the extents only where a block ends."""
    function = module["main"]
    renamed: dict[relax.Var, relax.Var] = {}
    blocks = []
    for block in function.body.blocks:
        bindings = []
        for binding in block.bindings:
            inner = isinstance(binding.var, relax.DataflowVar)
            ty = _without_extents(binding.var.ty) if inner else binding.var.ty
            renamed[binding.var] = type(binding.var)(binding.var.name, ty)
            value = rename(binding.value, renamed)
            if isinstance(value, relax.Call):
                value = relax.Call(value.op, value.args, value.attrs, value.ty_args, value.span, ty)
            bindings.append(relax.VarBinding(renamed[binding.var], value))
        blocks.append(relax.DataflowBlock(bindings))
    result = rename(function.body.body, renamed)
    body = relax.BlockBuilder().normalize(relax.SeqExpr(blocks, result))
    return tvm.IRModule({"main": relax.Function(function.params, body).with_attr("global_symbol", "main")})


def _without_extents(ty: relax.Type) -> relax.Type:
    if isinstance(ty, relax.TupleType):
        return relax.TupleType([_without_extents(field) for field in ty.fields])
    return relax.TensorType(ndim=ty.ndim, dtype=str(ty.dtype)) if isinstance(ty, relax.TensorType) else ty
