"""What a compiled model says of a call that does not fit: each message names the input, the value and the way out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from dynamic_case import Graph
from onnx import TensorProto, helper
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R

import relax_glue
from relax_glue.arguments import check_arguments
from relax_glue.arguments.kernel import Kernel
from relax_glue.arguments.words import Words
from relax_glue.errors import DeviceError, ExecutionError
from relax_glue.frontend.onnx import from_onnx
from relax_glue.heterogeneous import heterogeneous_pipeline
from relax_glue.tensorrt import BuildOptions

LLVM = tvm.target.Target("llvm")


def detector() -> onnx.ModelProto:
    """A map scaled up and joined with a larger one; the name of the input is none that a variable can have."""
    g = Graph(**{"input.images": ("n", 3, "h", "w")})
    large = g("MaxPool", "input.images", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    small = g("MaxPool", large, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    scales = np.array([1, 1, 2, 2], np.float32)
    modes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return g.model(g("Concat", g("Resize", small, "", scales, **modes), large, axis=1))


RANGES = {"n": (1, 4), "h": (16, 64), "w": (16, None)}


def machine(mod: tvm.IRModule) -> relax.VirtualMachine:
    return relax.VirtualMachine(relax_glue.compile(mod, "llvm"), tvm.cpu())


@pytest.fixture(scope="module")
def main() -> Any:
    return machine(from_onnx(detector(), ranges=RANGES))["main"]


def zeros(*shape: int, dtype: str = "float32") -> tvm.runtime.Tensor:
    return tvm.runtime.tensor(np.zeros(shape, dtype))


IMAGES = "input 'input.images' of main"
WRONG_CALLS = {
    "above a range": (
        zeros(5, 3, 32, 32),
        f"{IMAGES} has n = 5 on axis 0, and the range of n is 1 to 4: resize it, or import the model with a range that "
        "holds it, such as ranges={'n': (1, 5)}",
    ),
    "below a range": (
        zeros(1, 3, 8, 32),
        f"{IMAGES} has h = 8 on axis 2, and the range of h is 16 to 64: resize it, or import the model with a range "
        "that holds it, such as ranges={'h': (8, 64)}",
    ),
    "below an open range": (
        zeros(1, 3, 32, 12),
        f"{IMAGES} has w = 12 on axis 3, and the range of w is at least 16: resize it, or import the model with a "
        "range that holds it, such as ranges={'w': (12, None)}",
    ),
    "empty": (zeros(0, 3, 32, 32), f"{IMAGES} has n = 0 on axis 0: pass an input that is not empty"),
    "what a node needs": (
        zeros(1, 3, 33, 32),
        "node 'Concat_3' of main needs (h - 1) // 4 * 2 + 2 and (h - 1) // 2 + 1 to be equal, and they are 18 and 17 "
        "with h = 33 (axis 2 of input 'input.images'): resize the input",
    ),
    "another fixed extent": (
        zeros(1, 4, 32, 32),
        f"{IMAGES} has the extent 4 on axis 1, and has to have 3: resize it, or import the model with another shape "
        "for it",
    ),
    "another rank": (
        zeros(3, 32, 32),
        f"{IMAGES} has rank 3, and has to have 4: pass a float32 tensor (n, 3, h, w)",
    ),
    "another dtype": (
        zeros(1, 3, 32, 32, dtype="float16"),
        f"{IMAGES} holds float16, and has to hold float32: pass a float32 tensor (n, 3, h, w)",
    ),
    "a number": (1, f"{IMAGES} is no tensor: pass a float32 tensor (n, 3, h, w)"),
    "nothing": (None, f"{IMAGES} is no tensor: pass a float32 tensor (n, 3, h, w)"),
    "a list": ([[1.0]], f"{IMAGES} is no tensor: pass a float32 tensor (n, 3, h, w)"),
}


@pytest.mark.parametrize("case", WRONG_CALLS)
def test_a_wrong_call_is_told_in_words(main: Any, case: str) -> None:
    given, told = WRONG_CALLS[case]
    with pytest.raises(ExecutionError) as error:
        main(given)
    assert str(error.value) == told
    assert isinstance(error.value, RuntimeError)


def test_right_calls_are_left_alone(main: Any) -> None:
    for given in (zeros(1, 3, 16, 16), zeros(4, 3, 64, 160), np.zeros((2, 3, 31, 32), np.float32)):
        assert main(given).shape[0] == given.shape[0]


def test_a_wrong_call_does_not_harm_the_next(main: Any) -> None:
    image = np.random.default_rng(0).random((1, 3, 32, 32), np.float32)
    before = main(tvm.runtime.tensor(image)).numpy()
    with pytest.raises(ExecutionError):
        main(zeros(9, 3, 32, 32))
    np.testing.assert_array_equal(main(tvm.runtime.tensor(image)).numpy(), before)


def test_the_number_of_arguments_is_told_by_tvm(main: Any) -> None:
    with pytest.raises(RuntimeError, match=r"main expects 1 arguments \(input_images\), but 2 arguments were provided"):
        main(zeros(1, 3, 32, 32), zeros(1))


ALONE = """
import sys
import numpy as np
import tvm
from tvm import relax

