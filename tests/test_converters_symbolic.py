"""One network for all sizes: converters of operators that compute, along symbolic extents, against LLVM."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from converter_case import check_symbolic, numbers
from tvm import relax

op = relax.op
nn = relax.op.nn
SIZES = [{"n": 1, "h": 8, "w": 6}, {"n": 3, "h": 5, "w": 9}, {"n": 2, "h": 6, "w": 7}]
Shape = tuple["int | str", ...]


def const(*shape: int) -> relax.Expr:
    return relax.const(numbers(*shape, seed=sum(shape)))


CASES: dict[str, tuple[Callable[..., relax.Expr], Shape]] = {
    "conv2d": (lambda x: nn.conv2d(x, const(4, 3, 3, 3), padding=1), ("n", 3, "h", "w")),
    "conv2d nhwc": (
        lambda x: nn.conv2d(x, const(3, 3, 3, 4), data_layout="NHWC", kernel_layout="HWIO"),
        ("n", "h", "w", 3),
    ),
    "conv2d and bias": (lambda x: op.add(nn.conv2d(x, const(4, 3, 3, 3)), const(4, 1, 1)), ("n", 3, "h", "w")),
    "conv1d": (lambda x: nn.conv1d(x, const(4, 3, 3), padding=(1, 0)), ("n", 3, "w")),
    "conv1d nwc": (
        lambda x: nn.conv1d(x, const(3, 3, 4), data_layout="NWC", kernel_layout="WIO"),
        ("n", "w", 3),
    ),
    "conv2d_transpose": (lambda x: nn.conv2d_transpose(x, const(3, 4, 3, 3), strides=2, padding=1), ("n", 3, "h", "w")),
    "max_pool2d": (lambda x: nn.max_pool2d(x, 3, 2, 1), ("n", 3, "h", "w")),
    "max_pool2d nhwc": (lambda x: nn.max_pool2d(x, 2, 2, layout="NHWC"), ("n", "h", "w", 3)),
    "avg_pool1d": (lambda x: nn.avg_pool1d(x, 3, 2, 1), ("n", 3, "w")),
    "avg_pool2d counting": (
        lambda x: nn.avg_pool2d(x, 3, 1, 1, count_include_pad=True),
        ("n", 3, "h", "w"),
    ),
    "adaptive_avg_pool2d": (lambda x: nn.adaptive_avg_pool2d(x, 1), ("n", 3, "h", "w")),
    "max_pool2d in ceil mode": (lambda x: nn.max_pool2d(x, 3, 2, 1, 1, True), ("n", 3, 8, 7)),
    "avg_pool2d in ceil mode": (
        lambda x: nn.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=True),
        ("n", 3, 8, 7),
    ),
    "dilated pool": (lambda x: nn.avg_pool2d(x, 2, 1, 0, 2), ("n", 3, 8, 7)),
    "ragged cells": (lambda x: nn.adaptive_avg_pool2d(x, (3, 4)), ("n", 3, 8, 7)),
    "output_padding": (
        lambda x: nn.conv2d_transpose(x, const(3, 4, 3, 3), strides=(2, 1), output_padding=(1, 0)),
        ("n", 3, 5, "w"),
    ),
    "argmax": (lambda x: op.argmax(x, 1), ("n", 5, "w")),
    "topk": (lambda x: op.topk(x, 3, 1), ("n", 5, "w")),
    "sort": (lambda x: op.sort(x, -1), ("n", 5)),
    "cumprod": (lambda x: op.cumprod(x, 1), ("n", 5, "w")),
    "causal attention": (
        lambda x: nn.attention(x, x, x, None, None, "TopLeft"),
        ("n", 5, 2, 4),
    ),
    "softmax": (lambda x: nn.softmax(x, 1), ("n", "w")),
    "softmax of a vector": (lambda x: nn.softmax(x, 0), ("w",)),
    "log_softmax": (lambda x: nn.log_softmax(x, -1), ("n", "w")),
    "prelu": (lambda x: nn.prelu(x, const(3), 1), ("n", 3, "w")),
    "broadcast": (lambda x: op.multiply(op.add(x, const(4)), const(3, 1)), ("n", 3, 4)),
    "matmul of more ranks": (lambda x: op.matmul(x, const(4, 5)), ("n", "h", 4)),
    "matmul of fewer ranks": (lambda x: op.matmul(x, const(2, 4, 5)), ("n", 4)),
    "matmul with a vector": (lambda x: op.matmul(x, const(4)), ("n", "h", 4)),
    "einsum": (lambda x: op.einsum([x, const(4, 5)], "...i,ij->...j"), ("n", "h", 4)),
    "mean": (lambda x: op.mean(x, [0, 2]), ("n", 3, "w")),
    "variance": (lambda x: op.variance(x, [1], True), ("n", "w")),
    "cumsum": (lambda x: op.cumsum(x, 1), ("n", "w")),
    "layer_norm": (lambda x: nn.layer_norm(x, const(4), const(4), [-1]), ("n", "h", 4)),
    "instance_norm": (lambda x: nn.instance_norm(x, const(3), const(3), 1, [2, 3]), ("n", 3, "h", "w")),
    "group_norm": (lambda x: nn.group_norm(x, const(4), const(4), 2, 1, [2, 3]), ("n", 4, "h", "w")),
    "group_norm nhwc": (lambda x: nn.group_norm(x, const(4), const(4), 2, 3, [1, 2]), ("n", "h", "w", 4)),
    "rms_norm": (lambda x: nn.rms_norm(x, const(4), [-1]), ("n", "h", 4)),
    "batch_norm": (
        lambda x: nn.batch_norm(
            x, const(3), const(3), const(3), relax.const(np.ones(3, np.float32)), axis=1, training=False
        ),
        ("n", 3, "w"),
    ),
    "attention": (
        lambda x: nn.attention(x, x, x, None, tvm.tirx.FloatImm("float32", 0.5)),
        ("n", "h", 2, 4),
    ),
    "attention to what came before": (
        lambda x: nn.attention(x, x, x, None, None, "TopLeft"),
        ("n", "h", 2, 4),
    ),
    "attention to the last keys": (
        lambda x: nn.attention(op.strided_slice(x, [1], [0], [4]), x, x, None, None, "BottomRight"),
        ("n", "h", 2, 4),
    ),
    "max_pool2d, sizes rounded up": (lambda x: nn.max_pool2d(x, 3, 2, 1, 1, True), ("n", 3, "h", "w")),
    "max_pool2d nhwc, sizes rounded up": (
        lambda x: nn.max_pool2d(x, 3, 2, 0, 1, True, layout="NHWC"),
        ("n", "h", "w", 3),
    ),
    "avg_pool2d, sizes rounded up": (lambda x: nn.avg_pool2d(x, 3, 2, 1, 1, True), ("n", 3, "h", "w")),
    "avg_pool2d counting, sizes rounded up": (
        lambda x: nn.avg_pool2d(x, (3, 2), (2, 1), 1, 1, True, count_include_pad=True),
        ("n", 3, "h", "w"),
    ),
    "avg_pool1d, sizes rounded up": (lambda x: nn.avg_pool1d(x, 3, 2, 0, 1, True), ("n", 3, "w")),
    # TVM leaves out a window that starts in the padding, so these extents are a choice of two
    "max_pool2d that may leave out a window": (lambda x: nn.max_pool2d(x, 2, 3, 0, 1, True), ("n", 3, "h", "w")),
    "avg_pool2d that may leave out a window": (
        lambda x: nn.avg_pool2d(x, (1, 3), (2, 4), (0, 0), 1, True),
        ("n", 3, "h", "w"),
    ),
    "dilated max_pool2d": (lambda x: nn.max_pool2d(x, 2, 2, 0, 2), ("n", 3, "h", "w")),
    "dilated avg_pool2d": (lambda x: nn.avg_pool2d(x, 2, 1, 0, 2), ("n", 3, "h", "w")),
    "cells": (lambda x: nn.adaptive_avg_pool2d(x, (3, 2)), ("n", 3, "h", "w")),
    "cells of one axis": (lambda x: nn.adaptive_avg_pool1d(x, 4), ("n", 3, "w")),
    "cells nhwc": (lambda x: nn.adaptive_avg_pool2d(x, (2, 3), layout="NHWC"), ("n", "h", "w", 3)),
    "output_padding of a symbolic axis": (
        lambda x: nn.conv2d_transpose(x, const(3, 4, 3, 3), strides=(2, 2), output_padding=(1, 1)),
        ("n", 3, "h", "w"),
    ),
    "argmax along a symbolic axis": (lambda x: op.argmax(x, 2), ("n", 5, "w")),
    "argmin of all": (lambda x: op.argmin(x, None, True), ("n", 5, "w")),
    "topk of a symbolic axis": (lambda x: op.topk(x, 3, 2), ("n", 5, "w")),
    "cumsum of all": (lambda x: op.cumsum(x), ("n", "w")),
    "integer mean": (lambda x: op.mean(op.astype(op.multiply(x, relax.const(9.0)), "int64"), [1]), ("n", "w", 2)),
    "sum of products of lengths": (lambda x: op.matmul(x, op.permute_dims(x, (0, 2, 1))), ("n", "h", 4)),
    "group_norm of a vector": (lambda x: nn.group_norm(x, const(4), const(4), 2, 1, [2]), ("n", 4, "w")),
    "layer_norm of two axes": (lambda x: nn.layer_norm(x, const(3, 4), const(3, 4), [-2, -1]), ("n", 3, 4)),
    "squeeze and excite": (
        lambda x: op.multiply(x, op.sigmoid(op.mean(x, [2, 3], True))),
        ("n", 3, "h", "w"),
    ),
}


# TVM compiles these for known sizes only
STATIC = (
    "attention",
    "causal attention",
    "attention to what came before",
    "attention to the last keys",
    "output_padding",
    "integer mean",
)


@pytest.mark.parametrize("name", CASES)
def test_one_network_for_all_sizes(name: str) -> None:
    build, shape = CASES[name]
    extents = [tvm.tirx.Var(extent, "int64") if isinstance(extent, str) else extent for extent in shape]
    static = (lambda _: build) if name in STATIC else None
    check_symbolic(build, [relax.TensorType(extents, "float32")], SIZES, rtol=1e-5, atol=1e-5, static=static)
