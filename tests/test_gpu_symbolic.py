"""On a GPU: engines whose extents, starts, fills and rows are computed at run time, at several sizes, against LLVM.

One engine holds many cases, so that this takes seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import test_converters_symbolic as computing
import test_converters_symbolic_glue as moving
import tvm
from converter_case import close_on_gpu, module_of_types, numbers, run_machine, shape_at
from test_converters_symbolic_all import named, of
from tvm import relax

import relax_glue
import relax_glue.tensorrt as trt
from relax_glue.region_function import region_functions

N, M, H = moving.N, moving.M, moving.H
SIZES = [{"n": 6, "m": 4, "h": 5}, {"n": 8, "m": 2, "h": 7}, {"n": 5, "m": 7, "h": 5}]


def run_on_gpu(module: tvm.IRModule, every_size: Sequence[Mapping[str, int]], exact: bool) -> None:
    """Compare one engine at all sizes with LLVM, twice each: the first call of a size sets up what later ones use."""
    partitioned = relax_glue.partition(module, require_full_offload=True)
    assert len(region_functions(partitioned)) == 1
    profiles = {
        name: (min(sizes[name] for sizes in every_size), max(sizes[name] for sizes in every_size))
        for name in every_size[0]
    }
    lowered = trt.Codegen(trt.BuildOptions(cache=False, profiles=profiles), require=True)(partitioned)
    device = tvm.cuda()
    machine = relax.VirtualMachine(tvm.compile(lowered, "cuda"), device)
    plain = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())
    for sizes in (*every_size, *every_size):
        inputs = [numbers(*shape_at(param.ty, sizes), dtype=str(param.ty.dtype)) for param in module["main"].params]
        result = machine["main"](*[tvm.runtime.tensor(array, device) for array in inputs])
        for got, wanted in zip(result, run_machine(plain, inputs), strict=True):
            close_on_gpu(got.numpy(), wanted, exact=exact)


@pytest.mark.gpu
def test_what_only_moves_data() -> None:
    square = [
        *(build for build, *types in moving.SLICES.values() if len(types) == 1 and types[0].shape.values[1] == 3),
        *(
            moving.REPEATS[name][0]
            for name in ("tile", "repeat", "repeat of all", "replicate", "pad that cuts", "stack")
        ),
        *(moving.INDEXED[name][0] for name in ("take", "take and clip", "take and wrap")),
        lambda x: moving.nn.pad(x, [2, 3, 0, 0], "reflect"),
        lambda x: relax.op.broadcast_to(relax.op.expand_dims(x, 1), (N, M, 3)),
        lambda x: relax.op.reshape(relax.op.permute_dims(x), (N * 3,)),
    ]
    resizes = [case for name, case in moving.RESIZES.items() if name != "to a size"]  # which TVM does not compile
    images = [moving.resized(size(H, M), "NCHW", *options) for size, *options in resizes]

    def build(x: relax.Var, image: relax.Var) -> relax.Expr:
        return relax.Tuple([make(x) for make in square] + [make(image) for make in images])

    run_on_gpu(module_of_types(build, [of(N, 3), of(N, 2, H, M)]), SIZES, exact=True)


@pytest.mark.gpu
def test_what_makes_data() -> None:
    builds = [build for name, build in moving.FILLS.items() if name not in ("meshgrid", "dropout")]
    module = module_of_types(lambda x: relax.Tuple([build(x) for build in builds]), [of(N, M)])
    run_on_gpu(module, [{"n": sizes["n"], "m": sizes["m"]} for sizes in SIZES], exact=True)


@pytest.mark.gpu
def test_what_computes() -> None:
    names = (
        "conv2d",
        "conv2d_transpose",
        "avg_pool2d counting",
        "max_pool2d, sizes rounded up",
        "avg_pool2d, sizes rounded up",
        "avg_pool2d counting, sizes rounded up",
        "dilated max_pool2d",
        "dilated avg_pool2d",
        "cells",
        "squeeze and excite",
        "instance_norm",
        "output_padding of a symbolic axis",
    )
    sizes = [{"n": 1, "h": 8, "w": 6}, {"n": 3, "h": 5, "w": 9}, {"n": 2, "h": 6, "w": 7}]
    n, h, w = (tvm.tirx.Var(name, "int64") for name in "nhw")

    def build(image: relax.Var, matrix: relax.Var) -> relax.Expr:
        images = [computing.CASES[name][0](image) for name in names]
        others = [
            named("cumsum")(matrix, 1),
            named("argmax")(matrix, 0),
            named("nn.softmax")(matrix, 1),
            named("matmul")(matrix, relax.op.permute_dims(matrix)),
            named("nn.log_softmax")(matrix, 0),
        ]
        return relax.Tuple([*images, *others])

    run_on_gpu(module_of_types(build, [of(n, 3, h, w), of(h, w)]), sizes, exact=False)


@pytest.mark.gpu
def test_extents_of_no_input_of_the_region() -> None:
    """m is no extent of what the region reads, so that its value comes along, for extents and as data."""

    def build(x: relax.Var, _: relax.Var) -> relax.Expr:
        numbers_of = relax.op.astype(relax.op.shape_to_tensor(relax.ShapeExpr([M * 2, N])), "float32")
        return relax.Tuple(
            [
                relax.op.add(relax.op.max(x), numbers_of),
                relax.op.broadcast_to(relax.op.expand_dims(x, 0), (M, N)),
                relax.op.arange(0, M, 1, "float32"),
            ]
        )

    run_on_gpu(
        module_of_types(build, [of(N), of(M)]), [{"n": 2, "m": 5}, {"n": 4, "m": 1}, {"n": 2, "m": 3}], exact=True
    )
