"""Reports about slices, splits, concats, and the tuples in between."""

from __future__ import annotations

import numpy as np
from tvm import relax, tirx
from tvm.relax import op

from bug_reports.report import INT64_MAX, INT64_MIN, BugReport, numbered

m = tirx.Var("m", "int64")
n = tirx.Var("n", "int64")

REPORTS = (
    BugReport(
        "B01",
        "https://github.com/apache/tvm/issues/20263",
        (numbered([6]), np.array([-2]), np.array([6]), np.array([1])),
        lambda emit, x, b, e, s: emit(op.dynamic_strided_slice(x, b, e, s)),
        lambda x, b, e, s: x[4:6],
    ),
    BugReport(
        "B02a",
        "https://github.com/apache/tvm/issues/20262",
        (numbered([5]),),
        lambda emit, x: emit(op.strided_slice(x, [0], [m + 2], [-100], [-1])),
        lambda x: x[::-1],
        types=(relax.TensorType([m], "float32"),),
    ),
    BugReport(
        "B02b",
        "https://github.com/apache/tvm/issues/20262",
        (numbered([5]),),
        lambda emit, x: emit(op.strided_slice(x, [0], [-7], [3])),
        lambda x: x[0:3],
        types=(relax.TensorType([m], "float32"),),
    ),
    BugReport(
        "B05",
        "https://github.com/apache/tvm/pull/19468",
        (numbered([2, 5]),),
        lambda emit, x: [emit(op.strided_slice(x, [1], [-1], [end], [-1])) for end in (-6, INT64_MIN, -1)],
        lambda x: [x[:, ::-1], x[:, ::-1], x[:, :0]],
    ),
    BugReport(
        "B07",
        "https://github.com/apache/tvm/issues/6414",
        (numbered([1, 4]),),
        lambda emit, x: emit(
            op.add(op.strided_slice(x, [-1], [0], [4], [2]), op.strided_slice(x, [-1], [1], [4], [2]))
        ),
        lambda x: x[:, 0::2] + x[:, 1::2],
    ),
    BugReport(
        "B08",
        "https://github.com/tlc-pack/relax/issues/444",
        (numbered([20, 10, 5]),),
        lambda emit, x: emit(op.nn.relu(op.strided_slice(x, [0], [0], [3]))),
        lambda x: np.maximum(x[:3], 0),
        becomes=("relax.nn.relu", "relax.strided_slice"),
    ),
    BugReport(
        "B11",
        "https://github.com/apache/tvm/issues/20232",
        (numbered([10]),),
        lambda emit, x: [emit(op.split(x, [6]))[1], emit(op.split(x, [7]))[0], emit(op.split(x, [3, 6, 9]))[3]],
        lambda x: [x[6:], x[:7], x[9:]],
    ),
    BugReport(
        "B14",
        "https://github.com/apache/tvm/pull/8887",
        (numbered([8]),),
        lambda emit, x: [emit(part) for part in _items(emit(op.split(x, [3])), 2)],
        lambda x: [x[:3], x[3:]],
    ),
    BugReport(
        "B16-whole",
        "https://github.com/apache/tvm/pull/14525",
        (numbered([2, 6]),),
        lambda emit, x: emit(op.split(x, 3, 1)),
        lambda x: list(np.split(x, 3, 1)),
    ),
    BugReport(
        "B16-some",
        "https://github.com/apache/tvm/pull/14525",
        (numbered([2, 6]),),
        lambda emit, x: [emit(_items(emit(op.split(x, 3, 1)), 3)[0]), emit(_items(emit(op.split(x, 3, 1)), 3)[2])],
        lambda x: [x[:, :2], x[:, 4:]],
    ),
    BugReport(
        "B19",
        "https://github.com/pytorch/pytorch/pull/113822",
        (numbered([2, 8]),),
        lambda emit, x: _split_join(emit, x),
        lambda x: [x[:, [0, 1, 4, 5]], np.maximum(x[:, 2:4], 0)],
    ),
    BugReport(
        "B20",
        "https://github.com/pytorch/pytorch/pull/147784",
        (numbered([2, 4]), 100 + numbered([2, 4])),
        lambda emit, x, y: emit(
            op.concat([_items(emit(op.split(x, 2, 1)), 2)[0], _items(emit(op.split(y, 2, 1)), 2)[1]], 1)
        ),
        lambda x, y: np.concatenate([x[:, :2], y[:, 2:]], 1),
    ),
    BugReport(
        "B22",
        "https://github.com/apache/tvm/issues/11895",
        (np.array([[6], [5]]),),
        lambda emit, x: emit(op.concat([x], 1)),
        lambda x: x,
        becomes=(),
    ),
    BugReport(
        "B23",
        "https://github.com/apache/tvm/issues/11897",
        (numbered([1, 20, 1, 1], "float64"),),
        lambda emit, x: _crop_and_join(emit, x),
        lambda x: np.concatenate([np.concatenate([np.zeros((1, 1, 1, 1)), x[:, :-1]], 1), x], 3),
    ),
    BugReport(
        "B25",
        "https://github.com/inisis/OnnxSlim/issues/327",
        (numbered([2, 4, 4, 3]),),
        lambda emit, x: emit(op.concat([op.strided_slice(x, [1], [4], [4]), op.strided_slice(x, [1], [0], [4])], 1)),
        lambda x: x,
        becomes=(),
    ),
    BugReport(
        "B26",
        "https://github.com/inisis/OnnxSlim/issues/329",
        (numbered([2, 3]),),
        lambda emit, x: _single_concat(emit, x),
        lambda x: [x, np.maximum(x, 0)],
        becomes=("relax.nn.relu",),
    ),
    BugReport(
        "B80",
        "https://github.com/openxla/xla/issues/49121",
        (np.arange(0, 90, 10).astype("int32"),),
        lambda emit, x: emit(op.strided_slice(op.strided_slice(op.concat([x, x], 0), [0], [5], [14]), [0], [5], [16])),
        lambda x: np.array([10, 20, 30, 40], "int32"),
    ),
    BugReport(
        "B91",
        "https://github.com/apache/tvm/issues/14142",
        (numbered([2, 6, 4]),),
        lambda emit, x: emit(op.strided_slice(x, [0], [0], [1])),
        lambda x: x[:1],
    ),
    BugReport(
        "B98-ends",
        "https://github.com/pytorch/TensorRT/issues/4607",
        (numbered([1, 64, 16]),),
        lambda emit, x: emit(op.multiply(op.strided_slice(x, [1], [0], [512]), relax.const(2.0, "float32"))),
        lambda x: x[:, 0:512] * 2,
        types=(relax.TensorType([1, n, 16], "float32"),),
    ),
    BugReport(
        "B98-past",
        "https://github.com/pytorch/TensorRT/issues/4607",
        (numbered([1, 16, 16]),),
        lambda emit, x: [
            emit(op.strided_slice(x, [1], [32], [48])),
            emit(op.strided_slice(x, [1], [5], [INT64_MAX])),
        ],
        lambda x: [x[:, 32:48], x[:, 5:]],
        types=(relax.TensorType([1, n, 16], "float32"),),
    ),
    BugReport(
        "B100",
        "https://github.com/pytorch/TensorRT/pull/1403",
        (numbered([1, 4, 2]), numbered([10, 1]), numbered([10, 2])),
        lambda emit, x, a, b: [*map(emit, _items(emit(op.split(x, 2, -1)), 2)), emit(op.concat([a, b], -1))],
        lambda x, a, b: [x[..., :1], x[..., 1:], np.concatenate([a, b], -1)],
    ),
    BugReport(
        "B101",
        "https://github.com/pytorch/TensorRT/issues/3347",
        (numbered([3]), 50 + numbered([4])),
        lambda emit, a, b: _join_and_cut(emit, a, b),
        lambda a, b: [a, b],
        types=(relax.TensorType([n], "float32"), relax.TensorType([m], "float32")),
    ),
    BugReport(
        "B103",
        "https://github.com/pytorch/TensorRT/pull/4701",
        (np.zeros((0, 3), "float32"), numbered([2, 3], "float16")),
        lambda emit, e, x: emit(op.concat([e, op.astype(x, "float32")], 0)),
        lambda e, x: x.astype("float32"),
        becomes=("relax.astype",),
    ),
    BugReport(
        "B106",
        "https://github.com/onnx/onnx-tensorrt/pull/453",
        (numbered([2, 7]),),
        lambda emit, x: [emit(op.strided_slice(x, [1], [-1], [INT64_MIN], [step])) for step in (-1, -2)],
        lambda x: [x[:, ::-1], x[:, ::-2]],
    ),
    BugReport(
        "B107",
        "https://github.com/microsoft/onnxruntime/pull/918",
        (numbered([4, 5]),),
        lambda emit, x: emit(op.strided_slice(x, [1], [-3], [INT64_MAX])),
        lambda x: x[:, -3:],
        becomes=("relax.strided_slice",),
    ),
)


def _items(split: relax.Var, count: int) -> list[relax.Expr]:
    return [relax.TupleGetItem(split, index) for index in range(count)]


def _split_join(emit, x):
    parts = [emit(part) for part in _items(emit(op.split(x, 4, 1)), 4)]
    return [emit(op.concat([parts[0], parts[2]], 1)), emit(op.nn.relu(parts[1]))]


def _crop_and_join(emit, x):
    full = emit(op.strided_slice(x, [1], [0], [20]))
    shifted = emit(op.nn.pad(full, [0, 0, 1, -1, 0, 0, 0, 0]))
    return emit(op.concat([shifted, full], 3))


def _single_concat(emit, x):
    joined = emit(op.concat([x], 0))
    return [joined, emit(op.nn.relu(joined))]


def _join_and_cut(emit, a, b):
    joined = emit(op.concat([a, b], 0))
    return [emit(op.strided_slice(joined, [0], [0], [n])), emit(op.strided_slice(joined, [0], [n], [n + m]))]