if sys.argv[2]:
    import relax_glue.tensorrt
main = relax.VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())["main"]
assert main(tvm.runtime.tensor(np.zeros((1, 3, 32, 32), "float32"))).shape == (1, 6, 16, 16)
for shape in ((5, 3, 32, 32), (1, 3, 33, 32), (1, 3, 32)):
    try:
        main(tvm.runtime.tensor(np.zeros(shape, "float32")))
    except RuntimeError as error:
        print(type(error).__name__, error)
assert ("relax_glue" in sys.modules) == bool(sys.argv[2])
"""


@pytest.mark.parametrize(("imported", "kind"), [("", "RuntimeError"), ("relax_glue", "ExecutionError")])
def test_an_exported_library_says_the_same_in_a_process_of_its_own(tmp_path: Path, imported: str, kind: str) -> None:
    library = str(tmp_path / "model.so")
    relax_glue.compile(from_onnx(detector(), ranges=RANGES), "llvm").export_library(library)
    command = [sys.executable, "-c", ALONE, library, imported]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    cases = ("above a range", "what a node needs", "another rank")
    assert done.stdout.splitlines() == [f"{kind} {WRONG_CALLS[case][1]}" for case in cases]


def test_on_a_gpu_the_host_asks_first() -> None:
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90"}, host="llvm")
    lowered = heterogeneous_pipeline(target)(from_onnx(detector(), ranges=RANGES))
    first = lowered["main"].body.blocks[0].bindings[0].value
    assert first.op.global_symbol == "check_arguments_of_main"
    assert list(first.args) == list(lowered["main"].params)
    (library,) = lowered.attrs["external_mods"]
    assert library.kind == "llvm"
    assert library.implements_function("check_arguments_of_main")
    assert not any("check_arguments" in var.name_hint for var in lowered.get_global_vars())


def test_a_model_with_an_engine_asks_before_the_engine_is_called(tmp_path: Path) -> None:
    """On a machine without a GPU a wrong call is told all the same, and a right one that there is no GPU."""
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90"})
    mod = from_onnx(detector(), ranges={**RANGES, "w": (16, 64)})
    compiled = relax_glue.compile(mod, target, build=BuildOptions(build="lazy"), require_engines=True)
    compiled.export_library(str(tmp_path / "model.so"))
    run = relax.VirtualMachine(tvm.runtime.load_module(str(tmp_path / "model.so")), tvm.cpu())["main"]
    for case in ("above a range", "what a node needs", "another dtype"):
        given, told = WRONG_CALLS[case]
        with pytest.raises(ExecutionError) as error:
            run(given)
        assert str(error.value) == told
    with pytest.raises(DeviceError):
        run(zeros(1, 3, 32, 32))


def test_what_is_imported_stays_what_it_was() -> None:
    """The checks are code of a compiled model: the module has none, and the region takes everything."""
    mod = from_onnx(detector(), ranges=RANGES)
    assert [var.name_hint for var in mod.get_global_vars()] == ["main"]
    report = relax_glue.explain(mod)
    assert len(report.regions) == 1
    assert not report.outside


def test_a_host_without_llvm_keeps_the_checks_of_tvm() -> None:
    mod = from_onnx(detector())
    assert check_arguments(mod, mod, tvm.target.Target("c")) is mod


@I.ir_module
class Shapes:
    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"),
        y: R.Tensor(("2 * n", "m"), "float32"),
        z: R.Tensor(("n",), "bool"),
        free: R.Tensor(ndim=1, dtype="float32"),
        any: R.Tensor,
        pair: R.Tuple(R.Tensor((2,), "float32"), R.Shape(["k"])),
        size: R.Shape(["l"]),
    ) -> R.Tensor(("n", 4), "float32"):
        return x

    @R.function
    def other(x: R.Tensor((3,), "int64")) -> R.Tensor((3,), "int64"):
        return x

    @R.function(private=True)
    def inner(x: R.Tensor((3,), "int64")) -> R.Tensor((3,), "int64"):
        return x


@pytest.fixture(scope="module")
def shapes() -> relax.VirtualMachine:
    return machine(Shapes)


PAIR = [zeros(2), tvm.runtime.ShapeTuple([7])]
RIGHT = [zeros(3, 4), zeros(6, 5), zeros(3, dtype="bool"), zeros(9), zeros(1, 1), PAIR, tvm.runtime.ShapeTuple([8])]


@pytest.mark.parametrize(
    ("place", "given", "told"),
    [
        (1, zeros(7, 5), "input 'y' of main has the extent 7 on axis 0, and has to have 2 . n, which is 6 with n = 3"),
        (2, zeros(4, dtype="bool"), "'z' of main has the extent 4 on axis 0, and has to have n, which is 3 .axis 0 of"),
        (2, zeros(3), r"'z' of main holds float32, and has to hold bool: pass a bool tensor \(n,\)"),
        (3, zeros(9, 9), "'free' of main has rank 2, and has to have 1: pass a float32 tensor of rank 1"),
        (4, 5, "'any' of main is no tensor: pass a tensor"),
        (
            0,
            tvm.runtime.empty((3, 4), "float8_e4m3fn"),
            "'x' of main holds elements of another type, and has to hold float32",
        ),
    ],
)
def test_signatures_of_any_module_are_checked(shapes: relax.VirtualMachine, place: int, given: Any, told: str) -> None:
    assert shapes["main"](*RIGHT).shape == (3, 4)
    with pytest.raises(ExecutionError, match=told):
        shapes["main"](*[given if place == index else value for index, value in enumerate(RIGHT)])


def test_tuples_and_shapes_are_left_to_tvm(shapes: relax.VirtualMachine) -> None:
    with pytest.raises(Exception, match=r"param\[6\].*Shape"):
        shapes["main"](*RIGHT[:6], zeros(1))


def test_each_function_that_can_be_called_is_checked(shapes: relax.VirtualMachine) -> None:
    assert shapes["other"](zeros(3, dtype="int64")).shape == (3,)
    with pytest.raises(ExecutionError, match="input 'x' of other has the extent 4 on axis 0, and has to have 3"):
        shapes["other"](zeros(4, dtype="int64"))


def test_weights_are_not_asked() -> None:
    """Parameters after the first `num_input` are weights, whose fixed extents TVM does not check either."""
    x, weight = relax.Var("x", relax.TensorType((2,), "float32")), relax.Var("w", relax.TensorType((2,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, weight], attrs={"num_input": 1}):
        builder.emit_func_output(builder.emit(relax.op.add(x, x)))
    run = machine(builder.get())["main"]
    assert run(zeros(2), zeros(5)).shape == (2,)
    with pytest.raises(ExecutionError, match="input 'x' of main"):
        run(zeros(5), zeros(2))


def test_a_size_that_is_divided_by_is_not_0() -> None:
    """TVM computes h * k // m before anything else, and a division by 0 ends the process."""
    g = Graph(x=("h", "k"), y=("m",))
    run = machine(from_onnx(g.model(g("Reshape", "x", g.vector(g.extent("y", 0), -1)))))["main"]
    assert run(zeros(4, 6), zeros(3)).shape == (3, 8)
    with pytest.raises(ExecutionError, match="sizes in main are divided by m, which is 0 .axis 0 of input 'y'.: pass"):
        run(zeros(4, 6), zeros(0))


