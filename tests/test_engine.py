"""Engines built by TensorRT-RTX without a GPU: the cache and its key, progress, damaged files, refusals."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from engine_case import conv_module, module_of, partitioned, region_of
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from relax_glue.errors import BuildError, EngineWarning, PlanError, ProviderError, UnknownNameError
from relax_glue.tensorrt import BuildOptions, engine, get_provider
from relax_glue.tensorrt.artifact import (
    Artifact,
    Plan,
    SavedRegion,
    from_text,
    load_region,
    save_region,
    to_text,
)
from relax_glue.tensorrt.cache import EngineCache, cache_of, engine_key
from relax_glue.tensorrt.container import pack, unpack
from relax_glue.tensorrt.engine import obtain_plan
from relax_glue.tensorrt.plain import plain_function
from relax_glue.tensorrt.precision import VARIABLE, Precision
from relax_glue.tensorrt.provider import Provider
from relax_glue.tensorrt.signature import TensorSpec

PLAN = Plan("tensorrt_rtx 1.5.0", "NVIDIA H200 (9.0)", False, ("x",), ("y",), b"engine bytes")


def saved(seed: int = 0, size: int = 16) -> SavedRegion:
    return save_region(region_of(partitioned(conv_module(seed, size))))


# the key


def test_the_key_is_the_same_for_the_same_content() -> None:
    assert engine_key(saved(), BuildOptions(), "p 1", "g") == engine_key(saved(), BuildOptions(), "p 1", "g")


CHANGES: dict[str, Callable[[], str]] = {
    "weights": lambda: engine_key(saved(seed=1), BuildOptions(), "p 1", "g"),
    "shapes": lambda: engine_key(saved(size=18), BuildOptions(), "p 1", "g"),
    "provider version": lambda: engine_key(saved(), BuildOptions(), "p 2", "g"),
    "gpu": lambda: engine_key(saved(), BuildOptions(), "p 1", "h"),
    "workspace": lambda: engine_key(saved(), BuildOptions(workspace=1 << 20), "p 1", "g"),
    "optimization level": lambda: engine_key(saved(), BuildOptions(optimization_level=1), "p 1", "g"),
    "tf32": lambda: engine_key(saved(), BuildOptions(tf32=True), "p 1", "g"),
    "graph": lambda: engine_key(_of(lambda emit, x: emit(relax.op.tanh(x))), BuildOptions(), "p 1", "g"),
    "attribute": lambda: engine_key(_permuted([0, 1, 3, 2]), BuildOptions(), "p 1", "g"),
    "dtype": lambda: engine_key(_of(lambda emit, x: emit(relax.op.tanh(x)), "float16"), BuildOptions(), "p 1", "g"),
}


def _of(body: Callable[..., Any], dtype: str = "float32") -> SavedRegion:
    return save_region(region_of(partitioned(module_of(body, (1, 8, 16, 16), dtype=dtype))))


def _permuted(axes: list[int]) -> SavedRegion:
    return _of(lambda emit, x: emit(relax.op.permute_dims(x, axes)))


def test_every_single_change_is_another_key() -> None:
    keys = {name: change() for name, change in CHANGES.items()}
    keys["base"] = engine_key(saved(), BuildOptions(), "p 1", "g")
    keys["other attribute"] = engine_key(_permuted([0, 2, 3, 1]), BuildOptions(), "p 1", "g")
    assert len(set(keys.values())) == len(keys)


def test_options_that_do_not_change_the_engine_share_a_key() -> None:
    base = engine_key(saved(), BuildOptions(), "p 1", "g")
    for same in (BuildOptions(cuda_graphs=False), BuildOptions(progress=False), BuildOptions(cache_size=1)):
        assert engine_key(saved(), same, "p 1", "g") == base


# TF32

RTX = Provider("tensorrt_rtx", (1, 5), None)
MAINLINE = Provider("tensorrt", (10, 14), None)


def test_tf32_is_off_unless_asked_for() -> None:
    assert not obtain_plan(saved(), BuildOptions(cache=False)).tf32
    config = get_provider().builder().config()
    assert not config.get_flag(get_provider().trt.BuilderFlag.TF32)


def test_one_process_of_rtx_is_of_one_mind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    without, with_it = Precision(), Precision()
    assert not without.settle(RTX, False)
    with pytest.warns(EngineWarning, match="without TF32"):
        assert not without.settle(RTX, True)
    assert with_it.settle(RTX, True)
    with pytest.raises(BuildError, match="different processes"):
        with_it.settle(RTX, False)


def test_the_users_environment_forbids_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0")
    with pytest.warns(EngineWarning, match="without TF32"):
        assert not Precision().settle(RTX, True)


def test_mainline_decides_for_each_engine() -> None:
    precision = Precision()
    assert [precision.settle(MAINLINE, tf32) for tf32 in (True, False, True)] == [True, False, True]


def test_the_environment_is_set_while_rtx_works_and_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    precision = Precision()
    monkeypatch.setenv(VARIABLE, "1")
    with precision.held(RTX, False), precision.held(RTX, False):
        assert os.environ[VARIABLE] == "0"
    assert os.environ[VARIABLE] == "1"
    monkeypatch.delenv(VARIABLE)
    with precision.held(RTX, False):
        assert os.environ[VARIABLE] == "0"
    assert VARIABLE not in os.environ
    for provider, tf32 in ((RTX, True), (MAINLINE, False)):
        with precision.held(provider, tf32):
            assert VARIABLE not in os.environ


def test_the_plan_itself_holds_what_was_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorRT-RTX writes into a plan whether the environment forbade TF32, and loads it only where that is so."""
    monkeypatch.delenv(VARIABLE, raising=False)
    here = obtain_plan(saved(), BuildOptions(cache=False, conv_as_matmul=False)).data
    network = engine.build_network(load_region(saved().data))
    monkeypatch.setenv(VARIABLE, "0")
    config = network.builder.config()
    assert here == bytes(memoryview(network.builder.builder.build_serialized_network(network.net, config)))


