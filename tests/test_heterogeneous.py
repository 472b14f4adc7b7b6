"""Models for a GPU of which a part runs on the host: what goes there, and that every copy is where it has to be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import tvm
from operator_case import ONLY_ON_THE_HOST, OPERATORS
from postprocessing_case import (
    DETECTORS,
    GPU,
    LLVM,
    all_class_detector,
    free_batch_detector,
    image,
    in_a_fresh_process,
    module,
    on_llvm,
    on_two_devices,
    run,
    tensor,
)
from tvm import relax

import relax_glue
from relax_glue.errors import CompilationError
from relax_glue.heterogeneous import HOST, heterogeneous_pipeline, host_functions, place_on_host
from relax_glue.heterogeneous.kernels import GpuKernels
from relax_glue.region_function import region_functions

GPU_DEVICE = tvm.cpu(1)


def operators(function: relax.Function) -> list[str]:
    found: list[str] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
            found.append(str(expr.op.name).removeprefix("relax."))

    relax.analysis.post_order_visit(function, visit)
    return found


def equal(got: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def check(mod: tvm.IRModule, *inputs: np.ndarray) -> list[np.ndarray]:
    """Run a module on two devices and on one; return what it yields."""
    got = run(on_two_devices(mod), inputs, GPU_DEVICE)
    equal(got, on_llvm(mod, inputs))
    return got


@pytest.mark.parametrize("threshold", [0.5, 2.0], ids=["detections", "none"])
@pytest.mark.parametrize("name", DETECTORS)
def test_a_detector_runs_on_both(name: str, threshold: float) -> None:
    mod = DETECTORS[name](threshold)
    placed = place_on_host(mod, GPU)
    assert len(host_functions(placed)) == 1
    assert "nn.conv2d" in operators(placed["main"])
    check(mod, image())


def test_a_detector_finds_something_and_nothing() -> None:
    assert check(DETECTORS["nonzero"](0.5), image())[0].shape[0] > 3
    assert check(DETECTORS["nonzero"](2.0), image())[0].shape == (0, 4)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_free_batch(batch: int) -> None:
    check(free_batch_detector(), image(batch, batch))


def test_the_tail_behind_suppression_is_one_function_and_its_regions_are_put_back() -> None:
    def body(builder: relax.BlockBuilder, boxes: relax.Var, scores: relax.Var) -> relax.Expr:
        limits = [relax.const(5, "int64"), relax.const(0.5, "float32"), relax.const(0.1, "float32")]
        rows = builder.emit(relax.op.vision.all_class_non_max_suppression(boxes, scores, *limits))[0]
        chosen = builder.emit(relax.op.reshape(relax.op.strided_slice(rows, [1], [2], [3]), (24,)))
        picked = builder.emit(relax.op.take(relax.op.reshape(boxes, (8, 4)), chosen, axis=0, mode="clip"))
        return builder.emit(relax.op.multiply(picked, relax.const(2.0, "float32")))

    mod = module(body, tensor("boxes", (1, 8, 4)), tensor("scores", (1, 3, 8)))
    optimised = relax_glue.optimize(mod)
    assert region_functions(optimised)
    placed = place_on_host(optimised, GPU)
    assert not region_functions(placed)
    (host,) = host_functions(placed).values()
    assert {"take", "multiply", "vision.all_class_non_max_suppression"} <= set(operators(host))
    assert set(operators(placed["main"])) == {"call_pure_packed", "call_dps_packed"}
    random = np.random.default_rng(1)
    check(mod, random.random((1, 8, 4), "float32"), random.random((1, 3, 8), "float32"))


def test_a_second_stage_goes_back_to_the_gpu() -> None:
    weights = np.random.default_rng(0).standard_normal((4, 6)).astype("float32")

    def body(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
        counts = builder.emit(relax.op.vision.get_valid_counts(data, 0.5, 0, 1))
        rows = builder.emit(relax.op.reshape(counts[1], (10, 6)))
        boxes = builder.emit(relax.op.strided_slice(rows, [1], [2], [6]))
        second = builder.emit(relax.op.matmul(boxes, relax.const(weights)))
        again = builder.emit(relax.op.reshape(second, (1, 10, 6)))
        return builder.emit(relax.op.vision.get_valid_counts(again, 0.1, 0, 1))

    mod = module(body, tensor("data", (1, 10, 6)))
    placed = place_on_host(mod, GPU)
    assert len(host_functions(placed)) == 2
    assert {"matmul", "strided_slice", "reshape"} <= set(operators(placed["main"]))
    check(mod, np.random.default_rng(1).random((1, 10, 6), "float32"))


def test_what_lies_between_two_parts_of_the_host_goes_with_them() -> None:
    def body(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
        counts = builder.emit(relax.op.vision.get_valid_counts(data, 0.5, 0, 1))
        scaled = builder.emit(relax.op.multiply(counts[1], relax.const(0.5, "float32")))
        again = builder.emit(relax.op.vision.get_valid_counts(scaled, 0.1, 0, 1))
        product = builder.emit(relax.op.matmul(relax.op.reshape(scaled, (10, 6)), relax.op.reshape(again[1], (6, 10))))
        return builder.emit(relax.Tuple([again[0], product]))

    mod = module(body, tensor("data", (1, 10, 6)))
    assert len(host_functions(place_on_host(mod, GPU))) == 1
    check(mod, np.random.default_rng(1).random((1, 10, 6), "float32"))


def test_a_module_that_a_gpu_runs_whole_stays_the_same_object() -> None:
    mod = module(lambda b, x: b.emit(relax.op.nn.softmax(relax.op.add(x, x))), tensor("x", (4, 8)))
    assert place_on_host(mod, GPU) is mod
    optimised = relax_glue.optimize(mod)
    assert place_on_host(optimised, GPU) is optimised


def test_what_nobody_reads_is_left_out() -> None:
    def body(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        builder.emit(relax.op.nonzero(x))
        return builder.emit(relax.op.add(x, x))

    mod = module(body, tensor("x", (4,)))
    placed = place_on_host(mod, GPU)
    assert not host_functions(placed)
    assert "nonzero" not in operators(placed["main"])
    check(mod, np.ones(4, "float32"))


def test_functions_without_such_code_stay_as_they_are() -> None:
    source = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((8,), "float32")):
        return R.nonzero(x)

    @R.function
    def other(x: R.Tensor((8,), "float32")):
        with R.dataflow():
            y = R.call_pure_packed("something", x, ty_args=R.Tensor((8,), "float32"))
            z = R.add(y, y)
            R.output(z)
        return z
"""
    mod = tvm.script.from_source(source)
    placed = place_on_host(mod, GPU)
    assert len(host_functions(placed)) == 1
    assert placed["other"].same_as(mod["other"])


