"""Elementwise arithmetic: unary and binary operators, clip and astype.

What LLVM computes is what has to come out, so integers divide as in C, `round` goes to the even neighbour, and
an operator is refused where the layers at hand would round differently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
from tvm import relax

from ..registry import Refusal, converter
from .arith import activation, binary, refuse_arithmetic, scalar, select, trunc, unary
from .bias import fold_bias
from .limits import FLOATS, INTS, NUMBERS, constant_of, dtype_of

if TYPE_CHECKING:
    from ..network import Network

_UNARY_FLOAT = {
    "relax.exp": "EXP",
    "relax.log": "LOG",
    "relax.sqrt": "SQRT",
    "relax.erf": "ERF",
    "relax.sin": "SIN",
    "relax.cos": "COS",
    "relax.tan": "TAN",
    "relax.sinh": "SINH",
    "relax.cosh": "COSH",
    "relax.asin": "ASIN",
    "relax.acos": "ACOS",
    "relax.atan": "ATAN",
    "relax.asinh": "ASINH",
    "relax.acosh": "ACOSH",
    "relax.atanh": "ATANH",
}
_UNARY_NUMBER = {"relax.abs": "ABS", "relax.negative": "NEG", "relax.sign": "SIGN"}
_ROUNDING = {"relax.ceil": "CEIL", "relax.floor": "FLOOR", "relax.round": "ROUND"}
_BINARY_NUMBER = {
    "relax.add": "SUM",
    "relax.subtract": "SUB",
    "relax.multiply": "PROD",
    "relax.divide": "DIV",
    "relax.floor_divide": "FLOOR_DIV",
    "relax.maximum": "MAX",
    "relax.minimum": "MIN",
}
# TensorRT has no bitwise layers; uint8 is a type for inputs and outputs that only a cast reads or makes.
_CASTABLE = (*NUMBERS, "bool")
_BYTE_PARTNERS = ("uint8", "float32", "float16")


def _accepts_float(call: relax.Call) -> Refusal | None:
    return refuse_arithmetic(call, FLOATS)


def _accepts_number(call: relax.Call) -> Refusal | None:
    return refuse_arithmetic(call, NUMBERS)


# Unary


@converter(*_UNARY_FLOAT, accepts=_accepts_float)
def unary_float(network: Network, call: relax.Call) -> Any:
    """One unary layer."""
    return unary(network, _UNARY_FLOAT[call.op.name], network.tensor(call.args[0]), "")


@converter(*_UNARY_NUMBER, accepts=_accepts_number)
def unary_number(network: Network, call: relax.Call) -> Any:
    """One unary layer, for integers too."""
    return unary(network, _UNARY_NUMBER[call.op.name], network.tensor(call.args[0]), "")


@converter(*_ROUNDING, "relax.trunc", accepts=_accepts_number)
def rounding(network: Network, call: relax.Call) -> Any:
    """Round; integers are round already."""
    x = network.tensor(call.args[0])
    if dtype_of(call) in INTS:
        return x
    if call.op.name == "relax.trunc":
        return trunc(network, x, "")
    return unary(network, _ROUNDING[call.op.name], x, "")


@converter("relax.rsqrt", accepts=_accepts_float)
def rsqrt(network: Network, call: relax.Call) -> Any:
    """1 / sqrt(x)."""
    return unary(network, "RECIP", unary(network, "SQRT", network.tensor(call.args[0])), "")


@converter("relax.square", accepts=_accepts_number)
def square(network: Network, call: relax.Call) -> Any:
    """Multiply x by itself."""
    x = network.tensor(call.args[0])
    return binary(network, "PROD", x, x, "")


def _accepts_bitwise_not(call: relax.Call) -> Refusal | None:
    return refuse_arithmetic(call, (*INTS, "bool"))


@converter("relax.bitwise_not", accepts=_accepts_bitwise_not)
def bitwise_not(network: Network, call: relax.Call) -> Any:
    """Flip every bit: in two's complement that is -1 - x."""
    x = network.tensor(call.args[0])
    if dtype_of(call) == "bool":
        return unary(network, "NOT", x, "")
    return binary(network, "SUB", -1, x, "")


