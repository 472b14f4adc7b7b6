"""One operator for all that compute the same of the same operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from build_case import build, const
from pass_case import declines, fires
from script_case import script
from tvm import relax
from tvm.relax import op

from relax_glue.passes import MergeEqual

X = (2, 4)


@pytest.mark.parametrize(
    "call",
    ["R.permute_dims(x, [1, 0])", "R.exp(x)", "R.sum(x, axis=[1])", "R.strided_slice(x, [0], [0], [1])"],
)
def test_two_of_the_same_are_one(call: str) -> None:
    lines = [f"a = {call}", "b = R.negative(a)", f"c = {call}"]
    before = script(*lines, "d = R.negative(c)", "gv = R.add(b, d)", x=X)
    fires(MergeEqual(), before, script(*lines[:2], "gv = R.add(b, b)", x=X))


def test_items_of_a_split_are_merged() -> None:
    halves = ["s = R.split(x, 2, axis=1)", "t = R.split(x, 2, axis=1)"]
    before = script(*halves, "a = s[0]", "b = t[1]", "gv = R.add(a, b)", x=X)
    fires(MergeEqual(), before, script(halves[0], "a = s[0]", "b = s[1]", "gv = R.add(a, b)", x=X))


def test_what_is_read_from_the_merged_ones_is_merged_in_turn() -> None:
    lines = ["a = R.exp(x)", "b = R.exp(x)", "c = R.negative(a)", "d = R.negative(b)", "gv = R.add(c, d)"]
    fires(MergeEqual(), script(*lines, x=X), script(*lines[:1], lines[2], "gv = R.add(c, c)", x=X))


@pytest.mark.parametrize(
    "lines",
    [
        ["a = R.sum(x, axis=[1])", "b = R.sum(x, axis=[0, 1])", "c = R.add(a, b)", "gv = R.exp(c)"],
        ["a = R.subtract(x, y)", "b = R.subtract(y, x)", "gv = R.add(a, b)"],
        ["a = R.exp(x)", "b = R.exp(y)", "gv = R.add(a, b)"],
        ['a = R.astype(x, "float16")', 'b = R.astype(x, "int32")', 'c = R.astype(b, "float16")', "gv = R.add(a, c)"],
    ],
    ids=["attributes", "order of operands", "operands", "dtype"],
)
def test_what_differs_stays(lines: list[str]) -> None:
    declines(MergeEqual(), script(*lines, x=X, y=X))


def test_two_results_stay_two() -> None:
    declines(MergeEqual(), build(lambda emit, x: (emit(op.exp(x)), emit(op.exp(x))), x=X))


def test_a_result_stands_for_what_is_inside() -> None:
    mod = build(lambda emit, x: (emit(op.negative(emit(op.exp(x)))), emit(op.exp(x))), x=X)
    after = MergeEqual()(mod)
    assert sum(isinstance(b.value, relax.Call) for b in after["main"].body.blocks[0].bindings) == 2


def test_layers_are_not_merged() -> None:
    weight = const(np.ones((4, 3)))

    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        return emit(op.add(emit(op.matmul(x, weight)), emit(op.matmul(x, weight))))

    declines(MergeEqual(), build(make, x=X))


def test_where_too_many_read_one_value_equal_ones_stay() -> None:
    """Looking at all readers of each value would be quadratic."""

    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        parts = [emit(op.multiply(x, const(float(k)))) for k in range(100)]
        return emit(op.concat([*parts, emit(op.exp(x)), emit(op.exp(x))], axis=0))

    declines(MergeEqual(), build(make, x=X))
