"""The command line: what it prints, and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx_case import one_node, zoo_model

import relax_glue
from relax_glue import demo
from relax_glue.cli import main, parse_input_shapes, parse_ranges
from relax_glue.errors import InputShapeError
from relax_glue.frontend import load


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "softmax.onnx"
    onnx.save(one_node("Softmax", [np.zeros((2, 5), "float32")], [], 13, axis=1), path)
    return str(path)


@pytest.fixture
def free_model(tmp_path: Path) -> str:
    file = one_node("Relu", [np.zeros((2, 5), "float32")], [], 13)
    file.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    path = tmp_path / "free.onnx"
    onnx.save(file, path)
    return str(path)


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        ([], None),
        (["1x3x640x640"], (1, 3, 640, 640)),
        (["images=1x3x640x640"], {"images": (1, 3, 640, 640)}),
        (["a=1X2", "b=?,7"], {"a": (1, 2), "b": (None, 7)}),
        (["x=y=3"], {"x=y": (3,)}),
        (["scalar="], {"scalar": ()}),
        (["n,3,h,?"], ("n", 3, "h", None)),
        (["a=batch,2", "b=4x5"], {"a": ("batch", 2), "b": (4, 5)}),
    ],
)
def test_shapes_are_read(texts: list[str], wanted: object) -> None:
    assert parse_input_shapes(texts) == wanted


@pytest.mark.parametrize(
    "texts", [["1x3", "b=2"], ["a=1", "a=2"], ["a=1x-3"], ["a=1x3.0"], ["images"], ["a=1xx2"], ["a=1,h-1"]]
)
def test_shapes_that_cannot_be_read_are_refused(texts: list[str]) -> None:
    with pytest.raises(InputShapeError, match="--input-shape"):
        parse_input_shapes(texts)


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [([], None), (["n=1:16"], {"n": (1, 16)}), (["n=:16", "h=4:"], {"n": (None, 16), "h": (4, None)})],
)
def test_ranges_are_read(texts: list[str], wanted: object) -> None:
    assert parse_ranges(texts) == wanted


@pytest.mark.parametrize("texts", [["n=1"], ["1:16"], ["n=1:x"], ["n=1:2", "n=1:2"], ["n=-1:2"]])
def test_ranges_that_cannot_be_read_are_refused(texts: list[str]) -> None:
    with pytest.raises(InputShapeError, match="--range"):
        parse_ranges(texts)


def test_explain_prints_the_report(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", model]) == 0
    assert capsys.readouterr().out.startswith("1 TensorRT region, 1 of 1 operator")


def test_explain_as_json_tells_what_was_excluded(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", model, "--exclude", "nn.softmax", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["regions"] == []
    assert [(item["op"], item["name"]) for item in report["outside"]] == [("relax.nn.softmax", "n")]


def test_explain_tells_what_rules_did(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", model, "--rules"]) == 0
    assert "rules: " in capsys.readouterr().out
    assert main(["explain", model, "--rule", "nop-reshape", "--rule", "FoldShapes", "--json"]) == 0
    rules = json.loads(capsys.readouterr().out)["rules"]
    assert {r["part_of"] for r in rules} == {"FoldShapes", "CanonicalizeReshape"}


def test_versions_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"relax_glue {relax_glue.__version__}, TVM {tvm.__version__}\n"


def test_explain_writes_to_a_file(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", model, "-o", str(tmp_path / "report.txt")]) == 0
    assert capsys.readouterr().out == ""
    assert "1 TensorRT region" in (tmp_path / "report.txt").read_text()


def test_optimize_saves_a_module_that_explain_reads(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = str(tmp_path / "m.relax")
    assert main(["optimize", model, "-o", saved]) == 0
    told = capsys.readouterr().out
    assert any("Codegen" in func.attrs for func in load(saved).functions.values())
    assert main(["explain", saved]) == 0
    assert capsys.readouterr().out == told


def test_optimize_prints_the_module(free_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", free_model, "-s", "x0=3x5"]) == 0
    printed = capsys.readouterr().out
    assert "R.nn.relu" in printed
    assert "R.Tensor((3, 5)" in printed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["explain", "absent.onnx"], "absent.onnx cannot be read"),
        (["explain", "{model}", "-s", "1x2x3"], "input 'x0' has rank 2"),
        (["explain", "{model}", "-s", "1x"], "a shape is written 1x3x640x640"),
        (["explain", "{model}", "--exclude", "no.such_op"], "no.such_op"),
        (["explain", "{model}", "--disable", "NoSuchPass"], "NoSuchPass"),
        (["explain", "{model}", "--rule", "no-such-rule"], "no-such-rule"),
        (["explain", "{model}", "-o", "/absent/folder/report"], "cannot be written"),
        (["optimize", "{model}", "-o", "out.pt"], "ends with .relax"),
        (["optimize", "{model}", "--exclude", "nn.softmax", "--require-full-offload"], "nn.softmax"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(
    model: str, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([argument.format(model=model) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("relax_glue: ")
    assert said in captured.err
    assert "Traceback" not in captured.err


@pytest.mark.parametrize("arguments", [[], ["explain"], ["frobnicate"]])
def test_missing_arguments_are_told_by_argparse(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_the_module_runs_as_a_program(model: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "relax_glue", "explain", model], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout[:17]) == (0, "1 TensorRT region")


def test_the_demo_finds_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    zoo_model("ppocr_det")
    assert main(["demo"]) == 0
    printed = capsys.readouterr().out
    assert "of the largest value off ONNX Runtime" in printed
    sketch = printed.splitlines()[-demo.SKETCH_ROWS :]
    assert any("#" * 20 in row for row in sketch)
    assert "#" not in sketch[0] + sketch[-1]


def test_the_demo_fails_where_the_numbers_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    zoo_model("ppocr_det")
    monkeypatch.setattr(demo, "_run", lambda executable, image: np.zeros((1, 1, 640, 640), "float32"))
    assert main(["demo"]) == 2
    assert "the result is off by" in capsys.readouterr().err


def test_split_writes_both_halves(shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import onnxfile

    onnx.save(onnxfile.load(str(shared / "onnx" / "batched_nms.onnx.gz")), tmp_path / "nms.onnx")
    assert main(["split", str(tmp_path / "nms.onnx"), "-o", str(tmp_path / "nms")]) == 0
    assert "1 TensorRT region" in capsys.readouterr().out
    network, postprocessing = (load(str(tmp_path / f"nms.{half}.relax")) for half in ("network", "postprocessing"))
    assert "all_class_non_max_suppression" not in network.script()
    assert "all_class_non_max_suppression" in postprocessing.script()


def test_split_of_a_model_without_post_processing_fails(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["split", model, "-o", model]) == 2
    assert "no post-processing to split off" in capsys.readouterr().err