# Binary


@converter(*_BINARY_NUMBER, accepts=_accepts_number)
def binary_number(network: Network, call: relax.Call) -> Any:
    """One elementwise layer, or none where a sum with a constant is a convolution's bias.

    Integers divide towards zero in `divide`, down in `floor_divide`, as in TVM.
    """
    folded = fold_bias(network, call) if call.op.name == "relax.add" else None
    if folded is not None:
        return folded
    a, b = (network.tensor(arg) for arg in call.args)
    return binary(network, _BINARY_NUMBER[call.op.name], a, b, "")


@converter("relax.floor_mod", accepts=_accepts_number)
def floor_mod(network: Network, call: relax.Call) -> Any:
    """x - floor(x / y) * y, which is TVM's own formula for floats, and the exact remainder for integers."""
    a, b = (network.tensor(arg) for arg in call.args)
    return binary(network, "SUB", a, binary(network, "PROD", binary(network, "FLOOR_DIV", a, b), b), "")


def _accepts_mod(call: relax.Call) -> Refusal | None:
    if dtype_of(call) in FLOATS:
        return Refusal(
            "the remainder of a truncated float division is exact in C, and x - trunc(x / y) * y is not",
            "use floor_mod where the sign of the remainder does not matter",
        )
    return refuse_arithmetic(call, INTS)


@converter("relax.mod", accepts=_accepts_mod)
def mod(network: Network, call: relax.Call) -> Any:
    """x - (x / y) * y with the division of C; the remainder has the sign of x."""
    a, b = (network.tensor(arg) for arg in call.args)
    return binary(network, "SUB", a, binary(network, "PROD", binary(network, "DIV", a, b), b), "")


@converter("relax.power", accepts=_accepts_float)
def power(network: Network, call: relax.Call) -> Any:
    """x ** y; the square, which normalisations are full of, is a product, exact for negative x as well."""
    a, b = (network.tensor(arg) for arg in call.args)
    exponent = network.array(call.args[1])
    if exponent is not None and exponent.size == 1 and float(exponent.item()) == 2.0:
        return binary(network, "PROD", a, network.align(a, rank=len(b.shape))[0], "")
    return binary(network, "POW", a, b, "")


@converter("relax.atan2", accepts=_accepts_float)
def atan2(network: Network, call: relax.Call) -> Any:
    """The angle of (x, y) in all four quadrants, out of atan.

    Two infinities are an exact diagonal, so they are taken as 1. Zeros keep their sign, which the reciprocal
    shows: atan2(-0.0, -1.0) is -pi, atan2(0.0, -0.0) is pi.
    """
    y, x = network.align(*(network.tensor(arg) for arg in call.args))
    both = binary(network, "AND", unary(network, "ISINF", y), unary(network, "ISINF", x))
    y = select(network, both, unary(network, "SIGN", y), y)
    x = select(network, both, unary(network, "SIGN", x), x)
    turn = select(network, _is_negative(network, y), scalar(network, -np.pi, y), scalar(network, np.pi, y))
    left = _is_negative(network, x)
    angle = unary(network, "ATAN", binary(network, "DIV", y, x))
    found = select(network, left, binary(network, "SUM", angle, turn), angle)
    level = binary(network, "EQUAL", y, 0)
    return select(network, level, select(network, left, turn, y), found, "")


def _is_negative(network: Network, x: Any) -> Any:
    """Say where the sign bit is set: below zero, or a zero whose reciprocal is."""
    reciprocal = unary(network, "RECIP", x)
    return binary(network, "OR", binary(network, "LESS", x, 0), binary(network, "LESS", reciprocal, 0))


@converter("relax.log_add_exp", accepts=_accepts_float)
def log_add_exp(network: Network, call: relax.Call) -> Any:
    """log(exp(a) + exp(b)), with the larger one taken out first, so that nothing overflows."""
    a, b = (network.tensor(arg) for arg in call.args)
    top = binary(network, "MAX", a, b)
    terms = [unary(network, "EXP", binary(network, "SUB", each, top)) for each in (a, b)]
    return binary(network, "SUM", top, unary(network, "LOG", binary(network, "SUM", *terms)), "")


