"""Regions of symbolic shapes in a compiled model, seen without a GPU: what is called, and with which shapes."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from engine_case import flat, on_llvm, partitioned
from symbolic_case import conv_of_free_size, halving, images, of_flat_rows, symbolic
from tvm import relax, tirx
from tvm.relax.dpl import is_op, wildcard

import relax_glue
import relax_glue.tensorrt as trt
from relax_glue.errors import EngineWarning, InputShapeError, OffloadError, UnknownNameError
from relax_glue.tensorrt import runtime
from relax_glue.tensorrt.artifact import Artifact, from_text, load_region
from relax_glue.tensorrt.calls import Calls
from relax_glue.tensorrt.signature import ShapeSpec, TensorSpec
from relax_glue.tensorrt.tensors import ShapeSlot, read_header

UPPER = {"n": 4, "h": 32, "w": 32}
LAZY = trt.BuildOptions(cache=False, build="lazy")


class Interpreter:
    """Stands in the place of the runtime: checks the shapes as it does, and lets LLVM compute the carried region."""

    def __init__(self) -> None:
        self.loaded: dict[str, tuple[Artifact, Calls, relax.VirtualMachine]] = {}

    def run(self, key: str, *handles: Any) -> int:
        if key not in self.loaded:
            return 1
        artifact, calls, machine = self.loaded[key]
        specs = [*artifact.arguments, *artifact.outputs]
        given = [given_at(handle.value, spec) for handle, spec in zip(handles, specs, strict=True)]
        if artifact.profiles:
            calls.of(tuple(tuple(getattr(each, "shape", each)) for each in given))
        arguments = [self._argument(each) for each in given[: len(artifact.arguments)]]
        results = leaves(machine["region"](*arguments))
        for array, result in zip(given[len(arguments) :], results, strict=True):
            array[...] = result
        return 0

    @staticmethod
    def _argument(given: np.ndarray | tuple[int, ...]) -> Any:
        return tvm.runtime.tensor(given) if isinstance(given, np.ndarray) else tvm_ffi.Shape(given)

    def load(self, key: str, text: str, *handles: Any) -> None:
        artifact = Artifact.unpack(from_text(text))
        assert artifact.region is not None
        region = load_region(artifact.region).with_attr("global_symbol", "region")
        machine = relax.VirtualMachine(tvm.compile(tvm.IRModule({"region": region}), "llvm"), tvm.cpu())
        self.loaded[key] = artifact, Calls(artifact), machine
        self.run(key, *handles)


def leaves(result: Any) -> list[np.ndarray]:
    """Return the tensors of a result, which may be nested tuples, as arrays."""
    return (
        flat(result) if isinstance(result, tvm.runtime.Tensor) else [leaf for item in result for leaf in leaves(item)]
    )


def given_at(handle: int, spec: TensorSpec | ShapeSpec) -> Any:
    """Return what a host function passes on: a tensor on the CPU, in place, or the numbers of a shape."""
    if isinstance(spec, ShapeSpec):
        slot = ShapeSlot(spec)
        slot.address(read_header(handle))
        return slot.extents
    data, _, _, rank, code, bits, _, shape, _, offset = struct.unpack("<QiiiBBHQQQ", read_header(handle))
    extents = (ctypes.c_int64 * rank).from_address(shape)[:]
    dtype = np.dtype(f"{'iuf'[code]}{bits // 8}")
    size = int(np.prod(extents)) * dtype.itemsize
    memory = (ctypes.c_char * size).from_address(data + offset)
    return np.frombuffer(memory, dtype).reshape(extents)


@pytest.fixture
def interpreter() -> Iterator[Interpreter]:
    made = Interpreter()
    tvm.register_global_func(runtime.RUN, made.run, override=True)
    tvm.register_global_func(runtime.LOAD, made.load, override=True)
    yield made
    runtime.register_runtime()


def machine_of(mod: tvm.IRModule, options: trt.BuildOptions = LAZY) -> relax.VirtualMachine:
    lowered = trt.Codegen(options, require=True)(mod)
    relax.analysis.well_formed(lowered)  # raises
    return relax.VirtualMachine(tvm.compile(lowered, "llvm"), tvm.cpu())


def run(machine: relax.VirtualMachine, *arrays: np.ndarray) -> list[np.ndarray]:
    return flat(machine["main"](*[tvm.runtime.tensor(array) for array in arrays]))


@pytest.mark.parametrize("build", ["now", "lazy"])
def test_one_model_takes_all_sizes(build: str, interpreter: Interpreter) -> None:
    mod = conv_of_free_size(upper=UPPER)
    machine = machine_of(relax_glue.optimize(mod), trt.BuildOptions(cache=False, build=build))
    for shape in ((1, 8, 2, 2), (4, 8, 32, 32), (3, 8, 9, 14), (1, 8, 2, 2)):
        x = images(*shape)
        for got, wanted in zip(run(machine, x), on_llvm(mod, [x]), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    (artifact, _, _) = next(iter(interpreter.loaded.values()))
    assert (artifact.plan is None) == (build == "lazy")


def test_a_size_out_of_range_is_an_error_of_ours(interpreter: Interpreter) -> None:
    machine = machine_of(relax_glue.optimize(conv_of_free_size(upper=UPPER)))
    run(machine, images(1, 8, 4, 4))
    with pytest.raises(Exception, match=r"h = 33 \(axis 2 of input x0\), and its engine is built for h 1 to 32"):
        run(machine, images(1, 8, 33, 4))


def test_tvms_memory_planner_and_ours_agree_on_views(interpreter: Interpreter) -> None:
    """With upper bounds, TVM cuts results out of buffers of the greatest size."""
    mod = symbolic(
        lambda emit, x: emit(relax.op.sort(emit(relax.op.nn.softmax(emit(relax.op.exp(x)), 0)), 0)),
        ("n", "m"),
        upper={"n": 64, "m": 9},
    )
    cut = relax_glue.optimize(mod, exclude_ops=["sort"])
    machine = machine_of(cut)
    for shape in ((3, 5), (64, 9), (1, 1)):
        x = images(*shape)
        np.testing.assert_allclose(run(machine, x)[0], on_llvm(mod, [x])[0], rtol=1e-5)


def with_shape_parameter() -> tvm.IRModule:
    """Return a module of which one region has n only as 2 * n, and so gets it as a shape."""
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    x, y = (relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in (("x", [n, m]), ("y", [n])))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y], attrs={"tir_var_upper_bound": {"n": 8, "m": 8}}):
        with builder.dataflow():
            both = builder.emit(relax.op.sort(relax.op.concat([x, x], 0), 0))
            made = builder.emit_output(relax.op.exp(relax.op.nn.relu(both)))
        builder.emit_func_output(made)
    return builder.get()


def test_a_shape_parameter_is_passed_on(interpreter: Interpreter) -> None:
    mod = with_shape_parameter()
    cut = relax_glue.optimize(mod, exclude_ops=["sort", "concat"])
    machine = machine_of(cut)
    for n, m in ((1, 3), (8, 8), (5, 2)):
        x, y = images(n, m), images(n)
        np.testing.assert_allclose(run(machine, x, y)[0], on_llvm(mod, [x, y])[0], rtol=1e-5)
    assert any(artifact.shapes for artifact, _, _ in interpreter.loaded.values())


def test_a_region_without_ranges_goes_back_to_tvm_with_the_variables() -> None:
    mod = conv_of_free_size(upper={"n": 4})
    with pytest.warns(EngineWarning, match=r"stays with TVM: the range of h, w in main_tensorrt_0 is not known"):
        lowered = trt.Codegen(LAZY)(relax_glue.optimize(mod))
    x = images(2, 8, 6, 5)
    for got, wanted in zip(on_llvm(lowered, [x]), on_llvm(mod, [x]), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(OffloadError, match="profiles="):
        trt.Codegen(LAZY, require=True)(relax_glue.optimize(mod))


def test_a_region_with_a_shape_parameter_can_go_back_to_tvm() -> None:
    mod = with_shape_parameter()
    cut = relax_glue.optimize(mod, exclude_ops=["sort", "concat"])
    bare = tvm.IRModule({gv: f.without_attr("tir_var_upper_bound") for gv, f in cut.functions_items()})
    with pytest.warns(EngineWarning, match="not known"):
        lowered = trt.Codegen(LAZY)(bare)
    x, y = images(3, 4), images(3)
    np.testing.assert_allclose(on_llvm(lowered, [x, y])[0], on_llvm(mod, [x, y])[0], rtol=1e-5)


@pytest.mark.parametrize("static", [False, True])
def test_a_range_of_no_variable_is_an_error_that_lists_them(static: bool) -> None:
    mod = relax_glue.optimize(symbolic(halving(), (1, 8, 8, 8)) if static else conv_of_free_size())
    said = "its shapes are static" if static else "there are h, n, w"
    with pytest.raises(UnknownNameError, match=f"batch, which the module does not have; {said}"):
        trt.Codegen(trt.BuildOptions(profiles={"batch": (1, 4)}))(mod)


def test_variables_outside_of_the_regions_can_be_named() -> None:
    mod = symbolic(lambda emit, x, y: emit(relax.op.nn.relu(x)), ("n", 4), ("m", 4))
    options = trt.BuildOptions(cache=False, build="lazy", profiles={"n": (1, 4), "m": (1, 4)})
    trt.Codegen(options, require=True)(relax_glue.optimize(mod))


# TVM's own route


def as_tvm_partitions(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with its relu in a region, as TVM makes them."""
    patterns = [("tensorrt.relu", is_op("relax.nn.relu")(wildcard()))]
    return relax.transform.MergeCompositeFunctions()(relax.transform.FuseOpsByPattern(patterns)(mod))