def test_a_join_of_unequal_inputs_names_both() -> None:
    g = Graph(x=("n", 3), y=("m", 3))
    run = machine(from_onnx(g.model(g("Add", "x", "y"))))["main"]
    with pytest.raises(ExecutionError, match=r"'Add_0' of main needs .* and they are 2 and 5 with") as error:
        run(zeros(2, 3), zeros(5, 3))
    assert "n = 2 (axis 0 of input 'x'), m = 5 (axis 0 of input 'y')" in str(error.value)


def test_names_of_inputs_are_kept_where_a_variable_cannot_have_them() -> None:
    value = helper.make_tensor_value_info
    inputs = [value("a:0", TensorProto.FLOAT, [2]), value("größe", TensorProto.FLOAT, [2])]
    graph = helper.make_graph(
        [helper.make_node("Add", ["a:0", "größe"], ["y"])], "g", inputs, [value("y", TensorProto.FLOAT, [2])]
    )
    run = machine(from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])))["main"]
    with pytest.raises(ExecutionError, match="input 'a:0' of main"):
        run(zeros(3), zeros(2))
    with pytest.raises(ExecutionError, match="input 'größe' of main"):
        run(zeros(2), zeros(3))


@pytest.mark.parametrize("value", [0, 9, 10, 1234567890, 2**63 - 1, -1, -10, 1 - 2**63])
def test_numbers_are_written_in_full(value: int) -> None:
    words = Words()
    kernel = Kernel("ask", words)
    number = tirx.IntImm("int64", value)
    kernel.require(tirx.const(False), "<", number, "|", tirx.IntImm("int64", 7), ">" * 2000)
    functions = {tvm.ir.GlobalVar("ask"): kernel.function(), **words.functions()}
    library = tvm.tirx.build(tvm.IRModule(functions), target=LLVM, pipeline="tirx")
    with pytest.raises(ExecutionError) as error:
        library["ask"]()
    assert str(error.value) == f"<{value}|7{'>' * 2000}"


