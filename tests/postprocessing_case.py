"""Small detectors that end in non-maximum suppression, and machines whose GPU is a second CPU device.

`tvm.cpu(1)` is the same memory under another number, and kernels check that all their tensors have one device. So a
machine of `[tvm.cpu(1), tvm.cpu(0)]` runs a model that is compiled for a GPU and its host on a machine without a GPU,
and fails where a copy is missing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tvm
from tvm import relax

import relax_glue
from relax_glue.heterogeneous import heterogeneous_pipeline, place_on_host

GPU = tvm.target.Target({"kind": "cuda", "arch": "sm_90"})
LLVM = tvm.target.Target("llvm")
CLASSES, SIDE = 3, 8
BOXES = SIDE * SIDE


def module(body: Callable[..., relax.Expr], *params: relax.Var, outside: bool = False) -> tvm.IRModule:
    """Return a module whose `main` returns `body(builder, *params)`; with `outside`, in no dataflow block."""
    builder = relax.BlockBuilder()
    with builder.function("main", list(params)):
        if outside:
            builder.emit_func_output(body(builder, *params))
            return builder.finalize()
        with builder.dataflow():
            result = builder.emit_output(body(builder, *params))
        builder.emit_func_output(result)
    return builder.finalize()


def tensor(name: str, shape: Sequence[object], dtype: str = "float32") -> relax.Var:
    return relax.Var(name, relax.TensorType(list(shape), dtype))


def head(builder: relax.BlockBuilder, image: relax.Var) -> tuple[relax.Var, relax.Var]:
    """Emit a one-layer detector over a grid: boxes (1, N, 4) as corners, and scores (1, C, N) in 0..1."""
    random = np.random.default_rng(0)
    weights = random.standard_normal((4 + CLASSES, 3, 4, 4)).astype("float32") / 4
    raw = builder.emit(relax.op.nn.conv2d(image, relax.const(weights), strides=4))
    raw = builder.emit(relax.op.reshape(raw, (1, 4 + CLASSES, BOXES)))
    scores = builder.emit(relax.op.sigmoid(relax.op.strided_slice(raw, [1], [4], [4 + CLASSES])))
    sizes = builder.emit(relax.op.sigmoid(relax.op.strided_slice(raw, [1], [0], [4])))
    sizes = builder.emit(relax.op.permute_dims(sizes, [0, 2, 1]))
    rows, columns = np.mgrid[0:SIDE, 0:SIDE].reshape(2, -1).astype("float32")
    corners = np.stack([rows, columns, rows + 1, columns + 1], -1)[None]
    spread = np.array([-2, -2, 2, 2], "float32")
    boxes = builder.emit(relax.op.add(relax.const(corners), relax.op.multiply(sizes, relax.const(spread))))
    return boxes, scores


def all_class_detector(threshold: float = 0.5) -> tvm.IRModule:
    """Return an image to rows (class and box selected) and how many of them count."""

    def body(builder: relax.BlockBuilder, image: relax.Var) -> relax.Expr:
        boxes, scores = head(builder, image)
        limits = [relax.const(5, "int64"), relax.const(0.5, "float32"), relax.const(threshold, "float32")]
        return builder.emit(relax.op.vision.all_class_non_max_suppression(boxes, scores, *limits))

    return module(body, tensor("image", (1, 3, 4 * SIDE, 4 * SIDE)))


def classic_detector(threshold: float = 0.5) -> tvm.IRModule:
    """Return an image to the kept boxes' positions and their number, as MXNet-style detectors have it."""

    def body(builder: relax.BlockBuilder, image: relax.Var) -> relax.Expr:
        boxes, scores = head(builder, image)
        best = builder.emit(relax.op.max(scores, axis=1))
        label = builder.emit(relax.op.astype(relax.op.argmax(scores, axis=1), "float32"))
        columns = [builder.emit(relax.op.expand_dims(column, 2)) for column in (label, best)]
        rows = builder.emit(relax.op.concat([*columns, boxes], axis=2))
        counts = builder.emit(relax.op.vision.get_valid_counts(rows, threshold, 0, 1))
        kept = relax.op.vision.non_max_suppression(counts[1], counts[0], counts[2], iou_threshold=0.5)
        return builder.emit(kept)

    return module(body, tensor("image", (1, 3, 4 * SIDE, 4 * SIDE)))


def nonzero_detector(threshold: float = 0.5) -> tvm.IRModule:
    """Return an image to the boxes above a threshold: as many rows as there are."""

    def body(builder: relax.BlockBuilder, image: relax.Var) -> relax.Expr:
        boxes, scores = head(builder, image)
        best = builder.emit(relax.op.reshape(relax.op.max(scores, axis=1), (BOXES,)))
        found = builder.emit(relax.op.nonzero(relax.op.greater(best, relax.const(threshold, "float32"))))
        count = tvm.tirx.Var("count", "int64")
        found = builder.match_cast(found, relax.TensorType([1, count], "int64"))
        which = builder.emit(relax.op.reshape(found, (count,)))
        rows = builder.emit(relax.op.reshape(boxes, (BOXES, 4)))
        return builder.emit(relax.op.take(rows, which, axis=0, mode="clip"))

    return module(body, tensor("image", (1, 3, 4 * SIDE, 4 * SIDE)))


