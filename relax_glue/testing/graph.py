"""A glue module while it grows: what was drawn so far, as Relax and as numpy at the same time.

Every operator of `operators` writes one Relax call and the numpy value it stands for. That gives a second
oracle beside TVM's, the sizes at run time of symbolic extents, and the bounds that keep arithmetic exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import tvm
from tvm import relax, tirx

Item = TypeVar("Item")
Array = np.ndarray[Any, Any]

MAX_ELEMENTS = 512
"""No drawn value is larger: faults of index arithmetic show on small tensors, and these are quick to run."""

MAX_RANK = 6

_EXACT = {"float16": 2**11, "float32": 2**24, "int8": 127, "uint8": 255, "int32": 2**31 - 1, "int64": 2**63 - 1}


class Choices:
    """The draws that operators need, each of which shrinks to its plainest outcome."""

    def __init__(self, draw: Callable[[int, int], int]):
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        """Draw from low to high, both included; shrinks to `low`."""
        return low if low == high else self._draw(low, high)

    def one_in(self, count: int) -> bool:
        """Draw True once in `count` draws; shrinks to False."""
        return self._draw(0, count - 1) == count - 1

    def item(self, items: Sequence[Item]) -> Item:
        """Draw an item; shrinks to the first."""
        return items[self.integer(0, len(items) - 1)]

    def subset(self, items: Sequence[Item], least: int = 1) -> list[Item]:
        """Draw some items in their order, at least `least` of them (or all there are)."""
        chosen = [item for item in items if self.one_in(2)]
        return chosen if len(chosen) >= least else list(items[:least])

    def permutation(self, count: int) -> list[int]:
        """Draw an order of 0..count-1; shrinks to the order itself."""
        order = list(range(count))
        for low in range(count - 1):
            other = self.integer(low, count - 1)
            order[low], order[other] = order[other], order[low]
        return order

    def spelling(self, axis: int, rank: int) -> int:
        """Name an axis from the front or, as importers do, from the back."""
        return axis - rank if self.one_in(3) else axis


@dataclass(frozen=True)
class Value:
    """A tensor of the module under construction.

    Attributes
    ----------
    expr
        The variable that holds it.
    array
        What it holds for the inputs drawn.
    dims
        Its extents: an int where static, else the text of the expression, which is compared for equality.
    """

    expr: relax.Expr
    array: Array
    dims: tuple[int | str, ...]

    @property
    def rank(self) -> int:
        """The number of axes."""
        return self.array.ndim

    @property
    def dtype(self) -> str:
        """The element type's name."""
        return str(self.array.dtype)

    @property
    def static(self) -> bool:
        """Whether every extent is a constant."""
        return all(isinstance(dim, int) for dim in self.dims)

    @property
    def extents(self) -> list[int | tvm.ir.Expr]:
        """The extents as Relax takes them in a shape."""
        if self.static:
            return list(self.array.shape)
        exprs = self.expr.ty.shape.values
        return [dim if isinstance(dim, int) else expr for dim, expr in zip(self.dims, exprs, strict=True)]

    def axes(self, least: int = 0) -> list[int]:
        """Return the axes whose extent is a constant and at least `least`."""
        return [axis for axis, dim in enumerate(self.dims) if isinstance(dim, int) and dim >= least]


def is_exact(array: Array, growth: float = 1) -> bool:
    """Say whether all finite entries are integers that, times `growth`, the dtype holds without rounding."""
    if array.dtype == bool:
        return False
    wide = array.astype("float64")
    finite = wide[np.isfinite(wide)]
    return peak(array) * growth <= _EXACT[str(array.dtype)] and bool(np.all(finite == np.trunc(finite)))


def peak(array: Array) -> float:
    """Return the largest finite magnitude, 0 where there is none."""
    wide = array.astype("float64")
    return float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0))


def is_tame(array: Array) -> bool:
    """Say whether no entry is NaN, infinite or -0.0, whose fate depends on the order of evaluation."""
    if array.dtype.kind != "f":
        return True
    return bool(np.isfinite(array).all()) and not bool(np.any((array == 0) & np.signbit(array)))


