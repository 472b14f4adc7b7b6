"""The order of channels goes into the weights that sum over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tvm
from build_case import build, const, ops
from pass_case import declines, fires, random_inputs
from tvm import relax
from tvm.relax import op

from relax_glue.passes import CanonicalizePermuteDims
from relax_glue.testing import check_equivalent

ORDERS = CanonicalizePermuteDims()
RNG = np.random.default_rng(0)
WEIGHT = RNG.integers(-9, 9, (5, 6, 3, 3)).astype("float32")
ORDER = [2, 5, 0, 1, 4, 3]  # no permutation is its own inverse here
SHUFFLED = [0, 3, 1, 4, 2, 5]  # two groups of three, dealt out
Emit = Callable[[relax.Expr], relax.Var]


def taken(emit: Emit, x: relax.Expr, order: Sequence[int] = ORDER, axis: int = 1) -> relax.Var:
    return emit(op.take(x, const(order, "int64"), axis))


def backwards(emit: Emit, x: relax.Expr) -> relax.Var:
    return emit(op.strided_slice(x, [1], [5], [-7], [-1]))


def shuffled(emit: Emit, x: relax.Expr, groups: int = 2) -> relax.Var:
    batch, channels, *rest = x.ty.shape.values
    apart = emit(op.reshape(x, [batch, groups, int(channels) // groups, *rest]))
    return emit(op.reshape(emit(op.permute_dims(apart, [0, 2, 1, 3, 4])), [batch, channels, *rest]))


def convolved(reorder: Callable[[Emit, relax.Expr], relax.Expr], **params: tuple[int | str, ...]) -> tvm.IRModule:
    return build(lambda emit, x: emit(op.nn.conv2d(reorder(emit, x), const(WEIGHT), padding=[1, 1])), **params)


def in_order(order: Sequence[int], x: tuple[int | str, ...] = (1, 6, 4, 5)) -> tvm.IRModule:
    """Return the convolution of x whose weights are those of channels in an order."""
    weight = np.empty_like(WEIGHT)
    weight[:, list(order)] = WEIGHT
    return build(lambda emit, x: emit(op.nn.conv2d(x, const(weight), padding=[1, 1])), x=x)


@pytest.mark.parametrize(
    ("reorder", "order"),
    [(taken, ORDER), (backwards, range(5, -1, -1)), (shuffled, SHUFFLED)],
    ids=["take", "flip", "shuffle"],
)
def test_the_weights_are_reordered_instead(reorder, order):
    fires(ORDERS, convolved(reorder, x=(1, 6, 4, 5)), in_order(order))


def test_a_symbolic_batch():
    fires(ORDERS, convolved(shuffled, x=("n", 6, 4, 5)), in_order(SHUFFLED, ("n", 6, 4, 5)))


def test_a_negative_axis_and_channels_last():
    weight = RNG.integers(-9, 9, (3, 3, 6, 5)).astype("float32")
    layout = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    before = build(lambda emit, x: emit(op.nn.conv2d(taken(emit, x, axis=-1), const(weight), **layout)), x=(1, 4, 5, 6))
    inverse = weight[:, :, np.argsort(ORDER)]
    fires(ORDERS, before, build(lambda emit, x: emit(op.nn.conv2d(x, const(inverse), **layout)), x=(1, 4, 5, 6)))


def test_what_works_element_by_element_in_between_is_reordered_along():
    mean, scale = (RNG.integers(1, 9, (6, 1, 1)).astype("float32") for _ in range(2))

    def make(emit, x, mean, scale, weight):
        y = emit(op.multiply(const(scale), emit(op.subtract(x, const(mean)))))
        return emit(op.nn.conv2d(emit(op.nn.relu(y)), const(weight)))

    before = build(lambda emit, x: make(emit, taken(emit, x), mean, scale, WEIGHT), x=(1, 6, 4, 5))
    inverse = np.argsort(ORDER)
    expected = build(lambda emit, x: make(emit, x, mean[inverse], scale[inverse], WEIGHT[:, inverse]), x=(1, 6, 4, 5))
    fires(ORDERS, before, expected)


def test_constants_of_one_value_and_of_other_axes_stay_as_they_are():
    rows = const(np.arange(5.0))
    before = build(
        lambda emit, x: emit(
            op.nn.conv2d(emit(op.add(taken(emit, emit(op.multiply(x, const(3.0)))), rows)), const(WEIGHT))
        ),
        x=(1, 6, 4, 5),
    )
    expected = build(
        lambda emit, x: emit(
            op.nn.conv2d(
                emit(op.add(emit(op.multiply(x, const(3.0))), rows)),
                const(np.ascontiguousarray(WEIGHT[:, np.argsort(ORDER)])),
            )
        ),
        x=(1, 6, 4, 5),
    )
    fires(ORDERS, before, expected)


def flattened(axes: Sequence[int], weight: np.ndarray, **params: tuple[int | str, ...]) -> tvm.IRModule:
    """Return the product of an image, flattened with its axes in an order, and weights."""

    def make(emit, x):
        turned = x if list(axes) == [0, 1, 2, 3] else emit(op.permute_dims(x, axes))
        return emit(op.matmul(emit(op.reshape(turned, [x.ty.shape.values[0], 24])), const(weight)))

    return build(make, **params)


@pytest.mark.parametrize("batch", [1, 3, "n"])
def test_a_flatten_of_channels_last(batch):
    weight = RNG.integers(-9, 9, (24, 5)).astype("float32")  # of H, W, C = 3, 4, 2
    straight = weight.reshape(3, 4, 2, 5).transpose(2, 0, 1, 3).reshape(24, 5)
    before = flattened([0, 2, 3, 1], weight, x=(batch, 2, 3, 4))
    fires(ORDERS, before, flattened([0, 1, 2, 3], straight, x=(batch, 2, 3, 4)))


def test_a_weight_with_batch_axes():
    weight = RNG.integers(-9, 9, (2, 6, 5)).astype("float32")
    before = build(lambda emit, x: emit(op.matmul(taken(emit, x, axis=2), const(weight))), x=(2, 4, 6))
    inverse = weight[:, np.argsort(ORDER)]
    fires(ORDERS, before, build(lambda emit, x: emit(op.matmul(x, const(inverse))), x=(2, 4, 6)))


def test_an_item_of_a_tuple_is_reordered():
    def make(emit, x):
        parts = emit(op.split(x, 2, axis=1))
        return emit(op.nn.conv2d(taken(emit, emit(relax.TupleGetItem(parts, 1))), const(WEIGHT)))

    after = ORDERS(build(make, x=(1, 12, 4, 5)))
    assert ops(after) == ["relax.split", "relax.nn.conv2d"]
    check_equivalent(build(make, x=(1, 12, 4, 5)), after, random_inputs(after))


@pytest.mark.parametrize("shared", ["convolution", "result"])
def test_a_reordering_that_is_used_elsewhere_stays_for_that(shared):
    def make(emit, x):
        y = taken(emit, x)
        z = emit(op.nn.conv2d(y, const(WEIGHT)))
        return z, y if shared == "result" else emit(op.nn.conv2d(y, const(WEIGHT), padding=[1, 1]))

    before = build(make, x=(1, 6, 4, 5))
    after = ORDERS(before)
    assert ("relax.take" in ops(after)) == (shared == "result")
    check_equivalent(before, after, random_inputs(before))


def test_a_flatten_that_is_used_elsewhere_is_not_made_twice():
    weight = const(np.ones((24, 5)))

    def make(emit, x):
        flat = emit(op.reshape(emit(op.permute_dims(x, [0, 2, 3, 1])), [1, 24]))
        return emit(op.matmul(flat, weight)), flat

    declines(ORDERS, build(make, x=(1, 2, 3, 4)))


def grouped(emit, x):
    weight = const(WEIGHT[:4, :3])
    return emit(op.nn.conv2d(taken(emit, x), weight, groups=2))


def of_weights(emit, x):
    return emit(op.nn.conv2d(x, taken(emit, emit(op.abs(x)))))


def twice(emit, x):
    return emit(op.nn.conv2d(taken(emit, x, [0, 0, 1, 2, 3, 4]), const(WEIGHT)))


def rows(emit, x):
    return emit(op.nn.conv2d(taken(emit, x, ORDER, axis=2), const(WEIGHT)))


def with_a_tensor(emit, x):
    return emit(op.nn.conv2d(emit(op.add(taken(emit, x), x)), const(WEIGHT)))


def of_the_batch(emit, x):
    turned = emit(op.permute_dims(emit(op.reshape(x, [2, 3, 2, 6, 6])), [1, 0, 2, 3, 4]))
    return emit(op.nn.conv2d(emit(op.reshape(turned, [2, 6, 6, 6])), const(WEIGHT)))


@pytest.mark.parametrize(
    "make", [grouped, of_weights, twice, rows, with_a_tensor, of_the_batch], ids=lambda f: f.__name__
)
def test_what_is_no_reordering_of_the_summed_channels_stays(make):
    declines(ORDERS, build(make, x=(2, 6, 6, 6)))


def test_a_weight_that_is_computed_stays():
    before = build(lambda emit, x, w: emit(op.nn.conv2d(taken(emit, x), w)), x=(1, 6, 4, 5), w=(5, 6, 3, 3))
    declines(ORDERS, before)
