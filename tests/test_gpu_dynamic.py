"""Engines of symbolic shapes on a GPU: right at every size, between profiles, as graphs, and after being shipped."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from engine_case import flat
from symbolic_case import conv_of_free_size, images, of_flat_rows, symbolic
from test_codegen_symbolic import with_shape_parameter
from tvm import relax

import relax_glue
import relax_glue.tensorrt as trt
from relax_glue.tensorrt import cuda

pytestmark = pytest.mark.gpu

NO_CACHE = trt.BuildOptions(cache=False)
UPPER = {"n": 4, "h": 32, "w": 32}
ENDS_AND_BETWEEN = [(1, 8, 2, 2), (4, 8, 32, 32), (1, 8, 32, 2), (3, 8, 9, 14), (2, 8, 16, 16), (1, 8, 2, 2)]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    trt.unload_engines()


def machine_of(mod: tvm.IRModule, options: trt.BuildOptions = NO_CACHE, **partition: Any) -> relax.VirtualMachine:
    ready = relax_glue.optimize(mod, **partition)
    return relax.VirtualMachine(relax_glue.compile(ready, "cuda", build=options, require_engines=True), tvm.cuda())


def run(machine: relax.VirtualMachine, *arrays: np.ndarray) -> list[np.ndarray]:
    return flat(machine["main"](*[tvm.runtime.tensor(array, tvm.cuda()) for array in arrays]))


def on_cpu(mod: tvm.IRModule) -> Callable[..., list[np.ndarray]]:
    """Return the module as LLVM runs it."""
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    return lambda *arrays: flat(machine["main"](*[tvm.runtime.tensor(array) for array in arrays]))


def close(got: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    for a, b in zip(got, wanted, strict=True):
        assert a.shape == b.shape
        assert np.abs(a - b).max() <= 1e-3 * np.abs(b).max()


@pytest.mark.parametrize("graphs", [True, False])
def test_one_engine_takes_all_sizes(graphs: bool) -> None:
    mod = conv_of_free_size(upper=UPPER)
    machine = machine_of(mod, trt.BuildOptions(cache=False, cuda_graphs=graphs))
    wanted = on_cpu(mod)
    for shape in ENDS_AND_BETWEEN:
        close(run(machine, images(*shape)), wanted(images(*shape)))


@pytest.mark.parametrize("seed", [0, 1])
def test_alternating_sizes_on_the_same_buffers(seed: int) -> None:
    """Each size is called often enough that it is captured and replayed, on one buffer that is cut to size."""
    mod = conv_of_free_size(upper=UPPER)
    machine = machine_of(mod)
    shapes = [ENDS_AND_BETWEEN[index] for index in np.random.default_rng(seed).integers(0, 4, 40)]
    inputs = {shape: images(*shape, seed=seed) for shape in set(shapes)}
    plain = on_cpu(mod)
    wanted = {shape: plain(x) for shape, x in inputs.items()}
    tensors = {shape: tvm.runtime.tensor(x, tvm.cuda()) for shape, x in inputs.items()}
    for shape in shapes:
        close(flat(machine["main"](tensors[shape])), wanted[shape])


def test_what_is_in_the_buffers_is_read_at_each_replay() -> None:
    mod = conv_of_free_size(upper=UPPER)
    machine = machine_of(mod)
    wanted = on_cpu(mod)
    given = tvm.runtime.tensor(images(2, 8, 16, 16), tvm.cuda())
    for seed in range(8):
        x = images(2, 8, 16, 16, seed=seed)
        given.copyfrom(x)
        close(flat(machine["main"](given)), wanted(x))


def test_profiles_change_with_the_call() -> None:
    mod = conv_of_free_size()
    ranges = [{"n": 1, "h": (2, 64), "w": (2, 64)}, {"n": (2, 4, 8), "h": (8, 16), "w": (8, 16)}]
    machine = machine_of(mod, trt.BuildOptions(cache=False, profiles=ranges))
    wanted = on_cpu(mod)
    for shape in [(1, 8, 64, 2), (8, 8, 16, 8), (1, 8, 8, 8), (2, 8, 8, 8), (8, 8, 16, 8), (1, 8, 64, 2)] * 3:
        close(run(machine, images(*shape)), wanted(images(*shape)))


@pytest.mark.parametrize(
    ("shape", "said"),
    [((5, 8, 8, 8), "n = 5"), ((1, 8, 33, 8), "h = 33"), ((1, 8, 8, 2), "w = 2 ")],
)
def test_a_size_out_of_range_is_refused_and_the_next_call_runs(shape: tuple[int, ...], said: str) -> None:
    mod = conv_of_free_size(upper={"n": 64, "h": 64, "w": 32}, lower={"w": 4})
    machine = machine_of(mod, trt.BuildOptions(cache=False, profiles={"n": (1, 4), "h": (2, 32)}))
    with pytest.raises(Exception, match=said):
        run(machine, images(*shape))
    close(run(machine, images(2, 8, 8, 8)), on_cpu(mod)(images(2, 8, 8, 8)))


def test_expressions_of_extents() -> None:
    def body(emit: Any, x: relax.Var, y: relax.Var) -> relax.Expr:
        both = emit(relax.op.concat([y, y], 0))
        return emit(relax.op.matmul(emit(relax.op.add(x, both)), relax.const(images(4, 4))))

    mod = symbolic(body, ("2*n", 4), ("n", 4), upper={"n": 8})
    machine = machine_of(mod)
    wanted = on_cpu(mod)
    for n in (1, 8, 3, 1):
        close(run(machine, images(2 * n, 4), images(n, 4)), wanted(images(2 * n, 4), images(n, 4)))


def test_a_region_with_a_shape_parameter() -> None:
    mod = with_shape_parameter()
    machine = machine_of(mod, exclude_ops=["sort", "concat"])
    wanted = on_cpu(mod)
    for n, m in ((1, 3), (8, 8), (5, 2), (1, 3)):
        close(run(machine, images(n, m), images(n)), wanted(images(n, m), images(n)))


def test_an_engine_that_reads_a_shape() -> None:
    mod = of_flat_rows()
    machine = machine_of(mod)
    plain = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    for n, m in ((3, 4), (4, 3), (3, 4), (8, 6), (1, 1), (4, 3), (3, 4)):
        x, sizes = images(n * m), tvm_ffi.Shape([n, m])
        wanted = flat(plain["main"](tvm.runtime.tensor(x), sizes))
        close(flat(machine["main"](tvm.runtime.tensor(x, tvm.cuda()), sizes)), wanted)


def test_threads_call_with_different_sizes() -> None:
    mod = conv_of_free_size(upper=UPPER)
    lowered = tvm.compile(trt.Codegen(NO_CACHE, require=True)(relax_glue.optimize(mod)), "cuda")
    plain = on_cpu(mod)
    wanted = {shape: plain(images(*shape)) for shape in ENDS_AND_BETWEEN}
    failures: list[BaseException] = []

    def work(start: int) -> None:
        try:
            machine = relax.VirtualMachine(lowered, tvm.cuda())
            for index in range(12):
                shape = ENDS_AND_BETWEEN[(start + index // 3) % len(ENDS_AND_BETWEEN)]
                close(run(machine, images(*shape)), wanted[shape])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_the_callers_stream_is_followed() -> None:
    mod = conv_of_free_size(upper=UPPER)
    machine = machine_of(mod)
    device = tvm.cuda()
    gpu = cuda.gpu()
    with gpu.driver.current(gpu.context):
        stream = gpu.driver.stream()
    tensors = [tvm.runtime.tensor(images(*shape), device) for shape in ENDS_AND_BETWEEN]
    with tvm_ffi.use_raw_stream(device, stream):
        results = [machine["main"](tensor) for tensor in tensors]
    with gpu.driver.current(gpu.context):
        gpu.driver.synchronize(stream)
    wanted = on_cpu(mod)
    for shape, result in zip(ENDS_AND_BETWEEN, results, strict=True):
        close(flat(result), wanted(images(*shape)))


FRESH = """
import sys
import numpy as np
import tvm
from tvm import relax
import relax_glue
from relax_glue.tensorrt import engine

