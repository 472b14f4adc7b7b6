"""Maximum and minimum with scalars become ReLU and clip, with the same bits for every input, NaN included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from build_case import build, const, ops
from pass_case import declines, fires
from tvm import relax
from tvm.relax import op

from relax_glue.passes import RecognizeClip
from relax_glue.rewrite import DEFAULT_SOUNDNESS, NAN_SENSITIVE
from relax_glue.testing import check_equivalent, evaluate

ANY = (*DEFAULT_SOUNDNESS, NAN_SENSITIVE)
FLOATS = ("float32", "float16", "float64")
INTEGERS = ("int8", "uint8", "int32", "int64")


def awkward(dtype: str) -> np.ndarray:
    """Return the values at which spellings of a clip part: NaN, infinities, zeros of both signs, bounds."""
    if dtype in FLOATS:
        return np.array([np.nan, -np.inf, np.inf, 0.0, -0.0, -3, -1, 0.5, 1, 6, 7, -np.nan], dtype)
    info = np.iinfo(dtype)
    return np.array([info.min, info.max, 0, 1, 2, 6, 7, 100, 5, 3, 4, 8], dtype)


def chain(*calls: tuple[Any, Any], dtype: str = "float32", shape: tuple[int | str, ...] = (12,)) -> tvm.IRModule:
    """Return max and min with constants, one after the other."""

    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        *inner, (last, bound) = calls
        for call, value in inner:
            x = emit(call(x, const(value, dtype)))
        return last(x, const(bound, dtype))

    return build(make, dtype, x=shape)


def clip(low: Any, high: Any, dtype: str = "float32", shape: tuple[int | str, ...] = (12,)) -> tvm.IRModule:
    return build(lambda emit, x: op.clip(x, low, high), dtype, x=shape)


def relu(dtype: str = "float32", shape: tuple[int | str, ...] = (12,)) -> tvm.IRModule:
    return build(lambda emit, x: op.nn.relu(x), dtype, x=shape)


# -- maximum-to-relu -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("zero", [0, [0]])
def test_a_maximum_with_zero_is_a_relu(dtype: str, zero: Any) -> None:
    fires(RecognizeClip(), chain((op.maximum, zero), dtype=dtype), relu(dtype), [awkward(dtype)])


def test_a_relu_of_a_symbolic_extent() -> None:
    fires(RecognizeClip(), chain((op.maximum, 0), shape=("n",)), relu(shape=("n",)), [awkward("float32")])


@pytest.mark.parametrize("bound", [-0.0, 1.0, np.nan, [0.0] * 11 + [1.0], [0.0, -0.0] * 6])
def test_a_maximum_with_something_else_stays(bound: Any) -> None:
    declines(RecognizeClip(), chain((op.maximum, bound)))


def test_zero_first_lets_a_nan_through_and_stays() -> None:
    source = build(lambda emit, x: op.maximum(const(0.0), x), x=(12,))
    declines(RecognizeClip(), source)
    # why: the two are not the same function
    assert np.isnan(evaluate(source, [awkward("float32")])[0]) and evaluate(relu(), [awkward("float32")])[0] == 0


def test_a_zero_that_grows_the_shape_stays() -> None:
    declines(RecognizeClip(), chain((op.maximum, [[0.0] * 1] * 3)))
    declines(RecognizeClip(), chain((op.maximum, [0.0] * 3), shape=(1,)))


def test_a_maximum_of_variables_stays() -> None:
    declines(RecognizeClip(), build(lambda emit, x, y: op.maximum(x, y), x=(3,), y=(3,)))


# -- clip ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("low, high", [(-1, 6), (0, 6), (-0.0, 6), (1, 1), (-np.inf, np.inf)])
def test_minimum_then_maximum_is_a_clip(dtype: str, low: float, high: float) -> None:
    before = chain((op.minimum, high), (op.maximum, low), dtype=dtype)
    fires(RecognizeClip(), before, clip(float(low), float(high), dtype), [awkward(dtype)])


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("first", [op.minimum, op.maximum])
def test_integers_clip_in_either_order(dtype: str, first: Any) -> None:
    calls = [(op.minimum, 6), (op.maximum, 1)]
    before = chain(*(calls if first is op.minimum else calls[::-1]), dtype=dtype)
    fires(RecognizeClip(), before, clip(1, 6, dtype), [awkward(dtype)])


def test_bounds_of_int64_keep_every_bit() -> None:
    big = 2**53 + 1
    before = chain((op.maximum, -big), (op.minimum, big), dtype="int64")
    fires(RecognizeClip(), before, clip(-big, big, "int64"), [awkward("int64")])


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_integers_relu_then_minimum(dtype: str) -> None:
    fires(RecognizeClip(), chain((op.maximum, 0), (op.minimum, 6), dtype=dtype), clip(0, 6, dtype), [awkward(dtype)])


def test_relu_then_minimum_of_floats_keeps_its_nan() -> None:
    before = chain((op.maximum, 0), (op.minimum, 6))
    after = RecognizeClip()(before)
    assert ops(after) == ["relax.nn.relu", "relax.minimum"]
    check_equivalent(before, after, [awkward("float32")])
    # why: a NaN becomes 0 here and 6 in the clip
    assert evaluate(before, [awkward("float32")])[0] == 0 and evaluate(clip(0, 6), [awkward("float32")])[0] == 6


def test_the_other_order_of_floats_is_a_clip_if_asked_for() -> None:
    finite = awkward("float32")[1:-1]
    for low in (0, -1):
        before = chain((op.maximum, low), (op.minimum, 6), shape=(10,))
        expected = clip(float(low), 6.0, shape=(10,))
        fires(RecognizeClip(soundness=ANY), before, expected, [finite])


@pytest.mark.parametrize("order", [0, 1])
def test_bounds_the_wrong_way_round_stay(order: int) -> None:
    calls = [(op.minimum, 1), (op.maximum, 6)]
    declines(RecognizeClip(soundness=ANY), chain(*(calls if order else calls[::-1])))


def test_bounds_that_are_no_scalars_stay() -> None:
    declines(RecognizeClip(), chain((op.minimum, np.arange(12)), (op.maximum, -1)))
    declines(RecognizeClip(), chain((op.minimum, 6), (op.maximum, np.arange(12))))
    declines(RecognizeClip(), chain((op.maximum, np.arange(12)), (op.minimum, 20), dtype="int32"))
    declines(RecognizeClip(), chain((op.minimum, np.nan), (op.maximum, -1)))
    declines(RecognizeClip(), chain((op.minimum, [0.0, -0.0] * 6), (op.maximum, -1)))


def test_a_bound_that_no_attribute_holds_stays() -> None:
    declines(RecognizeClip(), chain((op.minimum, 2**64 - 1), (op.maximum, 1), dtype="uint64"))
    declines(RecognizeClip(), chain((op.minimum, 2**64 - 1), (op.maximum, 2**63), dtype="uint64"))


@pytest.mark.parametrize("inner, outer", [(op.minimum, op.maximum), (op.maximum, op.minimum)])
def test_an_inner_call_with_other_users_stays(inner: Any, outer: Any) -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        y = emit(inner(x, const(3, "int32")))
        return op.add(emit(outer(y, const(3, "int32"))), y)

    declines(RecognizeClip(soundness=ANY), build(make, "int32", x=(12,)))


def test_an_inner_call_that_is_a_result_stays() -> None:
    def make(emit: Any, x: relax.Expr) -> tuple[relax.Expr, ...]:
        y = emit(op.minimum(x, const(6.0)))
        return op.maximum(y, const(1.0)), y

    assert ops(RecognizeClip()(build(make, x=(12,)))) == ["relax.minimum", "relax.maximum"]


def test_a_clip_used_twice_and_an_item_of_a_split() -> None:
    def make(emit: Any, x: relax.Expr, spelled: bool = True) -> relax.Expr:
        part = emit(emit(op.split(x, 2))[1])
        low, high = const(-1.0), const(6.0)
        y = emit(op.maximum(emit(op.minimum(part, high)), low)) if spelled else emit(op.clip(part, -1.0, 6.0))
        return op.add(y, y)

    fires(RecognizeClip(), build(make, x=(12,)), build(lambda e, x: make(e, x, False), x=(12,)), [awkward("float32")])


def test_a_class_that_is_not_asked_for_or_a_rule_left_out_stays() -> None:
    before = chain((op.maximum, -1), (op.minimum, 6))
    declines(RecognizeClip(), before)
    declines(RecognizeClip(soundness=ANY, exclude=["maximum-minimum-to-clip"]), before)
