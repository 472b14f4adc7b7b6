"""Whole models whose post-processing branches and finds as many rows as values decide, against ONNX Runtime.

The first is the report that this project has its second root in: a YOLOv5 (yolort) that was traced with its NMS and
carries `if boxes.numel() == 0`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from onnx_case import graph_model, run_onnx
from tvm import relax

import relax_glue
from relax_glue.frontend import from_onnx
from relax_glue.inline import inline
from relax_glue.passes import LiftBranches


def run(mod: tvm.IRModule, *feeds: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
    machine = relax.VirtualMachine(relax_glue.compile(mod, "llvm"), tvm.cpu())
    results = [machine["main"](*map(tvm.runtime.tensor, feed)) for feed in feeds]
    return [[r.numpy()] if isinstance(r, tvm.runtime.Tensor) else [part.numpy() for part in r] for r in results]


def check(model: onnx.ModelProto, mod: tvm.IRModule, *feeds: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
    """Check a module against the model that it was imported from; return what ONNX Runtime gives."""
    expected = [run_onnx(model, feed) for feed in feeds]
    for rights, ours in zip(expected, run(mod, *feeds), strict=True):
        for right, our in zip(rights, ours, strict=True):
            assert our.dtype == right.dtype
            np.testing.assert_allclose(our, right, rtol=1e-4, atol=1e-3)
    return expected


# -- YOLOv5 of yolort ------------------------------------------------------------------------------------


def image(seed: int) -> np.ndarray:
    """Noise so loud that no two of the best scores of a model with random weights are close."""
    return (np.random.default_rng(seed).normal(0, 80, (1, 3, 160, 160))).astype("float32")


@pytest.fixture(scope="module")
def yolort(shared: Path) -> onnx.ModelProto:
    import onnxfile

    return onnxfile.load(str(shared / "onnx" / "yolort_v5n.onnx.gz"))


def that_finds_nothing(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with a score threshold that no score exceeds."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    (threshold,) = (node.input[1] for node in model.graph.node if node.op_type == "Greater")
    (constant,) = (node for node in changed.graph.node if threshold in node.output)
    constant.attribute[0].t.CopyFrom(numpy_helper.from_array(np.array(1.5, "float32")))
    return changed


def test_yolort_is_one_region_and_a_tail_with_reasons(yolort: onnx.ModelProto) -> None:
    report = relax_glue.explain(from_onnx(yolort))
    (region,) = report.regions
    assert region.ops["relax.nn.conv2d"] == 60
    assert region.inputs == ["float32(1, 3, 160, 160)"]
    outside = {item.op: item.reason for item in report.outside}
    assert "no layer for relax.nonzero" in outside["relax.nonzero"]
    for op in ("relax.vision.all_class_non_max_suppression", "relax.max", "relax.take"):
        assert "values decide its extent" in outside[op]


def test_yolort_with_detections(yolort: onnx.ModelProto) -> None:
    expected = check(yolort, relax_glue.optimize(from_onnx(yolort)), [image(3)], [image(4)])
    assert all(boxes.shape == (100, 4) for _, _, boxes in expected)


def test_yolort_without_detections(yolort: onnx.ModelProto) -> None:
    model = that_finds_nothing(yolort)
    expected = check(model, relax_glue.optimize(from_onnx(model)), [image(3)])
    assert [part.shape for part in expected[0]] == [(0,), (0,), (0, 4)]


def test_yolort_as_one_file_in_a_fresh_process(yolort: onnx.ModelProto, tmp_path: Path) -> None:
    relax_glue.compile(from_onnx(yolort), "llvm").export_library(str(tmp_path / "lib.so"))
    np.save(tmp_path / "image.npy", image(5))
    script = """
import sys, numpy as np, tvm
from tvm import relax
folder = sys.argv[1]
machine = relax.VirtualMachine(tvm.runtime.load_module(folder + "/lib.so"), tvm.cpu())
found = machine["main"](tvm.runtime.tensor(np.load(folder + "/image.npy")))
np.savez(folder + "/found.npz", *[part.numpy() for part in found])
assert "relax_glue" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, capture_output=True, timeout=300)
    found = np.load(tmp_path / "found.npz")
    for right, name in zip(run_onnx(yolort, [image(5)]), found.files, strict=True):
        np.testing.assert_allclose(found[name], right, rtol=1e-4, atol=1e-3)


def test_batched_nms(shared: Path) -> None:
    import onnxfile

    model = onnxfile.load(str(shared / "onnx" / "batched_nms.onnx.gz"))
    rng = np.random.default_rng(0)
    feeds = []
    for scale in (1.0, 0.0):
        given = []
        for value in model.graph.input:
            shape = [d.dim_value or 8 for d in value.type.tensor_type.shape.dim]
            dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            given.append((rng.uniform(0, 1, shape) * scale).astype(dtype))
        feeds.append(given)
    check(model, from_onnx(model), *feeds)


# -- smaller ones ----------------------------------------------------------------------------------------


def branch(nodes: list[Any], result: str, **constants: np.ndarray) -> onnx.GraphProto:
    held = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    return helper.make_graph(nodes, result, [], [helper.make_value_info(result, onnx.TypeProto())], held)