def free_batch_detector() -> tvm.IRModule:
    """Return images, as many as there are, to rows (image, class and box) and how many of them count."""
    batch = tvm.tirx.Var("batch", "int64")
    weights = np.random.default_rng(0).standard_normal((8, 3, 4, 4)).astype("float32") / 4

    def body(builder: relax.BlockBuilder, images: relax.Var) -> relax.Expr:
        raw = builder.emit(relax.op.nn.conv2d(images, relax.const(weights), strides=4))
        raw = builder.emit(relax.op.reshape(raw, (batch, 8, BOXES)))
        boxes = builder.emit(relax.op.strided_slice(raw, [1], [0], [4], assume_inbound=True))
        boxes = builder.emit(relax.op.permute_dims(boxes, [0, 2, 1]))
        scores = builder.emit(relax.op.strided_slice(raw, [1], [4], [8], assume_inbound=True))
        limits = [relax.const(5, "int64"), relax.const(0.5, "float32"), relax.const(0.5, "float32")]
        scores = builder.emit(relax.op.sigmoid(scores))
        return builder.emit(relax.op.vision.all_class_non_max_suppression(boxes, scores, *limits))

    return module(body, tensor("images", (batch, 3, 4 * SIDE, 4 * SIDE)))


DETECTORS = {"all_class": all_class_detector, "classic": classic_detector, "nonzero": nonzero_detector}


def image(seed: int = 0, batch: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((batch, 3, 4 * SIDE, 4 * SIDE)).astype("float32")


def leaves(result: object) -> list[tvm.runtime.Tensor]:
    """Return the tensors of a result, tuples flattened."""
    if isinstance(result, tvm.runtime.Tensor):
        return [result]
    return [leaf for item in result for leaf in leaves(item)]  # type: ignore[attr-defined]


def on_two_devices(mod: tvm.IRModule) -> relax.VirtualMachine:
    """Place a module as for a GPU, compile it for the CPU, and return a machine whose GPU is `tvm.cpu(1)`.

    Regions that stay on the GPU are put back into operators.
    """
    placed = relax_glue.inline(place_on_host(mod, GPU))
    executable = tvm.compile(placed, LLVM, relax_pipeline=heterogeneous_pipeline(LLVM))
    return relax.VirtualMachine(executable, [tvm.cpu(1), tvm.cpu(0)])


def run(machine: relax.VirtualMachine, inputs: Sequence[np.ndarray], device: tvm.runtime.Device) -> list[np.ndarray]:
    """Call `main` with tensors on a device; the results have to be there too."""
    found = leaves(machine["main"](*[tvm.runtime.tensor(array, device) for array in inputs]))
    assert {(found_on.device.type, found_on.device.index) for found_on in found} == {(device.type, device.index)}
    return [tensor.numpy() for tensor in found]


def on_llvm(mod: tvm.IRModule, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return what `main` yields when LLVM compiles all of it."""
    executable = tvm.compile(mod, LLVM, relax_pipeline=heterogeneous_pipeline(LLVM))
    return run(relax.VirtualMachine(executable, tvm.cpu()), inputs, tvm.cpu())


def in_a_fresh_process(
    executable: relax.VMExecutable, inputs: Sequence[np.ndarray], devices: str, folder: Path
) -> list[np.ndarray]:
    """Export an executable as one file, and call its `main` in another process; its results are on the first device.

    Parameters
    ----------
    executable : relax.VMExecutable
        What was compiled.
    inputs : sequence of numpy.ndarray
        The inputs.
    devices : str
        An expression for the list of devices.
    folder : Path
        Where the files are put.
    """
    executable.export_library(str(folder / "model.so"))
    np.savez(folder / "inputs.npz", *inputs)
    paths = os.pathsep.join(os.path.abspath(path) for path in sys.path)
    command = [sys.executable, "-P", "-c", CHILD, str(folder), devices]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": paths}, timeout=300)
    with np.load(folder / "found.npz") as found:
        return [found[f"arr_{number}"] for number in range(len(found.files))]


CHILD = """
import os, sys
import numpy as np, tvm, relax_glue
from tvm import relax
os.chdir(sys.argv[1])
devices = eval(sys.argv[2])
main = relax.VirtualMachine(tvm.runtime.load_module(os.path.abspath("model.so")), list(devices))["main"]
with np.load("inputs.npz") as given:
    found = main(*[tvm.runtime.tensor(given[f"arr_{k}"], devices[0]) for k in range(len(given.files))])
found = [found] if isinstance(found, tvm.runtime.Tensor) else list(found)
assert {str(item.device) for item in found} == {str(devices[0])}
np.savez("found.npz", *[item.numpy() for item in found])
"""
