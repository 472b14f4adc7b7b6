"""Slices go before the layers whose result they cut, past what stands in between."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from build_case import build, const, ops
from pass_case import declines, fires, random_inputs
from tvm import relax
from tvm.relax import op

from relax_glue.passes import CanonicalizeStridedSlice
from relax_glue.testing import check_equivalent

SLICES = CanonicalizeStridedSlice()
RNG = np.random.default_rng(0)
IMAGE = dict(x=(1, 3, 4, 5))
TOKENS = dict(x=(2, 6, 8))


def drawn(*shape):
    return RNG.integers(-4, 5, shape).astype("float32")


WEIGHT, BIAS = drawn(8, 3, 3, 3), drawn(8, 1, 1)
MATRIX, WIDE, SCALE = drawn(8, 8), drawn(8, 32), drawn(8)
GROUPS = drawn(6, 1, 1, 1)


def sliced(emit, x, axis, begin, end, stride=1):
    return emit(op.strided_slice(x, [axis], [begin], [end], [stride] if stride != 1 else None))


def silu(emit, x):
    return emit(op.multiply(x, emit(op.sigmoid(x))))


def conv(emit, x, weight, **attrs):
    return emit(op.nn.conv2d(x, const(weight), **attrs))


def test_channels_that_are_cut_off_are_not_computed():
    def activated(emit, x, weight, bias):
        return silu(emit, emit(op.add(conv(emit, x, weight), const(bias))))

    before = build(lambda emit, x: sliced(emit, activated(emit, x, WEIGHT, BIAS), 1, 2, 5), **IMAGE)
    fires(SLICES, before, build(lambda emit, x: activated(emit, x, WEIGHT[2:5], BIAS[2:5]), **IMAGE))


@pytest.mark.parametrize("axis", [1, -3])
def test_a_convolution_alone_and_a_stride(axis):
    before = build(lambda emit, x: sliced(emit, conv(emit, x, WEIGHT), axis, 1, 8, 2), **IMAGE)
    fires(SLICES, before, build(lambda emit, x: conv(emit, x, WEIGHT[1::2]), **IMAGE))


def test_channels_last():
    weight = WEIGHT.transpose(2, 3, 1, 0)
    layout = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    before = build(
        lambda emit, x: sliced(emit, emit(op.nn.relu(conv(emit, x, weight, **layout))), 3, 0, 4), x=(1, 4, 5, 3)
    )
    expected = build(lambda emit, x: emit(op.nn.relu(conv(emit, x, weight[..., :4], **layout))), x=(1, 4, 5, 3))
    fires(SLICES, before, expected)


def test_a_depthwise_convolution_reads_fewer_channels():
    weight = drawn(8, 1, 3, 3)

    def depthwise(emit, x, kept):
        return emit(op.nn.relu(conv(emit, x, weight[:kept], groups=kept)))

    before = build(lambda emit, x: sliced(emit, depthwise(emit, x, 8), 1, 0, 4), x=(1, 8, 4, 5))
    fires(SLICES, before, build(lambda emit, x: depthwise(emit, sliced(emit, x, 1, 0, 4), 4), x=(1, 8, 4, 5)))


def block(emit, x, attended):
    """Return t + mlp(norm(t)) with t = x + attended(x), what a block of a transformer computes token by token."""
    t = emit(op.add(x, attended))
    normal = emit(op.nn.layer_norm(t, const(SCALE), const(np.zeros(8)), axes=[-1]))
    inner = emit(op.nn.gelu(emit(op.matmul(normal, const(WIDE)))))
    return emit(op.add(t, emit(op.matmul(inner, const(WIDE.T)))))


def test_one_token_of_a_block():
    def whole(emit, x):
        return sliced(emit, block(emit, x, emit(op.matmul(x, const(MATRIX)))), 1, 0, 1)

    def one(emit, x):
        token = sliced(emit, x, 1, 0, 1)
        return block(emit, token, emit(op.matmul(token, const(MATRIX))))

    before, after = build(whole, **TOKENS), SLICES(build(whole, **TOKENS))
    assert ops(after).count("relax.strided_slice") == 1 and sorted(ops(after)) == sorted(ops(build(one, **TOKENS)))
    assert after["main"].body.blocks[0].bindings[0].value.op.name == "relax.strided_slice"
    tvm.ir.assert_structural_equal(SLICES(after), after)
    check_equivalent(before, after, random_inputs(before), exact=False)


def test_one_token_of_attention_needs_all_keys_and_values():
    def heads(emit, x):
        return emit(op.permute_dims(emit(op.reshape(x, [2, 6, 2, 4])), [0, 2, 1, 3]))

    def attention(emit, x):
        query, key, value = (heads(emit, emit(op.matmul(x, const(m)))) for m in (MATRIX, MATRIX.T, MATRIX + 1))
        scores = emit(op.nn.softmax(emit(op.matmul(query, emit(op.permute_dims(key, [0, 1, 3, 2])))), -1))
        met = emit(op.permute_dims(emit(op.matmul(scores, value)), [0, 2, 1, 3]))
        flat = emit(op.reshape(met, [2, 6, 8]))
        return sliced(emit, emit(op.nn.relu(emit(op.matmul(flat, const(MATRIX))))), 1, 0, 1)

    before = build(attention, **TOKENS)
    after = SLICES(before)
    shapes = [
        b.value.ty.shape.values for b in after["main"].body.blocks[0].bindings if b.value.op.name == "relax.matmul"
    ]
    found = sorted(tuple(map(int, shape[1:])) for shape in shapes)
    assert found == [(1, 8), (1, 8), (2, 1, 4), (2, 1, 6), (6, 8), (6, 8)]
    check_equivalent(before, after, random_inputs(before), exact=False)


def test_a_symbolic_batch():
    def make(emit, x, cut_first):
        x = sliced(emit, x, 1, 5, 6) if cut_first else x
        y = emit(op.nn.relu(emit(op.matmul(x, const(MATRIX)))))
        return y if cut_first else sliced(emit, y, 1, 5, 6)

    before, expected = (build(lambda emit, x, c=c: make(emit, x, c), x=("n", 6, 8)) for c in (False, True))
    fires(SLICES, before, expected)


def test_a_tensor_that_is_added_is_cut_as_well():
    params = dict(**IMAGE, y=(1, 8, 4, 5), z=(4, 5))

    def whole(emit, x, y, z):
        total = emit(op.add(emit(op.add(conv(emit, x, WEIGHT, padding=1), y)), z))
        return sliced(emit, total, 1, 0, 4)

    def half(emit, x, y, z):
        part = sliced(emit, y, 1, 0, 4)
        return emit(op.add(emit(op.add(conv(emit, x, WEIGHT[:4], padding=1), part)), z))

    after = SLICES(build(whole, **params))
    assert sorted(ops(after)) == sorted(ops(build(half, **params)))
    check_equivalent(build(whole, **params), after, random_inputs(after), exact=False)


def test_an_item_of_a_tuple_is_cut():
    def make(emit, x, cut_first):
        item = emit(relax.TupleGetItem(emit(op.split(x, 2, 2)), 1))
        item = sliced(emit, item, 1, 0, 1) if cut_first else item
        y = emit(op.nn.relu(emit(op.matmul(item, const(MATRIX[:4])))))
        return y if cut_first else sliced(emit, y, 1, 0, 1)

    before, expected = (build(lambda emit, x, c=c: make(emit, x, c), **TOKENS) for c in (False, True))
    alone = CanonicalizeStridedSlice(exclude=["slice-of-slice"])
    fires(alone, before, expected)


def more_than_half(emit, x):
    return sliced(emit, emit(op.nn.relu(conv(emit, x, WEIGHT))), 1, 0, 5)


def pixels(emit, x):
    return sliced(emit, emit(op.nn.relu(conv(emit, x, WEIGHT))), 2, 0, 1)


def no_layer(emit, x):
    return sliced(emit, emit(op.nn.relu(emit(op.exp(x)))), 2, 0, 1)


def along_a_softmax(emit, x):
    return sliced(emit, emit(op.nn.softmax(conv(emit, x, WEIGHT), 1)), 1, 0, 4)


def grouped(emit, x):
    return sliced(emit, emit(op.nn.relu(conv(emit, x, GROUPS, groups=3))), 1, 0, 3)


@pytest.mark.parametrize(
    "make", [more_than_half, pixels, no_layer, along_a_softmax, grouped], ids=lambda make: make.__name__
)
def test_slices_that_leave_the_layers_as_much_to_do_stay(make):
    declines(SLICES, build(make, **IMAGE))


def test_a_layer_whose_result_is_used_elsewhere_stays():
    def read_twice(emit, x):
        y = conv(emit, x, WEIGHT)
        return sliced(emit, emit(op.nn.relu(y)), 1, 0, 4), emit(op.exp(y))

    def result(emit, x):
        y = emit(op.nn.relu(conv(emit, x, WEIGHT)))
        return sliced(emit, y, 1, 0, 4), y

    def cut_in_two_ways(emit, x):
        y = conv(emit, x, WEIGHT)
        gate = sliced(emit, emit(op.sigmoid(y)), 1, 0, 4)
        return emit(op.multiply(sliced(emit, y, 1, 4, 8), gate))

    for make in (read_twice, result, cut_in_two_ways):
        declines(SLICES, build(make, **IMAGE))


def test_a_layer_is_not_worth_a_slice_of_each_of_many_tensors():
    def make(emit, x, *others):
        y = conv(emit, x, WEIGHT)
        for other in others:
            y = emit(op.add(y, other))
        return sliced(emit, y, 1, 0, 4)

    shape = (1, 8, 2, 3)
    declines(SLICES, build(make, **IMAGE, a=shape, b=shape, c=shape))
    assert ops(SLICES(build(make, **IMAGE, a=shape, b=shape))).count("relax.strided_slice") == 2


def test_a_weight_that_is_computed_stays():
    def make(emit, x, w):
        return sliced(emit, emit(op.nn.relu(emit(op.nn.conv2d(x, w)))), 1, 0, 4)

    declines(SLICES, build(make, **IMAGE, w=(8, 3, 3, 3)))
