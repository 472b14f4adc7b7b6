"""Both ways from regions to a module that carries engines, seen without a GPU: what is built, carried and refused."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from engine_case import conv_block, conv_module, inputs_of, module_of, on_llvm, partitioned
from tvm import relax
from tvm.relax.dpl import TuplePattern, is_op, wildcard
from tvm.script import ir as I
from tvm.script import relax as R

import relax_glue.tensorrt as trt
from relax_glue.errors import (
    ConversionError,
    DeviceError,
    EngineWarning,
    InputShapeError,
    InvalidModuleError,
    OffloadError,
    UnknownNameError,
)
from relax_glue.tensorrt import checker, codegen, runtime
from relax_glue.tensorrt.artifact import Artifact, from_text, to_text
from relax_glue.tensorrt.converters import REGISTRY
from relax_glue.tensorrt.registry import Converter, Registry

OPTIONS = trt.BuildOptions(cache=False)
LAZY = trt.BuildOptions(cache=False, build="lazy")


def regions(mod: tvm.IRModule) -> list[str]:
    return [gv.name_hint for gv, f in mod.functions_items() if f.attrs and "Codegen" in f.attrs]


def packed_calls(mod: tvm.IRModule) -> list[relax.Call]:
    found: list[relax.Call] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and getattr(expr.op, "name", "") == "relax.call_dps_packed":
            found.append(expr)

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return found


class Recorder:
    """Stands in the place of the runtime: what compiled models call, written down."""

    def __init__(self) -> None:
        self.loaded: dict[str, Artifact] = {}
        self.ran: list[str] = []

    def run(self, key: str, *_tensors: Any) -> int:
        if key not in self.loaded:
            return 1
        self.ran.append(key)
        return 0

    def load(self, key: str, text: str, *tensors: Any) -> None:
        block = from_text(text)
        assert hashlib.sha256(block).hexdigest() == key
        self.loaded[key] = Artifact.unpack(block)
        self.run(key, *tensors)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    made = Recorder()
    tvm.register_global_func(runtime.RUN, made.run, override=True)
    tvm.register_global_func(runtime.LOAD, made.load, override=True)
    yield made
    runtime.register_runtime()


# the pass


def test_a_region_becomes_one_packed_call() -> None:
    mod = partitioned(conv_module())
    (name,) = regions(mod)
    lowered = trt.Codegen(OPTIONS)(mod)
    assert not regions(lowered)
    (call,) = packed_calls(lowered)
    assert str(call.args[0].global_symbol) == name
    relax.analysis.well_formed(lowered)  # raises
    assert regions(mod) == [name], "the module passed in has changed"


def test_a_module_without_regions_is_left() -> None:
    mod = conv_module()
    tvm.ir.assert_structural_equal(trt.Codegen(OPTIONS)(mod), mod)


def test_other_modules_that_stand_on_it_are_kept() -> None:
    first = trt.Codegen(OPTIONS)(partitioned(conv_module(1)))
    both = partitioned(conv_module(2)).with_attr("external_mods", first.attrs["external_mods"])
    assert len(trt.Codegen(OPTIONS)(both).attrs["external_mods"]) == 2


@I.ir_module
class Nested:
    """A region that takes a tuple and returns nested tuples, called inside a branch."""

    @R.function(private=True)
    def region(
        pair: R.Tuple(R.Tensor((2, 3), "float32"), R.Tensor((2, 3), "float32")), z: R.Tensor((2, 3), "float32")
    ) -> R.Tuple(R.Tensor((2, 3), "float32"), R.Tuple(R.Tensor((3, 2), "float32"), R.Tensor((2, 3), "float32"))):
        R.func_attr({"Codegen": "tensorrt"})
        with R.dataflow():
            x = pair[0]
            a = R.nn.relu(x)
            b = R.permute_dims(z)
            y = pair[1]
            c = R.negative(y)
            R.output(a, b, c)
        return (a, (b, c))

    @R.function
    def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool")):
        cls = Nested
        if c:
            r = cls.region((x, y), y)
            b = r[1][0]
        else:
            b = R.permute_dims(x)
        return b


def test_tuples_and_branches(recorder: Recorder) -> None:
    lowered = trt.Codegen(OPTIONS, require=True)(Nested)
    (call,) = packed_calls(lowered)
    assert len(call.args[1].fields) == 3
    assert [str(ty.shape) for ty in call.ty.fields] == ["R.shape([2, 3])", "R.shape([3, 2])", "R.shape([2, 3])"]
    relax.analysis.well_formed(lowered)  # raises
    machine = relax.VirtualMachine(tvm.compile(lowered, "llvm"), tvm.cpu())
    x = tvm.runtime.tensor(np.ones((2, 3), "float32"))
    machine["main"](x, x, tvm.runtime.tensor(np.array(False)))
    assert not recorder.ran
    machine["main"](x, x, tvm.runtime.tensor(np.array(True)))
    assert len(recorder.ran) == 1


def test_a_refused_region_goes_back_to_tvm_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise ConversionError("there is no such layer")

    monkeypatch.setattr(codegen, "make_artifact", refuse)
    mod = conv_module()
    with pytest.warns(EngineWarning, match="no such layer"):
        lowered = trt.Codegen(OPTIONS)(partitioned(mod))
    assert not packed_calls(lowered)
    for got, wanted in zip(on_llvm(lowered, inputs_of(mod)), on_llvm(mod, inputs_of(mod)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    with pytest.raises(OffloadError, match="no such layer"):
        trt.Codegen(OPTIONS, require=True)(partitioned(mod))


def test_only_the_refused_region_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(emit: Callable[..., relax.Var], x: relax.Var) -> relax.Expr:
        y = emit(relax.op.nn.gelu(conv_block(1)(emit, x)))  # upstream's table has no gelu: two regions
        return emit(relax.op.tanh(y))

    mod = module_of(body, (1, 8, 16, 16))
    make = codegen.make_artifact

    def refuse_tanh(function: relax.Function, options: trt.BuildOptions) -> Artifact:
        if "tanh" in function.script():
            raise ConversionError("no tanh today")
        return make(function, options)

    monkeypatch.setattr(codegen, "make_artifact", refuse_tanh)
    with pytest.warns(EngineWarning, match="no tanh today"):
        lowered = trt.Codegen(OPTIONS)(partitioned(mod))
    assert len(packed_calls(lowered)) == 1
    assert "R.tanh" in lowered["main"].script()


# what is carried


@pytest.mark.parametrize(("options", "region", "plan"), [(OPTIONS, True, True), (LAZY, True, False)])
def test_what_a_compiled_model_carries(options: trt.BuildOptions, region: bool, plan: bool, recorder: Recorder) -> None:
    machine = relax.VirtualMachine(tvm.compile(trt.Codegen(options)(partitioned(conv_module())), "llvm"), tvm.cpu())
    given = tvm.runtime.tensor(inputs_of(conv_module())[0])
    for _ in range(3):
        machine["main"](given)
    (artifact,) = recorder.loaded.values()
    assert (artifact.region is not None, artifact.plan is not None) == (region, plan)
    assert len(recorder.ran) == 3


def test_a_region_can_be_left_out(recorder: Recorder) -> None:
    options = trt.BuildOptions(cache=False, keep_region=False)
    machine = relax.VirtualMachine(tvm.compile(trt.Codegen(options)(partitioned(conv_module())), "llvm"), tvm.cpu())
    machine["main"](tvm.runtime.tensor(inputs_of(conv_module())[0]))
    (artifact,) = recorder.loaded.values()
    assert artifact.region is None


def test_lazy_needs_no_tensorrt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAX_GLUE_TENSORRT", "none at all")
    assert packed_calls(trt.Codegen(LAZY, require=True)(partitioned(conv_module())))


def test_two_models_with_equal_region_names_carry_their_own(recorder: Recorder, tmp_path: Path) -> None:
    first, second = partitioned(conv_module(1)), partitioned(conv_module(2))
    assert regions(first) == regions(second)
    for number, mod in enumerate((first, second)):
        library = tmp_path / f"model{number}.so"
        tvm.compile(trt.Codegen(OPTIONS)(mod), "llvm").export_library(str(library))
        machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())
        machine["main"](tvm.runtime.tensor(inputs_of(conv_module())[0]))
    assert len(recorder.loaded) == 2
    assert len(set(recorder.ran)) == 2


def test_the_engine_stands_in_the_exported_file(tmp_path: Path) -> None:
    mod = partitioned(conv_module())
    library = tmp_path / "model.so"
    tvm.compile(trt.Codegen(LAZY)(mod), "llvm").export_library(str(library))
    (function,) = (
        f.with_attr("global_symbol", gv.name_hint)
        for gv, f in mod.functions_items()
        if f.attrs and "Codegen" in f.attrs
    )
    assert to_text(codegen.make_artifact(function, LAZY).pack()).encode() in library.read_bytes()


def test_running_it_without_a_gpu_says_what_to_do() -> None:
    if tvm.cuda(0).exist:
        pytest.skip("this machine has a GPU")
    mod = conv_module()
    machine = relax.VirtualMachine(tvm.compile(trt.Codegen(OPTIONS)(partitioned(mod)), "llvm"), tvm.cpu())
    with pytest.raises(DeviceError, match=r"tvm.cuda"):
        machine["main"](tvm.runtime.tensor(inputs_of(mod)[0]))


# TVM's own route

PATTERNS = {
    "tensorrt.permute_dims": (
        is_op("relax.permute_dims")(wildcard()),
        lambda x: relax.op.permute_dims(x, [0, 2, 3, 1]),
    ),
    "tensorrt.transpose": (is_op("relax.permute_dims")(wildcard()), lambda x: relax.op.permute_dims(x)),
    "tensorrt.strided_slice": (
        is_op("relax.strided_slice")(wildcard(), wildcard(), wildcard(), wildcard()),
        lambda x: relax.op.strided_slice(x, [1], [1], [3]),
    ),
    "tensorrt.image.resize2d": (
        is_op("relax.image.resize2d")(wildcard(), wildcard()),
        lambda x: relax.op.image.resize2d(x, (16, 16), method="linear", layout="NCHW"),
    ),
    "tensorrt.concat": (
        is_op("relax.concat")(TuplePattern([wildcard(), wildcard()])),
        lambda x: relax.op.concat([x, x], axis=1),
    ),
    "tensorrt.my own name": (is_op("relax.nn.relu")(wildcard()), relax.op.nn.relu),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_tvms_own_route_takes_the_users_pattern_names(name: str, recorder: Recorder) -> None:
    pattern, call = PATTERNS[name]
    mod = module_of(lambda emit, x: emit(call(x)), (1, 4, 8, 8))
    route = tvm.transform.Sequential(
        [
            relax.transform.FuseOpsByPattern([(name, pattern)]),
            relax.transform.MergeCompositeFunctions(),
            relax.transform.RunCodegen({"tensorrt": {"cache": False}}),
        ]
    )
    machine = relax.VirtualMachine(tvm.compile(route(mod), "llvm"), tvm.cpu())
    machine["main"](tvm.runtime.tensor(inputs_of(mod)[0]))
    (artifact,) = recorder.loaded.values()
    assert artifact.plan is not None
    assert [spec.shape for spec in artifact.outputs] == [tuple(map(int, mod["main"].ret_ty.shape.values))]


def test_an_unknown_option_of_runcodegen_is_named() -> None:
    with pytest.raises(UnknownNameError, match="use_fp8"):
        relax.transform.RunCodegen({"tensorrt": {"use_fp8": True}})(partitioned(conv_module()))


def test_a_backend_built_into_tvm_is_left_alone_unless_asked_for() -> None:
    tvm.register_global_func(codegen.EXTERNAL, lambda *_: [], override=True)
    try:
        assert not codegen.register_codegen()
        assert packed_calls(trt.Codegen(OPTIONS)(partitioned(conv_module()))), "the pass does not depend on it"
        assert codegen.register_codegen(override=True)
    finally:
        codegen.register_codegen(override=True)
    assert (
        "external_mods" in relax.transform.RunCodegen({"tensorrt": {"cache": False}})(partitioned(conv_module())).attrs
    )


def test_the_runtime_is_enabled_where_a_provider_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    enabled = tvm.get_global_func(codegen.ENABLED)
    assert enabled()
    for package in ("tensorrt", "tensorrt_rtx"):
        monkeypatch.setitem(sys.modules, package, None)
    assert not enabled()


# check


def test_check_finds_no_difference_where_there_is_none() -> None:
    report = trt.check(partitioned(conv_module()))
    assert report.ok
    assert all(region.first is None and region.layers for region in report.regions)
    assert "ok" in str(report)


def test_check_names_the_first_layer_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A concat converter that joins its inputs in the wrong order; what comes after it differs too."""

    def body(emit: Callable[..., relax.Var], x: relax.Var) -> relax.Expr:
        y = emit(conv_block(3)(emit, x))
        return emit(relax.op.nn.relu(emit(relax.op.nn.relu(y))))

    def swapped(network: Any, call: relax.Call) -> Any:
        layer = network.net.add_concatenation(network.tensors(call.args[0])[::-1])
        layer.axis = 1
        return network.name(layer).get_output(0)

    right = REGISTRY.of("relax.concat")
    wrong = Converter(right.ops, right.accepts, swapped, right.glue)
    monkeypatch.setattr(checker, "REGISTRY", Registry({**REGISTRY.converters, "relax.concat": wrong}))
    monkeypatch.setattr(checker, "_where", lambda: None)
    report = trt.check(partitioned(module_of(body, (1, 8, 16, 16))))
    assert not report.ok
    (region,) = report.regions
    assert region.first.op == "relax.concat"
    assert "relax.concat" in str(report)


