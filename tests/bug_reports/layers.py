"""Reports about takes, pads, resizes, convolutions and products with glue beside them, and about dtypes."""

from __future__ import annotations

import numpy as np
from tvm.relax import op

from bug_reports.report import Array, BugReport, const, numbered

REPORTS = (
    BugReport(
        "B52",
        "https://github.com/apache/tvm/pull/10690",
        (numbered([4, 12, 1, 1]), numbered([9, 12, 1, 1]), numbered([1, 9, 1, 1])),
        lambda emit, x, w, b: emit(op.strided_slice(op.add(op.nn.conv2d(x, w), b), [1], [3], [6], [3])),
        lambda x, w, b: (_conv1x1(x, w) + b)[:, 3:6:3],
        exact=False,
    ),
    BugReport(
        "B53",
        "https://github.com/apache/tvm/issues/10109",
        (numbered([1, 1, 24, 48]), np.full((1, 1, 1, 1), 2, "float32"), np.full((1, 1, 1, 1), 3, "float32")),
        lambda emit, x, v, w: emit(op.nn.conv2d(op.permute_dims(op.nn.conv2d(x, v), [0, 1, 3, 2]), w)),
        lambda x, v, w: 6 * x.transpose(0, 1, 3, 2),
        exact=False,
        regions=1,
    ),
    BugReport(
        "B59",
        "https://github.com/apache/tvm/issues/20201",
        (numbered([2, 3]), numbered([3, 4])),
        lambda emit, x, w: emit(op.matmul(x, op.take(w, const([-1, 0, 5], "int64"), 1, "clip"))),
        lambda x, w: x @ w[:, [0, 0, 3]],
        exact=False,
    ),
    BugReport(
        "B61-vector-by-matrix",
        "https://github.com/apache/tvm/issues/20197",
        (numbered([16]), numbered([16, 32]), 3 + numbered([16, 32])),
        lambda emit, x, a, b: emit(op.add(op.matmul(x, a), op.matmul(x, b))),
        lambda x, a, b: x @ a + x @ b,
        exact=False,
    ),
    BugReport(
        "B61-matrix-by-vector",
        "https://github.com/apache/tvm/issues/20197",
        (numbered([8, 16]), numbered([16]), 3 + numbered([16])),
        lambda emit, x, a, b: emit(op.add(op.matmul(x, a), op.matmul(x, b))),
        lambda x, a, b: x @ a + x @ b,
        exact=False,
    ),
    BugReport(
        "B62-wrap",
        "https://github.com/apache/tvm/issues/19531",
        (np.array([1, 2, 3, 4, 5], "float32"), numbered([3, 4])),
        lambda emit, x, y: [
            emit(op.take(x, const([-1, -3, 0], "int64"), 0, "wrap")),
            emit(op.take(y, const([0, -1], "int64"), 0, "wrap")),
        ],
        lambda x, y: [x[[-1, -3, 0]], y[[0, -1]]],
    ),
    BugReport(
        "B64",
        "https://github.com/NVIDIA/TensorRT/issues/1229",
        (numbered([38, 10]),),
        lambda emit, x: emit(op.take(x, const([-1, 0], "int64"), 1, "wrap")),
        lambda x: x[:, [9, 0]],
        regions=1,
    ),
    BugReport(
        "B65",
        "https://github.com/microsoft/onnxruntime/issues/11828",
        (numbered([5]),),
        lambda emit, x: emit(op.nn.pad(x, [-4, 4], "reflect")),
        lambda x: x[[4, 3, 2, 1, 0]],
    ),
    BugReport(
        "B67",
        "https://github.com/tsingmicro-toolchain/OnnxSlim/pull/29",
        (numbered([1, 1, 4, 4]), np.ones((1, 1, 3, 3), "float32"), np.ones((1, 1, 5, 5), "float32")),
        lambda emit, x, v, w: _shared_pad(emit, x, v, w),
        lambda x, v, w: [_window_sums(np.pad(x[0, 0], 2), 3), _window_sums(np.pad(x[0, 0], 3), 5)],
        exact=False,
    ),
    BugReport(
        "B68",
        "https://github.com/apache/tvm/issues/19570",
        (np.arange(9, dtype="float32").reshape(1, 1, 3, 3),),
        lambda emit, x: emit(_resize(_resize(x, 7, "asymmetric", "floor"), 14, "asymmetric", "floor")),
        lambda x: _pick(x, [0, 0, 0, 1, 1, 2, 2]).repeat(2, 2).repeat(2, 3),
    ),
    BugReport(
        "B70",
        "https://github.com/apache/tvm/issues/19500",
        (np.arange(9, dtype="float32").reshape(1, 1, 3, 3),),
        lambda emit, x: emit(_resize(x, 4, "half_pixel", "round_prefer_floor")),
        lambda x: _pick(x, [0, 1, 1, 2]),
    ),
    BugReport(
        "B71-bool",
        "https://github.com/NVIDIA/TensorRT/issues/1882",
        (numbered([4, 3], "bool"),),
        lambda emit, m: emit(op.concat([op.take(m, const([0, 2], "int64"), 0), m], 0)),
        lambda m: np.concatenate([m[[0, 2]], m], 0),
    ),
    BugReport(
        "B71-uint8",
        "https://github.com/microsoft/onnxruntime/issues/5785",
        (numbered([1, 4, 5, 3], "uint8"),),
        lambda emit, u: emit(op.astype(op.permute_dims(u, [0, 3, 1, 2]), "float32")),
        lambda u: u.transpose(0, 3, 1, 2).astype("float32"),
    ),
    BugReport(
        "B85",
        "https://github.com/apache/tvm/pull/20134",
        (numbered([4, 8]) / 8,),
        lambda emit, x: _aliased_views(emit, x),
        lambda x: np.concatenate([np.maximum(x, 0).ravel(), np.exp(x).ravel()]),
        exact=False,
    ),
    BugReport(
        "B88-permute",
        "https://github.com/apache/tvm/issues/19887",
        (numbered([1, 3, 4, 5]),),
        lambda emit, x: emit(op.permute_dims(x, [0, 2, 3, 1])),
        lambda x: x.transpose(0, 2, 3, 1),
        regions=1,
    ),
    BugReport(
        "B88-slice",
        "https://github.com/apache/tvm/issues/19887",
        (numbered([1, 3, 8, 8]),),
        lambda emit, x: emit(op.strided_slice(x, [2, 3], [1, 1], [7, 7])),
        lambda x: x[:, :, 1:7, 1:7],
        regions=1,
    ),
    BugReport(
        "B88-resize",
        "https://github.com/apache/tvm/issues/19887",
        (numbered([1, 3, 8, 8]),),
        lambda emit, x: emit(_resize(x, 16, "half_pixel", "round")),
        lambda x: x.repeat(2, 2).repeat(2, 3),
        regions=1,
    ),
    BugReport(
        "B89-order",
        "https://github.com/apache/tvm/pull/19998",
        (numbered([1, 8]),),
        lambda emit, x: _shuffled_parts(emit, x),
        lambda x: np.maximum(x, 0)[:, [3, 4, 0, 1, 2, 5, 6, 7]],
        regions=1,
    ),
    BugReport(
        "B89-sign",
        "https://github.com/apache/tvm/pull/19998",
        (numbered([1, 8]), 2 * numbered([1, 8])),
        lambda emit, x, y: emit(op.subtract(op.nn.relu(y), op.nn.relu(x))),
        lambda x, y: np.maximum(y, 0) - np.maximum(x, 0),
        regions=1,
    ),
    BugReport(
        "B97",
        "https://github.com/pytorch/TensorRT/issues/4608",
        (numbered([256]),),
        lambda emit, x: emit(
            op.nn.relu(op.reshape(op.permute_dims(op.reshape(x, (2, 2, 2, 2, 1, 2, 2, 2, 1, 2))), (256,)))
        ),
        lambda x: np.maximum(x.reshape([2] * 8).transpose().ravel(), 0),
    ),
    BugReport(
        "B110",
        "https://github.com/apache/tvm/issues/17165",
        (numbered([1, 512, 7, 7]),),
        lambda emit, x: emit(op.reshape(op.nn.adaptive_avg_pool2d(x, (1, 1)), (1, 512))),
        lambda x: x.mean((2, 3)),
        regions=1,
        exact=False,
    ),
    BugReport(
        "B112",
        "https://github.com/apache/tvm/pull/3268",
        tuple(100 * i + numbered([4, 64]) for i in range(27)),
        lambda emit, *xs: emit(op.nn.relu(op.concat(list(xs), 1))),
        lambda *xs: np.maximum(np.concatenate(xs, 1), 0),
        regions=1,
    ),
)


def _conv1x1(x: Array, w: Array) -> Array:
    return np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0])


def _window_sums(padded: Array, size: int) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size))
    return windows.sum((2, 3))[None, None]


def _pick(x: Array, index: list[int]) -> Array:
    return x[:, :, index][:, :, :, index]


def _resize(x, size, coordinates, rounding):
    return op.image.resize2d(
        x,
        (size, size),
        method="nearest_neighbor",
        coordinate_transformation_mode=coordinates,
        rounding_method=rounding,
    )


def _shared_pad(emit, x, v, w):
    padded = emit(op.nn.pad(x, [0, 0, 0, 0, 2, 2, 2, 2]))
    return [emit(op.nn.conv2d(padded, v)), emit(op.nn.conv2d(padded, w, padding=(1, 1)))]


def _aliased_views(emit, x):
    view = emit(op.reshape(emit(op.nn.relu(x)), (32,)))
    return emit(op.concat([view, emit(op.reshape(emit(op.exp(x)), (32,)))], 0))


def _shuffled_parts(emit, x):
    split = emit(op.split(op.nn.relu(x), [3, 5], 1))
    return emit(op.concat([split[1], split[0], split[2]], 1))
