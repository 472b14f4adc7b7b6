"""Engines run from the virtual machine on a GPU: right, without waiting, from threads, and after being shipped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from engine_case import conv_module, flat, inputs_of, module_of, on_llvm, partitioned
from tvm import relax
from tvm.relax.dpl import TuplePattern, is_op, wildcard

import relax_glue.tensorrt as trt
from relax_glue.errors import DeviceError, EngineWarning, PlanError, RelaxGlueError
from relax_glue.region_function import region_functions
from relax_glue.tensorrt import codegen, cuda, execution
from relax_glue.tensorrt.artifact import Artifact, save_region
from relax_glue.tensorrt.engine import obtain_plan
from relax_glue.tensorrt.host import host_module

pytestmark = pytest.mark.gpu

NO_CACHE = trt.BuildOptions(cache=False)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    trt.unload_engines()


def machine_of(mod: tvm.IRModule, options: trt.BuildOptions = NO_CACHE) -> relax.VirtualMachine:
    lowered = trt.Codegen(options, require=True)(partitioned(mod))
    return relax.VirtualMachine(tvm.compile(lowered, "cuda"), tvm.cuda())


def on_gpu(machine: relax.VirtualMachine, inputs: list[np.ndarray]) -> list[np.ndarray]:
    return flat(machine["main"](*[tvm.runtime.tensor(array, tvm.cuda()) for array in inputs]))


def close(got: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted, strict=True):
        assert a.shape == b.shape
        assert np.abs(a - b).max() <= 1e-3 * np.abs(b).max()


OPERATORS = {
    "tensorrt.permute_dims": (
        is_op("relax.permute_dims")(wildcard()),
        lambda emit, x: emit(relax.op.permute_dims(x, [0, 2, 3, 1])),
    ),
    "tensorrt.strided_slice": (
        is_op("relax.strided_slice")(wildcard(), wildcard(), wildcard(), wildcard()),
        lambda emit, x: emit(relax.op.strided_slice(x, [1, 2], [0, 1], [2, 7])),
    ),
    "tensorrt.image.resize2d": (
        is_op("relax.image.resize2d")(wildcard(), wildcard()),
        lambda emit, x: emit(relax.op.image.resize2d(x, (16, 16), method="linear", layout="NCHW")),
    ),
    "tensorrt.concat": (
        is_op("relax.concat")(TuplePattern([wildcard(), wildcard()])),
        lambda emit, x: emit(relax.op.concat([x, x], axis=1)),
    ),
    "tensorrt.transpose": (
        is_op("relax.permute_dims")(wildcard()),
        lambda emit, x: emit(relax.op.permute_dims(x)),
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_tvms_own_route_runs_with_the_users_pattern_names(name: str) -> None:
    pattern, body = OPERATORS[name]
    mod = module_of(body, (1, 4, 8, 8))
    route = tvm.transform.Sequential(
        [
            relax.transform.FuseOpsByPattern([(name, pattern)]),
            relax.transform.MergeCompositeFunctions(),
            relax.transform.RunCodegen({"tensorrt": {"cache": False}}),
        ]
    )
    lowered = route(mod)
    assert "call_dps_packed" in lowered["main"].script()
    machine = relax.VirtualMachine(tvm.compile(lowered, "cuda"), tvm.cuda())
    close(on_gpu(machine, inputs_of(mod)), on_llvm(mod, inputs_of(mod)))


@pytest.mark.parametrize("graphs", [True, False])
def test_repeated_calls_follow_their_inputs(graphs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = []
    launch = cuda.Driver.launch
    monkeypatch.setattr(cuda.Driver, "launch", lambda *args: launched.append(args) or launch(*args))
    mod = conv_module()
    machine = machine_of(mod, trt.BuildOptions(cache=False, cuda_graphs=graphs))
    buffers = [tvm.runtime.empty((1, 8, 16, 16), "float32", tvm.cuda()) for _ in range(3)]
    for number in range(12):
        inputs = inputs_of(mod, number)
        buffer = buffers[number % 3]
        buffer.copyfrom(inputs[0])
        close(flat(machine["main"](buffer)), on_llvm(mod, inputs))
    assert bool(launched) is graphs


def test_more_buffers_than_graphs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "GRAPHS", 2)
    mod = conv_module()
    machine = machine_of(mod)
    buffers = [tvm.runtime.tensor(inputs_of(mod, seed)[0], tvm.cuda()) for seed in range(4)]
    wanted = [on_llvm(mod, inputs_of(mod, seed)) for seed in range(4)]
    for number in [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 0, 0, 0, 1, 2, 3, 0]:
        close(flat(machine["main"](buffers[number])), wanted[number])


def test_a_chain_of_kernels_and_engines_needs_no_synchronisation() -> None:
    """Engines between TVM's own kernels, all in flight at once: each must wait for what it reads."""
    size = (1, 8, 256, 256)

    def body(emit, x):  # type: ignore[no-untyped-def]
        for _ in range(6):
            x = emit(relax.op.nn.relu(emit(relax.op.subtract(x, relax.const(np.float32(0.05))))))
            x = emit(relax.op.nn.gelu(x))  # upstream's table leaves it with TVM
        return x

    mod = module_of(body, size)
    machine = machine_of(mod)
    inputs = inputs_of(mod)
    wanted = on_llvm(mod, inputs)
    results = [machine["main"](tvm.runtime.tensor(inputs[0], tvm.cuda())) for _ in range(20)]
    for result in results:
        close(flat(result), wanted)


