"""Models from files: what comes in, with which numbers, and what is said of files that do not."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from onnx_case import one_node, op_names, run_onnx, run_relax, zoo_model
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relax_glue import zoo
from relax_glue.errors import InputShapeError, ModelImportError
from relax_glue.frontend import from_onnx, from_tflite, from_torch, load, save

TOLERANCE = 1e-4  # of the largest value


def graph_model(
    nodes: list[Any], inputs: dict[str, list[Any]], outputs: list[str], **constants: Any
) -> onnx.ModelProto:
    """A model of several nodes; inputs and outputs are float32."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def flatten() -> onnx.ModelProto:
    """`x.view(x.shape[0], -1)` as exporters write it, on a free batch and height."""
    return graph_model(
        [
            helper.make_node("Relu", ["x"], ["r"], name="/act/Relu"),
            helper.make_node("Shape", ["r"], ["s"]),
            helper.make_node("Gather", ["s", "zero"], ["n"]),
            helper.make_node("Unsqueeze", ["n", "first"], ["n1"]),
            helper.make_node("Concat", ["n1", "rest"], ["target"], axis=0),
            helper.make_node("Reshape", ["r", "target"], ["y"], name="/view/Reshape"),
        ],
        {"x": ["batch", 3, "height", 4]},
        ["y"],
        zero=np.array(0),
        first=np.array([0]),
        rest=np.array([-1]),
    )


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


# ---- files that are none


def test_gzipped_files_bytes_and_models_are_the_same(tmp_path: Path, flatten: onnx.ModelProto) -> None:
    data = flatten.SerializeToString()
    (tmp_path / "m.onnx").write_bytes(data)
    (tmp_path / "m.onnx.gz").write_bytes(gzip.compress(data))
    wanted = from_onnx(flatten, (1, 3, 2, 4))
    for source in (tmp_path / "m.onnx", str(tmp_path / "m.onnx.gz"), data):
        tvm.ir.assert_structural_equal(from_onnx(source, (1, 3, 2, 4)), wanted)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "no ONNX model"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"\xf2\x07\x03abc", "no graph with an output"),  # a field that ONNX does not have
    ],
)
def test_files_that_are_no_models_are_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelImportError, match=said):
        from_onnx(path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_files_cut_short_are_refused(tmp_path: Path, flatten: onnx.ModelProto, share: float) -> None:
    data = flatten.SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ModelImportError, match=r"m\.onnx"):
        from_onnx(path)
    packed = tmp_path / "m.onnx.gz"
    packed.write_bytes(gzip.compress(data)[:-20])
    with pytest.raises(ModelImportError, match="cut short"):
        from_onnx(packed)


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelImportError, match="cannot be read: No such file"):
        from_onnx(tmp_path / "absent.onnx")
    with pytest.raises(ModelImportError, match="is a folder"):
        from_onnx(tmp_path)
    with pytest.raises(ModelImportError, match="takes a path, bytes or an onnx.ModelProto, not int"):
        from_onnx(3)  # type: ignore[arg-type]


def test_weights_kept_beside_the_file(tmp_path: Path) -> None:
    model = one_node("Add", [np.zeros(300, "float32")], [np.arange(300, dtype="float32")], 17)
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert op_names(from_onnx(path)) == ["add"]
    with pytest.raises(ModelImportError, match="keeps the weight 'c0' in a file beside it"):
        from_onnx(path.read_bytes())
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelImportError, match="the weight 'c0' is kept in 'weights.bin', which is missing"):
        from_onnx(path)


def test_unknown_operators_are_named_with_their_domain() -> None:
    x = np.zeros((2, 2), "float32")
    with pytest.raises(ModelImportError, match=r"Det of domain ai.onnx, first at node 'n'.*ai.onnx 17"):
        from_onnx(one_node("Det", [x], [], 17))
    # By name alone TVM takes this for the ONNX operator.
    with pytest.raises(ModelImportError, match="Relu of domain my.domain, first at node 'n'"):
        from_onnx(one_node("Relu", [x], [], 17, domain="my.domain"))


