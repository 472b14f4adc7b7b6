"""The order of what a runner puts on streams, and its graphs, with a driver and a context that write down."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tvm
from execution_case import ARRIVED, DONE, LAST, NULL, OURS, Context, Driver, Tensor

from relax_glue.errors import DeviceError, ExecutionError
from relax_glue.tensorrt import BuildOptions, execution
from relax_glue.tensorrt.artifact import Artifact
from relax_glue.tensorrt.execution import Runner
from relax_glue.tensorrt.signature import TensorSpec
from relax_glue.tensorrt.tensors import Slot, device_of, read_header

SPECS = (TensorSpec("x", (2, 3), "float32"),), (TensorSpec("y", (2, 3), "float32"),)


def runner_of(**options: Any) -> tuple[Runner, Driver, Context]:
    driver = Driver()
    context = Context(driver.log)
    engine: Any = SimpleNamespace(
        gpu=SimpleNamespace(driver=driver, context=5, index=0),
        artifact=Artifact("region", *SPECS, BuildOptions(**options), None, None),
        bound=["x", "y"],
        context=lambda: context,
        compiling=nullcontext,
        keep_kernels=lambda: driver.log.append(("kernels",)),
        said=lambda: "no reason",
    )
    return Runner(engine), driver, context


@pytest.fixture(autouse=True)
def stream_of_tvm(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    current = [NULL]
    monkeypatch.setattr(execution.tvm_ffi, "get_raw_stream", lambda _: current[0])
    return current


def call(runner: Runner, x: int = 0x1000, y: int = 0x2000) -> None:
    tensors = [Tensor(x), Tensor(y)]
    runner.run([read_header(tensor.handle) for tensor in tensors])


ENTER = (("follow", OURS, ARRIVED, NULL), ("wait", OURS, LAST))
LEAVE = (("record", LAST, OURS), ("wait", NULL, LAST))


def replayed(graph: int, stream: int) -> list[tuple[Any, ...]]:
    """Return what a replay does: on the caller's stream, behind the last call and before the next."""
    return [("wait", stream, LAST), ("launch", graph, stream), ("record", LAST, stream)]


def test_a_replay_on_another_stream_waits_for_the_last_call(stream_of_tvm: list[int]) -> None:
    """Two graphs of a runner use one scratch memory."""
    runner, driver, _ = runner_of()
    for x in (0x1000, 0x3000):
        call(runner, x)
        call(runner, x)
    del driver.log[:]
    call(runner, 0x1000)
    stream_of_tvm[0] = 9
    call(runner, 0x3000)
    assert driver.log == [*replayed(100, NULL), *replayed(101, 9)]


def test_a_call_waits_for_tvms_stream_and_is_waited_for() -> None:
    runner, driver, context = runner_of(cuda_graphs=False)
    call(runner)
    assert driver.log == [*ENTER, ("enqueue", OURS), ("kernels",), *LEAVE]
    assert context.addresses == {"x": 0x1000, "y": 0x2000}


def test_the_second_call_is_captured_and_the_third_launched() -> None:
    runner, driver, _ = runner_of()
    call(runner)
    del driver.log[:]
    call(runner)
    record = [("begin", OURS), ("enqueue", OURS), ("end", OURS), ("launch", 100, OURS)]
    assert driver.log == [*ENTER, *record, *LEAVE]
    del driver.log[:]
    call(runner)
    assert driver.log == replayed(100, NULL)


def test_new_addresses_are_never_given_to_an_old_graph() -> None:
    runner, driver, context = runner_of()
    for _ in range(3):
        call(runner, 0x1000)
    del driver.log[:]
    call(runner, 0x3000)
    assert ("enqueue", OURS) in driver.log
    assert context.addresses["x"] == 0x3000
    call(runner, 0x3000)
    del driver.log[:]
    call(runner, 0x1000)
    call(runner, 0x3000)
    assert [entry for entry in driver.log if entry[0] == "launch"] == [("launch", 100, NULL), ("launch", 101, NULL)]


def test_old_graphs_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "GRAPHS", 2)
    runner, driver, _ = runner_of()
    for x in (0x1000, 0x2000, 0x3000):
        call(runner, x)
        call(runner, x)
    assert ("destroy", 100) in driver.log
    assert ("destroy", 101) not in driver.log


