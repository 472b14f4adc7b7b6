"""Chains of scales and shifts, and scales before weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from build_case import build, const, ops
from pass_case import declines
from tvm import relax
from tvm.relax import op

from relax_glue.passes import FoldAffine
from relax_glue.rewrite import EXACT
from relax_glue.testing import check_equivalent

X = (2, 3, 4, 5)
CHANNELS = np.arange(1.0, 4.0).reshape(3, 1, 1)


def inputs(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape).astype("float32") for shape in shapes]


def becomes(make: Any, *wanted: str, shape: tuple[int, ...] = X) -> None:
    """Check the operators that are left, and that the numbers stay up to their last bits."""
    before = build(make, x=shape)
    after = FoldAffine()(before)
    assert ops(after) == [f"relax.{name}" for name in wanted]
    check_equivalent(before, after, inputs(shape), exact=False, rtol=1e-6)


def stays(make: Any, dtype: str = "float32", **shapes: tuple[int | str, ...]) -> None:
    declines(FoldAffine(), build(make, dtype, **(shapes or {"x": X})))


def test_an_image_is_normalised_in_two_operators() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        y = emit(op.subtract(emit(op.divide(x, const(255.0))), const(CHANNELS)))
        return emit(op.divide(y, const(CHANNELS * 0.3)))

    becomes(make, "multiply", "add")


def test_two_scales_are_one_and_two_shifts_are_one() -> None:
    becomes(lambda emit, x: emit(op.multiply(const(3.0), emit(op.multiply(x, const(CHANNELS))))), "multiply")
    becomes(lambda emit, x: emit(op.add(emit(op.subtract(x, const(1.5))), const(CHANNELS))), "add")


def test_what_is_subtracted_from_a_constant_changes_its_sign() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        return emit(op.multiply(emit(op.subtract(const(1.0), emit(op.subtract(const(2.0), x)))), const(3.0)))

    becomes(make, "multiply", "add")


def test_a_scale_and_a_shift_are_as_short_as_can_be() -> None:
    stays(lambda emit, x: emit(op.add(emit(op.multiply(x, const(2.0))), const(1.0))))


def test_a_step_that_is_read_elsewhere_stays() -> None:
    def make(emit: Any, x: relax.Expr) -> tuple[relax.Expr, ...]:
        y = emit(op.multiply(x, const(2.0)))
        return emit(op.multiply(y, const(3.0))), emit(op.exp(y))

    stays(make)


def test_constants_along_different_axes_would_make_a_larger_one() -> None:
    columns = np.arange(1.0, 6.0)
    stays(lambda emit, x: emit(op.multiply(emit(op.multiply(x, const(CHANNELS))), const(columns))))


def test_a_result_that_grows_stays() -> None:
    stays(lambda emit, x: emit(op.multiply(emit(op.multiply(x, const(2.0))), const(CHANNELS))), x=(2, 1, 4, 5))


@pytest.mark.parametrize("values", [(1e30, 1e30), (1e-30, 1e-30), (np.inf, 2.0)], ids=["huge", "tiny", "inf"])
def test_constants_that_would_leave_the_range_stay(values: tuple[float, float]) -> None:
    stays(lambda emit, x: emit(op.multiply(emit(op.multiply(x, const(values[0]))), const(values[1]))))


def test_a_division_by_zero_and_by_x_stay() -> None:
    stays(lambda emit, x: emit(op.divide(emit(op.multiply(x, const(2.0))), const(0.0))))
    stays(lambda emit, x: emit(op.divide(const(2.0), emit(op.divide(const(3.0), x)))))


def test_integers_stay() -> None:
    stays(lambda emit, x: emit(op.add(emit(op.add(x, const(1, "int32"))), const(2, "int32"))), "int32", x=(4,))


def test_a_chain_after_a_layer_stays_with_it() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        y = emit(op.nn.conv2d(x, const(np.ones((2, 3, 1, 1)))))
        return emit(op.add(emit(op.multiply(emit(op.add(y, const(1.0))), const(2.0))), const(3.0)))

    stays(make)


def test_symbolic_extents_are_no_hindrance() -> None:
    mod = build(lambda emit, x: emit(op.add(emit(op.add(x, const(1.0))), const(2.0))), x=("n", 3))
    after = FoldAffine()(mod)
    assert ops(after) == ["relax.add"]
    check_equivalent(mod, after, inputs((5, 3)), exact=False, rtol=1e-6)


def test_every_bit_stays_where_it_has_to() -> None:
    mod = build(lambda emit, x: emit(op.add(emit(op.add(x, const(1.0))), const(2.0))), x=X)
    declines(FoldAffine(soundness=[EXACT]), mod)


# -- scales before weights -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("layout", "kernel"), [("NCHW", "OIHW"), ("NHWC", "HWIO")])
@pytest.mark.parametrize("scalar", [False, True])
def test_a_scale_goes_into_the_convolution_after_it(layout: str, kernel: str, scalar: bool) -> None:
    rng = np.random.default_rng(1)
    weight = rng.normal(size=[{"O": 2, "I": 3}.get(c, 3) for c in kernel])
    factor = np.arange(1.0, 4.0).reshape([3 if c == "C" else 1 for c in layout])

    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        y = emit(op.multiply(x, const(2.0 if scalar else factor)))
        return emit(op.nn.conv2d(y, const(weight), padding=[1, 1], data_layout=layout, kernel_layout=kernel))

    becomes(make, "nn.conv2d", shape=tuple(3 if c == "C" else 4 for c in layout))


def test_a_scale_goes_into_the_product_after_it() -> None:
    weight = np.random.default_rng(2).normal(size=(5, 6))
    becomes(lambda emit, x: emit(op.matmul(emit(op.multiply(x, const(np.arange(5.0)))), const(weight))), "matmul")


@pytest.mark.parametrize("case", ["groups", "other axis", "other user", "weight"])
def test_a_scale_that_does_not_fit_stays(case: str) -> None:
    factor = np.arange(1.0, 6.0) if case == "other axis" else CHANNELS

    def make(emit: Any, x: relax.Expr) -> Any:
        y = emit(op.multiply(x, const(factor)))
        depthwise = case == "groups"
        weight = const(np.ones((3, 1 if depthwise else 3, 1, 1)))
        if case == "weight":
            weight = emit(op.reshape(emit(op.strided_slice(x, [0, 2, 3], [0, 0, 0], [1, 1, 3])), (3, 3, 1, 1)))
        result = emit(op.nn.conv2d(y, weight, groups=3 if depthwise else 1))
        return (result, emit(op.exp(y))) if case == "other user" else result

    stays(make)
