"""A model split into its network and its post-processing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import tvm
from postprocessing_case import DETECTORS, image, leaves, module, tensor
from tvm import relax

import relax_glue
from relax_glue import SplitError, UnknownNameError, split_postprocessing


def call(mod: tvm.IRModule, inputs: Sequence[object]) -> object:
    return relax.VirtualMachine(relax_glue.compile(mod, "llvm"), tvm.cpu())["main"](*inputs)


def results(mod: tvm.IRModule, inputs: Sequence[object]) -> list[object]:
    found = call(mod, inputs)
    return [found] if isinstance(found, tvm.runtime.Tensor) else list(found)


def operators(mod: tvm.IRModule) -> set[str]:
    found: set[str] = set()
    for _, function in mod.functions_items():
        relax.analysis.post_order_visit(function, lambda e: found.add(str(getattr(e, "name", ""))))
    return {name.removeprefix("relax.") for name in found if name.startswith("relax.")}


def check(mod: tvm.IRModule, *inputs: np.ndarray, extra: Sequence[int] = ()) -> relax_glue.SplitModules:
    """Split a module, run both halves in a row, and compare with the whole; `extra` inputs go to both."""
    halves = split_postprocessing(mod)
    for half in halves:
        assert relax.analysis.well_formed(half) is None
    given = [tvm.runtime.tensor(array) for array in inputs]
    network = [given[number] for number in range(len(given)) if number not in extra or number in _shared(halves, mod)]
    between = results(halves.network, network[: len(halves.network["main"].params)])
    got = leaves(call(halves.postprocessing, [*between, *(given[number] for number in extra)]))
    wanted = leaves(call(mod, given))
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    return halves


def _shared(halves: relax_glue.SplitModules, mod: tvm.IRModule) -> list[int]:
    """Return the inputs that the network reads too."""
    names = {param.name for param in halves.network["main"].params}
    return [number for number, param in enumerate(mod["main"].params) if param.name in names]


@pytest.mark.parametrize("threshold", [0.5, 2.0], ids=["detections", "none"])
@pytest.mark.parametrize("name", DETECTORS)
def test_a_detector(name: str, threshold: float) -> None:
    halves = check(DETECTORS[name](threshold), image())
    assert "nn.conv2d" in operators(halves.network)
    assert relax_glue.explain(halves.network).outside == []
    assert len(relax_glue.explain(halves.network).regions) == 1
    assert not operators(halves.postprocessing) & {"nn.conv2d", "sigmoid"}


def test_a_partitioned_module_is_split_as_it_was_before() -> None:
    mod = DETECTORS["classic"](0.5)
    check(relax_glue.optimize(mod), image())


def test_yolort(shared: Path) -> None:
    import onnxfile

    model = onnxfile.load(str(shared / "onnx" / "yolort_v5n.onnx.gz"))
    halves = split_postprocessing(relax_glue.from_onnx(model))
    report = relax_glue.explain(halves.network)
    assert len(report.regions) == 1 and not report.outside
    assert "nonzero" in operators(halves.postprocessing) and "nn.conv2d" not in operators(halves.postprocessing)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    pixels = (np.random.default_rng(1).standard_normal((1, 3, 160, 160)) * 100).astype("float32")
    for given in (pixels, np.full_like(pixels, np.nan)):
        between = results(halves.network, [tvm.runtime.tensor(given)])
        got = leaves(call(halves.postprocessing, between))
        wanted = session.run(None, {session.get_inputs()[0].name: given})
        assert [a.shape for a in got] == [b.shape for b in wanted]
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_allclose(a.numpy(), b, atol=1e-3)


def test_batched_nms(shared: Path) -> None:
    import onnxfile

    mod = relax_glue.from_onnx(onnxfile.load(str(shared / "onnx" / "batched_nms.onnx.gz")))
    random = np.random.default_rng(0)
    corner = random.random((100, 2), "float32") * 50
    boxes = np.concatenate([corner, corner + 5 + random.random((100, 2), "float32") * 20], -1)
    check(mod, boxes, random.random(100, "float32"), random.integers(0, 3, 100))


def test_inputs_of_the_second_half_are_its_parameters_behind_the_results() -> None:
    def body(builder: relax.BlockBuilder, x: relax.Var, floor: relax.Var, unused_by_network: relax.Var) -> relax.Expr:
        y = builder.emit(relax.op.matmul(x, x))
        counts = builder.emit(relax.op.vision.get_valid_counts(relax.op.reshape(y, (1, 6, 6)), 0.1, 0, 1))
        raised = builder.emit(relax.op.maximum(counts[1], floor))
        return builder.emit(relax.Tuple([raised, unused_by_network, relax.op.add(y, y), x]))

    params = [tensor("x", (6, 6)), tensor("floor", (6,)), tensor("scale", (2,))]
    random = np.random.default_rng(0)
    inputs = [random.standard_normal(shape).astype("float32") for shape in ((6, 6), (6,), (2,))]
    halves = check(module(body, *params), *inputs, extra=(0, 1, 2))
    assert [p.name for p in halves.network["main"].params] == ["x"]
    assert [p.name for p in halves.postprocessing["main"].params][-3:] == ["x", "floor", "scale"]


def test_weights_stay_behind_the_inputs() -> None:
    def body(builder: relax.BlockBuilder, x: relax.Var, w: relax.Var, v: relax.Var) -> relax.Expr:
        y = builder.emit(relax.op.matmul(x, w))
        found = builder.emit(relax.op.vision.get_valid_counts(relax.op.reshape(y, (1, 6, 6)), 0.1, 0, 1))
        return builder.emit(relax.op.add(found[1], v))

    mod = module(body, tensor("x", (6, 6)), tensor("w", (6, 6)), tensor("v", (6,)))
    mod.update_func(mod.get_global_var("main"), mod["main"].with_attr("num_input", 1))
    halves = split_postprocessing(mod)
    assert [int(half["main"].attrs["num_input"]) for half in halves] == [1, 1]
    assert [len(half["main"].params) for half in halves] == [2, 2]


def test_a_free_batch_goes_through_both() -> None:
    batch, count = tvm.tirx.Var("batch", "int64"), tvm.tirx.Var("count", "int64")

    def body(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = builder.emit(relax.op.matmul(x, relax.const(np.eye(3, dtype="float32"))))
        flat = builder.emit(relax.op.reshape(y, (batch * 3,)))
        found = builder.match_cast(builder.emit(relax.op.nonzero(flat)), relax.TensorType([1, count], "int64"))
        return builder.emit(relax.op.concat([found, relax.op.zeros((1, batch), "int64")], axis=1))

    mod = module(body, tensor("x", (batch, 3)))
    halves = split_postprocessing(mod)
    for size in (1, 4):
        given = tvm.runtime.tensor(np.random.default_rng(0).integers(-1, 2, (size, 3)).astype("float32"))
        got = leaves(call(halves.postprocessing, results(halves.network, [given])))
        np.testing.assert_array_equal(got[0].numpy(), leaves(call(mod, [given]))[0].numpy())


def test_a_first_stage_stays_in_the_network() -> None:
    def body(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
        counts = builder.emit(relax.op.vision.get_valid_counts(data, 0.5, 0, 1))
        second = builder.emit(relax.op.matmul(counts[1], relax.const(np.eye(6, dtype="float32"))))
        return builder.emit(relax.op.vision.get_valid_counts(second, 0.1, 0, 1))

    mod = module(body, tensor("data", (1, 10, 6)))
    halves = check(mod, np.random.default_rng(1).random((1, 10, 6), "float32"))
    assert "vision.get_valid_counts" in operators(halves.network) & operators(halves.postprocessing)


def test_what_cannot_be_split_is_an_error_that_says_why() -> None:
    layers = module(lambda b, x: b.emit(relax.op.matmul(x, x)), tensor("x", (4, 4)))
    with pytest.raises(SplitError, match="no post-processing to split off.*no suppression"):
        split_postprocessing(layers)
    alone = module(lambda b, x: b.emit(relax.op.vision.get_valid_counts(x, 0.5, 0, 1)), tensor("x", (1, 8, 6)))
    with pytest.raises(SplitError, match="all of main is post-processing"):
        split_postprocessing(alone)

    def staged(builder: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
        counts = builder.emit(relax.op.vision.get_valid_counts(data, 0.5, 0, 1), "proposals")
        return builder.emit(relax.op.matmul(counts[1], relax.const(np.eye(6, dtype="float32"))))

    with pytest.raises(SplitError, match="proposals leads to further layers"):
        split_postprocessing(module(staged, tensor("data", (1, 8, 6))))
    with pytest.raises(UnknownNameError, match="forward.*the module has main"):
        split_postprocessing(layers, "forward")
