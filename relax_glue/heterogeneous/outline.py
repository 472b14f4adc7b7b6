"""Steps of a function as a function of their own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax, tirx
from tvm.relax.utils import copy_with_new_vars

from .steps import Step


@dataclass(frozen=True)
class Boundary:
    """What crosses the border of a set of steps.

    Attributes
    ----------
    inputs : tuple[relax.Var, ...]
        The variables that the steps read from outside, in order of their first use.
    symbols : tuple[tirx.Var, ...]
        The symbols that they need and no input's type defines.
    outputs : tuple[relax.Var, ...]
        The variables of the steps that are read outside, in order.
    yielded : tuple[tirx.Var, ...]
        The symbols that the steps define and that are needed outside, or in the type of an output.
    """

    inputs: tuple[relax.Var, ...]
    symbols: tuple[tirx.Var, ...]
    outputs: tuple[relax.Var, ...]
    yielded: tuple[tirx.Var, ...]


def boundary(members: Sequence[Step], others: Sequence[Step], result: relax.Expr) -> Boundary:
    """Find what crosses the border of `members`.

    Parameters
    ----------
    members : sequence of Step
        In an order in which they can run.
    others : sequence of Step
        The other steps of the sequence.
    result : relax.Expr
        What the sequence returns.
    """
    inside = {step.var for step in members}
    defined = {symbol for step in members for symbol in step.defines}
    inputs = tuple(dict.fromkeys(var for step in members for var in step.reads if var not in inside))
    by_inputs = {s for var in inputs for s in relax.analysis.definable_tir_vars_in_type(var.ty)}
    needed = dict.fromkeys(s for step in members for s in step.needs)
    needed.update((s, None) for var in inputs for s in relax.analysis.tir_vars_in_type(var.ty))
    symbols = tuple(s for s in needed if s not in defined and s not in by_inputs)
    read_outside = {var for step in others for var in step.reads} | set(relax.analysis.free_vars(result))
    outputs = tuple(step.var for step in members if step.var in read_outside)
    wanted = dict.fromkeys(s for step in others for s in step.needs)
    wanted.update((s, None) for var in outputs for s in relax.analysis.tir_vars_in_type(var.ty))
    yielded = tuple(s for s in wanted if s in defined)
    return Boundary(inputs, symbols, outputs, yielded)


def parameters(border: Boundary) -> list[relax.Var]:
    """Return what a function of these steps takes: the inputs, then a shape of the symbols, if there are such."""
    if not border.symbols:
        return list(border.inputs)
    return [*border.inputs, relax.Var("symbols", relax.ShapeType(list(border.symbols)))]


def arguments(border: Boundary) -> list[relax.Expr]:
    """Return what such a function is called with."""
    return [*border.inputs, *([relax.ShapeExpr(list(border.symbols))] if border.symbols else [])]


def make_function(
    params: Sequence[relax.Var], bindings: Sequence[relax.Binding], result: relax.Expr, is_pure: bool = True
) -> relax.Function:
    """Make a function of bindings, with variables and symbols of its own.

    Parameters
    ----------
    params : sequence of relax.Var
        May be variables of the function that the bindings come from.
    bindings : sequence of relax.Binding
        In an order in which they can run.
    result : relax.Expr
        What it returns: a variable, or a tuple of variables.
    is_pure : bool
        Whether none of the bindings has an effect.
    """
    out = relax.Var("result", result.ty)
    body = relax.SeqExpr([relax.BindingBlock([*bindings, relax.VarBinding(out, result)])], out)
    relax.expr._update_type(body, result.ty)
    given = {s for param in params for s in relax.analysis.tir_vars_in_type(param.ty)}
    function = relax.Function(params, body, seen_outside(result.ty, given), is_pure)
    return copy_with_new_vars(function)


def seen_outside(ty: relax.Type, known: Collection[tirx.Var]) -> relax.Type:
    """Return a type without what is unknown outside: symbols that are not `known`, and shapes that are variables."""
    if isinstance(ty, relax.TupleType):
        return relax.TupleType([seen_outside(field, known) for field in ty.fields])
    foreign = not set(known).issuperset(relax.analysis.tir_vars_in_type(ty))
    if isinstance(ty, relax.ShapeType):
        return relax.ShapeType(ndim=ty.ndim) if foreign else ty
    if not isinstance(ty, relax.TensorType):
        return ty
    return relax.TensorType(dtype=ty.dtype, ndim=ty.ndim) if foreign or not shape_is_known(ty) else ty


def shape_is_known(ty: relax.TensorType) -> bool:
    """Return whether a tensor type has its extents, numbers or symbols."""
    return isinstance(ty.shape, relax.ShapeExpr)


def typed(expr: relax.Expr) -> relax.Expr:
    """Return a fresh expression with its type inferred."""
    return relax.BlockBuilder().normalize(expr)


def bind(bindings: list[relax.Binding], value: relax.Expr, hint: str) -> relax.Var:
    """Add a binding of a typed value; return its variable."""
    var = relax.Var(hint, value.ty)
    bindings.append(relax.VarBinding(var, value))
    return var


def without_dataflow(function: relax.Function) -> relax.Function:
    """Return a function whose bindings all stand in plain blocks."""
    var = tvm.ir.GlobalVar("alone")
    return relax.transform.ToNonDataflow()(tvm.IRModule({var: function}))[var]