def test_branches_with_such_code_run_on_the_host() -> None:
    source = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((10,), "float32"), c: R.Tensor((), "bool")):
        n, k = T.int64(), T.int64()
        with R.dataflow():
            y = R.add(x, x)
            R.output(y)
        if c:
            with R.dataflow():
                found = R.nonzero(R.greater(y, R.const(1.0, "float32")))
                cast = R.match_cast(found, R.Tensor((1, n), "int64"))
                flat = R.reshape(cast, R.shape([n]))
                R.output(flat)
            r = flat
        else:
            r = R.const([3, 1], "int64")
        with R.dataflow():
            s = R.match_cast(r, R.Tensor((k,), "int64"))
            z = R.add(s, R.const(1, "int64"))
            R.output(z)
        return z
"""
    mod = tvm.script.from_source(source)
    x = np.linspace(0, 1, 10, dtype="float32")
    assert check(mod, x, np.array(True))[0].tolist() == [6, 7, 8, 9, 10]
    assert check(mod, x, np.array(False))[0].tolist() == [4, 2]
    assert check(mod, -x, np.array(True))[0].tolist() == []


def test_a_branch_that_is_worth_a_gpu_stays_there_and_its_tail_does_not() -> None:
    source = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((6, 6), "float32"), c: R.Tensor((), "bool")):
        if c:
            with R.dataflow():
                y = R.matmul(x, x)
                found = R.nonzero(R.greater(y, R.const(1.0, "float32")))
                R.output(found)
            r = found
        else:
            r = R.zeros((2, 4), "int64")
        return r
"""
    mod = tvm.script.from_source(source)
    placed = place_on_host(mod, GPU)
    (host,) = host_functions(placed).values()
    assert "matmul" not in operators(host)
    assert "matmul" in operators(placed["main"])
    x = np.random.default_rng(0).standard_normal((6, 6)).astype("float32")
    check(mod, x, np.array(True))
    check(mod, x, np.array(False))


