"""The report that started this project: single glue operators that run on CUDA and in TensorRT, but not through TVM.

On a GPU each has to run through TVM's own route with patterns of the user's making, and, through
`relax_glue.optimize`, as one region. That each forms one region is tested without a GPU too.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from engine_case import flat, inputs_of, module_of, on_llvm
from tvm import relax
from tvm.relax.dpl import TuplePattern, is_op, wildcard

import relax_glue
import relax_glue.tensorrt as trt

Emit = Callable[[relax.Expr], relax.Var]
SHAPE = (1, 4, 8, 8)


def halves_swapped(emit: Emit, x: relax.Var) -> relax.Expr:
    parts = emit(relax.op.split(x, 2, axis=1))
    return relax.Tuple([relax.TupleGetItem(parts, 1), relax.TupleGetItem(parts, 0)])


def channels_shuffled(emit: Emit, x: relax.Var) -> relax.Expr:
    x = emit(relax.op.reshape(x, (1, 2, 2, 8, 8)))
    x = emit(relax.op.permute_dims(x, [0, 2, 1, 3, 4]))
    return emit(relax.op.reshape(x, SHAPE))


BODIES: dict[str, Callable[[Emit, relax.Var], relax.Expr]] = {
    "permute_dims": lambda emit, x: emit(relax.op.permute_dims(x, [0, 2, 3, 1])),
    "strided_slice": lambda emit, x: emit(relax.op.strided_slice(x, [2, 3], [0, 1], [8, 8], [2, 2])),
    "image.resize2d": lambda emit, x: emit(
        relax.op.image.resize2d(
            x,
            (16, 16),
            method="nearest_neighbor",
            coordinate_transformation_mode="asymmetric",
            rounding_method="floor",
        )
    ),
    "concat": lambda emit, x: emit(relax.op.concat([x, x], axis=1)),
    "split": halves_swapped,
    "reshape chain": channels_shuffled,
}

PATTERNS = {
    "permute_dims": is_op("relax.permute_dims")(wildcard()),
    "strided_slice": is_op("relax.strided_slice")(wildcard(), wildcard(), wildcard(), wildcard(), wildcard()),
    "image.resize2d": is_op("relax.image.resize2d")(wildcard(), wildcard()),
    "concat": is_op("relax.concat")(TuplePattern([wildcard(), wildcard()])),
}


def regions(mod: tvm.IRModule) -> int:
    return sum(bool(function.attrs) and "Codegen" in function.attrs for function in mod.functions.values())


def agrees(executable: relax.VMExecutable, mod: tvm.IRModule) -> bool:
    """Say whether a compiled module yields on the GPU what the module yields by LLVM."""
    machine = relax.VirtualMachine(executable, tvm.cuda())
    inputs = inputs_of(mod)
    got = flat(machine["main"](*[tvm.runtime.tensor(array, tvm.cuda()) for array in inputs]))
    wanted = on_llvm(mod, inputs)
    return len(got) == len(wanted) and all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))


@pytest.mark.parametrize("name", BODIES)
def test_each_is_one_region(name: str) -> None:
    assert regions(relax_glue.optimize(module_of(BODIES[name], SHAPE))) == 1


@pytest.mark.gpu
@pytest.mark.parametrize("name", PATTERNS)
def test_the_reports_script(name: str) -> None:
    mod = module_of(BODIES[name], SHAPE)
    partitioned = tvm.transform.Sequential(
        [
            relax.transform.FuseOpsByPattern([(f"tensorrt.{name}", PATTERNS[name])]),
            relax.transform.MergeCompositeFunctions(),
        ]
    )(mod)
    assert regions(partitioned) == 1
    executable = tvm.compile(relax.transform.RunCodegen()(partitioned), "cuda")
    runtime_ok = agrees(executable, mod)
    print(name, "runtime_ok:", str(runtime_ok).lower())
    assert runtime_ok


@pytest.mark.gpu
@pytest.mark.parametrize("name", BODIES)
def test_through_optimize_and_compile(name: str) -> None:
    mod = module_of(BODIES[name], SHAPE)
    optimised = relax_glue.optimize(mod)
    assert regions(optimised) == 1
    executable = relax_glue.compile(optimised, "cuda", build=trt.BuildOptions(cache=False), require_engines=True)
    assert agrees(executable, mod)