def rectified() -> tvm.IRModule:
    return as_tvm_partitions(symbolic(lambda emit, x: emit(relax.op.nn.relu(x)), ("n", 4)))


def test_runcodegen_takes_ranges(interpreter: Interpreter) -> None:
    options = {"build": "lazy", "cache": False, "profiles": {"n": [1, 2, 4]}}
    lowered = relax.transform.RunCodegen({"tensorrt": options})(rectified())
    machine = relax.VirtualMachine(tvm.compile(lowered, "llvm"), tvm.cpu())
    x = images(3, 4)
    np.testing.assert_array_equal(run(machine, x)[0], np.maximum(x, 0))
    with pytest.raises(Exception, match="n = 5"):
        run(machine, images(5, 4))


@pytest.mark.parametrize("route", ["Codegen", "RunCodegen"])
def test_regions_of_tvms_own_partition(route: str, interpreter: Interpreter) -> None:
    """TVM gives each composite symbols of its own, and regions a shape parameter for each that no input defines."""
    mod = of_flat_rows()
    cut = partitioned(mod)
    if route == "Codegen":
        lowered = trt.Codegen(LAZY, require=True)(cut)
    else:
        ranges = {"n": (1, 8), "m": (1, 6)}
        options = {"build": "lazy", "cache": False, "profiles": ranges}
        lowered = relax.transform.RunCodegen({"tensorrt": options})(cut)
    machine = relax.VirtualMachine(tvm.compile(lowered, "llvm"), tvm.cpu())
    plain = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    for n, m in ((3, 4), (8, 6), (1, 1)):
        given = tvm.runtime.tensor(images(n * m)), tvm_ffi.Shape((n, m))
        np.testing.assert_allclose(machine["main"](*given).numpy(), plain["main"](*given).numpy(), rtol=1e-5)
    assert any(len(artifact.shapes) > 1 for artifact, _, _ in interpreter.loaded.values())