def mask_head(kernel: np.ndarray) -> onnx.ModelProto:
    """Boxes above a threshold, and masks of them, unless there are none: the second stage of a Mask R-CNN."""
    some = branch(
        [
            helper.make_node("Shape", ["q"], ["q_shape"]),
            helper.make_node("Slice", ["q_shape", "zero", "one"], ["rows"]),
            helper.make_node("Expand", ["zero", "rows"], ["image"]),
            helper.make_node("RoiAlign", ["x", "q", "image"], ["r"], output_height=4, output_width=4, sampling_ratio=2),
            helper.make_node("Conv", ["r", "kernel"], ["m"], pads=[1, 1, 1, 1]),
            helper.make_node("Sigmoid", ["m"], ["masks"]),
        ],
        "masks",
        kernel=kernel,
    )
    none = branch(
        [helper.make_node("Identity", ["nothing"], ["empty"])], "empty", nothing=np.zeros((0, 2, 4, 4), "float32")
    )
    nodes = [
        helper.make_node("Greater", ["s", "half"], ["keep"]),
        helper.make_node("NonZero", ["keep"], ["found"]),
        helper.make_node("Reshape", ["found", "all"], ["at"]),
        helper.make_node("Gather", ["boxes", "at"], ["q"], axis=0),
        helper.make_node("Size", ["q"], ["elements"]),
        helper.make_node("Equal", ["elements", "zero"], ["is_empty"]),
        helper.make_node("If", ["is_empty"], ["y0"], then_branch=none, else_branch=some, name="/If"),
        helper.make_node("Mul", ["y0", "two"], ["y"]),
    ]
    constants = {"half": np.float32(0.5), "two": np.float32(2), "all": np.array([-1])}
    constants |= {"zero": np.array([0]), "one": np.array([1])}
    return graph_model(nodes, {"x": [1, 3, 16, 16], "boxes": [6, 4], "s": [6]}, ["y", "q"], **constants)


def test_a_mask_head_needs_no_guard() -> None:
    """RoiAlign, convolution and sigmoid of no boxes are no masks, so one path is left, and no box is a case of it."""
    rng = np.random.default_rng(1)
    model = mask_head(rng.normal(size=(2, 3, 3, 3)).astype("float32"))
    corners = rng.uniform(0, 8, (6, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(2, 8, (6, 2))], 1).astype("float32")
    x = rng.normal(size=(1, 3, 16, 16)).astype("float32")
    mod = from_onnx(model)
    assert "if " in mod.script()
    assert "if " not in relax_glue.canonicalize(mod).script()
    feeds = [[x, boxes, np.linspace(0, last, 6).astype("float32")] for last in (1.0, 0.4)]
    expected = check(model, mod, *feeds)
    assert [parts[0].shape[0] for parts in expected] == [3, 0]


def test_branches_in_branches_with_several_results() -> None:
    inner = {
        "then_branch": branch([helper.make_node("Neg", ["x"], ["a"])], "a"),
        "else_branch": branch([helper.make_node("Sin", ["x"], ["b0"]), helper.make_node("Abs", ["b0"], ["b"])], "b"),
    }
    outer = branch(
        [
            helper.make_node("Exp", ["x"], ["e"]),
            helper.make_node("If", ["is_empty"], ["i"], **inner),
            helper.make_node("Add", ["e", "i"], ["t1"]),
            helper.make_node("ReduceSum", ["t1"], ["t2"], keepdims=0),
        ],
        "t1",
    )
    other = branch(
        [helper.make_node("Softmax", ["x"], ["f1"]), helper.make_node("ReduceMax", ["f1"], ["f2"], keepdims=0)], "f1"
    )
    for graph, second in ((outer, "t2"), (other, "f2")):
        graph.output.append(helper.make_tensor_value_info(second, TensorProto.FLOAT, None))
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
        helper.make_node("Greater", ["most", "one"], ["large"]),
        helper.make_node("Greater", ["x", "half"], ["over"]),
        helper.make_node("NonZero", ["over"], ["found"]),
        helper.make_node("Size", ["found"], ["elements"]),
        helper.make_node("Equal", ["elements", "zero"], ["is_empty"]),
        helper.make_node("If", ["large"], ["u", "v"], then_branch=outer, else_branch=other),
        helper.make_node("Mul", ["u", "v"], ["w"]),
        helper.make_node("Softmax", ["w"], ["y"]),
    ]
    constants = {"one": np.float32(1), "half": np.float32(0.5), "zero": np.array(0)}
    model = graph_model(nodes, {"x": [5, 4]}, ["y"], **constants)
    mod = from_onnx(model)
    x = np.random.default_rng(2).uniform(0, 0.9, (5, 4)).astype("float32")
    check(model, mod, [x], [x + 1], [x * 0])
    lifted = LiftBranches()(inline(relax_glue.optimize(mod)))
    relax.analysis.well_formed(lifted)
    assert {"main_then_0", "main_else_0"} <= {var.name_hint for var in lifted.get_global_vars()}