def test_an_exported_module_keeps_its_names(tmp_path: Path) -> None:
    path = tmp_path / "model.relax"
    relax_glue.save(from_onnx(detector(), ranges=RANGES), path)
    with pytest.raises(ExecutionError, match="input 'input.images' of main has n = 5 on axis 0"):
        machine(relax_glue.load(path))["main"](zeros(5, 3, 32, 32))


def test_the_messages_in_the_documentation_are_those_that_come() -> None:
    model = detector()
    model.graph.input[0].name = model.graph.node[0].input[0] = "images"
    model.graph.node[-1].name = "/neck/Concat"
    run = machine(from_onnx(model, ranges={"n": (1, 16), "h": (320, 1280), "w": (320, 1280)}))["main"]
    page = (Path(__file__).parent.parent / "docs" / "dynamic_shapes.md").read_text(encoding="utf-8")
    told = [line.partition(": ")[2] for line in page.splitlines() if line.startswith("    ExecutionError: ")]
    calls = [zeros(20, 3, 320, 320), zeros(1, 3, 650, 640), zeros(3, 640, 640), zeros(1, 3, 640, 640, dtype="uint8")]
    for call, message in zip(calls, told, strict=True):
        with pytest.raises(ExecutionError) as error:
            run(call)
        assert str(error.value) == message
