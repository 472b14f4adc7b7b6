"""Pointwise operators, spelled as TVM spells them for LLVM and with its rounding.

float16 needs no special care: LLVM widens each operation to float32 and rounds back, numpy does the same,
and for + - * / sqrt the double rounding is harmless (24 >= 2 * 11 + 2 bits). bfloat16 and float8 do not
go through arithmetic here. Four places where TVM is not numpy:

- `maximum(a, b)` is `a > b ? a : b`, so a NaN on the left gives b and one on the right gives NaN;
- `sign` of NaN is 0, and `sign(-0.0)` is 0;
- integer `divide` and `mod` round towards zero;
- a constant of rank 0 becomes an immediate, and x + 0.0 is then x, x * 0.0 is 0.0, whatever x holds;
  and since integers of 32 bits and more carry LLVM's no-wrap flags, an overflow beside an immediate is
  not the wrapped sum (uint32 saturates). Between two tensors it wraps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np

from relax_glue.evaluate.application import Application, Array, Evaluator, Function, Outcome, kind

Unary = Callable[[Array], Array | None]
Binary = Callable[[Array, Array], Array | None]

_INTEGERS = "iu"
_FLOATS = "f"
_NUMBERS = "iuf"
_SIGNED = "if"
_ANY = "iufb"


def _unary(compute: Unary, kinds: str) -> Function:
    def function(app: Application) -> Outcome:
        return compute(app.data) if kind(app.data) in kinds else None

    return function


def _binary(compute: Binary, kinds: str) -> Function:
    def function(app: Application) -> Outcome:
        left, right = app.values
        if left.dtype != right.dtype or kind(left) not in kinds:
            return None
        return compute(left, right)

    return function


def _widened(compute: Callable[..., Any]) -> Callable[..., Array]:
    """Compute in float64 and round once: the nearest value, whichever libm LLVM links."""

    def function(*operands: Array) -> Array:
        wide = compute(*(operand.astype(np.float64) for operand in operands))
        return np.asarray(wide).astype(operands[0].dtype)

    return function


def larger(left: Array, right: Array) -> Array:
    """Give the larger of each pair as TVM's max does: the right one where they do not compare."""
    return np.where(left > right, left, right)


def smaller(left: Array, right: Array) -> Array:
    """Give the smaller of each pair as TVM's min does: the right one where they do not compare."""
    return np.where(left < right, left, right)


def _add(left: Array, right: Array) -> Array | None:
    total = _wrapped(np.add, left, right)
    if total is None or _immediate_zero(right):
        return _settled(total, left)
    return _settled(total, right) if _immediate_zero(left) else total


def _subtract(left: Array, right: Array) -> Array | None:
    difference = _wrapped(np.subtract, left, right)
    return _settled(difference, left) if _immediate_zero(right) else difference


def _multiply(left: Array, right: Array) -> Array | None:
    product = _wrapped(np.multiply, left, right)
    zeros = [operand for operand in (left, right) if _immediate_zero(operand)]
    return _settled(product, zeros[0]) if zeros else product


def _wrapped(compute: np.ufunc, left: Array, right: Array) -> Array | None:
    """Compute, unless an integer may be an immediate and the result overflows or the immediate is INT_MIN.

    TVM turns x - INT_MIN into a sum with the negated immediate, which wraps. A wrapped result is off by a
    multiple of 2**bits, and float64 is far closer than half of that.
    """
    exact = compute(left, right)
    if kind(left) == "f" or left.dtype.itemsize < 4 or (left.ndim and right.ndim):
        return exact
    lowest = np.iinfo(left.dtype).min
    if lowest and any(operand.ndim == 0 and operand == lowest for operand in (left, right)):
        return None
    approximate = compute(left.astype(np.float64), right.astype(np.float64))
    off = np.abs(exact.astype(np.float64) - approximate)
    return None if np.any(off >= 2.0 ** (8 * left.dtype.itemsize - 1)) else exact


def _immediate_zero(operand: Array) -> bool:
    return kind(operand) == "f" and operand.ndim == 0 and operand == 0


def _settled(exact: Array | None, simplified: Array) -> Array | None:
    """Give the IEEE 754 result where TVM's simplification of the same expression agrees with it."""
    if exact is None:
        return None
    same = (exact == simplified) & (np.signbit(exact) == np.signbit(simplified))
    return exact if np.all(same | (np.isnan(exact) & np.isnan(simplified))) else None


