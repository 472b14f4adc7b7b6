"""Models from outside: what comes in, with which shapes and numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper
from onnx_case import flatten_model, graph_model, one_node, op_names, run_onnx, run_relax, zoo_model
from tvm import relax

from relax_glue import zoo
from relax_glue.errors import InputShapeError, ModelImportError
from relax_glue.frontend import from_onnx, from_tflite, from_torch

TOLERANCE = 1e-4  # of the largest value


@pytest.fixture
def flatten() -> onnx.ModelProto:
    return flatten_model()


def check_against_onnx_runtime(path_or_model: Any, mod: tvm.IRModule, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    inputs = [
        rng.standard_normal([int(extent) for extent in param.ty.shape.values]).astype(str(param.ty.dtype))
        for param in mod["main"].params
    ]
    source = str(path_or_model) if isinstance(path_or_model, Path) else path_or_model
    for found, wanted in zip(run_relax(mod, inputs), run_onnx(source, inputs), strict=True):
        assert found.shape == wanted.shape
        assert np.abs(found - wanted).max() <= TOLERANCE * np.abs(wanted).max()


# ---- real models


# The models that test_models.py runs against ONNX Runtime, with and without the passes, are only looked at here.
@pytest.mark.parametrize("name", ["yolo11n", "yolo11n-seg", "yolov5n"])
def test_shared_models_come_in_without_call_tir(shared: Path, name: str) -> None:
    import onnxfile

    assert "call_tir" not in op_names(from_onnx(onnxfile.load(str(shared / "onnx" / f"{name}.onnx.gz"))))


@pytest.mark.parametrize("name", ["ppocr_det", "ppocr_rec", "nudenet"])
def test_trained_models_come_in_without_call_tir(name: str) -> None:
    assert "call_tir" not in op_names(from_onnx(zoo_model(name), zoo.MODELS[name].input_shape))


def test_the_classifier_that_tvm_refuses_matches_onnx_runtime() -> None:
    path = zoo_model("ppocr_cls")
    check_against_onnx_runtime(path, from_onnx(path, zoo.MODELS["ppocr_cls"].input_shape))


def test_initializers_that_are_inputs_too_are_constants() -> None:
    """As files of ONNX before IR version 4 have all of their weights."""
    model = one_node("PRelu", [np.ones((2, 3, 4), "float32")], [np.array([[0.1], [0.2], [0.3]], "float32")])
    model.graph.input.append(helper.make_tensor_value_info("c0", TensorProto.FLOAT, [3, 1]))
    mod = from_onnx(model)
    assert [param.name for param in mod["main"].params] == ["x0"] and "call_tir" not in op_names(mod)
    check_against_onnx_runtime(model.SerializeToString(), mod)


def test_boxes_of_non_max_suppression_match_onnx_runtime(shared: Path) -> None:
    import onnxfile

    model = onnxfile.load(str(shared / "onnx" / "batched_nms.onnx.gz"))
    rng = np.random.default_rng(0)
    corners = rng.random((100, 2)).astype("float32")
    inputs = [
        np.concatenate([corners, corners + 0.2], axis=1),
        rng.random(100).astype("float32"),
        rng.integers(0, 3, 100),
    ]
    found, wanted = run_relax(from_onnx(model), inputs)[0], run_onnx(model, inputs)[0]
    assert 0 < len(wanted) < 100
    np.testing.assert_array_equal(found, wanted)


def test_model_with_a_branch_comes_in(shared: Path) -> None:
    import onnxfile

    model = onnxfile.load(str(shared / "onnx" / "yolort_v5n.onnx.gz"))
    mod = from_onnx(model)
    relax.analysis.well_formed(mod)
    kinds = [type(binding.value) for block in mod["main"].body.blocks for binding in block.bindings]
    assert kinds.count(relax.If) == 1


def test_free_axes_stay_free() -> None:
    mod = from_onnx(zoo_model("nudenet"), (None, 3, 320, 320))
    batch = mod["main"].params[0].ty.shape.values[0]
    assert isinstance(batch, tvm.tirx.Var)
    assert mod["main"].ret_ty.shape.values[0].same_as(batch)


@pytest.mark.parametrize("name", sorted(name for name, model in zoo.MODELS.items() if model.package == "mediapipe"))
def test_tflite_models_come_in(name: str) -> None:
    pytest.importorskip("tflite", reason="the package tflite reads TFLite files")
    mod = from_tflite(zoo_model(name))
    assert relax.analysis.well_formed(mod) is not False
    assert len(mod["main"].params) == 1
    assert "params" not in mod["main"].attrs


# ---- shapes


def test_shape_arithmetic_is_folded_once_the_shape_is_known(flatten: onnx.ModelProto) -> None:
    mod = from_onnx(flatten, {"x": (2, 3, 5, 4)})
    assert op_names(mod) == ["nn.relu", "reshape"]
    assert [int(extent) for extent in mod["main"].ret_ty.shape.values] == [2, 60]
    check_against_onnx_runtime(flatten, mod)


def test_known_extents_of_a_free_shape_are_read_off(flatten: onnx.ModelProto) -> None:
    mod = from_onnx(flatten, (2, 3, None, 4))
    assert op_names(mod) == ["nn.relu", "reshape"]


def test_variables_are_named_after_nodes(flatten: onnx.ModelProto) -> None:
    mod = from_onnx(flatten, (2, 3, 5, 4))
    names = [binding.var.name for block in mod["main"].body.blocks for binding in block.bindings]
    assert {"act_Relu", "view_Reshape"} <= set(names)


def test_the_model_given_is_not_changed(flatten: onnx.ModelProto) -> None:
    before = flatten.SerializeToString()
    from_onnx(flatten, (2, 3, 5, 4))
    assert flatten.SerializeToString() == before


def test_scalars_keep_their_rank() -> None:
    model = graph_model(
        [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Gather", ["s", "zero"], ["n"]),
         helper.make_node("Cast", ["n"], ["f"], to=1), helper.make_node("Mul", ["x", "f"], ["y"])],
        {"x": [3, 2]}, ["y"], zero=np.array(0),
    )  # fmt: skip
    check_against_onnx_runtime(model, from_onnx(model))
    size = one_node("Size", [np.zeros((2, 3), "float32")], [], 13)
    assert run_relax(from_onnx(size), [np.zeros((2, 3), "float32")])[0].shape == ()


def test_the_known_branch_is_taken() -> None:
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(op, ["x"], [f"{name}_y"], name=f"{name}_node")],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)],
        )
        for name, op in (("then", "Relu"), ("else", "Sigmoid"))
    }
    model = graph_model(
        [
            helper.make_node("Shape", ["x"], ["s"]),
            helper.make_node("Gather", ["s", "zero"], ["n"]),
            helper.make_node("Equal", ["n", "two"], ["c"]),
            helper.make_node("If", ["c"], ["y"], **branches),
        ],
        {"x": ["n", 4]},
        ["y"],
        zero=np.array(0),
        two=np.array(2),
    )
    assert op_names(from_onnx(model, (2, 4))) == ["nn.relu"]
    assert op_names(from_onnx(model, (3, 4))) == ["sigmoid"]


def test_a_constant_too_large_to_be_shape_arithmetic_stays_a_node() -> None:
    model = graph_model(
        [
            helper.make_node("Expand", ["one", "shape"], ["big"]),
            helper.make_node("Mul", ["x", "big"], ["y"]),
        ],
        {"x": [1]},
        ["y"],
        one=np.ones((1, 1), "float32"),
        shape=np.array([1 << 20, 1 << 10]),
    )
    assert op_names(from_onnx(model)) == ["broadcast_to", "multiply"]


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ((2, 3, 5), r"input 'x' has rank 4, \(batch, 3, height, 4\).*has rank 3"),
        ({"z": (2, 3, 5, 4)}, "no input 'z'; its inputs are x"),
        ((2, 7, 5, 4), r"fixed to \(batch, 3, height, 4\).*differs on axis 1"),
        ((2, 3, -1, 4), "holds -1"),
        ((2, 3, 5.0, 4), "holds 5.0, which is no integer"),
        ((True, 3, 5, 4), "holds True, which is no integer"),
        ({"x": "2x3"}, "must be a tuple of integers"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(flatten: onnx.ModelProto, shapes: Any, said: str) -> None:
    with pytest.raises(InputShapeError, match=said):
        from_onnx(flatten, shapes)


def test_a_named_extent_is_one_extent() -> None:
    model = graph_model([helper.make_node("Add", ["a", "b"], ["y"])], {"a": ["n", 2], "b": ["n", 1]}, ["y"])
    mod = from_onnx(model, {"a": (3, 2)})
    assert [int(extent) for extent in mod["main"].params[1].ty.shape.values] == [3, 1]
    with pytest.raises(InputShapeError, match="'n' is shared by several inputs, and was given as 3 and as 4"):
        from_onnx(model, {"a": (3, 2), "b": (4, 1)})
    with pytest.raises(InputShapeError, match=r"one shape was given, but the model has 2 inputs \(a, b\)"):
        from_onnx(model, (3, 2))


def test_an_input_of_unknown_rank_needs_a_shape() -> None:
    model = graph_model([helper.make_node("Relu", ["x"], ["y"])], {"x": [1]}, ["y"])
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(InputShapeError, match="does not tell the rank of input 'x'"):
        from_onnx(model)
    assert op_names(from_onnx(model, (2, 3))) == ["nn.relu"]


# ---- the other importers


def test_tflite_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelImportError, match="no TFLite model"):
        from_tflite(b"\x00" * 40)
    with pytest.raises(ModelImportError, match="cannot be read: No such file"):
        from_tflite(tmp_path / "absent.tflite")


def test_tflite_files_cut_short_are_refused() -> None:
    pytest.importorskip("tflite", reason="the package tflite reads TFLite files")
    data = zoo_model("hand_recrop").read_bytes()
    for length in (100, len(data) // 2, len(data) - 200):
        with pytest.raises(ModelImportError, match="cut short or damaged"):
            from_tflite(data[:length])


def test_torch_programs_come_in() -> None:
    torch = pytest.importorskip("torch", reason="torch makes the program")
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.SiLU()).eval()
    example = torch.randn(1, 3, 8, 8)
    mod = from_torch(torch.export.export(model, (example,)))
    wanted = model(example).detach().numpy()
    with torch.no_grad():
        model[0].weight.zero_()  # the module has its own weights
    np.testing.assert_allclose(run_relax(mod, [example.numpy()])[0], wanted, rtol=1e-4, atol=1e-5)


def test_what_is_no_torch_program_is_refused() -> None:
    with pytest.raises(ModelImportError, match="needs the package torch|takes a torch.export.ExportedProgram, not int"):
        from_torch(3)