def test_symbols_go_in_and_come_out() -> None:
    rows = tvm.tirx.Var("rows", "int64")
    count = tvm.tirx.Var("count", "int64")

    def body(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        flat = builder.emit(relax.op.reshape(x, (rows * 2,)))
        found = builder.emit(relax.op.nonzero(flat))
        found = builder.match_cast(found, relax.TensorType([1, count], "int64"))
        doubled = builder.emit(relax.op.concat([found, found], axis=1))
        padded = builder.emit(relax.op.zeros((rows + count, 2), "float32"))
        product = builder.emit(relax.op.matmul(x, relax.const(np.eye(2, dtype="float32"))))
        wide = builder.emit(relax.op.matmul(relax.op.ones((count, rows), "float32"), product))
        return builder.emit(relax.Tuple([doubled, padded, wide]))

    mod = module(body, tensor("x", (rows, 2)))
    for given in ([[0, 1], [2, 3], [0, 5]], [[0, 0]]):
        check(mod, np.array(given, "float32"))


def test_tuples_cross_as_they_are_nested() -> None:
    def body(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        counts = builder.emit(relax.op.vision.get_valid_counts(x, 0.5, 0, 1))
        return builder.emit(relax.Tuple([counts, relax.Tuple([x, counts[0]])]))

    check(module(body, tensor("x", (1, 10, 6))), np.random.default_rng(1).random((1, 10, 6), "float32"))


@pytest.mark.parametrize("size", [0, 7, 1000])
def test_constants_of_the_host_are_on_the_host(size: int) -> None:
    dtypes = ("float32", "float16", "float64", "int64", "uint8", "bool")
    values = [(np.random.default_rng(0).standard_normal(size) * 50).astype(dtype) for dtype in dtypes]

    def body(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        found = builder.emit(relax.op.nonzero(x))
        count = tvm.tirx.Var("count", "int64")
        found = builder.match_cast(found, relax.TensorType([1, count], "int64"))
        where = builder.emit(relax.op.reshape(found, (count,)))
        taken = [builder.emit(relax.op.take(relax.const(array), where, axis=0, mode="clip")) for array in values]
        return builder.emit(relax.Tuple([*taken, relax.op.concat([relax.const(values[0]), x], axis=0)]))

    mod = module(body, tensor("x", (4,)))
    assert len(host_functions(place_on_host(mod, GPU))) == 1
    check(mod, np.array([0, 1, 0, 1] if size else [0, 0, 0, 0], "float32"))


def test_a_shape_as_data_is_made_on_the_host_and_moves_nothing_else() -> None:
    rows = tvm.tirx.Var("rows", "int64")

    def body(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        extents = builder.emit(relax.op.shape_to_tensor(relax.op.shape_of(x)))
        return builder.emit(relax.op.add(x, relax.op.astype(extents, "float32")))

    mod = module(body, tensor("x", (rows, 2)))
    placed = place_on_host(mod, GPU)
    (host,) = host_functions(placed).values()
    assert "add" not in operators(host)
    check(mod, np.ones((3, 2), "float32"))


def test_an_impure_call_keeps_its_place() -> None:
    source = """
@I.ir_module
class Module:
    @R.function(pure=False)
    def main(x: R.Tensor((8,), "float32")):
        a = R.nonzero(x)
        _ = R.call_packed("test.heterogeneous.note", x, ty_args=R.Tuple())
        b = R.nonzero(R.add(x, x))
        return (a, b)
"""
    mod = tvm.script.from_source(source)
    noted: list[float] = []
    tvm.register_global_func("test.heterogeneous.note", lambda x: noted.append(float(x.numpy()[0])), override=True)
    assert len(host_functions(place_on_host(mod, GPU))) == 2
    check(mod, np.arange(8, dtype="float32"))
    assert noted == [0.0, 0.0]


def test_a_tensor_of_unknown_rank_is_an_error_that_names_it() -> None:
    source = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor("float32")):
        with R.dataflow():
            found = R.nonzero(x)
            R.output(found)
        return found
"""
    with pytest.raises(CompilationError, match=r"x has an unknown number of axes.*match_cast"):
        place_on_host(tvm.script.from_source(source), GPU)


@pytest.mark.parametrize("found", [True, False], ids=["detections", "none"])
def test_yolort_is_one_engine_and_one_function_of_the_host(found: bool, shared: Path) -> None:
    import onnxfile

    model = onnxfile.load(str(shared / "onnx" / "yolort_v5n.onnx.gz"))
    mod = relax_glue.optimize(relax_glue.from_onnx(model))
    placed = place_on_host(mod, GPU)
    assert len(region_functions(placed)) == len(host_functions(placed)) == 1
    assert not set(operators(placed["main"])) & {"nonzero", "take", "vision.all_class_non_max_suppression"}
    # the weights are random: a strong image keeps the scores apart, and one of NaNs has none above a threshold
    pixels = (np.random.default_rng(1).standard_normal((1, 3, 160, 160)) * 100).astype("float32")
    given = pixels if found else np.full_like(pixels, np.nan)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, {session.get_inputs()[0].name: given})
    assert len(wanted[0]) == (100 if found else 0)
    got = run(on_two_devices(mod), [given], GPU_DEVICE)
    assert [a.shape for a in got] == [b.shape for b in wanted]
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-3)


def test_one_file_runs_in_a_fresh_process(tmp_path: Path) -> None:
    mod = all_class_detector()
    executable = tvm.compile(place_on_host(mod, GPU), LLVM, relax_pipeline=heterogeneous_pipeline(LLVM))
    got = in_a_fresh_process(executable, [image()], "[tvm.cpu(1), tvm.cpu(0)]", tmp_path)
    equal(got, on_llvm(mod, [image()]))


def test_the_attribute_tells_which_functions_are_of_the_host() -> None:
    placed = place_on_host(all_class_detector(), GPU)
    named = {v.name_hint for v, f in placed.functions_items() if f.attrs and HOST in f.attrs}
    assert named == {v.name_hint for v in host_functions(placed)} == {"main_host_0"}
    assert place_on_host(placed, GPU) is placed


@pytest.mark.parametrize("name", OPERATORS)
def test_what_tvm_has_gpu_code_for(name: str) -> None:
    mod, _ = OPERATORS[name]()
    (call,) = [b.value for b in mod["main"].body.blocks[0].bindings if isinstance(b.value, relax.Call)]
    missing = GpuKernels(mod, GPU).missing(call)
    reason = ONLY_ON_THE_HOST.get(name)
    assert missing is None if reason is None else reason in missing