def test_the_callers_stream_is_used() -> None:
    mod = conv_module(size=64)
    machine = machine_of(mod)
    device = tvm.cuda()
    stream = cuda.gpu().driver.stream()
    inputs = inputs_of(mod)
    wanted = on_llvm(mod, inputs)
    with tvm_ffi.use_raw_stream(device, stream):
        for _ in range(5):
            result = machine["main"](tvm.runtime.tensor(inputs[0], device))
        cuda.gpu().driver.synchronize(stream)
    close(flat(result), wanted)


def test_threads_with_a_machine_each() -> None:
    """Several virtual machines of one module in one process, at the same time."""
    mod = conv_module(size=64)
    executable = tvm.compile(trt.Codegen(NO_CACHE, require=True)(partitioned(mod)), "cuda")
    wanted = {seed: on_llvm(mod, inputs_of(mod, seed)) for seed in range(6)}
    failures: list[BaseException] = []

    # one after another: TVM links each machine's code when it is made, which two threads cannot do at a time
    machines = [relax.VirtualMachine(executable, tvm.cuda()) for _ in range(6)]

    def work(seed: int) -> None:
        try:
            machine = machines[seed]
            given = tvm.runtime.tensor(inputs_of(mod, seed)[0], tvm.cuda())
            for _ in range(30):
                close(flat(machine["main"](given)), wanted[seed])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_two_models_with_equal_region_names() -> None:
    first, second = conv_module(1), conv_module(2)
    machines = [machine_of(mod) for mod in (first, second)]
    inputs = inputs_of(first)
    for _ in range(4):
        for machine, mod in zip(machines, (first, second), strict=True):
            close(on_gpu(machine, inputs), on_llvm(mod, inputs))


CHILD = """
import json, sys, time
start = time.perf_counter()
import numpy as np, tvm, relax_glue.tensorrt
from tvm import relax
from relax_glue.tensorrt import engine
built = []
real = engine.build_plan
engine.build_plan = lambda *a, **k: built.append(1) or real(*a, **k)
imported = time.perf_counter()
machine = relax.VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cuda())
x = tvm.runtime.tensor(np.load(sys.argv[2]), tvm.cuda())
loaded = time.perf_counter()
y = machine["main"](x).numpy()
done = time.perf_counter()
np.save(sys.argv[3], y)
print(json.dumps({"import": imported - start, "load": loaded - imported, "first": done - loaded, "built": len(built)}))
"""


def environment(cache: Path | None = None) -> dict[str, str]:
    """Return the environment of a child process: it finds what this one finds."""
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return here if cache is None else {**here, "RELAX_GLUE_CACHE_DIR": str(cache)}


def in_a_fresh_process(library: Path, array: np.ndarray, folder: Path, cache: Path) -> tuple[np.ndarray, dict]:
    np.save(folder / "x.npy", array)
    command = [sys.executable, "-P", "-c", CHILD, str(library), str(folder / "x.npy"), str(folder / "y.npy")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(cache), check=False)
    assert done.returncode == 0, done.stderr
    return np.load(folder / "y.npy"), json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("build", ["now", "lazy"])