def test_check_sees_a_region_inside_a_branch() -> None:
    x = np.array([[1.0, -2, 3], [4, -5, 6]], "float32")
    taken = trt.check(Nested, [x, x, np.array(True)])
    assert [region.region for region in taken.regions] == ["region"]
    assert taken.ok
    assert not trt.check(Nested, [x, x, np.array(False)]).regions


def test_check_says_what_is_wrong_with_its_arguments() -> None:
    with pytest.raises(InvalidModuleError, match="partition"):
        trt.check(conv_module())
    with pytest.raises(InvalidModuleError, match="forward"):
        trt.check(partitioned(conv_module()), function="forward")
    with pytest.raises(InputShapeError, match="takes 1 inputs"):
        trt.check(partitioned(conv_module()), [])


def test_check_compares_its_inputs_with_the_parameters() -> None:
    n = tvm.tirx.Var("n", "int64")
    params = [relax.Var("x", relax.TensorType([n, 3], "float32")), relax.Var("y", relax.TensorType([n, 3], "float32"))]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(relax.op.exp(builder.emit(relax.op.add(*params))))
        builder.emit_func_output(result)
    mod = partitioned(builder.get())
    x = np.ones((2, 3), "float32")
    assert trt.check(mod, [x, tvm.runtime.tensor(x)]).ok
    for wrong, said in (
        (x.astype("float64"), r"y is R\.Tensor.*elements of type float64"),
        (x[0], "y is .*an array of rank 1"),
        (x[:, :2], r"y is .*the shape \(2, 2\): axis 1 has to be 3"),
        (x[:1], r"y is .*the shape \(1, 3\): axis 0 has to be 2"),  # n is that of x
    ):
        with pytest.raises(InputShapeError, match=said):
            trt.check(mod, [x, wrong])
    for none in (x, {"x": x, "y": x}, 3):
        with pytest.raises(InputShapeError, match="a sequence with one entry for each input, not"):
            trt.check(mod, none)
