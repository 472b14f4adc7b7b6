"""Operators that TensorRT may leave to TVM, each as a module with inputs.

Run as a script with names of operators, it runs each on a GPU and on the CPU and prints whether the results agree; a
kernel that is at fault can end a process, so tests run it as one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import tvm
from postprocessing_case import leaves, module, on_llvm, tensor
from tvm import relax

import relax_glue

Made = tuple[tvm.IRModule, list[np.ndarray]]
vision, op = relax.op.vision, relax.op


def _of(make: Callable[..., relax.Expr], *inputs: np.ndarray) -> Callable[[], Made]:
    """Return what makes a module of one operator over inputs of these shapes and dtypes."""

    def made() -> Made:
        params = [tensor(f"x{k}", array.shape, str(array.dtype)) for k, array in enumerate(inputs)]
        return module(lambda builder, *given: builder.emit(make(*given)), *params), list(inputs)

    return made


def _floats(*shape: int) -> np.ndarray:
    size = int(np.prod(shape))
    return (np.random.default_rng(size).permutation(size).reshape(shape) / size).astype("float32")


def _ints(high: int, *shape: int, dtype: str = "int64") -> np.ndarray:
    return np.random.default_rng(high).integers(0, high, shape).astype(dtype)


def _boxes(count: int) -> np.ndarray:
    corner = _floats(1, count, 2)
    return np.concatenate([corner, corner + 0.2], -1)


def _suppressed(boxes: relax.Var, scores: relax.Var) -> relax.Expr:
    limits = [relax.const(3, "int64"), relax.const(0.5, "float32"), relax.const(0.1, "float32")]
    return vision.all_class_non_max_suppression(boxes, scores, *limits)


OPERATORS: dict[str, Callable[[], Made]] = {
    "all_class_non_max_suppression": _of(_suppressed, _boxes(40), _floats(1, 2, 40)),
    "non_max_suppression": _of(
        vision.non_max_suppression, _floats(1, 8, 6), np.array([8], "int32"), np.arange(8, dtype="int32")[None]
    ),
    "get_valid_counts": _of(lambda x: vision.get_valid_counts(x, 0.5), _floats(1, 40, 6)),
    "roi_align": _of(
        lambda x, r: vision.roi_align(x, r, (2, 2), 1.0), _floats(1, 3, 8, 8), np.array([[0, 1, 1, 5, 6]], "float32")
    ),
    "nonzero": _of(op.nonzero, _ints(2, 5, 7, dtype="float32")),
    "unique": _of(op.unique, _ints(5, 40)),
    "sort": _of(op.sort, _floats(4, 600)),
    "sort_first_axis": _of(lambda x: op.sort(x, axis=0, descending=True), _floats(600, 4)),
    "argsort": _of(lambda x: op.argsort(x, descending=True), _floats(4, 600)),
    "topk": _of(lambda x: op.topk(x, 7), _floats(4, 600)),
    "cumsum": _of(lambda x: op.cumsum(x, axis=1), _ints(5, 4, 600, dtype="int32")),
    "cumsum_first_axis": _of(lambda x: op.cumsum(x, axis=0), _ints(5, 600, 4, dtype="int32")),
    "scatter_elements": _of(
        lambda x, i, u: op.scatter_elements(x, i, u, axis=1),
        _floats(4, 50),
        np.arange(50)[None].repeat(4, 0)[:, ::-1][:, :9].copy(),
        _floats(4, 9),
    ),
    "scatter_nd": _of(op.scatter_nd, _floats(40), np.arange(39, 30, -1)[:, None].copy(), _floats(9)),
    "gather_elements": _of(lambda x, i: op.gather_elements(x, i, axis=1), _floats(4, 50), _ints(50, 4, 9)),
    "gather_nd": _of(op.gather_nd, _floats(40, 3), _ints(40, 9, 1)),
    "take": _of(lambda x, i: op.take(x, i, 0), _floats(40, 8), _ints(40, 3)),
    "dynamic_strided_slice": _of(
        op.dynamic_strided_slice, _floats(40, 8), np.array([1, 0]), np.array([30, 8]), np.array([2, 1])
    ),
    "bucketize": _of(op.bucketize, _floats(4, 50), np.array([0.2, 0.4, 0.9], "float32")),
    "argmax": _of(lambda x: op.argmax(x, axis=1), _floats(4, 600)),
    "softmax": _of(op.nn.softmax, _floats(4, 600)),
}

ONLY_ON_THE_HOST = {
    "all_class_non_max_suppression": "argsort",
    "non_max_suppression": "argsort",
    "get_valid_counts": "no schedule binds",
    "roi_align": "no schedule binds",
    "nonzero": "relax.run.nonzero",
    "unique": "relax.run.unique",
}
"""What TVM has no GPU code for, and a word of the reason."""


def agrees(name: str) -> bool:
    """Run an operator by TVM on a GPU, or the host where it has to, and compare with LLVM."""
    mod, inputs = OPERATORS[name]()
    target = tvm.target.Target("cuda")
    placed = relax_glue.heterogeneous.place_on_host(mod, target)
    pipeline = relax_glue.heterogeneous.heterogeneous_pipeline(target)
    machine = relax.VirtualMachine(tvm.compile(placed, target, relax_pipeline=pipeline), tvm.cuda())
    got = leaves(machine["main"](*[tvm.runtime.tensor(array, tvm.cuda()) for array in inputs]))
    wanted = on_llvm(mod, inputs)
    same = [a.device.type == "cuda" and np.allclose(a.numpy(), b, atol=1e-5) for a, b in zip(got, wanted, strict=True)]
    return all(same)


if __name__ == "__main__":
    for asked in sys.argv[1:]:
        print("begins", asked, flush=True)
        print("agrees" if agrees(asked) else "differs", asked, flush=True)
