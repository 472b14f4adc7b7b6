"""Pointwise operators against TVM's LLVM build, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from llvm_cases import (
    BOTH,
    DTYPES,
    FLOATS,
    INTEGERS,
    NUMBERS,
    SIGNED,
    UNSIGNED,
    Case,
    check,
    divisible,
    emit,
    named,
    pairs,
    pool,
)
from tvm import relax
from tvm.relax import op

from relax_glue.evaluate import evaluate


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "maximum", "minimum"])
def test_arithmetic(name: str) -> None:
    check([named(name, *pairs(dtype)) for dtype in NUMBERS])


@pytest.mark.parametrize("name", ["divide", "floor_divide", "mod"])
def test_division(name: str) -> None:
    check(
        [named(name, *divisible(dtype)) for dtype in NUMBERS]
        + [named(name, *pairs(dtype), known=False) for dtype in INTEGERS]
    )


def test_floor_mod() -> None:
    check(
        [named("floor_mod", *divisible(dtype)) for dtype in INTEGERS]
        + [named("floor_mod", *pairs(dtype)) for dtype in FLOATS]
        + [named("floor_mod", *pairs(dtype), known=False) for dtype in INTEGERS]
    )


@pytest.mark.parametrize("name", ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"])
def test_comparison(name: str) -> None:
    """LLVM's not_equal is false for NaN (`fcmp one`), which IEEE 754 and ONNX deny: not evaluated."""
    cases = [named(name, *pairs(dtype)) for dtype in INTEGERS]
    for dtype in FLOATS:
        left, right = pairs(dtype)
        ordered = ~np.isnan(left) & ~np.isnan(right)
        cases.append(named(name, left, right, known=name != "not_equal"))
        cases.append(named(name, left[ordered], right[ordered]))
    check(cases)


SCALARS = ["maximum", "minimum", "add", "subtract", "multiply", "divide", "floor_divide", "mod", "greater", "less"]


def _overflows(name: str, data: np.ndarray, scalar: int) -> np.ndarray:
    """Say which elements leave the dtype, in Python's integers."""
    exact = {"add": int.__add__, "subtract": int.__sub__, "multiply": int.__mul__}.get(name)
    info = np.iinfo(data.dtype)
    return np.array([exact is not None and not info.min <= exact(int(x), int(scalar)) <= info.max for x in data])


@pytest.mark.parametrize("name", SCALARS)
@pytest.mark.parametrize("dtype", ["float32", "int32", "uint32", "int8"])
def test_scalar_constants(name: str, dtype: str) -> None:
    """TVM turns constants of rank 0 into immediates and simplifies around them."""
    data, scalars = pool(dtype), pool(dtype)[::3]
    # TVM does not compile a division by an immediate 0; immediate zeros of floats have a test of their own.
    if dtype == "float32" or name in ("divide", "floor_divide", "mod"):
        scalars = scalars[scalars != 0]
    if dtype in SIGNED:  # TVM cannot always write the immediate INT_MIN
        data, scalars = (values[values != np.iinfo(dtype).min] for values in (data, scalars))
    cases = []
    for scalar in map(np.asarray, scalars):
        within = data
        if dtype in ("int32", "uint32"):
            over = _overflows(name, data, scalar)
            within = data[~over]
            if over.any():
                cases.append(named(name, data, scalar, constants=True, known=False))
        cases.append(named(name, within, scalar, constants=True))
        if name in ("add", "multiply", "maximum", "minimum", "greater", "less"):
            cases.append(named(name, scalar, within, constants=True))
    lowest = np.asarray(np.iinfo("int32").min, "int32")
    if dtype == "int32" and name in ("add", "subtract", "multiply"):
        cases.append(named(name, np.array([0, -1], "int32"), lowest, constants=True, known=False))
    check(cases)


def test_immediate_zero_is_simplified_away() -> None:
    """TVM turns x + 0.0 into x and x * 0.0 into 0.0, which NaN, inf and -0.0 tell from IEEE 754."""
    plain, zero = np.array([1.5, 0.0, -3], "f4"), np.asarray(0.0, "f4")
    cases = [named(name, plain, zero, constants=True) for name in ("add", "subtract")]
    cases += [named("multiply", plain[:2], zero, constants=True), named("add", zero, plain, constants=True)]
    for odd in ([np.nan], [np.inf], [-1.0], [-0.0]):
        data = np.array(odd, "f4")
        cases.append(named("multiply", data, zero, known=False))
        cases.append(named("multiply", zero, data, known=False))
    negative_zero = np.array([-0.0], "f4")
    cases.append(named("add", negative_zero, zero, known=False))
    cases.append(named("add", zero, negative_zero, known=False))
    cases.append(named("subtract", negative_zero, np.negative(zero), known=False))
    check(cases)


def test_bits_and_logic() -> None:
    """`equal` of two bool is left out: TVM emits a floating-point comparison that LLVM does not take."""
    bitwise = ["bitwise_and", "bitwise_or", "bitwise_xor"]
    check(
        [named(name, *pairs(dtype)) for name in bitwise for dtype in ("int8", "uint8", "int64", "bool")]
        + [named(f"logical_{name}", *pairs("bool")) for name in ("and", "or", "xor")]
        + [named("logical_not", pool("bool")), named("bitwise_not", pool("bool"))]
        + [named("bitwise_not", pool(dtype)) for dtype in INTEGERS]
    )


