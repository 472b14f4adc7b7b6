"""Chains of accepted operators: each network builds, and agrees with LLVM.

A layer that builds alone can fail in company, as when TensorRT takes two layers for one of another precision.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from converter_case import check, numbers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax

op = relax.op
nn = relax.op.nn
MAX_ELEMENTS = 4000

Move = Callable[[relax.Expr, list[int], int], relax.Expr]


def const(*shape: int, dtype: str = "float32") -> relax.Expr:
    return relax.const(numbers(*shape, dtype=dtype, seed=len(shape)))


def scalar(value: float, dtype: str = "float32") -> relax.Expr:
    return relax.const(np.array(value, dtype), dtype)


def quantized(x: relax.Expr, axis: int) -> relax.Expr:
    emit = relax.BlockBuilder.current().emit
    step, zero = scalar(0.05), scalar(0, "int8")
    return op.dequantize(emit(op.quantize(x, step, zero, axis, "int8")), step, zero, axis, "float32")


def biased(x: relax.Expr, channels: int) -> relax.Expr:
    conv = relax.BlockBuilder.current().emit(nn.conv2d(x, const(3, channels, 1, 1)))
    return op.add(conv, const(3, 1, 1))


def normalised(x: relax.Expr, channels: int) -> relax.Expr:
    statistics = [relax.const(np.abs(numbers(channels, seed=seed)) + np.float32(0.5)) for seed in range(4)]
    call = relax.BlockBuilder.current().emit(nn.batch_norm(x, *statistics, axis=1, training=False))
    return call[0]


# x is the operand, s its shape, a one of its axes
ANY_RANK: list[Move] = [
    lambda x, s, a: op.sigmoid(x),
    lambda x, s, a: op.tanh(x),
    lambda x, s, a: nn.relu(x),
    lambda x, s, a: nn.silu(x),
    lambda x, s, a: nn.gelu(x),
    lambda x, s, a: nn.leakyrelu(x, 0.1),
    lambda x, s, a: op.clip(x, -1, 2),
    lambda x, s, a: op.trunc(x),
    lambda x, s, a: op.square(x),
    lambda x, s, a: op.multiply(x, scalar(0.5)),
    lambda x, s, a: op.greater(x, scalar(0.2)),
    lambda x, s, a: op.astype(x, "int32"),
    lambda x, s, a: op.astype(x, "float16"),
]
WITH_AXES: list[Move] = [
    lambda x, s, a: op.add(x, const(s[-1])),
    lambda x, s, a: nn.softmax(x, a),
    lambda x, s, a: nn.log_softmax(x, a),
    lambda x, s, a: op.mean(x, [a], True),
    lambda x, s, a: op.std(x, [a], True),
    lambda x, s, a: op.max(x, [a]),
    lambda x, s, a: op.cumsum(x, a),
    lambda x, s, a: op.sort(x, a),
    lambda x, s, a: op.topk(x, 1, a, "values"),
    lambda x, s, a: op.argmax(x, a),
    lambda x, s, a: nn.layer_norm(x, const(s[-1]), const(s[-1]), [-1]),
    lambda x, s, a: op.matmul(x, const(s[-1], 3)),
    lambda x, s, a: op.reshape(x, [-1, s[-1]]),
    lambda x, s, a: op.permute_dims(x, [*range(a, len(s)), *range(a)]),
    lambda x, s, a: op.strided_slice(x, [a], [0], [max(1, s[a] - 1)]),
    lambda x, s, a: op.concat([x, x], a),
    lambda x, s, a: quantized(x, a),
]
OF_IMAGES: list[Move] = [
    lambda x, s, a: nn.conv2d(x, const(4, s[1], 3, 3), padding=1),
    lambda x, s, a: biased(x, s[1]),
    lambda x, s, a: nn.conv2d(x, const(3, 3, s[3], 4), padding=1, data_layout="NHWC", kernel_layout="HWIO"),
    lambda x, s, a: nn.conv2d_transpose(x, const(s[1], 2, 2, 2), strides=2),
    lambda x, s, a: nn.max_pool2d(x, 2, 1, (1, 1, 1, 1)),
    lambda x, s, a: nn.avg_pool2d(x, 2, 1, 1, 1, True, True),
    lambda x, s, a: nn.adaptive_avg_pool2d(x, 1),
    lambda x, s, a: normalised(x, s[1]),
]
OF_INTEGERS: list[Move] = [
    lambda x, s, a: op.add(x, x),
    lambda x, s, a: op.floor_divide(x, scalar(3, str(x.ty.dtype))),
    lambda x, s, a: op.clip(x, -3, 3),
    lambda x, s, a: op.less(x, scalar(1, str(x.ty.dtype))),
    lambda x, s, a: op.astype(x, "float32"),
]
MOVES: dict[str, list[Move]] = {
    "int32": OF_INTEGERS,
    "int64": OF_INTEGERS,
    "bool": [
        lambda x, s, a: op.logical_not(x),
        lambda x, s, a: op.astype(x, "float32"),
        lambda x, s, a: op.astype(x, "int64"),
        lambda x, s, a: op.where(x, scalar(1.5), scalar(-0.5)),
    ],
    "float16": [lambda x, s, a: op.astype(x, "float32"), lambda x, s, a: nn.relu(x)],
}


def moves_of(x: relax.Expr, shape: list[int]) -> list[Move]:
    if str(x.ty.dtype) != "float32":
        return MOVES[str(x.ty.dtype)]
    return ANY_RANK + (WITH_AXES if shape else []) + (OF_IMAGES if len(shape) == 4 else [])


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_chain_builds_and_agrees(data):
    shape = data.draw(st.sampled_from(((4,), (2, 3), (1, 3, 6), (1, 3, 6, 6), (2, 4, 5, 5))))
    choices = data.draw(st.lists(st.tuples(st.integers(0, 999), st.integers(0, 999)), min_size=3, max_size=10))

    def build(x):
        for move, axis in choices:
            extents = [int(extent) for extent in x.ty.shape.values]
            moves = moves_of(x, extents)
            made = moves[move % len(moves)](x, extents, axis % max(len(extents), 1))
            made = relax.BlockBuilder.current().emit(made)
            if np.prod(made.ty.shape.values, dtype=int) > MAX_ELEMENTS:
                break
            x = made
        return x

    inputs = [numbers(*shape)]
    # TensorRT-RTX 1.5 fuses reductions over different axes of small tensors wrongly (docs/engines.md), and chains of
    # random operators hit that: on a GPU the operators are compared one by one, in the other files
    check(build, inputs, rtol=1e-3, atol=1e-3, engine=True, gpu=False)