# options


@pytest.mark.parametrize(
    "wrong", [{"build": "soon"}, {"workspace": 0}, {"optimization_level": 6}, {"cache_size": -1}, {"speed": 3}]
)
def test_wrong_options_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises((UnknownNameError, ValueError), match=next(iter(wrong))):
        BuildOptions.of(wrong)


def test_what_a_model_carries_of_its_options_brings_them_back() -> None:
    options = BuildOptions(workspace=1 << 30, cuda_graphs=False, cache_dir="somewhere", progress=print)
    back = BuildOptions.of(options.to_json())
    assert back == dataclasses.replace(options, progress=None)


# the container


@given(st.dictionaries(st.text(max_size=4), st.binary(max_size=40), max_size=3), st.data())
def test_a_changed_byte_is_found(sections: dict[str, bytes], data: st.DataObject) -> None:
    block = pack({"a": [1, "b"]}, sections)
    assert unpack(block, "it") == ({"a": [1, "b"]}, sections)
    place = data.draw(st.integers(0, len(block) - 1))
    changed = bytearray(block)
    changed[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(PlanError, match="it"):
        unpack(bytes(changed), "it")


@given(st.integers(0, 200))
def test_a_block_cut_short_is_found(length: int) -> None:
    block = pack({"a": 1}, {"b": bytes(100)})
    if length < len(block):
        with pytest.raises(PlanError):
            unpack(block[:length], "it")


# artifacts


def artifact() -> Artifact:
    region = saved()
    return Artifact(region.symbol, region.inputs, region.outputs, BuildOptions(), region.data, PLAN)


def test_an_artifact_comes_back_from_text() -> None:
    made = artifact()
    assert Artifact.unpack(from_text(to_text(made.pack()))) == made
    assert made.inputs == (TensorSpec(made.inputs[0].name, (1, 8, 16, 16), "float32"),)


def test_a_damaged_engine_is_left_out_if_the_region_is_whole() -> None:
    block = artifact().pack()
    place = block.index(PLAN.data)
    block = block[:place] + b"E" + block[place + 1 :]
    with pytest.warns(EngineWarning, match="damaged"):
        back = Artifact.unpack(block)
    assert back == dataclasses.replace(artifact(), plan=None)


def test_a_damaged_engine_alone_is_an_error() -> None:
    made = dataclasses.replace(artifact(), region=None)
    block = made.pack()
    with pytest.raises(PlanError, match="damaged"):
        Artifact.unpack(block[:-1] + b"!")


def test_one_bad_character_of_the_text_is_one_bad_section() -> None:
    text = to_text(artifact().pack())
    with pytest.warns(EngineWarning, match="damaged"):
        back = Artifact.unpack(from_text(text[:-6] + "\x01" + text[-5:]))
    assert back.plan is None
    assert back.region == artifact().region


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool"])
def test_a_region_comes_back_with_its_constants(dtype: str) -> None:
    numbers = np.arange(6).reshape(2, 3) % 2
    constant = tvm.runtime.tensor(numbers.astype(np.dtype(getattr(ml_dtypes, dtype, dtype))))

    def body(emit: Callable[..., relax.Var], x: relax.Var) -> relax.Expr:
        return emit(relax.op.concat([x, relax.const(constant)], axis=0))

    function = module_of(body, (2, 3), dtype=dtype)["main"]
    region = save_region(function)
    back = load_region(region.data)
    given = tvm.runtime.tensor(numbers.astype(np.dtype(getattr(ml_dtypes, dtype, dtype))))
    mod = tvm.IRModule({"a": function.with_attr("global_symbol", "a"), "b": back.with_attr("global_symbol", "b")})
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    assert machine["a"](given).numpy().tobytes() == machine["b"](given).numpy().tobytes()


def test_a_saved_region_is_the_region_without_composites() -> None:
    function = region_of(partitioned(conv_module()))
    tvm.ir.assert_structural_equal(load_region(save_region(function).data), plain_function(function))


# the cache


def test_a_second_build_is_a_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = BuildOptions(cache_dir=str(tmp_path))
    function = region_of(partitioned(conv_module()))
    first = obtain_plan(save_region(function), options, function)
    monkeypatch.setattr(engine, "build_plan", lambda *_, **__: pytest.fail("built again"))
    assert obtain_plan(save_region(function), options, function) == first
    assert obtain_plan(save_region(function), options) == first


def test_an_engine_can_be_built_from_the_saved_region_alone(tmp_path: Path) -> None:
    region = saved()
    plan = obtain_plan(region, BuildOptions(cache_dir=str(tmp_path)))
    assert len(plan.inputs) == len(region.inputs)
    assert len(plan.outputs) == len(region.outputs)
    assert plan.data


def test_a_damaged_file_is_removed_and_built_again(tmp_path: Path) -> None:
    options = BuildOptions(cache_dir=str(tmp_path))
    plan = obtain_plan(saved(), options)
    (file,) = tmp_path.glob("*.engine")
    content = bytearray(file.read_bytes())
    content[-10] ^= 1
    file.write_bytes(bytes(content))
    with pytest.warns(EngineWarning, match="damaged"):
        again = obtain_plan(saved(), options)
    assert dataclasses.replace(again, data=b"") == dataclasses.replace(plan, data=b"")
    assert EngineCache(tmp_path, 1 << 30).load(file.stem) == again


def test_a_cache_that_cannot_be_written_costs_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    options = BuildOptions(cache_dir=str(tmp_path / "file" / "cache"))
    with pytest.warns(EngineWarning, match="cannot be written"):
        plan = obtain_plan(saved(), options)
    assert plan.data


def test_the_cache_can_be_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAX_GLUE_CACHE_DIR", str(tmp_path))
    obtain_plan(saved(), BuildOptions(cache=False))
    assert not list(tmp_path.iterdir())


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAX_GLUE_CACHE_DIR", str(tmp_path / "here"))
    found = cache_of(BuildOptions())
    assert found is not None
    assert found.folder == tmp_path / "here"


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    cache = EngineCache(tmp_path, 3000)
    for age, key in enumerate(["a", "b", "c"]):
        cache.write(key, ".engine", bytes(900))
        os.utime(tmp_path / f"{key}.engine", (1000 + age, 1000 + age))
    assert cache.read("a", ".engine")  # used just now
    cache.write("d", ".engine", bytes(900))
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["a", "c", "d"]


def test_other_files_in_the_folder_are_left(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(bytes(5000))
    EngineCache(tmp_path, 100).write("a", ".engine", bytes(50))
    assert (tmp_path / "notes.txt").exists()
    assert (tmp_path / "a.engine").exists()


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(EngineWarning, match="no space left"):
        EngineCache(tmp_path, 1000).store("a", PLAN)
    assert not list(tmp_path.iterdir())


class TimingCache:
    """Stands for TensorRT's, which there is none of in TensorRT-RTX."""

    def __init__(self, held: bytes) -> None:
        self.held = held

    def serialize(self) -> bytes:
        return self.held


class Config:
    """Takes a timing cache if it can be read."""

    taken: TimingCache

    def create_timing_cache(self, held: bytes) -> TimingCache | None:
        return None if held.startswith(b"damaged") else TimingCache(held)

    def set_timing_cache(self, cache: TimingCache, ignore_mismatch: bool) -> None:
        assert not ignore_mismatch
        self.taken = cache


@pytest.mark.parametrize(("old", "seen"), [(None, b""), (b"timings", b"timings"), (b"damaged", b"")])
def test_timings_are_read_before_a_build_and_kept_after(old: bytes | None, seen: bytes, tmp_path: Path) -> None:
    cache = EngineCache(tmp_path, 1 << 20)
    if old is not None:
        cache.write(engine.timings_key(MAINLINE, "gpu"), ".timing", old)
    config: Any = Config()
    timings = engine._Timings.attach(config, cache, MAINLINE, "gpu")
    assert config.taken.held == seen
    config.taken.held += b" and more"
    timings.keep()
    assert cache.read(engine.timings_key(MAINLINE, "gpu"), ".timing") == seen + b" and more"
    assert cache.read(engine.timings_key(MAINLINE, "other gpu"), ".timing") is None


# progress


def test_progress_is_told_and_ends_at_the_end() -> None:
    told: list[tuple[str, int, int]] = []
    options = BuildOptions(cache=False, progress=lambda *step: told.append(step))
    obtain_plan(saved(), options)
    phase, step, steps = told[-1]
    assert step == steps > 0
    of_phase = [s for p, s, _ in told if p == phase]
    assert of_phase == sorted(of_phase)


def test_progress_can_stop_the_build() -> None:
    with pytest.raises(BuildError, match="stopped"):
        obtain_plan(saved(), BuildOptions(cache=False, progress=lambda *_: False))


def test_what_progress_raises_comes_through() -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        obtain_plan(saved(), BuildOptions(cache=False, progress=interrupted))


def test_the_bar_is_wiped_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    obtain_plan(saved(), BuildOptions(cache=False, progress=True))
    drawn = capsys.readouterr().err
    assert "#####" in drawn
    assert drawn.endswith("\r")


def test_no_bar_where_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    obtain_plan(saved(), BuildOptions(cache=False))
    assert capsys.readouterr().err == ""


# refusals


def test_no_provider_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAX_GLUE_TENSORRT", "tensorrt_lite")
    with pytest.raises(ProviderError, match="tensorrt_lite"):
        obtain_plan(saved(), BuildOptions(cache=False))


def test_a_builder_that_gives_nothing_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """An out-of-memory build: TensorRT returns None and reports; both ends are needed in the message."""
    region = saved()
    network = engine.build_network(load_region(region.data))
    recorder = network.provider.recorder()
    recorder.report_error(None, "Requested size was 999 bytes: out of memory")

    class Builder:
        error_recorder: Any = None

        def build_serialized_network(self, *_: Any) -> None:
            return None

    real = network.builder
    fake = dataclasses.replace(real, builder=Builder())
    monkeypatch.setattr(type(fake), "config", lambda self, tf32=False: real.builder.create_builder_config())
    monkeypatch.setattr(type(network.provider), "recorder", lambda self: recorder)
    network.builder = fake
    with pytest.raises(BuildError, match=r"999 bytes.*workspace"):
        engine.build_plan(network, BuildOptions(cache=False), region)