@converter("relax.ewise_fma", accepts=_accepts_number)
def ewise_fma(network: Network, call: relax.Call) -> Any:
    """a * b + c."""
    a, b, c = (network.tensor(arg) for arg in call.args)
    return binary(network, "SUM", binary(network, "PROD", a, b), c, "")


@converter("relax.outer", accepts=_accepts_number)
def outer(network: Network, call: relax.Call) -> Any:
    """The product of each element of one vector with each of the other."""
    a, b = (network.tensor(arg) for arg in call.args)
    return binary(network, "PROD", network.reshape(a, (-1, 1)), b, "")


def _accepts_shift(call: relax.Call) -> Refusal | None:
    said = refuse_arithmetic(call, INTS)
    if said is not None:
        return said
    bits = constant_of(call.args[1])
    if bits is None:
        return Refusal("the number of bits is computed", "TensorRT shifts by constants only")
    most = np.iinfo(bits.dtype).bits - 2
    if bits.size and (bits.min() < 0 or bits.max() > most):
        return Refusal(f"a shift by {bits.min()} to {bits.max()} bits is outside of 0 to {most}")
    return None


@converter("relax.left_shift", "relax.right_shift", accepts=_accepts_shift)
def shift(network: Network, call: relax.Call) -> Any:
    """A product with, or a division down by, a power of two: the same bits, wrapping included."""
    x = network.tensor(call.args[0])
    bits = np.asarray(network.array(call.args[1]))
    factor = network.constant(np.left_shift(np.ones_like(bits), bits))
    op = "PROD" if call.op.name == "relax.left_shift" else "FLOOR_DIV"
    return binary(network, op, x, factor, "")


# Clip and astype


def _accepts_clip(call: relax.Call) -> Refusal | None:
    if not all(isinstance(bound, tvm.tirx.IntImm | tvm.tirx.FloatImm) for bound in call.args[1:3]):
        return Refusal("a bound is not a number", "bind the symbolic dimensions to numbers")
    return refuse_arithmetic(call, NUMBERS, args=(0,))


@converter("relax.clip", accepts=_accepts_clip)
def clip(network: Network, call: relax.Call) -> Any:
    """max(min(x, high), low): one clip layer for finite floats, else two elementwise layers."""
    x = network.tensor(call.args[0])
    dtype = dtype_of(call)
    low, high = (_bound(bound.value, dtype) for bound in call.args[1:3])
    if dtype in FLOATS and np.isfinite([low, high]).all() and low <= high:
        return activation(network, "CLIP", x, low, high, "")
    return binary(network, "MAX", binary(network, "MIN", x, high), low, "")


def _bound(value: float, dtype: str) -> float:
    """Return a bound as a number of the dtype; beyond the largest integer there is nothing to cut off."""
    if dtype in FLOATS:
        with np.errstate(over="ignore"):
            return float(np.asarray(value).astype(dtype))
    limits = np.iinfo(dtype)
    return int(min(max(value, limits.min), limits.max))


def _accepts_astype(call: relax.Call) -> Refusal | None:
    source, target = dtype_of(call.args[0]), dtype_of(call)
    if "uint8" in (source, target):
        return refuse_arithmetic(call, _BYTE_PARTNERS, results=_BYTE_PARTNERS)
    if target == "int8" and source != "int8":
        return Refusal(f"TensorRT saturates where {source} does not fit int8, TVM wraps", "use relax.quantize")
    return refuse_arithmetic(call, (*_CASTABLE, "int8"), results=(*_CASTABLE, "int8"))


@converter("relax.astype", accepts=_accepts_astype)
def astype(network: Network, call: relax.Call) -> Any:
    """One cast layer: floats to integers towards zero, anything but zero to true."""
    return network.cast(network.tensor(call.args[0]), dtype_of(call))
