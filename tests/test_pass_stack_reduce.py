"""Reductions over a stack, as ONNX Max, Min and Sum arrive, become binary operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from build_case import build, ops
from onnx import TensorProto, helper
from pass_case import declines, fires
from tvm import relax
from tvm.relax import op
from tvm.relax.frontend.onnx import from_onnx

from relax_glue.passes import RecognizeMaximum
from relax_glue.rewrite import DEFAULT_SOUNDNESS, EXACT, NAN_SENSITIVE
from relax_glue.testing import check_equivalent, evaluate

ANY = (*DEFAULT_SOUNDNESS, NAN_SENSITIVE)
BINARY = {op.sum: op.add, op.max: op.maximum, op.min: op.minimum}


def reduced(reduce: Any, axis: int = 0, along: Any = (0,), count: int = 2, keepdims: bool = False) -> Any:
    def make(emit: Any, *xs: relax.Expr) -> relax.Expr:
        stacked = emit(op.stack([xs[k % len(xs)] for k in range(count)], axis))
        return reduce(stacked, None if along is None else list(along), keepdims)

    return make


def chained(binary: Any, count: int = 2) -> Any:
    def make(emit: Any, *xs: relax.Expr) -> relax.Expr:
        result = xs[0]
        for k in range(1, count):
            result = binary(result, xs[k % len(xs)])
            result = emit(result) if k < count - 1 else result
        return result

    return make


@pytest.mark.parametrize("axis, along", [(0, (0,)), (-1, (2,)), (1, (-2,)), (2, (-1,))])
@pytest.mark.parametrize("reduce", BINARY)
def test_a_reduction_of_the_new_axis_is_a_binary_operator(reduce: Any, axis: int, along: tuple[int, ...]) -> None:
    before = build(reduced(reduce, axis, along), "int32", x=(3, 4), y=(3, 4))
    fires(RecognizeMaximum(), before, build(chained(BINARY[reduce]), "int32", x=(3, 4), y=(3, 4)))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64"])
@pytest.mark.parametrize("reduce", BINARY)
def test_other_integers(reduce: Any, dtype: str) -> None:
    before = build(reduced(reduce), dtype, x=(4,), y=(4,))
    inputs = [np.array([1, 100, 127, 0], dtype), np.array([127, 100, 1, 0], dtype)]  # sums wrap around
    fires(RecognizeMaximum(), before, build(chained(BINARY[reduce]), dtype, x=(4,), y=(4,)), inputs)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_sum_of_floats(dtype: str, count: int) -> None:
    before = build(reduced(op.sum, count=count), dtype, x=("n", 4), y=("n", 4))
    expected = build(chained(op.add, count), dtype, x=("n", 4), y=("n", 4))
    fires(RecognizeMaximum(), before, expected, exact=False)
    declines(RecognizeMaximum(soundness=(EXACT,)), before)


def test_a_sum_of_negative_zeros_is_why_a_sum_is_not_exact() -> None:
    zeros = np.full(3, -0.0, "float32")
    before = build(reduced(op.sum), x=(3,), y=(3,))
    assert not np.signbit(evaluate(before, [zeros, zeros])).any()
    assert np.signbit(evaluate(RecognizeMaximum()(before), [zeros, zeros])).all()


@pytest.mark.parametrize("reduce", [op.max, op.min])
def test_a_maximum_of_floats_only_if_asked_for(reduce: Any) -> None:
    before = build(reduced(reduce, count=3), x=(3, 4), y=(3, 4))
    declines(RecognizeMaximum(), before)
    fires(RecognizeMaximum(soundness=ANY), before, build(chained(BINARY[reduce], 3), x=(3, 4), y=(3, 4)))


@pytest.mark.parametrize("reduce", BINARY)
@pytest.mark.parametrize("options", [{"along": (1,)}, {"along": None}, {"along": (0, 1)}, {"keepdims": True}])
def test_another_axis_or_a_kept_one_stays(reduce: Any, options: dict[str, Any]) -> None:
    declines(RecognizeMaximum(soundness=ANY), build(reduced(reduce, **options), "int32", x=(3, 4), y=(3, 4)))


def test_another_reduction_or_one_operand_stays() -> None:
    declines(RecognizeMaximum(soundness=ANY), build(reduced(op.mean), x=(3, 4), y=(3, 4)))
    declines(RecognizeMaximum(soundness=ANY), build(reduced(op.sum, count=1), x=(3, 4)))


def test_a_stack_with_other_users_stays() -> None:
    def make(emit: Any, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        stacked = emit(op.stack([x, y], 0))
        return op.add(emit(op.sum(stacked, [0])), stacked)

    declines(RecognizeMaximum(soundness=ANY), build(make, x=(3, 4), y=(3, 4)))


def test_items_of_a_split_in_another_order_and_a_result_used_twice() -> None:
    def make(emit: Any, x: relax.Expr, spelled: bool = True) -> tuple[relax.Expr, ...]:
        parts = emit(op.split(x, 2, 0))
        second, first = emit(parts[1]), emit(parts[0])
        pair = [second, first]
        y = emit(op.max(emit(op.stack(pair, 1)), [1])) if spelled else emit(op.maximum(*pair))
        return y, op.negative(y)

    before = build(make, "int32", x=(6, 2))
    after = RecognizeMaximum()(before)
    assert ops(after) == ops(build(lambda e, x: make(e, x, False), "int32", x=(6, 2)))
    check_equivalent(before, after, [np.arange(12, dtype="int32").reshape(6, 2)[::-1].copy()])


@pytest.mark.parametrize("name, binary", [("Max", "relax.maximum"), ("Min", "relax.minimum"), ("Sum", "relax.add")])
def test_as_the_onnx_importer_of_tvm_writes_it(name: str, binary: str) -> None:
    def value(name: str, shape: list[int]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    node = helper.make_node(name, ["x", "y"], ["z"])
    graph = helper.make_graph([node], "g", [value("x", [2, 3]), value("y", [2, 3])], [value("z", [2, 3])])
    before = from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    after = RecognizeMaximum(soundness=ANY)(before)
    assert ops(after)[-1] == binary and "relax.stack" not in ops(after)
    rng = np.random.default_rng(0)
    check_equivalent(before, after, [rng.normal(size=(2, 3)).astype("float32") for _ in "xy"], exact=False)
