"""What is loaded, when it is built instead, and what threads share: the runtime with engines that write down."""

from __future__ import annotations

import ctypes
import dataclasses
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from engine_case import conv_module, partitioned, region_of

from relax_glue.errors import DeviceError, EngineWarning, ExecutionError, PlanError
from relax_glue.tensorrt import BuildOptions, runtime
from relax_glue.tensorrt.artifact import Artifact, Plan, save_region, to_text
from relax_glue.tensorrt.runtime import Runtime, load_engine

SAVED = save_region(region_of(partitioned(conv_module())))
BUILT = Plan("tensorrt_rtx 1", "gpu", False, ("x",), ("y",), b"built here")
CARRIED = Plan("tensorrt_rtx 1", "gpu", False, ("x",), ("y",), b"carried")


def artifact(plan: Plan | None = CARRIED, region: bool = True) -> Artifact:
    data = SAVED.data if region else None
    return Artifact(SAVED.symbol, SAVED.inputs, SAVED.outputs, BuildOptions(), data, plan)


class Gpu:
    """Stands for a GPU."""

    index = 0
    context = 0

    @property
    def driver(self) -> Any:
        return self

    def current(self, _: int) -> Any:
        return nullcontext()


class World:
    """Which plans engines refuse, and what was built and loaded."""

    def __init__(self) -> None:
        self.refused: list[bytes] = []
        self.error: type[Exception] = PlanError
        self.built: list[bool] = []
        self.loaded: list[bytes] = []
        self.ran: list[Any] = []
        self.runners = 0

    def engine(self, artifact: Artifact, plan: Plan, _provider: Any, _gpu: Any) -> Any:
        if plan.data in self.refused:
            self.refused.remove(plan.data)
            raise self.error("refused")
        assert artifact.plan is None, "the bytes of the plan would stay in memory"
        self.loaded.append(plan.data)
        return plan.data

    def obtain(self, region: Any, _options: BuildOptions, *, gpu: int, fresh: bool = False) -> Plan:
        assert region.data == SAVED.data
        assert gpu == 0
        time.sleep(0.02)
        self.built.append(fresh)
        return BUILT

    def runner(self, engine: Any) -> Any:
        self.runners += 1
        world = self

        class Runner:
            def run(self, _headers: Any) -> None:
                world.ran.append((engine, threading.get_ident()))

        return Runner()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(runtime, "Engine", made.engine)
    monkeypatch.setattr(runtime, "runner_of", made.runner)
    monkeypatch.setattr(runtime, "obtain_plan", made.obtain)
    monkeypatch.setattr(runtime, "gpu", lambda _index: Gpu())
    monkeypatch.setattr(runtime, "get_provider", lambda *_: None)
    return made


def load(made: Artifact) -> Any:
    return load_engine(made, Gpu())  # type: ignore[arg-type]


def test_a_good_engine_is_loaded_and_nothing_built(world: World) -> None:
    assert load(artifact()) == b"carried"
    assert not world.built


def test_a_refused_engine_is_built_again(world: World) -> None:
    world.refused = [b"carried"]
    with pytest.warns(EngineWarning, match="built again here"):
        assert load(artifact()) == b"built here"
    assert world.built == [False]


def test_a_refused_engine_without_its_region_is_an_error(world: World) -> None:
    world.refused = [b"carried"]
    with pytest.raises(PlanError, match="keep_region"):
        load(artifact(region=False))


def test_a_region_alone_is_built(world: World) -> None:
    assert load(artifact(plan=None)) == b"built here"
    assert world.built == [False]


def test_a_cached_engine_that_is_refused_is_built_afresh(world: World) -> None:
    world.refused = [b"built here"]
    with pytest.warns(EngineWarning, match="built again"):
        assert load(artifact(plan=None)) == b"built here"
    assert world.built == [False, True]


def test_no_memory_is_no_reason_to_build(world: World) -> None:
    world.refused, world.error = [b"carried"], ExecutionError
    with pytest.raises(ExecutionError):
        load(artifact())
    assert not world.built


def test_an_engine_of_a_missing_package_is_foreign(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from relax_glue.errors import ProviderError

    def missing(name: str | None = None) -> None:
        if name == "tensorrt_rtx":
            raise ProviderError("not installed")

    monkeypatch.setattr(runtime, "get_provider", missing)
    with pytest.warns(EngineWarning, match="not installed"):
        assert load(artifact()) == b"built here"


# calls


class Tensor(ctypes.Structure):
    """The start of a `DLTensor`, enough to see where it is."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("rest", ctypes.c_char * 32),
    )


def tensor(kind: int = 2, index: int = 0) -> ctypes.c_void_p:
    made = Tensor(0, kind, index)
    handle = ctypes.c_void_p(ctypes.addressof(made))
    handle.keep = made  # type: ignore[attr-defined]
    return handle


def call(machine: Runtime, key: str, made: Artifact, *tensors: Any) -> None:
    """Do what the host function of a region does."""
    if machine.run(key, *tensors) != 0:
        machine.load(key, to_text(made.pack()), *tensors)


def test_an_engine_is_loaded_once_and_then_run(world: World) -> None:
    machine = Runtime()
    for _ in range(3):
        call(machine, "k", artifact(), tensor(), tensor())
    assert world.loaded == [b"carried"]
    assert len(world.ran) == 3
    assert world.runners == 1


def test_keys_never_meet(world: World) -> None:
    machine = Runtime()
    other = dataclasses.replace(artifact(), plan=dataclasses.replace(CARRIED, data=b"other"))
    for _ in range(2):
        call(machine, "k", artifact(), tensor())
        call(machine, "l", other, tensor())
    assert [engine for engine, _ in world.ran] == [b"carried", b"other"] * 2


def test_each_gpu_has_its_own(world: World) -> None:
    machine = Runtime()
    for index in (0, 1, 0, 1):
        call(machine, "k", artifact(), tensor(index=index))
    assert len(world.loaded) == 2
    assert world.runners == 2


def test_threads_share_an_engine_and_not_a_runner(world: World) -> None:
    machine = Runtime()
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        for _ in range(5):
            call(machine, "k", artifact(plan=None), tensor())

    run_in_threads(work, 4)
    assert len(world.built) == 1, "one thread builds, the others wait"
    assert world.runners == 4
    assert len(world.ran) == 20


def test_a_failed_load_can_be_tried_again(world: World) -> None:
    machine = Runtime()
    world.refused, world.error = [b"carried"], ExecutionError
    with pytest.raises(ExecutionError):
        call(machine, "k", artifact(), tensor())
    call(machine, "k", artifact(), tensor())
    assert len(world.ran) == 1


def test_unloaded_engines_load_again(world: World) -> None:
    machine = Runtime()
    call(machine, "k", artifact(), tensor())
    machine.unload()
    assert machine.run("k", tensor()) == 1
    call(machine, "k", artifact(), tensor())
    assert world.loaded == [b"carried"] * 2


def test_results_on_the_cpu_are_refused(world: World) -> None:
    with pytest.raises(DeviceError, match="VirtualMachine"):
        call(Runtime(), "k", artifact(), tensor(kind=1))


def run_in_threads(work: Callable[[], None], count: int) -> None:
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
