"""Batch normalisation becomes scale and shift, and scales go into constant weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from build_case import build, const, ops
from pass_case import declines, fires
from tvm import relax
from tvm.relax import op

from relax_glue.passes import FoldBatchNorm
from relax_glue.testing import check_equivalent, evaluate

RNG = np.random.default_rng(0)


def random(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.uniform(0.5, 1.5, shape).astype(dtype)


def only(rule: str) -> tvm.transform.Pass:
    rules = ("batch-norm-to-scale", "scale-into-conv", "scale-into-matmul", "scale-before-shift")
    return FoldBatchNorm(exclude=[r for r in rules if r != rule])


# -- batch-norm-to-scale ---------------------------------------------------------------------------------


def batch_norm(statistics: list[np.ndarray], axis: int = 1, **options: Any) -> Any:
    def call(x: relax.Expr) -> relax.Expr:
        operands = [const(s, str(s.dtype)) for s in statistics]
        return op.nn.batch_norm(x, *operands, axis=axis, **{"training": False, **options})

    return call


def factors(statistics: list[np.ndarray], epsilon: float = 1e-5) -> tuple[np.ndarray, np.ndarray]:
    gamma, beta, mean, variance = (s.astype("float64") for s in statistics)
    factor = gamma / np.sqrt(variance + epsilon)
    return factor, beta - mean * factor


@pytest.mark.parametrize(
    "dtype, shape, axis",
    [
        ("float32", (2, 3, 4, 5), 1),
        ("float16", (2, 3, 4, 5), 1),
        ("float64", (2, 3), 1),
        ("float32", (2, 4, 5, 3), -1),
        ("float32", ("n", 3, 4), 1),
    ],
)
def test_batch_norm_is_scale_and_shift(dtype: str, shape: tuple[int | str, ...], axis: int) -> None:
    statistics = [random(3, dtype=dtype) for _ in range(4)]
    made = batch_norm(statistics, axis)
    aligned = [1] * len(shape)
    aligned[axis] = 3
    scale, shift = (const(f.reshape(aligned), dtype) for f in factors(statistics))
    before = build(lambda emit, x: emit(made(x))[0], dtype, x=shape)
    expected = build(lambda emit, x: op.add(emit(op.multiply(x, scale)), shift), dtype, x=shape)
    static = [2 if isinstance(e, str) else e for e in shape]
    x = random(*static, dtype=dtype)
    if dtype != "float16":
        fires(FoldBatchNorm(), before, expected, [x], exact=False)
        return
    # TVM's kernel returns float32 for a float16 operand, against the declared type: numpy is the reference
    after = FoldBatchNorm()(before)
    tvm.ir.assert_structural_equal(after, expected)
    reference = [f.reshape(aligned) for f in factors(statistics)]
    right = x.astype("float64") * reference[0] + reference[1]
    np.testing.assert_allclose(evaluate(after, [x]), right, rtol=0, atol=2e-3 * np.abs(right).max())


@pytest.mark.parametrize("options", [{"center": False}, {"scale": False}, {"center": False, "scale": False}])
def test_batch_norm_without_scale_or_centre(options: dict[str, bool]) -> None:
    statistics = [random(3) for _ in range(4)]
    before = build(lambda emit, x: emit(batch_norm(statistics, **options)(x))[0], x=(2, 3, 4))
    plain = [np.ones(3) if not options.get("scale", True) else statistics[0], statistics[1], *statistics[2:]]
    plain[1] = np.zeros(3) if not options.get("center", True) else plain[1]
    scale, shift = (const(f.reshape(1, 3, 1)) for f in factors(plain))
    expected = build(lambda emit, x: op.add(emit(op.multiply(x, scale)), shift), x=(2, 3, 4))
    fires(FoldBatchNorm(), before, expected, [random(2, 3, 4)], exact=False)


def test_running_statistics_come_back_as_they_went_in() -> None:
    statistics = [random(3) for _ in range(4)]

    def make(emit: Any, x: relax.Expr) -> tuple[relax.Expr, ...]:
        result = emit(batch_norm(statistics)(x))
        return emit(result[0]), emit(result[1]), emit(result[2])

    before = build(make, x=(2, 3, 4))
    after = FoldBatchNorm()(before)
    assert ops(after) == ["relax.multiply", "relax.add"]
    check_equivalent(before, after, [random(2, 3, 4)], exact=False)


def test_batch_norm_used_twice() -> None:
    statistics = [random(3) for _ in range(4)]

    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        y = emit(emit(batch_norm(statistics)(x))[0])
        return op.add(emit(op.exp(y)), y)

    before = build(make, x=(2, 3, 4))
    after = FoldBatchNorm()(before)
    assert ops(after) == ["relax.multiply", "relax.add", "relax.exp", "relax.add"]
    check_equivalent(before, after, [random(2, 3, 4)], exact=False)


def test_batch_norm_in_training_stays() -> None:
    statistics = [random(3) for _ in range(4)]
    declines(FoldBatchNorm(), build(lambda emit, x: emit(batch_norm(statistics, training=True)(x))[0], x=(2, 3, 4)))


def test_batch_norm_with_variable_statistics_stays() -> None:
    def make(emit: Any, x: relax.Expr, *statistics: relax.Expr) -> relax.Expr:
        return emit(op.nn.batch_norm(x, *statistics, axis=1, training=False))[0]

    declines(FoldBatchNorm(), build(make, x=(2, 3, 4), g=(3,), b=(3,), m=(3,), v=(3,)))


def test_batch_norm_whose_tuple_is_the_result_stays() -> None:
    statistics = [random(3) for _ in range(4)]
    declines(FoldBatchNorm(), build(lambda emit, x: batch_norm(statistics)(x), x=(2, 3, 4)))


def test_batch_norm_whose_factor_overflows_stays() -> None:
    statistics = [np.full(3, 60000.0), np.zeros(3), np.zeros(3), np.full(3, 1e-4)]
    half = [s.astype("float16") for s in statistics]
    declines(FoldBatchNorm(), build(lambda emit, x: emit(batch_norm(half)(x))[0], "float16", x=(2, 3, 4)))


def test_a_negative_variance_stays_nan() -> None:
    statistics = [np.ones(3), np.zeros(3), np.zeros(3), np.array([1.0, -1.0, 1.0])]
    single = [s.astype("float32") for s in statistics]
    before = build(lambda emit, x: emit(batch_norm(single)(x))[0], x=(2, 3, 4))
    check_equivalent(before, FoldBatchNorm()(before), [random(2, 3, 4)], exact=False)


# -- scale-into-conv -------------------------------------------------------------------------------------

CONVOLUTIONS = {
    "conv2d": (op.nn.conv2d, (1, 4, 5, 5), (6, 4, 3, 3), 0, 1, {}),
    "grouped": (op.nn.conv2d, (1, 4, 5, 5), (6, 2, 3, 3), 0, 1, {"groups": 2}),
    "depthwise": (op.nn.conv2d, (1, 4, 5, 5), (4, 1, 3, 3), 0, 1, {"groups": 4}),
    "nhwc": (op.nn.conv2d, (1, 5, 5, 4), (3, 3, 4, 6), 3, 3, {"data_layout": "NHWC", "kernel_layout": "HWIO"}),
    "nhwc-ohwi": (op.nn.conv2d, (1, 5, 5, 4), (6, 3, 3, 4), 0, 3, {"data_layout": "NHWC", "kernel_layout": "OHWI"}),
    "conv1d": (op.nn.conv1d, (1, 4, 5), (6, 4, 3), 0, 1, {}),
    "conv3d": (op.nn.conv3d, (1, 2, 3, 3, 3), (4, 2, 2, 2, 2), 0, 1, {}),
    "transposed": (op.nn.conv2d_transpose, (1, 4, 5, 5), (4, 6, 3, 3), 1, 1, {}),
    "transposed-1d": (op.nn.conv1d_transpose, (1, 4, 5), (4, 6, 3), 1, 1, {}),
    "symbolic": (op.nn.conv2d, ("n", 4, 5, 5), (6, 4, 3, 3), 0, 1, {}),
}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_scale_goes_into_the_weight(name: str, left: bool, dtype: str) -> None:
    conv, shape, kernel, out_axis, channel_axis, options = CONVOLUTIONS[name]
    weight, scale = random(*kernel, dtype=dtype), random(kernel[out_axis], dtype=dtype)
    aligned, along = [1] * len(shape), [1] * len(kernel)
    aligned[channel_axis] = along[out_axis] = -1
    factor = const(scale.reshape(aligned), dtype)
    scaled = weight.astype("float64") * scale.astype("float64").reshape(along)

    def before(emit: Any, x: relax.Expr) -> relax.Expr:
        y = emit(conv(x, const(weight, dtype), **options))
        return op.multiply(factor, y) if left else op.multiply(y, factor)

    source = build(before, dtype, x=shape)
    after = FoldBatchNorm()(source)
    tvm.ir.assert_structural_equal(
        after, build(lambda emit, x: conv(x, const(scaled, dtype), **options), dtype, x=shape)
    )
    x = random(*(2 if e == "n" else e for e in shape), dtype=dtype)
    check_equivalent(source, after, [x], exact=False, rtol=1e-5 if dtype == "float32" else 6e-3)


@pytest.mark.parametrize("values", [2.0, [2.0], [[[[2.0]]]]])
def test_one_value_scales_every_channel(values: Any) -> None:
    weight = random(6, 4, 3, 3)
    before = build(lambda emit, x: op.multiply(emit(op.nn.conv2d(x, const(weight))), const(values)), x=(1, 4, 5, 5))
    expected = build(lambda emit, x: op.nn.conv2d(x, const(weight * 2)), x=(1, 4, 5, 5))
    fires(FoldBatchNorm(), before, expected, [random(1, 4, 5, 5)], exact=False)


def scaled_conv(weight: np.ndarray, factor: np.ndarray, **options: Any) -> Any:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        dtype = str(weight.dtype)
        conv = options.pop("conv", op.nn.conv2d)
        return op.multiply(emit(conv(x, const(weight, dtype), **options)), const(factor, dtype))

    return make


def test_shapes_align_at_the_right() -> None:
    # the result is (1, 3, 3, 3): a vector of 3 varies along the width, not along the channels
    declines(FoldBatchNorm(), build(scaled_conv(random(3, 4, 3, 3), random(3)), x=(1, 4, 5, 5)))
    weight, factor = random(3, 3, 4, 3), random(3)
    nhwc = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    before = build(scaled_conv(weight, factor, **nhwc), x=(1, 5, 5, 4))
    assert ops(FoldBatchNorm()(before)) == ["relax.nn.conv2d"]
    check_equivalent(before, FoldBatchNorm()(before), [random(1, 5, 5, 4)], exact=False)


@pytest.mark.parametrize("shape", [(1, 1, 3, 1), (1, 1, 1, 3), (1, 6, 1, 3), (2, 1, 1, 1), (1, 1, 1, 1, 1)])
def test_a_factor_that_varies_along_another_axis_or_grows_the_result_stays(shape: tuple[int, ...]) -> None:
    declines(FoldBatchNorm(), build(scaled_conv(random(6, 4, 3, 3), random(*shape)), x=(1, 4, 5, 5)))


def test_a_factor_that_broadcasts_a_single_channel_stays() -> None:
    declines(FoldBatchNorm(), build(scaled_conv(random(1, 4, 3, 3), random(1, 6, 1, 1)), x=(1, 4, 5, 5)))


def test_a_grouped_transposed_convolution_stays() -> None:
    source = build(
        scaled_conv(random(4, 3, 3, 3), random(1, 6, 1, 1), conv=op.nn.conv2d_transpose, groups=2), x=(1, 4, 5, 5)
    )
    declines(FoldBatchNorm(), source)


def test_an_integer_convolution_stays() -> None:
    source = build(scaled_conv(np.ones((6, 4, 3, 3), "int32"), np.full((1, 6, 1, 1), 2)), "int32", x=(1, 4, 5, 5))
    declines(FoldBatchNorm(), source)


def test_a_convolution_with_other_users_stays() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        y = emit(op.nn.conv2d(x, const(random(6, 4, 3, 3))))
        return op.add(emit(op.multiply(y, const(2.0))), y)

    declines(FoldBatchNorm(), build(make, x=(1, 4, 5, 5)))


def test_a_convolution_that_is_a_result_stays() -> None:
    def make(emit: Any, x: relax.Expr) -> tuple[relax.Expr, ...]:
        y = emit(op.nn.conv2d(x, const(random(6, 4, 3, 3))))
        return op.multiply(y, const(2.0)), y

    after = FoldBatchNorm()(build(make, x=(1, 4, 5, 5)))
    assert ops(after) == ["relax.nn.conv2d", "relax.multiply"]


def test_a_variable_weight_or_factor_stays() -> None:
    conv = op.nn.conv2d
    declines(
        FoldBatchNorm(),
        build(lambda emit, x, w: op.multiply(emit(conv(x, w)), const(2.0)), x=(1, 4, 5, 5), w=(6, 4, 3, 3)),
    )
    weight = const(random(6, 4, 3, 3))
    declines(
        FoldBatchNorm(),
        build(lambda emit, x, c: op.multiply(emit(conv(x, weight)), c), x=(1, 4, 5, 5), c=(1, 6, 1, 1)),
    )


@pytest.mark.parametrize("factor", [1e5, 1e-6])
def test_a_factor_that_leaves_the_range_of_float16_stays(factor: float) -> None:
    factor = min(factor, 65000.0)
    weight = random(6, 4, 3, 3, dtype="float16") * np.float16(2)
    declines(FoldBatchNorm(), build(scaled_conv(weight, np.array(factor)), "float16", x=(1, 4, 5, 5)))


# -- scale-into-matmul -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "x, w, c",
    [((2, 3), (3, 4), (4,)), ((2, 3), (3, 4), (1, 4)), ((2, 2, 3), (2, 3, 4), (4,)), (("n", 3), (3, 4), (4,))],
)
def test_a_scale_goes_into_the_columns(x: Any, w: Any, c: Any) -> None:
    weight, scale = random(*w), random(*c)
    scaled = weight.astype("float64") * scale.astype("float64").reshape(-1)
    before = build(lambda emit, x: op.multiply(emit(op.matmul(x, const(weight))), const(scale)), x=x)
    expected = build(lambda emit, x: op.matmul(x, const(scaled)), x=x)
    fires(FoldBatchNorm(), before, expected, [random(*(2 if e == "n" else e for e in x))], exact=False)


def matmul_times(weight: np.ndarray, scale: np.ndarray, users: int = 1) -> Any:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        y = emit(op.matmul(x, const(weight)))
        scaled = op.multiply(y, const(scale))
        return scaled if users == 1 else op.add(emit(scaled), y)

    return make


@pytest.mark.parametrize("shape", [(2, 1), (2, 4), (5, 1, 1)])
def test_a_scale_of_rows_stays(shape: tuple[int, ...]) -> None:
    declines(FoldBatchNorm(), build(matmul_times(random(3, 4), random(*shape)), x=(2, 3)))


def test_a_product_with_a_vector_or_other_users_stays() -> None:
    declines(FoldBatchNorm(), build(matmul_times(random(3), np.float32(2)), x=(2, 3)))
    declines(FoldBatchNorm(), build(matmul_times(random(3, 4), random(4), users=2), x=(2, 3)))


def test_a_scale_of_a_constant_times_a_variable_stays() -> None:
    weight = const(random(2, 3))
    declines(
        FoldBatchNorm(), build(lambda emit, x: op.multiply(emit(op.matmul(weight, x)), const(random(4))), x=(3, 4))
    )


# -- scale-before-shift ----------------------------------------------------------------------------------


def shifted(weight: np.ndarray, shift: np.ndarray, factor: np.ndarray, users: int = 1) -> Any:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        y = emit(op.add(emit(op.nn.conv2d(x, const(weight))), const(shift)))
        scaled = op.multiply(y, const(factor))
        return scaled if users == 1 else op.add(emit(scaled), y)

    return make


@pytest.mark.parametrize("shift, factor", [((1, 6, 1, 1), (1, 6, 1, 1)), ((), (1, 6, 1, 1)), ((1, 6, 1, 1), ())])
@pytest.mark.parametrize("batch", [1, "n"])
def test_a_scale_passes_the_shift(shift: tuple[int, ...], factor: tuple[int, ...], batch: int | str) -> None:
    weight, b, c = random(6, 4, 3, 3), random(*shift), random(*factor)
    product = b.astype("float64") * c.astype("float64")

    def after(emit: Any, x: relax.Expr) -> relax.Expr:
        return op.add(emit(op.multiply(emit(op.nn.conv2d(x, const(weight))), const(c))), const(product))

    shape = (batch, 4, 5, 5)
    fires(
        only("scale-before-shift"),
        build(shifted(weight, b, c), x=shape),
        build(after, x=shape),
        [random(1, 4, 5, 5)],
        exact=False,
    )


@pytest.mark.parametrize(
    "shift, factor",
    [((1, 1, 3, 1), (1, 6, 1, 1)), ((2, 6, 1, 1), (1, 6, 1, 1)), ((1, 6, 1, 1), (2, 1, 1, 1)), ((1, 1, 1, 1, 1), ())],
)
def test_constants_along_different_axes_or_that_grow_stay(shift: tuple[int, ...], factor: tuple[int, ...]) -> None:
    source = build(shifted(random(6, 4, 3, 3), random(*shift), random(*factor)), x=(1, 4, 5, 5))
    declines(only("scale-before-shift"), source)


def test_a_sum_with_other_users_stays() -> None:
    source = build(shifted(random(6, 4, 3, 3), random(1, 6, 1, 1), random(1, 6, 1, 1), users=2), x=(1, 4, 5, 5))
    declines(FoldBatchNorm(), source)


def test_a_sum_of_no_convolution_or_with_a_variable_weight_stays() -> None:
    declines(FoldBatchNorm(), build(lambda emit, x: op.multiply(emit(op.add(x, const(1.0))), const(2.0)), x=(2, 3)))

    def variable(emit: Any, x: relax.Expr, w: relax.Expr) -> relax.Expr:
        return op.multiply(emit(op.add(emit(op.nn.conv2d(x, w)), const(1.0))), const(2.0))

    declines(FoldBatchNorm(), build(variable, x=(1, 4, 5, 5), w=(6, 4, 3, 3)))


def test_conv_bias_batch_norm_relu_is_conv_bias_relu() -> None:
    statistics = [random(6) for _ in range(4)]
    weight, bias = random(6, 4, 3, 3), random(1, 6, 1, 1)

    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        y = emit(op.add(emit(op.nn.conv2d(x, const(weight))), const(bias)))
        return op.nn.relu(emit(emit(batch_norm(statistics)(y))[0]))

    before = build(make, x=(1, 4, 5, 5))
    after = FoldBatchNorm()(before)
    assert ops(after) == ["relax.nn.conv2d", "relax.add", "relax.add", "relax.nn.relu"]
    check_equivalent(before, after, [random(1, 4, 5, 5)], exact=False, rtol=1e-5)
