"""Integers and booleans computed from extents, with the symbols in them.

Models decide by their shapes: `numel(x) == 0`, `n > 1`, `shape[0] * shape[1] < 4`. Importers write such a condition as
shape_of, shape_to_tensor, take, prod and a comparison of tensors. Read here, an element of such a tensor is an int, a
bool, or a primitive expression of the symbols, which TVM's analyser can reason about.

An extent is at least 0, and int64 holds the products of extents; a narrower type may wrap, so symbols are not followed
into one. What is not certain is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from relax_glue.evaluate import EVALUATORS, evaluate
from relax_glue.ir.shapes import dtype_of, extents

Element = Any  # an int, a bool, or a primitive expression
Elements = np.ndarray  # of Elements, with dtype object

_MOST = 64  # elements; a shape has few
_DEPTH = 100  # calls that a value is followed through
_DTYPES = ("int64", "bool")


def _prim(value: Element) -> tvm.ir.Expr:
    if isinstance(value, (bool, np.bool_)):
        return tirx.IntImm("bool", int(value))
    return tirx.IntImm("int64", int(value)) if isinstance(value, (int, np.integer)) else value


def _binary(python: Callable[[Any, Any], Any], symbolic: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Element]:
    def compute(left: Element, right: Element) -> Element:
        if any(isinstance(side, tvm.ir.Expr) for side in (left, right)):
            return symbolic(_prim(left), _prim(right))
        return python(left, right)

    return compute


_ADD = _binary(lambda a, b: a + b, tirx.Add)
_MULTIPLY = _binary(lambda a, b: a * b, tirx.Mul)
_MAXIMUM = _binary(max, tirx.Max)
_MINIMUM = _binary(min, tirx.Min)

_BINARY: Mapping[str, Callable[[Any, Any], Element]] = MappingProxyType(
    {
        "relax.add": _ADD,
        "relax.subtract": _binary(lambda a, b: a - b, tirx.Sub),
        "relax.multiply": _MULTIPLY,
        "relax.maximum": _MAXIMUM,
        "relax.minimum": _MINIMUM,
        "relax.equal": _binary(lambda a, b: a == b, tirx.EQ),
        "relax.not_equal": _binary(lambda a, b: a != b, tirx.NE),
        "relax.less": _binary(lambda a, b: a < b, tirx.LT),
        "relax.less_equal": _binary(lambda a, b: a <= b, tirx.LE),
        "relax.greater": _binary(lambda a, b: a > b, tirx.GT),
        "relax.greater_equal": _binary(lambda a, b: a >= b, tirx.GE),
        "relax.logical_and": _binary(lambda a, b: a and b, tirx.And),
        "relax.logical_or": _binary(lambda a, b: a or b, tirx.Or),
    }
)
_REDUCED: Mapping[str, Callable[[Any, Any], Element]] = MappingProxyType(
    {"relax.prod": _MULTIPLY, "relax.sum": _ADD, "relax.max": _MAXIMUM, "relax.min": _MINIMUM}
)
_RESHAPED = frozenset({"relax.reshape", "relax.expand_dims", "relax.squeeze", "relax.flatten"})


def _array(elements: Sequence[Element], shape: Sequence[int]) -> Elements:
    array = np.empty(len(elements), dtype=object)
    array[:] = elements
    return array.reshape(tuple(shape))


class ExtentArithmetic:
    """Follows the bindings of one function to what it computes from extents.

    Parameters
    ----------
    bound : mapping of relax.Var to relax.Expr
        What each variable is bound to; it may grow while it is read here.
    """

    def __init__(self, bound: Mapping[relax.Var, relax.Expr]) -> None:
        self._bound = bound
        self._known: dict[relax.Expr, Elements | None] = {}

    def scalar(self, expr: relax.Expr) -> Element | None:
        """Return the one element of a tensor, or the value of a primitive expression; None if it is not known."""
        if tvm.ir.is_prim_expr(expr) and not isinstance(expr, relax.Var):
            return expr.value if isinstance(expr, tirx.IntImm) else expr
        found = self.elements(expr)
        return found.reshape(-1)[0] if found is not None and found.size == 1 else None

    def elements(self, expr: relax.Expr, depth: int = 0) -> Elements | None:
        """Return the elements of a tensor or of a shape, or None where they are not known."""
        if isinstance(expr, relax.ShapeExpr):
            return _of_shape(expr.values)
        if isinstance(expr, tvm.ir.GenericConst):
            return _of_constant(expr)
        if depth > _DEPTH or not _may_be_followed(expr.ty):
            return None
        if expr not in self._known:
            self._known[expr] = self._computed(expr, depth)
        return self._known[expr]

    def _computed(self, expr: relax.Expr, depth: int) -> Elements | None:
        if isinstance(expr, relax.Var) and expr in self._bound:
            return self.elements(self._bound[expr], depth + 1)
        if isinstance(expr.ty, relax.ShapeType) and expr.ty.values is not None:
            return _of_shape(expr.ty.values)
        if not isinstance(expr, relax.Call) or not isinstance(expr.op, tvm.ir.Op):
            return None
        if expr.op.name in ("relax.shape_of", "relax.size"):
            return _of_type(expr.op.name, expr.args[0].ty)
        if expr.op.name in ("relax.shape_to_tensor", "relax.tensor_to_shape"):
            return self.elements(expr.args[0], depth + 1)
        operands = [arg for arg in expr.args if _is_followed(arg)]
        values = [self._operand(arg, depth + 1) for arg in operands]
        if any(value is None for value in values):
            return None
        return _called(expr, values)

    def _operand(self, arg: relax.Expr, depth: int) -> Any:
        if not isinstance(arg, relax.Tuple):
            return self.elements(arg, depth)
        items = tuple(self.elements(item, depth) for item in arg.fields)
        return None if any(item is None for item in items) else items


def _may_be_followed(ty: relax.Type) -> bool:
    if isinstance(ty, relax.ShapeType):
        return True
    shape = extents(ty) if isinstance(ty, relax.TensorType) else None
    if shape is None or not all(isinstance(e, int) for e in shape):
        return False
    return math.prod(shape) <= _MOST and (dtype_of(ty) or "float").startswith(("int", "uint", "bool"))


def _is_followed(arg: relax.Expr) -> bool:
    """Return whether an argument is a tensor or a shape variable: what else there is is read from the call."""
    if isinstance(arg, relax.Tuple):
        return any(map(_is_followed, arg.fields))
    return not isinstance(arg, relax.ShapeExpr) and isinstance(arg.ty, (relax.TensorType, relax.ShapeType))


def _of_shape(values: Sequence[tvm.ir.Expr]) -> Elements:
    return _array([v.value if isinstance(v, tirx.IntImm) else v for v in values], (len(values),))


def _of_constant(const: tvm.ir.GenericConst) -> Elements | None:
    array = const.value.numpy()
    if array.size > _MOST:
        return None
    return _array([e.item() for e in array.reshape(-1)], array.shape)


def _of_type(op: str, ty: relax.Type) -> Elements | None:
    shape = extents(ty) if isinstance(ty, relax.TensorType) else None
    if shape is None:
        return None
    return _array(list(shape), (len(shape),)) if op == "relax.shape_of" else _array([reduce(_MULTIPLY, shape, 1)], ())


def _called(call: relax.Call, values: Sequence[Any]) -> Elements | None:
    flat = [part for value in values for part in (value if isinstance(value, tuple) else (value,))]
    has_symbols = any(isinstance(e, tvm.ir.Expr) for part in flat for e in part.reshape(-1))
    return _symbolic(call, values) if has_symbols else _numeric(call, values)


def _numeric(call: relax.Call, values: Sequence[Any]) -> Elements | None:
    """Compute a call without symbols, in the dtypes of its operands."""
    if call.op.name not in EVALUATORS or any(isinstance(v, tuple) for v in values):
        return _symbolic(call, values)
    tensors = [arg for arg in call.args if _is_followed(arg)]
    arrays = [value.astype(dtype_of(arg.ty)) for value, arg in zip(values, tensors, strict=True)]
    result = evaluate(call, arrays, call.ty)
    if not isinstance(result, np.ndarray):
        return None
    return _array([e.item() for e in result.reshape(-1)], result.shape)


def _symbolic(call: relax.Call, values: Sequence[Any]) -> Elements | None:
    name = call.op.name
    if dtype_of(call.ty) not in _DTYPES:
        return None
    shape = extents(call.ty) or ()
    if name in _RESHAPED:
        return values[0].reshape(shape)
    if name in _BINARY and len(values) == 2:
        left, right = np.broadcast_arrays(*values)
        pairs = zip(left.reshape(-1), right.reshape(-1), strict=True)
        return _array([_BINARY[name](a, b) for a, b in pairs], left.shape)
    if name in _REDUCED and values[0].size and math.prod(shape) == 1:
        return _array([reduce(_REDUCED[name], values[0].reshape(-1))], shape)
    return _moved(call, values, shape)


def _moved(call: relax.Call, values: Sequence[Any], shape: Sequence[int]) -> Elements | None:
    name = call.op.name
    if name == "relax.astype":
        return values[0] if dtype_of(call.args[0].ty) == dtype_of(call.ty) else None
    if name == "relax.logical_not":
        return _array([_negated(e) for e in values[0].reshape(-1)], shape)
    if name == "relax.concat" and isinstance(values[0], tuple) and len(shape) == 1:
        return np.concatenate(values[0])
    if name == "relax.take" and values[0].ndim == 1 and len(values) == 2:
        return _taken(values[0], values[1], shape)
    if name == "relax.strided_slice" and values[0].ndim == 1:
        return _sliced(call, values[0], shape)
    return None


def _negated(element: Element) -> Element:
    return tirx.Not(element) if isinstance(element, tvm.ir.Expr) else not element


def _taken(data: Elements, indices: Elements, shape: Sequence[int]) -> Elements | None:
    """Take elements at known places; one out of bounds is for the modes of the operator to say."""
    places = list(indices.reshape(-1))
    if not all(isinstance(p, int) and 0 <= p < data.size for p in places):
        return None
    return _array([data[p] for p in places], shape)


def _sliced(call: relax.Call, data: Elements, shape: Sequence[int]) -> Elements | None:
    fields = [field for arg in call.args[2:] for field in arg.fields]
    if not all(isinstance(field, tirx.IntImm) for field in fields):
        return None
    begin, end, *stride = (int(field.value) for field in fields)
    if begin < 0 or end < 0 or any(step < 1 for step in stride):
        return None
    cut = data[begin : end : stride[0] if stride else 1]
    return cut if cut.shape == tuple(shape) else None