def test_an_exported_library_runs_in_a_fresh_process(build: str, tmp_path: Path) -> None:
    mod = conv_module()
    options = trt.BuildOptions(cache=True, build=build)
    lowered = trt.Codegen(options, require=True)(partitioned(mod))
    library = tmp_path / "model.so"
    tvm.compile(lowered, "cuda").export_library(str(library))
    inputs = inputs_of(mod)
    wanted = on_llvm(mod, inputs)
    for run in range(2):
        got, report = in_a_fresh_process(library, inputs[0], tmp_path, tmp_path / "cache")
        print(build, "run", run, report)
        close([got], wanted)
        assert report["built"] == (1 if build == "lazy" and run == 0 else 0)


def broken(artifact: Artifact) -> Artifact:
    """Return an artifact whose engine has one byte changed, behind our digests."""
    plan = artifact.plan
    assert plan is not None
    data = bytearray(plan.data)
    data[len(data) // 2] ^= 0xFF
    data[100] ^= 0xFF
    return replace(artifact, plan=replace(plan, data=bytes(data)))


def foreign(artifact: Artifact) -> Artifact:
    """Return an artifact whose engine says that another TensorRT made it."""
    plan = artifact.plan
    assert plan is not None
    return replace(artifact, plan=replace(plan, provider="tensorrt_rtx 0.1"))


@pytest.mark.parametrize("harm", [broken, foreign])
def test_a_bad_engine_is_built_again(harm, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    make = codegen.make_artifact
    monkeypatch.setattr(codegen, "make_artifact", lambda *args: harm(make(*args)))
    mod = conv_module()
    machine = machine_of(mod)
    inputs = inputs_of(mod)
    with pytest.warns(EngineWarning, match="built again"):
        got = on_gpu(machine, inputs)
    close(got, on_llvm(mod, inputs))


def test_a_bad_engine_without_its_region_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    make = codegen.make_artifact
    monkeypatch.setattr(codegen, "make_artifact", lambda *args: foreign(make(*args)))
    machine = machine_of(conv_module(), trt.BuildOptions(cache=False, keep_region=False))
    with pytest.raises(PlanError, match="keep_region"):
        on_gpu(machine, inputs_of(conv_module()))


def test_a_library_with_one_byte_changed_still_runs(tmp_path: Path) -> None:
    mod = conv_module()
    library = tmp_path / "model.so"
    options = trt.BuildOptions(cache=False)
    lowered = trt.Codegen(options, require=True)(partitioned(mod))
    tvm.compile(lowered, "cuda").export_library(str(library))
    content = bytearray(library.read_bytes())
    artifact = codegen.make_artifact(
        next(
            f.with_attr("global_symbol", gv.name_hint)
            for gv, f in partitioned(mod).functions_items()
            if f.attrs and "Codegen" in f.attrs
        ),
        options,
    )
    from relax_glue.tensorrt.artifact import to_text

    text = to_text(artifact.pack()).encode()
    place = content.find(text[:400]) + len(text) * 3 // 4
    content[place] = ord("B") if content[place] != ord("B") else ord("C")
    library.write_bytes(bytes(content))
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cuda())
    inputs = inputs_of(mod)
    with pytest.warns(EngineWarning, match="damaged"):
        got = on_gpu(machine, inputs)
    close(got, on_llvm(mod, inputs))


def test_a_tensor_on_the_wrong_device_is_refused() -> None:
    mod = conv_module()
    machine = machine_of(mod)
    with pytest.raises(DeviceError, match="cpu"):
        machine["main"](tvm.runtime.tensor(inputs_of(mod)[0]))
    close(on_gpu(machine, inputs_of(mod)), on_llvm(mod, inputs_of(mod)))


@pytest.mark.parametrize("given", ["shape", "dtype", "number"])
def test_wrong_inputs_are_refused(given: str) -> None:
    mod = conv_module()
    machine = machine_of(mod)
    good = inputs_of(mod)[0]
    bad = {"shape": [good[:, :, 1:]], "dtype": [good.astype("float64")], "number": [good, good]}[given]
    with pytest.raises((ValueError, RuntimeError)):
        machine["main"](*[tvm.runtime.tensor(np.ascontiguousarray(array), tvm.cuda()) for array in bad])
    close(on_gpu(machine, [good]), on_llvm(mod, [good]))


def test_without_memory_it_is_an_error_and_nothing_is_lost() -> None:
    mod = conv_module(channels=64, size=512)
    machine = machine_of(mod)
    given = tvm.runtime.tensor(inputs_of(mod)[0], tvm.cuda())
    wanted = on_llvm(mod, inputs_of(mod))
    close(flat(machine["main"](given)), wanted)  # TVM's pool has room for the result from now on
    trt.unload_engines()
    ballast = []
    size = 64 << 30
    while size > 64 << 10:
        try:
            ballast.append(tvm.runtime.empty((size,), "uint8", tvm.cuda()))
        except RuntimeError:
            size //= 2
    # TVM may be the one that finds no room, for the result; then it is TVM's error
    with pytest.raises((RelaxGlueError, RuntimeError), match="(?i)memory"):
        machine["main"](given)
    ballast.clear()
    close(flat(machine["main"](given)), wanted)


TF32 = """
import sys
sys.path.insert(0, sys.argv[1])
import test_gpu_runtime as t
mod = t.conv_module(channels=64, size=64)
got = t.on_gpu(t.machine_of(mod, t.trt.BuildOptions(cache=False, tf32=True)), t.inputs_of(mod))[0]
wanted = t.on_llvm(mod, t.inputs_of(mod))[0]
print(abs(got - wanted).max() / abs(wanted).max())
"""


def test_tf32_is_off_unless_asked_for() -> None:
    mod = conv_module(channels=64, size=64)
    inputs = inputs_of(mod)
    got, wanted = on_gpu(machine_of(mod), inputs)[0], on_llvm(mod, inputs)[0]
    without = float(np.abs(got - wanted).max() / np.abs(wanted).max())
    assert without < 1e-5
    command = [sys.executable, "-P", "-c", TF32, str(Path(__file__).parent)]  # a process is of one mind
    with_it = float(subprocess.run(command, capture_output=True, text=True, env=environment(), check=True).stdout)
    print("error without TF32", without, "with", with_it)
    assert without < with_it < 1e-2


def test_results_are_tvms_own_tensors() -> None:
    """What is returned can be kept while the model runs on."""
    mod = conv_module()
    machine = machine_of(mod)
    kept = [(seed, machine["main"](tvm.runtime.tensor(inputs_of(mod, seed)[0], tvm.cuda()))) for seed in range(8)]
    for seed, result in kept:
        close(flat(result), on_llvm(mod, inputs_of(mod, seed)))


def test_check_on_the_gpu_finds_no_difference() -> None:
    report = trt.check(partitioned(conv_module()), options=NO_CACHE)
    assert report.ok, str(report)
    assert report.where != "numpy"


def test_no_warning_in_the_good_case(tmp_path: Path) -> None:
    mod = conv_module()
    with warnings.catch_warnings():
        warnings.simplefilter("error", EngineWarning)
        on_gpu(machine_of(mod, trt.BuildOptions(cache_dir=str(tmp_path))), inputs_of(mod))
    assert {path.suffix for path in tmp_path.iterdir()} == {".engine", ".kernels"}


def test_graphs_replayed_on_different_streams_do_not_meet() -> None:
    """All graphs of an engine use one scratch memory, so those on one stream must wait for those on another."""
    mod = conv_module(size=256)
    (function,) = region_functions(partitioned(mod)).values()
    saved = save_region(function)
    plan = obtain_plan(saved, NO_CACHE, function)
    module = host_module([("region", Artifact(saved.symbol, saved.inputs, saved.outputs, NO_CACHE, None, plan))])
    device, driver = tvm.cuda(), cuda.gpu().driver
    streams = [0, driver.stream(), driver.stream()]
    given = [tvm.runtime.tensor(inputs_of(mod, seed)[0], device) for seed in range(3)]
    (spec,) = saved.outputs
    results = [tvm.runtime.empty(spec.extents({}), spec.dtype, device) for _ in streams]
    for _ in range(12):
        for stream, x, y in zip(streams, given, results, strict=True):
            with tvm_ffi.use_raw_stream(device, stream):
                module["region"](x, y)
    for stream in streams[1:]:
        driver.synchronize(stream)
    for seed, result in enumerate(results):
        close([result.numpy()], on_llvm(mod, inputs_of(mod, seed)))
