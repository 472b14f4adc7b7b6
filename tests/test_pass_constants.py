"""Calls of constants are computed, in the declared dtype, where the value is certain and the size is worth it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from build_case import build, const, ops
from pass_case import declines, fires
from tvm import relax
from tvm.relax import op

from relax_glue.passes import FoldConstants
from relax_glue.rewrite import RewriteStats
from relax_glue.testing import check_equivalent, evaluate


def constants(mod: tvm.IRModule) -> list[np.ndarray]:
    """Return the constants among the operands and results of the bindings of `main`."""
    values = [b.value for block in mod["main"].body.blocks for b in block.bindings]
    found = [a for v in values for a in (v.args if isinstance(v, relax.Call) else [v])]
    return [c.value.numpy() for c in found if isinstance(c, tvm.ir.GenericConst)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int32", "int8", "uint8"])
def test_a_chain_of_calls_is_one_constant(dtype: str) -> None:
    values = np.arange(1, 13).reshape(3, 4)

    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        c = emit(op.permute_dims(const(values, dtype), [1, 0]))
        c = emit(op.multiply(emit(op.add(c, const(100, dtype))), c))  # int8 and uint8 wrap around
        return op.add(x, emit(op.reshape(c, (3, 4))))

    with np.errstate(over="ignore"):
        c = values.astype(dtype).T
        right = ((c + np.array(100, dtype)) * c).reshape(3, 4)
    assert right.dtype == dtype
    expected = build(lambda emit, x: op.add(x, const(right, dtype)), dtype, x=(3, 4))
    fires(FoldConstants(), build(make, dtype, x=(3, 4)), expected)


def test_each_item_of_a_split_is_a_constant() -> None:
    values = np.arange(12, dtype="float32").reshape(3, 4)

    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        parts = emit(op.split(const(values), [1, 3], axis=-1))
        return op.concat([emit(parts[2]), x, emit(parts[0])], axis=-1)

    def after(emit: Any, x: relax.Expr) -> relax.Expr:
        return op.concat([const(values[:, 3:]), x, const(values[:, :1])], axis=-1)

    fires(FoldConstants(), build(make, x=(3, 2)), build(after, x=(3, 2)))


def test_a_split_into_one_part_is_a_constant() -> None:
    values = np.arange(4, dtype="float32")
    before = build(lambda emit, x: op.add(x, emit(op.split(const(values), 1))), x=(4,))
    fires(FoldConstants(), before, build(lambda emit, x: op.add(x, const(values)), x=(4,)))


def test_a_constant_that_is_a_result_and_one_used_twice() -> None:
    def make(emit: Any, x: relax.Expr) -> tuple[relax.Expr, ...]:
        c = emit(op.add(const([1.0, 2.0]), const([3.0, 4.0])))
        return emit(op.multiply(x, c)), emit(op.subtract(x, c)), c

    before = build(make, x=(2,))
    after = FoldConstants()(before)
    assert ops(after) == ["relax.multiply", "relax.subtract"]
    check_equivalent(before, after, [np.arange(2, dtype="float32")])


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool"])
def test_creation_operators_are_constants(dtype: str) -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        parts = [
            emit(op.zeros((2, 3), dtype)),
            emit(op.ones((2, 3), dtype)),
            emit(op.full((2, 3), const(1, dtype), dtype)),
            emit(op.zeros_like(x)),
            emit(op.ones_like(x)),
        ]
        return op.concat([x, *parts], axis=0)

    before = build(make, dtype, x=(2, 3))
    after = FoldConstants()(before)
    assert ops(after) == ["relax.concat"]
    (concat,) = [b.value for b in after["main"].body.blocks[0].bindings]
    found = [c.value.numpy() for c in list(concat.args[0].fields)[1:]]
    assert [c.dtype.name for c in found] == [dtype] * 5
    assert [int(c.sum()) for c in found] == [0, 6, 6, 0, 6]


def test_arange_and_masks_of_integers() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        steps = emit(op.arange(0, 6, 2, "int64"))
        return op.where(emit(op.greater(steps, const(1, "int64"))), x, emit(op.negative(steps)))

    before = build(make, "int64", x=(3,))
    after = FoldConstants()(before)
    assert ops(after) == ["relax.where"]
    check_equivalent(before, after, [np.array([7, 8, 9])])


# -- what stays ------------------------------------------------------------------------------------------


def test_a_call_with_a_variable_operand_stays() -> None:
    stats = RewriteStats()
    mod = build(lambda emit, x: op.add(x, const(1.0)), x=(2,))
    tvm.ir.assert_structural_equal(FoldConstants(stats=stats)(mod), mod)
    assert "an operand is not constant" in stats.of("fold-constants").declined


def test_a_symbolic_shape_stays() -> None:
    declines(FoldConstants(), build(lambda emit, x: op.add(x, emit(op.zeros_like(x))), x=("n",)))


@pytest.mark.parametrize("make", [op.exp, op.tanh, op.sigmoid, op.sin])
def test_soundness_decides_about_functions_whose_last_bits_differ(make: Any) -> None:
    before = build(lambda emit, x: op.add(x, emit(make(const([0.5, 1.5])))), x=(2,))
    declines(FoldConstants(soundness=("exact",)), before)
    after = FoldConstants()(before)
    assert ops(after) == ["relax.add"]
    check_equivalent(before, after, [np.zeros(2, "float32")], exact=False, rtol=1e-6)


def test_exact_operators_fold_in_either_class() -> None:
    before = build(lambda emit, x: op.add(x, emit(op.multiply(const([0.1, 0.2]), const([0.3, 0.4])))), x=(2,))
    for soundness in (("exact",), ("exact", "float_reassoc")):
        assert ops(FoldConstants(soundness=soundness)(before)) == ["relax.add"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: op.floor_divide(const([1, 2], "int32"), const([0, 1], "int32")),
        lambda: op.astype(const([1e30, 1.0]), "int32"),
        lambda: op.take(const([1, 2], "int32"), const([5, 0], "int64"), 0),
    ],
    ids=["division by zero", "float that no integer holds", "index outside"],
)
def test_what_the_compiler_leaves_undefined_stays(make: Any) -> None:
    declines(FoldConstants(), build(lambda emit, x: op.add(x, emit(make())), "int32", x=(2,)))


def test_an_operator_that_numpy_does_not_spell_stays() -> None:
    weight = const(np.ones((1, 1, 1, 1)))
    before = build(lambda emit, x: op.add(x, emit(op.nn.conv2d(const(np.ones((1, 1, 2, 2))), weight))), x=(1, 1, 2, 2))
    declines(FoldConstants(), before)


def test_a_constant_that_would_grow_too_much_stays() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        return op.add(x, emit(op.broadcast_to(const([1.0]), (1024, 1024))))

    before = build(make, x=(1024, 1024))
    assert ops(FoldConstants()(before)) == ["relax.add"]  # 4 MiB is the most
    declines(FoldConstants(max_growth=4 * 1024 * 1024 - 5), before)
    stats = RewriteStats()
    FoldConstants(max_growth=100, stats=stats)(before)
    (reason,) = stats.of("fold-constants").declined.keys() - {"an operand is not constant"}
    assert "4194304 bytes, 100 more" in reason


def test_growth_is_measured_against_the_operands() -> None:
    big = np.arange(64, dtype="float32").reshape(8, 8)
    before = build(lambda emit, x: op.add(x, emit(op.permute_dims(const(big)))), x=(8, 8))
    assert ops(FoldConstants(max_growth=0)(before)) == ["relax.add"]


def test_a_large_constant_is_not_computed_from_one_that_stays() -> None:
    # broadcast, then exp: neither folds, and nothing is computed on a million elements
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        return op.add(x, emit(op.exp(emit(op.broadcast_to(const([1.0]), (64, 64))))))

    declines(FoldConstants(max_growth=64), build(make, x=(64, 64)))


def test_a_rule_can_be_left_out() -> None:
    before = build(lambda emit, x: op.add(x, emit(op.add(const(1.0), const(2.0)))), x=(2,))
    declines(FoldConstants(exclude=["fold-constants"]), before)


# -- fold-empty ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool"])
def test_a_result_without_elements_is_a_constant(dtype: str) -> None:
    def make(emit: Any, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        nothing = emit(op.strided_slice(x, [0], [2], [2]))
        return op.concat([y, nothing], axis=0)

    before = build(make, dtype, x=(3, 2), y=(2, 2))
    after = FoldConstants()(before)
    assert ops(after) == ["relax.concat"]
    (empty,) = [f.value.numpy() for f in list(after["main"].body.blocks[0].bindings[0].value.args[0].fields)[1:]]
    assert (empty.shape, empty.dtype.name) == ((0, 2), dtype)
    values = [np.ones((3, 2), dtype), np.ones((2, 2), dtype)]
    check_equivalent(before, after, values)


def test_a_constant_that_tvm_cannot_load_is_made_when_the_model_runs() -> None:
    def make(emit: Any, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        return op.concat([y, emit(op.exp(emit(op.strided_slice(x, [1], [2], [2]))))], axis=1)

    after = FoldConstants()(build(make, x=(2, 3), y=(2, 2)))
    assert ops(after) == ["relax.zeros", "relax.concat"]
    machine = relax.VirtualMachine(tvm.compile(after, "llvm"), tvm.cpu())
    x, y = np.ones((2, 3), "float32"), np.arange(4, dtype="float32").reshape(2, 2)
    np.testing.assert_array_equal(machine["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(y)).numpy(), y)


def test_a_split_into_nothing_is_constants_and_into_something_is_not() -> None:
    def make(emit: Any, x: relax.Expr, at: list[int]) -> tuple[relax.Expr, ...]:
        parts = emit(op.split(x, at, axis=0))
        return tuple(emit(parts[k]) for k in range(len(at) + 1))

    nothing = FoldConstants()(build(lambda emit, x: make(emit, x, [0]), x=(0, 3)))
    assert ops(nothing) == []
    declines(FoldConstants(), build(lambda emit, x: make(emit, x, [0, 2]), x=(4, 3)))


def test_an_empty_reduction_has_elements_and_stays_right() -> None:
    before = build(lambda emit, x: op.sum(x, [0]), x=(0, 3))
    after = FoldConstants()(before)
    np.testing.assert_array_equal(evaluate(after, [np.zeros((0, 3), "float32")]), np.zeros(3))


def test_a_symbolic_extent_beside_a_zero_stays() -> None:
    declines(FoldConstants(), build(lambda emit, x: op.exp(x), x=("n", 0)))