def test_runcodegen_names_unknown_variables() -> None:
    with pytest.raises(Exception, match="batch, which the module does not have; there are n"):
        relax.transform.RunCodegen({"tensorrt": {"profiles": {"batch": 4}}})(rectified())


# check


@pytest.mark.parametrize("shape", [(1, 8, 2, 2), (3, 8, 9, 14)])
def test_check_takes_the_sizes_of_its_inputs(shape: tuple[int, ...]) -> None:
    report = trt.check(relax_glue.optimize(conv_of_free_size(upper=UPPER)), [images(*shape)])
    assert report.ok, str(report)
    assert report.regions[0].layers >= 3


def test_check_passes_shapes_on() -> None:
    cut = relax_glue.optimize(with_shape_parameter(), exclude_ops=["sort", "concat"])
    report = trt.check(cut, [images(3, 4), images(3)])
    assert report.ok, str(report)


def test_check_evaluates_networks_that_read_shapes() -> None:
    report = trt.check(relax_glue.optimize(of_flat_rows()), [images(12), (3, 4)])
    assert report.ok, str(report)


def test_check_invents_no_sizes() -> None:
    with pytest.raises(InputShapeError, match="x0"):
        trt.check(relax_glue.optimize(conv_of_free_size(upper=UPPER)))


def test_the_engine_of_all_sizes_stands_in_the_exported_file(tmp_path: Path, interpreter: Interpreter) -> None:
    mod = relax_glue.optimize(conv_of_free_size(upper=UPPER))
    path = tmp_path / "model.so"
    tvm.compile(trt.Codegen(trt.BuildOptions(cache=False))(mod), "llvm").export_library(str(path))
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())
    assert run(machine, images(2, 8, 10, 6))[0].shape == (2, 8, 5, 3)