def test_graphs_that_do_not_hang_together_are_refused() -> None:
    late = [helper.make_node("Relu", ["r"], ["y"], name="late"), helper.make_node("Relu", ["x"], ["r"])]
    with pytest.raises(ModelImportError, match=r"node 'late' \(Relu\) uses the value 'r', which no node before"):
        from_onnx(graph_model(late, {"x": [1]}, ["y"]))
    twice = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Relu", ["x"], ["y"], name="again")]
    with pytest.raises(ModelImportError, match="node 'again'.*'y' a second time"):
        from_onnx(graph_model(twice, {"x": [1]}, ["y"]))
    with pytest.raises(ModelImportError, match="no node computes the output 'z'"):
        from_onnx(graph_model([helper.make_node("Relu", ["x"], ["y"])], {"x": [1]}, ["z"]))


def test_a_node_that_cannot_be_converted_is_named_with_the_way_out() -> None:
    nodes = [helper.make_node("MatMul", ["a", "b"], ["y"], name="/head/MatMul")]
    with pytest.raises(ModelImportError, match=r"node '/head/MatMul' \(MatMul\).*a: .*b: ") as caught:
        from_onnx(graph_model(nodes, {"a": [2, 3], "b": [4, 5]}, ["y"]))
    assert caught.value.__cause__ is not None
    with pytest.raises(ModelImportError, match=r"free axes: b \(n, 5\). Fix them through input_shapes"):
        from_onnx(graph_model([helper.make_node("Unique", ["b"], ["u"], name="q", axis=7)], {"b": ["n", 5]}, ["u"]))


# ---- saved modules


@I.ir_module
class Small:
    @R.function
    def main(x: R.Tensor(("n", 3), dtype="float32")) -> R.Tensor(("n", 3), dtype="float32"):
        with R.dataflow():
            y = R.add(x, R.const(1.5, "float32"))
            R.output(y)
        return y


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "bool", "bfloat16"])
def test_saved_modules_come_back(tmp_path: Path, dtype: str) -> None:
    import ml_dtypes  # noqa: F401  numpy knows bfloat16 from here

    weight = np.arange(12).reshape(3, 4).astype(np.dtype(dtype))
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 4), dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            joined = builder.emit_output(relax.op.concat([x, relax.const(weight, dtype), x], axis=0))
        builder.emit_func_output(joined)
    mod = builder.get()
    save(mod, tmp_path / "m.relax")
    tvm.ir.assert_structural_equal(load(tmp_path / "m.relax"), mod)


def test_saved_modules_take_shapes(tmp_path: Path) -> None:
    save(Small, tmp_path / "m.relax")
    tvm.ir.assert_structural_equal(load(tmp_path / "m.relax"), Small)
    mod = load(tmp_path / "m.relax", {"x": (2, 3)})
    assert [int(extent) for extent in mod["main"].ret_ty.shape.values] == [2, 3]
    with pytest.raises(InputShapeError, match=r"input 'x' has rank 2, \(n, 3\)"):
        load(tmp_path / "m.relax", (2, 3, 4))


def test_partitioned_modules_come_back(tmp_path: Path, flatten: onnx.ModelProto) -> None:
    import relax_glue

    mod = relax_glue.optimize(from_onnx(flatten, (2, 3, 5, 4)))
    save(mod, tmp_path / "m.relax")
    tvm.ir.assert_structural_equal(load(tmp_path / "m.relax"), mod)


def test_scripts_are_read(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text(Small.script())
    tvm.ir.assert_structural_equal(load(path), Small)
    path.write_text("this is no module")
    with pytest.raises(ModelImportError, match="no TVMScript"):
        load(path)


def test_files_that_load_does_not_know_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelImportError, match=r"ends with none of \.onnx"):
        load(tmp_path / "m.pt")
    with pytest.raises(ModelImportError, match="cannot be read: No such file"):
        load(tmp_path / "absent.relax")
    with pytest.raises(ModelImportError, match=r"ends with \.relax"):
        save(Small, tmp_path / "m.json")
    damaged = tmp_path / "m.relax"
    save(Small, damaged)
    damaged.write_bytes(damaged.read_bytes()[:-30])
    with pytest.raises(ModelImportError, match="damaged"):
        load(damaged)
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    (tmp_path / "other.npz").rename(tmp_path / "other.relax")
    with pytest.raises(ModelImportError, match="not one that relax_glue wrote"):
        load(tmp_path / "other.relax")


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
