"""Calls of engines with symbolic shapes: what is checked, when a context changes, which graph is launched."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import tvm
import tvm_ffi
from execution_case import NULL, OURS, Context, Driver, Tensor
from tvm import tirx

from relax_glue.errors import ExecutionError
from relax_glue.tensorrt import BuildOptions, execution
from relax_glue.tensorrt.artifact import Artifact
from relax_glue.tensorrt.calls import Calls
from relax_glue.tensorrt.dynamic import DynamicRunner, runner_of
from relax_glue.tensorrt.execution import Runner
from relax_glue.tensorrt.profiles import Profile
from relax_glue.tensorrt.signature import ShapeSpec, TensorSpec
from relax_glue.tensorrt.tensors import read_header

INPUTS = (TensorSpec("x", ("n", 4, "h"), "float32"), TensorSpec("z", (("*", "n", 2),), "float32"))
OUTPUTS = (TensorSpec("y", ("n", ("+", ("//", ("-", "h", 1), 2), 1)), "float32"),)
ONE = [{"n": (1, 2, 4), "h": (8, 32)}]
TWO = [{"n": (1, 2), "h": (8, 32)}, {"n": (2, 16), "h": 16}]


def artifact_of(
    profiles: list[dict[str, Any]], shapes: tuple[ShapeSpec, ...] = (), inputs: Any = INPUTS, **options: Any
) -> Artifact:
    made = tuple(map(Profile.of, profiles))
    return Artifact("region", inputs, OUTPUTS, BuildOptions(**options), None, None, shapes, made)


def extents_of(n: int, h: int) -> tuple[tuple[int, ...], ...]:
    return (n, 4, h), (2 * n,), (n, (h - 1) // 2 + 1)


# what a call may be


def test_a_call_has_the_profiles_that_hold_it() -> None:
    calls = Calls(artifact_of(TWO))
    assert calls.of(extents_of(1, 8)).profiles == (0,)
    assert calls.of(extents_of(2, 16)).profiles == (0, 1)
    assert calls.of(extents_of(16, 16)).profiles == (1,)


@pytest.mark.parametrize(
    ("n", "h", "said"),
    [
        (5, 8, r"region is called with n = 5 \(axis 0 of input x\), and its engine is built for n 1 to 4.*\{'n': "),
        (1, 7, r"h = 7 \(axis 2 of input x\), and its engine is built for h 8 to 32"),
        (9, 64, r"n = 9 .* h = 64 .* n 1 to 4; h 8 to 32"),
    ],
)
def test_a_value_out_of_range_is_named(n: int, h: int, said: str) -> None:
    with pytest.raises(ExecutionError, match=said):
        Calls(artifact_of(ONE)).of(extents_of(n, h))


def test_values_that_no_single_profile_holds_are_named_together() -> None:
    with pytest.raises(ExecutionError, match=r"n = 9 .*h = 8 .*built for h 8 to 32, n 1 to 2; or h 16, n 2 to 16"):
        Calls(artifact_of(TWO)).of(extents_of(9, 8))


WRONG = {
    "input": (
        ((2, 4, 8), (5,), (2, 4)),
        r"input z of region has the extent 5 at axis 0.* 4, which is n \* 2 with n = 2",
    ),
    "output": (((2, 4, 8), (4,), (2, 5)), r"output y .* 5 at axis 1.* 4, which is \(h - 1\) // 2 \+ 1 with h = 8"),
    "static extent": (((2, 3, 8), (4,), (2, 4)), r"input x .* 3 at axis 1, and its engine needs 4$"),
}


@pytest.mark.parametrize("name", WRONG)
def test_extents_that_contradict_each_other_are_named(name: str) -> None:
    extents, said = WRONG[name]
    with pytest.raises(ExecutionError, match=said):
        Calls(artifact_of(ONE)).of(extents)


def test_a_call_is_checked_once() -> None:
    calls = Calls(artifact_of(ONE))
    assert calls.of(extents_of(2, 8)) is calls.of(extents_of(2, 8))


def test_variables_can_come_from_a_shape() -> None:
    inputs = (TensorSpec("x", (("*", "n", 2), 4, "h"), "float32"),)
    calls = Calls(artifact_of(ONE, (ShapeSpec("symbols", 1, ("n",)),), inputs))
    found = calls.of(((6, 4, 8), (3,), (3, 4)))
    assert [list(values) for values in found.shapes] == [[3]]
    with pytest.raises(ExecutionError, match=r"n = 9 \(a shape parameter\)"):
        calls.of(((18, 4, 8), (9,), (9, 4)))
    with pytest.raises(ExecutionError, match="input x"):
        calls.of(((8, 4, 8), (3,), (3, 4)))


# the runner


class DynamicContext(Context):
    """Stands for an execution context that has profiles and shapes."""

    def __init__(self, log: list[tuple[Any, ...]]) -> None:
        super().__init__(log)
        self.active_optimization_profile = 0
        self.output: tuple[int, ...] | None = None
        self.shapes: dict[str, tuple[int, ...]] = {}

    def set_optimization_profile_async(self, index: int, stream: int) -> bool:
        self._log.append(("profile", index, stream))
        return True

    def set_input_shape(self, name: str, extents: tuple[int, ...]) -> bool:
        self._log.append(("shape", name, extents))
        self.shapes[name] = extents
        return True

    def get_tensor_shape(self, _name: str) -> tuple[int, ...]:
        n, _, h = self.shapes["x"]
        return self.output or (n, (h - 1) // 2 + 1)


def dynamic(made: Artifact) -> tuple[DynamicRunner, Driver, DynamicContext]:
    driver = Driver()
    context = DynamicContext(driver.log)
    shapes = [spec.name for spec in made.shapes]
    inputs = [spec.name for spec in made.inputs]
    engine: Any = SimpleNamespace(
        gpu=SimpleNamespace(driver=driver, context=5, index=0),
        artifact=made,
        inputs=inputs,
        shapes=shapes,
        outputs=("y",),
        bound=[None if isinstance(spec, ShapeSpec) else spec.name for spec in made.arguments] + ["y"],
        context=lambda: context,
        compiling=nullcontext,
        turn=nullcontext(),
        keep_kernels=lambda: driver.log.append(("kernels",)),
        said=lambda: "no reason",
    )
    runner = runner_of(engine)
    assert isinstance(runner, DynamicRunner)
    return runner, driver, context


@pytest.fixture(autouse=True)
def stream_of_tvm(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    current = [NULL]
    monkeypatch.setattr(execution.tvm_ffi, "get_raw_stream", lambda _: current[0])
    return current


def call(runner: Runner, driver: Driver, n: int, h: int, x: int = 0x1000) -> list[tuple[Any, ...]]:
    """Make a call and return what was done for it, without the waiting."""
    del driver.log[:]
    tensors = [Tensor(address, extents) for address, extents in zip((x, 0x2000, 0x3000), extents_of(n, h), strict=True)]
    runner.run([read_header(tensor.handle) for tensor in tensors])
    return [entry for entry in driver.log if entry[0] not in ("follow", "wait", "record")]


ENQUEUE = ("enqueue", OURS)


def shapes_of(n: int, h: int) -> list[tuple[Any, ...]]:
    return [("shape", "x", (n, 4, h)), ("shape", "z", (2 * n,))]


def test_static_engines_have_the_plain_runner() -> None:
    static = TensorSpec("x", (2, 3), "float32")
    engine: Any = SimpleNamespace(
        gpu=SimpleNamespace(driver=Driver(), context=5, index=0),
        artifact=Artifact("region", (static,), (static,), BuildOptions(), None, None),
        context=lambda: None,
        compiling=nullcontext,
    )
    assert type(runner_of(engine)) is Runner


def test_shapes_are_set_when_they_change() -> None:
    runner, driver, _ = dynamic(artifact_of(ONE, cuda_graphs=False))
    assert call(runner, driver, 2, 8) == [*shapes_of(2, 8), ENQUEUE, ("kernels",)]
    assert call(runner, driver, 2, 8) == [ENQUEUE]
    assert call(runner, driver, 2, 8, 0x9000) == [ENQUEUE]
    assert call(runner, driver, 1, 8) == [*shapes_of(1, 8), ENQUEUE, ("kernels",)]
    assert call(runner, driver, 2, 8) == [*shapes_of(2, 8), ENQUEUE]


def test_the_profile_is_kept_while_it_holds_the_call() -> None:
    runner, driver, _ = dynamic(artifact_of(TWO, cuda_graphs=False))
    switched = []
    for n in (2, 16, 2, 1, 2):
        switched.append([entry for entry in call(runner, driver, n, 16) if entry[0] == "profile"])
    assert switched == [[], [("profile", 1, OURS)], [], [("profile", 0, OURS)], []]


def test_a_graph_belongs_to_its_shapes() -> None:
    runner, driver, _ = dynamic(artifact_of(ONE))
    record = [("begin", OURS), ENQUEUE, ("end", OURS)]
    assert call(runner, driver, 2, 8)[-2:] == [ENQUEUE, ("kernels",)]
    assert call(runner, driver, 2, 8) == [*record, ("launch", 100, OURS)]
    # the same addresses, other extents: TVM's pool hands a large buffer out for a small tensor
    assert call(runner, driver, 1, 8) == [*shapes_of(1, 8), ENQUEUE, ("kernels",)]
    assert call(runner, driver, 2, 8) == [("launch", 100, NULL)]
    # the launch left the context alone, so it is still ready for the other extents
    assert call(runner, driver, 1, 8) == [*record, ("launch", 101, OURS)]
    assert call(runner, driver, 2, 8) == [("launch", 100, NULL)]
    assert call(runner, driver, 1, 8) == [("launch", 101, NULL)]


def test_new_shapes_are_run_before_they_are_captured() -> None:
    """TensorRT prepares for new extents in the first enqueue, which cannot be captured."""
    runner, driver, _ = dynamic(artifact_of(ONE))
    call(runner, driver, 2, 8)
    call(runner, driver, 1, 8)
    assert call(runner, driver, 2, 8) == [*shapes_of(2, 8), ENQUEUE, ("begin", OURS), ENQUEUE, ("end", OURS)]
    assert call(runner, driver, 2, 8) == [("launch", 100, NULL)]


def test_a_profile_that_tensorrt_refuses_is_an_error() -> None:
    runner, driver, context = dynamic(artifact_of(TWO))

    def refuse(_index: int, _stream: int) -> bool:
        raise RuntimeError("Error in set optimization profile async.")

    call(runner, driver, 2, 16)
    context.set_optimization_profile_async = refuse  # type: ignore[method-assign]
    with pytest.raises(ExecutionError, match="cannot change to profile 1: no reason"):
        call(runner, driver, 16, 16)


def test_the_callers_capture_needs_a_call_before(stream_of_tvm: list[int]) -> None:
    runner, driver, _ = dynamic(artifact_of(ONE))
    call(runner, driver, 2, 8)
    stream_of_tvm[0] = 9
    driver.capturing = True
    assert call(runner, driver, 2, 8) == [ENQUEUE]
    with pytest.raises(ExecutionError, match="right before the capture"):
        call(runner, driver, 1, 8)


def test_an_output_of_another_shape_than_tvms_is_an_error_and_stays_one() -> None:
    runner, driver, context = dynamic(artifact_of(ONE))
    context.output = (2, 3)
    for _ in range(2):
        with pytest.raises(ExecutionError, match=r"output y of region the extents \(2, 3\), and TVM \(2, 4\)"):
            call(runner, driver, 2, 8)
    assert ENQUEUE not in driver.log


def test_nothing_runs_out_of_range() -> None:
    runner, driver, _ = dynamic(artifact_of(ONE))
    with pytest.raises(ExecutionError, match="n = 5"):
        call(runner, driver, 5, 8)
    assert not [entry for entry in driver.log if entry[0] not in ("follow", "wait", "record")]
    assert call(runner, driver, 4, 8)[-2:] == [ENQUEUE, ("kernels",)], "and the next call is as if it had not been"


def test_empty_results_need_no_engine() -> None:
    runner, driver, _ = dynamic(artifact_of(ONE))
    assert call(runner, driver, 0, 8) == []


def test_values_of_a_shape_are_given_in_memory_that_stays() -> None:
    inputs = (TensorSpec("x", (("*", "n", 2), 4, "h"), "float32"),)
    made = artifact_of(ONE, (ShapeSpec("symbols", 1, ("n",)),), inputs)
    runner, _, context = dynamic(made)
    context.output = (3, 4)
    context.set_tensor_address = lambda name, address: context.addresses.update({name: address}) or True  # type: ignore
    shape = tvm_ffi.Shape((3,))
    tensors = [Tensor(0x1000, (6, 4, 8)), Tensor(0x2000, (3, 4))]
    headers = [read_header(tensor.handle) for tensor in tensors]
    runner.run([headers[0], header_of(shape), headers[1]])
    address = context.addresses["symbols"]
    assert ctypes.c_int64.from_address(address).value == 3
    assert context.addresses["x"] == 0x1000
    with pytest.raises(ExecutionError, match="shape symbols has to be a shape of 1 numbers"):
        runner.run([headers[0], header_of(tvm_ffi.Shape((3, 4))), headers[1]])
    with pytest.raises(ExecutionError, match="shape symbols"):
        runner.run([headers[0], headers[0], headers[1]])


def header_of(shape: tvm_ffi.Shape) -> bytes:
    """Return the beginning of a shape as a host function passes it on."""
    seen: list[bytes] = []
    tvm.register_global_func(
        "relax_glue.test.seen", lambda handle: seen.append(read_header(handle.value)), override=True
    )
    param = tirx.Var("shape", "handle")
    body = tirx.Evaluate(tirx.call_packed("relax_glue.test.seen", param))
    function = tirx.PrimFunc([param], body).with_attr({"global_symbol": "f", "tirx.is_host_func": True})
    tvm.compile(tvm.IRModule({"f": function}), "llvm").mod["f"](shape)
    return seen[0]
