"""Reports about reshapes, squeezes, permutes, and broadcasts."""

from __future__ import annotations

import numpy as np
from tvm import relax, tirx
from tvm.relax import op

from bug_reports.report import BugReport, numbered

n = tirx.Var("n", "int64")

REPORTS = (
    BugReport(
        "B28a",
        "https://github.com/apache/tvm/issues/20151",
        (numbered([2, 3]),),
        lambda emit, x: emit(op.reshape(x, (0, 3))),
        lambda x: x,
        becomes=(),
    ),
    BugReport(
        "B31",
        "https://github.com/apache/tvm/pull/10721",
        (numbered([2, 3, 4]),),
        lambda emit, x: emit(op.reshape(x, (1, -1, 0))),
        lambda x: x.reshape(1, 6, 4),
    ),
    BugReport(
        "B32a",
        "https://github.com/apache/tvm/issues/20185",
        (numbered([2, 3]),),
        lambda emit, x: emit(op.squeeze(x, [0])),
        lambda x: x,
    ),
    BugReport(
        "B34",
        "https://github.com/apache/tvm/issues/12400",
        (numbered([1, 2, 1, 3]),),
        lambda emit, x: emit(op.nn.relu(op.squeeze(x, []))),
        lambda x: np.maximum(x, 0),
        becomes=("relax.nn.relu",),
    ),
    BugReport(
        "B35",
        "https://github.com/apache/tvm/issues/14134",
        (np.abs(numbered([1, 2, 10, 7, 1])),),
        lambda emit, x: emit(op.sqrt(op.squeeze(x, [-1]))),
        lambda x: np.sqrt(x[..., 0]),
        types=(relax.TensorType([1, n, 10, 7, 1], "float32"),),
        exact=False,
    ),
    BugReport(
        "B37",
        "https://github.com/apache/tvm/issues/19991",
        (numbered([1]), 7 + numbered([1, 1, 1])),
        lambda emit, x, y: emit(op.concat([op.expand_dims(op.broadcast_to(x, (1, 1)), 0), y], 0)),
        lambda x, y: np.concatenate([x.reshape(1, 1, 1), y], 0),
    ),
    BugReport(
        "B40",
        "https://github.com/openxla/xla/pull/18441",
        (numbered([3, 1, 2]),),
        lambda emit, x: emit(op.reshape(op.permute_dims(x, [1, 2, 0]), (1, 6))),
        lambda x: x.transpose(1, 2, 0).reshape(1, 6),
    ),
    BugReport(
        "B43-rank2",
        "https://github.com/apache/tvm/issues/20277",
        (np.array([[1, -2]], "int32"), np.array([[1, 2], [3, 4]], "int32"), np.array([[0, 1], [1, 0]], "int32")),
        lambda emit, a, b, c: emit(op.matmul(a, op.permute_dims(op.matmul(b, c), [0, 1]))),
        lambda a, b, c: np.array([[-6, -5]], "int32"),
    ),
    BugReport(
        "B43-rank3",
        "https://github.com/apache/tvm/issues/20277",
        (numbered([2, 1, 2], "int32"), numbered([2, 2, 2], "int32"), 3 + numbered([2, 2, 2], "int32")),
        lambda emit, a, b, c: emit(op.matmul(a, op.permute_dims(op.matmul(b, c), [1, 0, 2]))),
        lambda a, b, c: a @ (b @ c).transpose(1, 0, 2),
    ),
    BugReport(
        "B44",
        "https://github.com/apache/tvm/issues/19575",
        (numbered([1, 4, 8, 8]), 1000 + numbered([1, 4, 8, 8])),
        lambda emit, x, y: emit(op.concat([op.permute_dims(x, [0, 2, 3, 1]), op.permute_dims(y, [0, 2, 3, 1])], -1)),
        lambda x, y: np.concatenate([x, y], 1).transpose(0, 2, 3, 1),
    ),
    BugReport(
        "B46",
        "https://github.com/onnx/onnx/issues/2446",
        (numbered([2, 3, 4]),),
        lambda emit, x: emit(op.permute_dims(op.permute_dims(x, [1, 0, 2]), [0, 2, 1])),
        lambda x: x.transpose(1, 2, 0),
        becomes=("relax.permute_dims",),
    ),
    BugReport(
        "B47",
        "https://github.com/openvinotoolkit/openvino/pull/12440",
        (numbered([1, 1, 14, 64]),),
        lambda emit, x: emit(op.concat([op.permute_dims(op.permute_dims(x, [0, 3, 1, 2]), [0, 2, 3, 1]), x], 3)),
        lambda x: np.concatenate([x, x], 3),
        becomes=("relax.concat",),
    ),
    BugReport(
        "B49",
        "https://github.com/ROCm/AMDMIGraphX/pull/2146",
        (numbered([4, 6, 30]),),
        lambda emit, x: [
            emit(op.reshape(op.strided_slice(x, [1], [begin], [begin + 2]), shape))
            for begin in (0, 2)
            for shape in ((4, 60), (4, 2, 5, 6))
        ],
        lambda x: [x[:, b : b + 2].reshape(shape) for b in (0, 2) for shape in ((4, 60), (4, 2, 5, 6))],
    ),
    BugReport(
        "B50",
        "https://github.com/ROCm/AMDMIGraphX/pull/4894",
        (numbered([2, 3, 1]), numbered([2, 5, 4])),
        lambda emit, x, y: emit(op.add(op.broadcast_to(op.strided_slice(x, [1], [1], [2]), (2, 5, 4)), y)),
        lambda x, y: x[:, 1:2] + y,
    ),
    BugReport(
        "B55",
        "https://github.com/apache/tvm/pull/10336",
        (numbered([2, 5, 2, 2, 4]),),
        lambda emit, x: emit(
            op.permute_dims(
                op.reshape(op.reshape(op.permute_dims(x, [0, 1, 4, 2, 3]), (2, 20, 2, 2)), (2, 10, 2, 2, 2)),
                [0, 1, 3, 4, 2],
            )
        ),
        lambda x: x.transpose(0, 1, 4, 2, 3).reshape(2, 10, 2, 2, 2).transpose(0, 1, 3, 4, 2),
    ),
    BugReport(
        "B56",
        "https://github.com/microsoft/onnxruntime/issues/18433",
        (numbered([2, 8, 12]), numbered([8, 3]), 2 + numbered([8, 3]), 5 + numbered([8, 3])),
        lambda emit, x, *weights: _three_products(emit, x, weights),
        lambda x, *weights: [part @ w for part, w in zip(np.split(x.transpose(0, 2, 1), 3, 1), weights, strict=True)],
    ),
    BugReport(
        "B58",
        "https://github.com/onnx/tensorflow-onnx/issues/1809",
        (numbered([1, 1710, 2]),),
        lambda emit, x: [
            emit(op.squeeze(part, [1])) for part in _parts(emit, op.split(op.permute_dims(x, [0, 2, 1]), 2, 1), 2)
        ],
        lambda x: [x[:, :, 0], x[:, :, 1]],
    ),
    BugReport(
        "B86",
        "https://github.com/apache/tvm/issues/19577",
        (np.array([1, 2, 3, 4], "float32"),),
        lambda emit, x: _two_views(emit, x),
        lambda x: np.array([[1, 1], [4, 2], [9, 3], [16, 4]], "float32"),
    ),
    BugReport(
        "B104",
        "https://github.com/pytorch/TensorRT/issues/742",
        (numbered([2, 3, 4, 5]),),
        lambda emit, x: emit(op.reshape(emit(op.permute_dims(x, [1, 0, 3, 2])), (-1, 6, 20))),
        lambda x: x.transpose(1, 0, 3, 2).reshape(-1, 6, 20),
    ),
)


def _parts(emit, split, count):
    var = emit(split)
    return [emit(relax.TupleGetItem(var, index)) for index in range(count)]


def _three_products(emit, x, weights):
    parts = _parts(emit, op.split(op.permute_dims(x, [0, 2, 1]), 3, 1), 3)
    return [emit(op.matmul(part, weight)) for part, weight in zip(parts, weights, strict=True)]


def _two_views(emit, x):
    first, second = emit(op.expand_dims(x, 1)), emit(op.expand_dims(x, 1))
    return emit(op.concat([emit(op.multiply(first, second)), second], 1))