@pytest.mark.parametrize("name", ["left_shift", "right_shift"])
def test_shifts(name: str) -> None:
    cases = []
    for dtype in INTEGERS:
        amounts = np.array([0, 1, 2, np.iinfo(dtype).bits - 1], dtype)
        left, right = np.meshgrid(pool(dtype), amounts)
        cases.append(named(name, left, right))
        cases.append(named(name, left, np.full_like(right, np.iinfo(dtype).bits), known=False))
    check(cases)


@pytest.mark.parametrize("name", ["ceil", "floor", "trunc", "round", "sqrt", "rsqrt", "isnan", "isinf", "isfinite"])
def test_unary_float(name: str) -> None:
    check([named(name, pool(dtype)) for dtype in FLOATS])


@pytest.mark.parametrize("name", ["abs", "negative", "square", "sign"])
def test_unary(name: str) -> None:
    """TVM compiles neither `negative` nor `sign` of an unsigned integer."""
    dtypes = FLOATS + SIGNED if name in ("negative", "sign") else NUMBERS
    check([named(name, pool(dtype)) for dtype in dtypes])


def test_activations() -> None:
    cases = [named("nn.relu", pool(dtype)) for dtype in NUMBERS]
    for dtype in FLOATS:
        cases.append(Case(f"leaky {dtype}", lambda x: op.nn.leakyrelu(x, 0.1), (pool(dtype),)))
    check(cases)


def test_clip() -> None:
    cases = []
    for dtype in NUMBERS:
        for low, high in ((0, 6), (-1, 1), (3, 2)):
            known = dtype not in UNSIGNED or low >= 0
            build = lambda x, low=low, high=high: op.clip(x, low, high)  # noqa: E731
            cases.append(Case(f"clip {dtype} {low} {high}", build, (pool(dtype),), known))
    for dtype in FLOATS:
        for low, high in ((-0.0, 6.5), (0.1, np.inf), (-np.inf, 0.3)):
            build = lambda x, low=low, high=high: op.clip(x, low, high)  # noqa: E731
            cases.append(Case(f"clip {dtype} {low} {high}", build, (pool(dtype),)))
    check(cases)


def test_where() -> None:
    cases = []
    for dtype in DTYPES:
        left, right = pairs(dtype)
        condition = np.arange(left.size) % 3 == 0
        cases.append(named("where", condition, left, right))
        cases.append(named("where", np.array([[True], [False]]), left[:1], right))
        cases.append(named("where", np.array(True), left[0], right[1]))
    check(cases)


def _castable(source: str, target: str) -> np.ndarray:
    values = pool(source)
    if source not in FLOATS or target in FLOATS or target == "bool":
        return values
    whole = np.trunc(values.astype("f8"))
    info = np.iinfo(target)
    return values[np.isfinite(whole) & (whole >= info.min) & (whole < 2.0 ** (info.bits - (info.min < 0)))]


@pytest.mark.parametrize("source", DTYPES)
def test_casts(source: str) -> None:
    def cast_to(target: str) -> Callable[[relax.Expr], relax.Expr]:
        return lambda x: op.astype(x, target)

    known = [Case(f"{source} to {to}", cast_to(to), (_castable(source, to),)) for to in DTYPES]
    undefined = [
        Case(f"{source} to {to}", cast_to(to), (np.array([value], source),), known=False)
        for to in INTEGERS
        for value in (np.nan, np.inf, -np.inf)
        if source in FLOATS
    ]
    check(known + undefined)


def test_casts_round_once() -> None:
    """A double between two float16 that would round the other way by way of float32; large integers."""
    halfway = np.array([1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11, 65519.999, 65520.0, 2.0**-25, 2.0**-24.5])
    whole = np.array([2**24 + 1, 2**24 + 3, 2**53 + 1, -(2**53) - 3, 2**63 - 1, 65519, 65520, 2049, 2051], "i8")
    check(
        [Case(f"f8 {to}", lambda x, to=to: op.astype(x, to), (halfway,)) for to in ("float16", "float32")]
        + [Case(f"{sign} {to}", lambda x, to=to: op.astype(x, to), (whole.astype(sign),)) for to in FLOATS
           for sign in ("int64", "uint64")]
    )  # fmt: skip


def test_bfloat16_widens() -> None:
    data = np.array([0.0, -0.0, 1.5, -3.25, np.inf, 1e30], ml_dtypes.bfloat16)
    check([Case("bf16", lambda x: op.astype(x, "float32"), (data,))])
    builder = relax.BlockBuilder()
    case = named("add", data, data)
    call = emit(builder, "case", case)
    assert evaluate(call, case.args, call.ty, BOTH) is None
    eighth = np.array([1.0], ml_dtypes.float8_e5m2)
    call = emit(builder, "case8", named("add", eighth, eighth))
    assert evaluate(call, (eighth, eighth), call.ty, BOTH) is None


ROUNDED = (
    *("exp", "log", "erf", "sigmoid", "sin", "cos", "tan", "sinh", "cosh", "tanh"),
    *("asin", "acos", "atan", "asinh", "acosh", "atanh"),
)


def test_transcendental_functions_are_close_and_asked_for() -> None:
    data = np.array([0.0, 0.1, -0.3, 0.9, 0.5, 1.0], "f4")
    cases = [named(name, data + (name == "acosh"), close=1e-5) for name in ROUNDED]
    cases += [named(name, data, data[::-1].copy(), close=1e-5) for name in ("atan2", "log_add_exp")]
    cases += [named("power", np.abs(data) + 0.25, data, close=1e-5)]
    check(cases)
    builder = relax.BlockBuilder()
    call = emit(builder, "case", named("exp", data))
    assert evaluate(call, (data,), call.ty) is None
