"""The operands of an expression: which values it uses, in one order, and how others are put in their places.

Every binding of a model comes through here whenever a block is read or written. An array of TVM is therefore copied at
once (`args[:]`, half the time of a loop over it) and classes are compared before `isinstance` is asked, which takes
five times as long for a class that is not the very one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tvm
from tvm import relax
from tvm_ffi import structural_equal

from ..errors import InvalidModuleError
from .rename import rename
from .shapes import extents, is_static

_VARS = frozenset({relax.Var, relax.DataflowVar})


def is_value(expr: relax.Expr) -> bool:
    """Return whether an expression is a variable or a constant, and not the symbol of an extent.

    TVM's variables of integers and of tensors are one class: the bounds `(h,)` of a slice hold one.
    """
    kind = type(expr)
    return kind is tvm.ir.GenericConst or (kind in _VARS and type(expr.ty) is not tvm.ir.PrimType)


def operands_of(expr: relax.Expr) -> list[relax.Expr]:
    """Return the values that a bound expression uses, in the order in which `substitute` replaces them.

    The function that a call calls is the last of them where a variable holds it: a local function, a parameter.

    Raises
    ------
    InvalidModuleError
        A call stands inside another call.
    """
    if isinstance(expr, relax.Function):
        return [var for var in relax.analysis.free_vars(expr)[:] if is_value(var)]
    found: list[relax.Expr] = []
    for arg in _parts(expr) if isinstance(expr, relax.Call) else (expr,):
        _collect(arg, found)
    return found


def _parts(call: relax.Call) -> list[relax.Expr]:
    return [*call.args[:], call.op]


def _collect(expr: relax.Expr, found: list[relax.Expr]) -> None:
    kind = type(expr)
    if kind is relax.Tuple:
        for item in expr.fields[:]:
            _collect(item, found)
    elif kind is relax.TupleGetItem:
        _collect(expr.tuple_value, found)
    elif is_value(expr):
        found.append(expr)
    elif kind is relax.Call:  # reshape(exp(x)) would pass for a reshape of x
        name = getattr(expr.op, "name", expr.op)
        raise InvalidModuleError(f"{name} is called inside another call; run relax.transform.Normalize() first")


def substitute(expr: relax.Expr, operands: Sequence[relax.Expr]) -> relax.Expr:
    """Put `operands` in the places of the values in `expr`; return `expr` itself if nothing changed."""
    if not _changed(operands_of(expr), operands):
        return expr
    if isinstance(expr, relax.Function):
        return rename(expr, dict(zip(operands_of(expr), operands, strict=True)))
    feed = iter(operands)
    return _call(expr, feed, expr.ty) if isinstance(expr, relax.Call) else _substitute(expr, feed)


def call_with(call: relax.Call, operands: Sequence[relax.Expr]) -> relax.Call:
    """Return a fresh, untyped call like `call` with other operands, in the order in which they were read."""
    return _call(call, iter(operands), None)


def same_call_with(call: relax.Call, operands: Sequence[relax.Expr]) -> relax.Call:
    """Return a fresh call like `call` with other operands, typed where it is sure to be of the type of `call`.

    A type follows from attributes, literals and the types of the operands, never from the values of these. To infer
    that of a convolution takes TVM half a millisecond. One that is not static may be known better by now.
    """
    keeps = isinstance(call.ty, relax.TensorType) and is_static(extents(call.ty))
    pairs = zip(operands_of(call), operands, strict=True)
    keeps = keeps and all(structural_equal(old.ty, new.ty) for old, new in pairs)
    return _call(call, iter(operands), call.ty if keeps else None)


def _call(call: relax.Call, operands: Iterator[relax.Expr], ty: relax.Type | None) -> relax.Call:
    *args, callee = (_substitute(part, operands) for part in _parts(call))
    return relax.Call(callee, args, call.attrs, call.ty_args, call.span, ty)


def _substitute(expr: relax.Expr, operands: Iterator[relax.Expr]) -> relax.Expr:
    if is_value(expr):
        return next(operands)
    if isinstance(expr, relax.Tuple):
        before = expr.fields[:]
        fields = [_substitute(item, operands) for item in before]
        return relax.Tuple(fields) if _changed(before, fields) else expr
    if isinstance(expr, relax.TupleGetItem):
        whole = _substitute(expr.tuple_value, operands)
        return expr if whole.same_as(expr.tuple_value) else relax.TupleGetItem(whole, expr.index)
    return expr


def _changed(old: Sequence[relax.Expr], new: Sequence[relax.Expr]) -> bool:
    return any(not a.same_as(b) for a, b in zip(old, new, strict=True))