def _divides(left: Array, right: Array) -> bool:
    """Say whether integers can be divided: by zero, and INT_MIN by -1, are undefined in LLVM."""
    if not np.all(right):
        return False
    lowest = np.iinfo(left.dtype).min
    return kind(left) == "u" or not np.any((left == lowest) & (right == -1))


def _divide(left: Array, right: Array) -> Array | None:
    if kind(left) == "f":
        return left / right
    if not _divides(left, right):
        return None
    # np.floor_divide is one too low exactly where the signs differ and something remains.
    quotient, remainder = np.floor_divide(left, right), np.mod(left, right)
    below = (remainder != 0) & ((left < 0) != (right < 0))
    return (quotient + below).astype(left.dtype)


def _floor_divide(left: Array, right: Array) -> Array | None:
    if kind(left) == "f":
        return np.floor(left / right)
    return np.floor_divide(left, right) if _divides(left, right) else None


def _mod(left: Array, right: Array) -> Array | None:
    if kind(left) == "f":
        return np.fmod(left, right)
    return np.fmod(left, right) if _divides(left, right) else None


def _floor_mod(left: Array, right: Array) -> Array | None:
    if kind(left) == "f":
        return left - np.floor(left / right) * right
    return np.mod(left, right) if _divides(left, right) else None


def _not_equal(left: Array, right: Array) -> Array | None:
    """LLVM compares by `fcmp one`, false for NaN where IEEE 754 says true: not evaluated."""
    nan = kind(left) == "f" and (np.isnan(left).any() or np.isnan(right).any())
    return None if nan else np.not_equal(left, right)


def _shifts(amount: Array) -> bool:
    bits = amount.dtype.itemsize * 8
    return bool(np.all((amount >= 0) & (amount < bits)))


def _left_shift(left: Array, right: Array) -> Array | None:
    return np.left_shift(left, right) if _shifts(right) else None


def _right_shift(left: Array, right: Array) -> Array | None:
    return np.right_shift(left, right) if _shifts(right) else None


def _sign(data: Array) -> Array:
    return ((data > 0).astype(np.int8) - (data < 0).astype(np.int8)).astype(data.dtype)


def _relu(app: Application) -> Outcome:
    if kind(app.data) not in _NUMBERS:
        return None
    return larger(app.data, np.zeros((), app.data.dtype))


def _leaky_relu(app: Application) -> Outcome:
    if kind(app.data) != "f":
        return None
    slope = np.asarray(float(app.attrs.alpha)).astype(app.data.dtype)
    return np.where(app.data > 0, app.data, app.data * slope)


def _clip(app: Application) -> Outcome:
    if kind(app.data) not in _NUMBERS:
        return None
    lowest, highest = (_bound(value, app.data.dtype) for value in app.values[1:])
    if lowest is None or highest is None:
        return None
    return larger(smaller(app.data, highest), lowest)


def _bound(value: Array, dtype: np.dtype) -> Array | None:
    """Cast a bound to the data's dtype; None where an integer type does not hold it."""
    bound = cast(value, dtype)
    return bound if bound is not None and (kind(dtype) == "f" or bound == value) else None


def _where(app: Application) -> Outcome:
    condition, chosen, other = app.values
    if condition.dtype != np.bool_ or chosen.dtype != other.dtype:
        return None
    return np.where(condition, chosen, other)


def cast(data: Array, dtype: np.dtype) -> Array | None:
    """Convert as LLVM does; None for a float outside the integer type, which LLVM leaves undefined.

    Parameters
    ----------
    data
        Any shape.
    dtype
        The target. Integers wrap, floats truncate towards zero, anything but zero is True (NaN too).
    """
    if data.dtype == dtype:
        return data
    if kind(data) == "x" or kind(dtype) == "x":
        return _cast_extension(data, dtype)
    if kind(data) == "f" and kind(dtype) in _INTEGERS and not _fits(data, dtype):
        return None
    return data.astype(dtype)


def _cast_extension(data: Array, dtype: np.dtype) -> Array | None:
    """Widen bfloat16 only: the narrowing of NaN and the float8 types is TVM's own code, not LLVM's."""
    widens = data.dtype.name == "bfloat16" and dtype.name in ("float32", "float64")
    return data.astype(dtype) if widens else None


