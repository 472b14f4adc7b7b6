"""Files: what is said of those that hold no model, and how Relax modules are kept in them."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper
from onnx_case import flatten_model, graph_model, one_node, op_names
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relax_glue.errors import InputShapeError, ModelImportError
from relax_glue.frontend import from_onnx, load, save
from relax_glue.testing import check_equivalent


@pytest.fixture
def flatten() -> onnx.ModelProto:
    return flatten_model()


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


@I.ir_module
class Callers:
    """Functions with constants that call each other, one of them for every extent."""

    I.module_attrs({"about": "calls"})
    I.module_global_infos({"dummy": [I.dummy_global_info()]})

    @R.function(private=True)
    def inner(x: R.Tensor(("n", 3), "float32")) -> R.Tensor(("n", 3), "float32"):
        with R.dataflow():
            y = R.multiply(x, R.const([1.0, 2.0, 3.0], "float32"))
            R.output(y)
        return y

    @R.function(private=True)
    def outer(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        cls = Callers
        with R.dataflow():
            y = R.add(cls.inner(x), R.const([4.0, 5.0, 6.0], "float32"))
            R.output(y)
        return y

    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        cls = Callers
        with R.dataflow():
            y = cls.outer(cls.outer(x))
            z = cls.inner(y)
            R.output(y, z)
        return y, z, R.const([7.0, 8.0], "float32")


def test_functions_that_are_called_keep_their_constants(tmp_path: Path) -> None:
    save(Callers, tmp_path / "m.relax")
    again = load(tmp_path / "m.relax")
    relax.analysis.well_formed(again)
    tvm.ir.assert_structural_equal(again, Callers)
    assert again.attrs["about"] == "calls" and list(again.global_infos) == ["dummy"]
    x = np.arange(6, dtype="float32").reshape(2, 3)
    check_equivalent(Callers, again, [x])


def test_regions_come_back_with_their_weights(tmp_path: Path) -> None:
    """The functions of regions are called, and hold the constants."""
    import relax_glue

    weight = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype("float32")
    image = np.zeros((1, 3, 8, 8), "float32")
    mod = relax_glue.optimize(from_onnx(one_node("Conv", [image], [weight, weight[:, 0, 0, 0]])))
    save(mod, tmp_path / "m.relax")
    again = load(tmp_path / "m.relax")
    tvm.ir.assert_structural_equal(again, mod)
    assert str(relax_glue.explain(again)) == str(relax_glue.explain(mod))


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