def fill(shape: Sequence[int], dtype: str, salt: int, *, special: bool = False) -> Array:
    """Make an array whose entries differ as far as the dtype allows, so that a wrong order shows.

    Parameters
    ----------
    shape, dtype
        Of the array.
    salt
        Seeds the order; the same salt gives the same array.
    special
        Put -0.0, NaN, +inf and -inf in place of the first entries of a floating-point array.
    """
    count = math.prod(shape)
    order = np.random.default_rng(salt).permutation(count)
    if dtype == "bool":
        return (order % 2 == 1).reshape(shape)
    span = min(count, {"int8": 240, "uint8": 250}.get(dtype, count))
    flat = (order % max(span, 1) - (0 if dtype == "uint8" else span // 2)).astype(dtype)
    if special and flat.dtype.kind == "f":
        flat[:4] = np.array([-0.0, np.nan, np.inf, -np.inf], dtype)[:count]
    return flat.reshape(shape)


class Graph:
    """The function drawn so far, a list of blocks of bindings.

    Attributes
    ----------
    values
        What an operator may use: parameters first, then results in the order of their bindings.
    tuples
        Tuple-typed variables (of `split`) with what they hold.
    blocks
        The finished blocks.
    may_compute
        Whether idioms may put an operator that computes in between.
    only_moves
        Whether every operator so far moves data and computes nothing.
    """

    def __init__(self, choices: Choices, values: Sequence[Value], *, dataflow: bool, may_compute: bool = True):
        self.choices = choices
        self.may_compute = may_compute
        self.values = list(values)
        self.tuples: list[tuple[relax.Var, list[Array]]] = []
        self.blocks: list[relax.BindingBlock] = []
        self.only_moves = True
        self._dataflow = dataflow
        self._bindings: list[relax.Binding] = []
        self._builder = relax.BlockBuilder()
        self._names = 0

    def operand(self, accepts: Callable[[Value], bool] | None = None) -> Value | None:
        """Draw a value, the newest half of the time; None where no value is accepted."""
        candidates = [value for value in reversed(self.values) if accepts is None or accepts(value)]
        if not candidates:
            return None
        index = self.choices.integer(0, 2 * len(candidates) - 1)
        return candidates[max(0, index - len(candidates))]

    def emit(self, expr: relax.Expr, array: Array) -> Value:
        """Bind a tensor expression that moves data.

        Raises
        ------
        RuntimeError
            If numpy's result has another shape or dtype than Relax infers: the strategy itself is at fault.
        """
        value = describe(self._bind(expr), array)
        self.values.append(value)
        return value

    def compute(self, expr: relax.Expr, array: Array) -> Value:
        """Bind an expression that computes with its operands, as `emit` does one that moves them."""
        self.only_moves = False
        return self.emit(expr, array)

    def emit_tuple(self, expr: relax.Expr, arrays: Sequence[Array]) -> relax.Var:
        """Bind a tuple-typed expression."""
        var = self._bind(expr)
        self.tuples.append((var, list(arrays)))
        return var

    def emit_cast(self, value: Value, ty: relax.TensorType) -> Value:
        """Bind a match_cast of a value to a type that holds for it."""
        self.values.append(describe(self.match_cast(value.expr, ty), value.array))
        return self.values[-1]

    def match_cast(self, expr: relax.Expr, ty: relax.Type) -> relax.Var:
        """Bind a match_cast of anything, such as a shape of which `ty` names the extents."""
        var = self._variable(ty)
        self._bindings.append(relax.MatchCast(var, expr, ty))
        return var

    def constant(self, shape: Sequence[int], dtype: str) -> tuple[relax.Expr, Array]:
        """Make a constant of a static shape."""
        self._names += 1
        array = fill(shape, dtype, 1000 + self._names)
        return literal(array), array

    def export(self, expr: relax.Expr) -> relax.Expr:
        """Make a variable visible outside its dataflow block."""
        if not isinstance(expr, relax.DataflowVar):
            return expr
        var = relax.Var(f"{expr.name}_out", expr.ty)
        self._bindings.append(relax.VarBinding(var, expr))
        return var

    def end_block(self, *, dataflow: bool) -> None:
        """Close the block of bindings and begin another, of either kind."""
        if self._bindings:
            kind = relax.DataflowBlock if self._dataflow else relax.BindingBlock
            self.blocks.append(kind(self._bindings))
        self._bindings, self._dataflow = [], dataflow

    def finish(self, parameters: Sequence[Value], result: relax.Expr) -> tvm.IRModule:
        """Close the function, named main, and put it into a module."""
        self.end_block(dataflow=False)
        body = self._builder.normalize(relax.SeqExpr(self.blocks, result))
        function = relax.Function([value.expr for value in parameters], body)
        return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})

    def _bind(self, expr: relax.Expr) -> relax.Var:
        typed = self._builder.normalize(expr)
        var = self._variable(typed.ty)
        self._bindings.append(relax.VarBinding(var, typed))
        return var

    def _variable(self, ty: relax.Type) -> relax.Var:
        self._names += 1
        kind = relax.DataflowVar if self._dataflow else relax.Var
        return kind(f"v{self._names}", ty)


def describe(var: relax.Var, array: Array) -> Value:
    """Pair a variable with its value, after a check that they agree.

    Raises
    ------
    RuntimeError
        If rank, a static extent or the dtype differ.
    """
    dims = tuple(int(e) if isinstance(e, tirx.IntImm) else str(e) for e in var.ty.shape.values)
    agrees = len(dims) == array.ndim and str(var.ty.dtype) == str(array.dtype)
    if not agrees or any(isinstance(d, int) and d != s for d, s in zip(dims, array.shape, strict=True)):
        raise RuntimeError(f"Relax infers {var.ty} where numpy has {array.dtype}{array.shape}")
    return Value(var, array, dims)


def literal(array: Array) -> relax.Expr:
    """Make a Relax constant of the array's own dtype; `relax.const` alone narrows int64 to int32."""
    return relax.const(array, str(array.dtype))