def _fits(data: Array, dtype: np.dtype) -> bool:
    """Say whether every element, cut to an integer, is one of `dtype`; the upper bound is a power of two.

    `np.iinfo(int64).max` rounds up to 2**63 as a float, hence "less than the bound" and not "at most".
    """
    info = np.iinfo(dtype)
    whole = np.trunc(data.astype(np.float64))
    return bool(np.all((whole >= float(info.min)) & (whole < 2.0 ** (info.bits - (kind(dtype) == "i")))))


def _astype(app: Application) -> Outcome:
    return cast(app.data, app.out.dtype)


def _rsqrt(data: Array) -> Array:
    return np.ones((), data.dtype) / np.sqrt(data)


def _sigmoid(data: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-data))


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _table() -> dict[str, Evaluator]:
    exact_unary: dict[str, tuple[Unary, str]] = {
        "abs": (np.abs, _NUMBERS),
        "negative": (np.negative, _SIGNED),
        "square": (np.square, _NUMBERS),
        "sign": (_sign, _SIGNED),
        "ceil": (np.ceil, _FLOATS),
        "floor": (np.floor, _FLOATS),
        "trunc": (np.trunc, _FLOATS),
        "round": (np.rint, _FLOATS),
        "sqrt": (np.sqrt, _FLOATS),
        "rsqrt": (_rsqrt, _FLOATS),
        "isnan": (np.isnan, _FLOATS),
        "isinf": (np.isinf, _FLOATS),
        "isfinite": (np.isfinite, _FLOATS),
        "logical_not": (np.logical_not, "b"),
        "bitwise_not": (np.invert, _INTEGERS + "b"),
    }
    exact_binary: dict[str, tuple[Binary, str]] = {
        "add": (_add, _NUMBERS),
        "subtract": (_subtract, _NUMBERS),
        "multiply": (_multiply, _NUMBERS),
        "divide": (_divide, _NUMBERS),
        "floor_divide": (_floor_divide, _NUMBERS),
        "mod": (_mod, _NUMBERS),
        "floor_mod": (_floor_mod, _NUMBERS),
        "maximum": (larger, _NUMBERS),
        "minimum": (smaller, _NUMBERS),
        "equal": (np.equal, _ANY),
        "not_equal": (_not_equal, _ANY),
        "less": (np.less, _NUMBERS),
        "less_equal": (np.less_equal, _NUMBERS),
        "greater": (np.greater, _NUMBERS),
        "greater_equal": (np.greater_equal, _NUMBERS),
        "logical_and": (np.logical_and, "b"),
        "logical_or": (np.logical_or, "b"),
        "logical_xor": (np.logical_xor, "b"),
        "bitwise_and": (np.bitwise_and, _INTEGERS + "b"),
        "bitwise_or": (np.bitwise_or, _INTEGERS + "b"),
        "bitwise_xor": (np.bitwise_xor, _INTEGERS + "b"),
        "left_shift": (_left_shift, _INTEGERS),
        "right_shift": (_right_shift, _INTEGERS),
    }
    rounded: dict[str, Callable[..., Any]] = {
        "exp": np.exp, "log": np.log, "erf": _erf, "sigmoid": _sigmoid,
        "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
        "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
        "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    }  # fmt: skip
    rounded_binary: dict[str, Callable[..., Any]] = {
        "power": np.power,
        "atan2": np.arctan2,
        "log_add_exp": np.logaddexp,
    }
    return {
        **{f"relax.{name}": Evaluator(_unary(*entry)) for name, entry in exact_unary.items()},
        **{f"relax.{name}": Evaluator(_binary(*entry)) for name, entry in exact_binary.items()},
        **{
            f"relax.{name}": Evaluator(_unary(_widened(compute), _FLOATS), "float_reassoc")
            for name, compute in rounded.items()
        },
        **{
            f"relax.{name}": Evaluator(_binary(_widened(compute), _FLOATS), "float_reassoc")
            for name, compute in rounded_binary.items()
        },
        "relax.astype": Evaluator(_astype),
        "relax.clip": Evaluator(_clip),
        "relax.where": Evaluator(_where),
        "relax.nn.relu": Evaluator(_relu),
        "relax.nn.leakyrelu": Evaluator(_leaky_relu),
    }


EVALUATORS = MappingProxyType(_table())
