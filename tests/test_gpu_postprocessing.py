"""From image to boxes in one compiled model on a GPU: engines, TVM's kernels, and the host for the rest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import tvm
import tvm_ffi
from operator_case import OPERATORS
from postprocessing_case import (
    BOXES,
    DETECTORS,
    GPU,
    free_batch_detector,
    image,
    in_a_fresh_process,
    leaves,
    module,
    on_llvm,
    run,
    tensor,
)
from tvm import relax

import relax_glue
import relax_glue.tensorrt as trt
from relax_glue.heterogeneous import host_functions, place_on_host
from relax_glue.region_function import region_functions

pytestmark = pytest.mark.gpu

OPTIONS = trt.BuildOptions(cache=False, keep_region=False)


def compiled(mod: tvm.IRModule) -> relax.VMExecutable:
    return relax_glue.compile(mod, "cuda", build=OPTIONS, require_engines=True)


def on_gpu(executable: relax.VMExecutable, *inputs: np.ndarray) -> list[np.ndarray]:
    """Call it three times, so that the last one replays CUDA graphs; the results lie on the GPU."""
    machine = relax.VirtualMachine(executable, tvm.cuda())
    for _ in range(2):
        run(machine, inputs, tvm.cuda())
    return run(machine, inputs, tvm.cuda())


def close(got: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    """Whole numbers are equal: the scores of these detectors are far apart."""
    assert [a.shape for a in got] == [b.shape for b in wanted]
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("threshold", [0.5, 2.0], ids=["detections", "none"])
@pytest.mark.parametrize("name", DETECTORS)
def test_a_detector(name: str, threshold: float) -> None:
    mod = DETECTORS[name](threshold)
    optimised = relax_glue.optimize(mod)
    assert region_functions(optimised)
    assert len(host_functions(place_on_host(optimised, GPU))) == 1
    close(on_gpu(compiled(mod), image()), on_llvm(mod, [image()]))


def test_a_free_batch() -> None:
    mod = free_batch_detector()
    ranged = trt.BuildOptions(cache=False, keep_region=False, profiles={"batch": (1, 2, 4)})
    executable = relax_glue.compile(mod, "cuda", build=ranged, require_engines=True)
    for batch in (1, 3):
        images = image(batch, batch)
        close(on_gpu(executable, images), on_llvm(mod, [images]))


def test_batches_and_a_crowd_of_boxes() -> None:
    def body(builder: relax.BlockBuilder, boxes: relax.Var, scores: relax.Var) -> relax.Expr:
        limits = [relax.const(30, "int64"), relax.const(0.6, "float32"), relax.const(0.3, "float32")]
        corners = builder.emit(relax.op.multiply(boxes, relax.const(100.0, "float32")))
        sharper = builder.emit(relax.op.multiply(scores, scores))
        return builder.emit(relax.op.vision.all_class_non_max_suppression(corners, sharper, *limits))

    mod = module(body, tensor("boxes", (2, 5000, 4)), tensor("scores", (2, 3, 5000)))
    random = np.random.default_rng(0)
    corner = random.random((2, 5000, 2), "float32")
    boxes = np.concatenate([corner, corner + random.random((2, 5000, 2), "float32") / 5], -1)
    scores = random.permutation(30000).reshape(2, 3, 5000).astype("float32") / 30000
    close(on_gpu(compiled(mod), boxes, scores), on_llvm(mod, [boxes, scores]))


def test_what_tvm_is_left_with_is_right() -> None:
    """Each operator runs, on the GPU or on the host; one that ends the process is named, and the others go on."""
    outcome: dict[str, str] = {}
    while waiting := [name for name in OPERATORS if name not in outcome]:
        paths = os.pathsep.join(os.path.abspath(path) for path in sys.path)
        command = [sys.executable, "-P", str(Path(__file__).with_name("operator_case.py")), *waiting]
        environment = {**os.environ, "PYTHONPATH": paths}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=300)
        said = [line.split() for line in done.stdout.splitlines()]
        outcome.update({name: word for word, name in said if word in ("begins", "agrees", "differs")})
        assert any(name in outcome for name in waiting), done.stderr
    assert {name: word for name, word in outcome.items() if word != "agrees"} == {}


def test_without_engines_the_rest_runs_by_tvm_on_the_gpu() -> None:
    mod = DETECTORS["nonzero"](0.5)
    executable = tvm.compile(
        place_on_host(mod, tvm.target.Target("cuda")),
        "cuda",
        relax_pipeline=relax_glue.heterogeneous.heterogeneous_pipeline(tvm.target.Target("cuda")),
    )
    close(on_gpu(executable, image()), on_llvm(mod, [image()]))


def test_a_second_stage_runs_on_the_gpu_behind_the_host() -> None:
    weights = np.random.default_rng(0).standard_normal((BOXES, 16)).astype("float32")

    def body(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
        counts = builder.emit(relax.op.vision.get_valid_counts(data, 0.5, 0, 1))
        rows = builder.emit(relax.op.reshape(counts[1], (6, BOXES)))
        features = builder.emit(relax.op.matmul(rows, relax.const(weights)))
        return builder.emit(relax.Tuple([counts[0], relax.op.nn.relu(features)]))

    mod = module(body, tensor("data", (1, BOXES, 6)))
    data = np.random.default_rng(1).random((1, BOXES, 6), "float32")
    close(on_gpu(compiled(mod), data), on_llvm(mod, [data]))


def test_work_of_the_callers_stream_is_waited_for() -> None:
    mod = DETECTORS["all_class"](0.5)
    machine = relax.VirtualMachine(compiled(mod), tvm.cuda())
    wanted = on_llvm(mod, [image()])
    device = tvm.cuda()
    stream = device.create_raw_stream()
    with tvm_ffi.use_raw_stream(device, stream):
        given = tvm.runtime.empty((1, 3, 32, 32), "float32", device)
        given.copyfrom(image())
        device.sync()
        for _ in range(5):
            found = leaves(machine["main"](given))
        device.sync(stream)
        close([item.numpy() for item in found], wanted)
    device.free_raw_stream(stream)


def test_a_branch_chooses_between_the_gpu_and_the_host() -> None:
    source = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((32, 32), "float32"), c: R.Tensor((), "bool")):
        if c:
            with R.dataflow():
                y = R.nn.relu(R.matmul(x, x))
                found = R.nonzero(R.greater(y, R.const(1.0, "float32")))
                R.output(found)
            r = found
        else:
            with R.dataflow():
                z = R.astype(R.add(x, x), "int64")
                R.output(z)
            r = z
        return r
"""
    mod = tvm.script.from_source(source)
    x = np.random.default_rng(0).integers(-3, 4, (32, 32)).astype("float32")
    for condition in (True, False):
        given = [x, np.array(condition)]
        close(on_gpu(compiled(mod), *given), on_llvm(mod, given))