def test_a_capture_that_fails_turns_graphs_off() -> None:
    runner, driver, _ = runner_of()
    driver.capture_fails = True
    call(runner)
    del driver.log[:]
    call(runner)
    assert driver.log == [*ENTER, ("begin", OURS), ("enqueue", OURS), ("end", OURS), ("enqueue", OURS), *LEAVE]
    del driver.log[:]
    call(runner)
    assert driver.log == [*ENTER, ("enqueue", OURS), *LEAVE]


def test_inside_the_callers_own_capture_nothing_is_captured(stream_of_tvm: list[int]) -> None:
    runner, driver, _ = runner_of()
    stream_of_tvm[0] = 9
    driver.capturing = True
    for _ in range(3):
        call(runner)
    assert not [entry for entry in driver.log if entry[0] in ("begin", "launch")]
    assert ("follow", OURS, ARRIVED, 9) in driver.log
    assert ("follow", 9, DONE, OURS) in driver.log


def test_a_dropped_input_is_not_bound() -> None:
    runner, _, context = runner_of()
    runner._engine.bound[0] = None
    call(runner)
    assert context.addresses == {"y": 0x2000}


def test_kernels_are_kept_once() -> None:
    runner, driver, _ = runner_of()
    for _ in range(3):
        call(runner)
    assert driver.log.count(("kernels",)) == 1


WRONG = {
    "number": ([Tensor(0x1000)], "takes 2"),
    "device": ([Tensor(0x1000, device_type=1), Tensor(0x2000)], "cpu:0"),
    "other gpu": ([Tensor(0x1000, device_id=1), Tensor(0x2000)], "cuda:1"),
    "rank": ([Tensor(0x1000, (6,)), Tensor(0x2000)], r"\(6,\)"),
    "shape": ([Tensor(0x1000, (3, 2)), Tensor(0x2000)], r"\(3, 2\)"),
    "dtype": ([Tensor(0x1000, bits=16), Tensor(0x2000)], "float16"),
    "strides": ([Tensor(0x1000, strides=(1, 2)), Tensor(0x2000)], "contiguous"),
    "alignment": ([Tensor(0x1010), Tensor(0x2000)], "multiple of 256"),
    "output": ([Tensor(0x1000), Tensor(0x2000, bits=64)], "output y"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_tensors_are_named(name: str) -> None:
    tensors, said = WRONG[name]
    runner, driver, _ = runner_of()
    with pytest.raises((ExecutionError, DeviceError), match=said):
        runner.run([read_header(tensor.handle) for tensor in tensors])
    assert ("enqueue", OURS) not in driver.log


def test_an_offset_is_added_and_strides_of_extents_of_one_mean_nothing() -> None:
    slot = Slot(TensorSpec("x", (1, 3), "float32"), "input", 0)
    strided = Tensor(0x1000, (1, 3), byte_offset=256, strides=(999, 1))
    assert slot.address(read_header(strided.handle)) == 0x1100


def test_a_scalar_has_no_extents_to_compare() -> None:
    slot = Slot(TensorSpec("x", (), "float32"), "input", 0)
    scalar, vector = Tensor(0x1000, ()), Tensor(0x1000, (1,))  # kept: a header points into its tensor
    assert slot.address(read_header(scalar.handle)) == 0x1000
    with pytest.raises(ExecutionError, match=r"\(1,\)"):
        slot.address(read_header(vector.handle))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int32", "int8", "uint8", "bool"])
def test_the_header_of_tvms_own_tensors_is_read_right(dtype: str) -> None:
    """Through a packed call, as the compiled model does it; on the CPU, which the message then names."""
    tensor = tvm.runtime.tensor(np.ones((2, 3), dtype))
    seen = []
    slot = Slot(TensorSpec("x", (2, 3), dtype), "input", 0)
    _call_with_handle(tensor, seen.append)
    (header,) = seen
    assert device_of(header) == (1, 0)
    with pytest.raises(DeviceError, match="cpu:0"):
        slot.address(header)
    slot._type = header[8:16] + slot._type[8:]  # as if the CPU were the engine's device
    assert slot.address(header) == tensor.data_ptr()


def _call_with_handle(tensor: tvm.runtime.Tensor, receive: Any) -> None:
    from tvm import tirx

    name = "relax_glue.test.receive"
    tvm.register_global_func(name, lambda handle: receive(read_header(handle.value)), override=True)
    param = tirx.Var("tensor", "handle")
    body = tirx.Evaluate(tirx.call_packed(name, param))
    function = tirx.PrimFunc([param], body).with_attr({"global_symbol": "f", "tirx.is_host_func": True})
    tvm.compile(tvm.IRModule({"f": function}), "llvm").mod["f"](tensor)