real, built = engine.build_plan, []
engine.build_plan = lambda *a, **k: built.append(1) or real(*a, **k)
machine = relax.VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cuda())
with np.load(sys.argv[2]) as file:
    results = {name: machine["main"](tvm.runtime.tensor(file[name], tvm.cuda())).numpy() for name in file.files}
np.savez(sys.argv[3], built=len(built), **results)
"""


@pytest.mark.parametrize("build", ["now", "lazy"])
def test_an_exported_library_takes_all_sizes_in_a_fresh_process(build: str, tmp_path: Path) -> None:
    mod = conv_of_free_size(upper=UPPER)
    options = trt.BuildOptions(build=build, cache_dir=str(tmp_path / "cache"))
    executable = tvm.compile(trt.Codegen(options, require=True)(relax_glue.optimize(mod)), "cuda")
    executable.export_library(str(tmp_path / "model.so"))
    inputs = {f"x{index}": images(*shape) for index, shape in enumerate(ENDS_AND_BETWEEN)}
    np.savez(tmp_path / "in.npz", **inputs)
    paths = [str(tmp_path / name) for name in ("model.so", "in.npz", "out.npz")]
    subprocess.run([sys.executable, "-c", FRESH, *paths], check=True, timeout=300)
    wanted = on_cpu(mod)
    with np.load(tmp_path / "out.npz") as found:
        assert int(found["built"]) == (build == "lazy")
        for name, x in inputs.items():
            close([found[name]], wanted(x))


def test_check_compares_the_engine_at_the_sizes_given() -> None:
    mod = relax_glue.optimize(conv_of_free_size(upper=UPPER))
    report = trt.check(mod, [images(3, 8, 9, 14)])
    assert report.ok, str(report)
    assert report.where == cuda.gpu_name()


def test_tensorrts_shapes_are_tvms() -> None:
    """A pool and a strided convolution, whose extents are quotients: TVM's and TensorRT's must agree at all sizes."""

    def body(emit: Any, x: relax.Var) -> relax.Expr:
        y = emit(relax.op.nn.conv2d(x, relax.const(images(4, 3, 3, 3)), strides=2, padding=1))
        return emit(relax.op.nn.max_pool2d(emit(relax.op.nn.relu(y)), 3, 2, 1))

    mod = symbolic(body, ("n", 3, "h", "w"), lower={"h": 8, "w": 8}, upper={"n": 2, "h": 40, "w": 24})
    machine = machine_of(mod)
    wanted = on_cpu(mod)
    for h, w in ((8, 8), (9, 11), (40, 24), (39, 10), (13, 23)):
        close(run(machine, images(1, 3, h, w)), wanted(images(1, 3, h, w)))