@pytest.mark.parametrize("name", DETECTORS)
def test_one_file_runs_in_a_fresh_process(name: str, tmp_path: Path) -> None:
    mod = DETECTORS[name](0.5)
    close(in_a_fresh_process(compiled(mod), [image()], "[tvm.cuda()]", tmp_path), on_llvm(mod, [image()]))


def onnx_model(name: str, shared: Path) -> tuple[object, onnxruntime.InferenceSession]:
    import onnxfile

    model = onnxfile.load(str(shared / "onnx" / f"{name}.onnx.gz"))
    return model, onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def boxes_to_suppress(seed: int, count: int = 100) -> list[np.ndarray]:
    """Return boxes, scores that are apart from each other, and classes."""
    random = np.random.default_rng(seed)
    corner = random.random((count, 2), "float32") * 50
    boxes = np.concatenate([corner, corner + 5 + random.random((count, 2), "float32") * 20], -1)
    scores = (random.permutation(count).astype("float32") + 1) / count
    return [boxes, scores, random.integers(0, 3, count)]


def test_batched_nms(shared: Path, tmp_path: Path) -> None:
    model, session = onnx_model("batched_nms", shared)
    executable = compiled(relax_glue.from_onnx(model))
    for seed in range(3):
        inputs = boxes_to_suppress(seed)
        wanted = session.run(None, dict(zip(["b", "scores", "idxs"], inputs, strict=True)))
        assert 10 < len(wanted[0]) < 100
        np.testing.assert_array_equal(on_gpu(executable, *inputs)[0], wanted[0])
    np.testing.assert_array_equal(in_a_fresh_process(executable, inputs, "[tvm.cuda()]", tmp_path)[0], wanted[0])


Yolort = tuple[onnxruntime.InferenceSession, relax.VMExecutable]


@pytest.fixture(scope="module")
def yolort(shared: Path) -> Yolort:
    model, session = onnx_model("yolort_v5n", shared)
    return session, compiled(relax_glue.from_onnx(model))


def test_yolort(yolort: Yolort, tmp_path: Path) -> None:
    session, executable = yolort
    # the weights are random: a strong image keeps the scores apart
    pixels = (np.random.default_rng(1).standard_normal((1, 3, 160, 160)) * 100).astype("float32")
    wanted = session.run(None, {session.get_inputs()[0].name: pixels})
    assert len(wanted[0]) == 100
    fresh = in_a_fresh_process(executable, [pixels], "[tvm.cuda()]", tmp_path)
    for got in (on_gpu(executable, pixels), fresh):
        assert same_detections(got, wanted) > 0.9


def same_detections(got: list[np.ndarray], wanted: list[np.ndarray]) -> float:
    """Compare scores in order, and return the share of boxes that both have.

    Some neighbouring scores differ by 1e-7 and change places with the last bits of a convolution.
    """
    scores, labels, boxes = got
    np.testing.assert_allclose(scores, wanted[0], atol=1e-3)
    distance = np.abs(boxes[:, None] - wanted[2][None]).max(-1) + 1e3 * (labels[:, None] != wanted[1][None])
    return float((distance.min(1) < 0.05).mean())


def test_yolort_without_detections(yolort: Yolort) -> None:
    session, executable = yolort
    pixels = np.full((1, 3, 160, 160), np.nan, "float32")  # no score of it is above a threshold
    wanted = session.run(None, {session.get_inputs()[0].name: pixels})
    assert [array.shape for array in wanted] == [(0,), (0,), (0, 4)]
    assert [array.shape for array in on_gpu(executable, pixels)] == [(0,), (0,), (0, 4)]
