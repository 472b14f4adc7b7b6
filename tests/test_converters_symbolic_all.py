"""Every converter takes symbolic extents: the elementwise ones and the rest, against LLVM, and a count of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
import test_converters_symbolic as computing
import test_converters_symbolic_glue as moving
import tvm
from converter_case import calls_of, check_symbolic, module_of_types, numbers
from tvm import relax

from relax_glue.tensorrt.converters import REGISTRY

op = relax.op
nn = relax.op.nn
N, H, W = (tvm.tirx.Var(name, "int64") for name in "nhw")
SIZES = [{"n": 1, "h": 5, "w": 4}, {"n": 3, "h": 6, "w": 7}]
Build = Callable[..., relax.Expr]
Case = tuple[Build, Sequence[relax.TensorType]]

FLOATS = (
    "abs acos asin asinh atan atanh ceil cos cosh erf exp floor isfinite isinf isnan log negative nn.gelu nn.gelu_tanh "
    "nn.leakyrelu nn.relu nn.selu nn.silu nn.softplus round rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc "
    "max min prod std sum ones_like zeros_like nn.batch_flatten"
)
PAIRS = (
    "add atan2 divide equal floor_divide floor_mod greater greater_equal less less_equal log_add_exp maximum minimum "
    "multiply not_equal power subtract"
)
INTEGERS = "mod floor_divide floor_mod maximum minimum equal"
BOOLEANS = "logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor"


def of(*shape: object, dtype: str = "float32") -> relax.TensorType:
    return relax.TensorType(list(shape), dtype)


def named(name: str) -> Callable[..., relax.Expr]:
    scope = op
    for part in name.split("."):
        scope = getattr(scope, part)
    return scope


def const(*shape: int) -> relax.Expr:
    return relax.const(numbers(*shape, seed=sum(shape)))


def all_of(names: str) -> Build:
    """Return a case whose result is a tuple of what each operator makes of the operands."""
    return lambda *xs: relax.Tuple([named(name)(*xs) for name in names.split()])


def positive(*shape: int, dtype: str, seed: int) -> np.ndarray:
    """Numbers that are in the domain of all functions, and of integers no 0."""
    if dtype == "float32":
        return (np.abs(numbers(*shape, seed=seed)) % 0.8 + 0.1).astype(np.float32)
    return np.where((found := numbers(*shape, dtype=dtype, seed=seed)) == 0, 1, found).astype(dtype)


def resized(x: relax.Expr, height: object, width: object) -> relax.Expr:
    size = (height * 2, width * 2, 4)
    return op.image.resize3d(x, size, method="linear", coordinate_transformation_mode="half_pixel")


CASES: dict[str, Case] = {
    "functions": (all_of(FLOATS), [of(N, H, W)]),
    "acosh": (lambda x: op.acosh(op.add(x, relax.const(1.0))), [of(N, W)]),
    "pairs": (all_of(PAIRS), [of(N, H, W), of(H, W)]),
    "pairs of one extent": (all_of("add multiply subtract"), [of(N, 1, W), of(H, 1)]),
    "integers": (all_of(INTEGERS), [of(N, W, dtype="int64"), of(W, dtype="int64")]),
    "booleans": (all_of(BOOLEANS), [of(N, W, dtype="bool"), of(N, 1, dtype="bool")]),
    "negations": (lambda x: relax.Tuple([op.logical_not(x), op.bitwise_not(x)]), [of(N, W, dtype="bool")]),
    "shifts": (
        lambda x: relax.Tuple([op.left_shift(x, relax.const(2, "int64")), op.right_shift(x, relax.const(1, "int64"))]),
        [of(N, W, dtype="int64")],
    ),
    "where": (lambda c, x, y: op.where(c, x, y), [of(N, 1, dtype="bool"), of(N, W), of(W)]),
    "ewise_fma": (lambda x, y: op.ewise_fma(x, y, x), [of(N, W), of(N, W)]),
    "outer": (lambda x, y: op.outer(x, y), [of(N), of(W)]),
    "clip": (lambda x: op.clip(x, 0.2, 0.5), [of(N, W)]),
    "full_like": (lambda x: op.full_like(x, relax.const(2.0)), [of(N, W)]),
    "ones": (lambda x: op.add(x, op.ones((N, W), "float32")), [of(N, W)]),
    "eye_like": (lambda x: op.eye_like(x), [of(N, W)]),
    "layout_transform": (lambda x: op.layout_transform(x, lambda n, h, w: (w, n, h)), [of(N, H, W)]),
    "bucketize": (lambda x: op.bucketize(x, relax.const(np.array([0.2, 0.4, 0.6], np.float32))), [of(N, W)]),
    "argsort of a known axis": (lambda x: op.argsort(x, 1), [of(N, 5, W)]),
    "quantize and back": (
        lambda x: op.dequantize(
            op.quantize(x, relax.const(np.float32(0.05)), relax.const(3, "int8"), 1),
            relax.const(np.float32(0.05)),
            relax.const(3, "int8"),
            1,
        ),
        [of(N, 3, W)],
    ),
    "conv1d_transpose": (lambda x: nn.conv1d_transpose(x, const(3, 4, 3), strides=2, padding=1), [of(N, 3, W)]),
    "conv3d": (lambda x: nn.conv3d(x, const(2, 3, 3, 3, 3), padding=1), [of(N, 3, H, W, 4)]),
    "conv3d_transpose": (lambda x: nn.conv3d_transpose(x, const(3, 2, 2, 2, 2), strides=2), [of(N, 3, H, W, 2)]),
    "max_pool1d": (lambda x: nn.max_pool1d(x, 3, 2, 1), [of(N, 3, W)]),
    "max_pool3d": (lambda x: nn.max_pool3d(x, 2, 2, 0, 1, True), [of(N, 2, H, W, 3)]),
    "avg_pool3d": (lambda x: nn.avg_pool3d(x, 2, 1, 0), [of(N, 2, H, W, 3)]),
    "adaptive_avg_pool3d": (lambda x: nn.adaptive_avg_pool3d(x, (2, 2, 1)), [of(N, 2, H, W, 3)]),
    "resize3d": (lambda x: resized(x, H, W), [of(N, 2, H, W, 2)]),
    "grid_sample": (
        lambda x, g: op.image.grid_sample(x, g, "bilinear", "NCHW", "zeros", True),
        [of(N, 3, H, W), of(N, 2, W, H)],
    ),
    "affine_grid of a batch": (lambda x: op.image.affine_grid(x, (3, 4)), [of(N, 2, 3)]),
    "attention_bias": (
        lambda x, b: nn.attention(x, x, x, b, tvm.tirx.FloatImm("float32", 0.5)),
        [of(N, H, 2, 4), of(N, 2, H, H)],
    ),
}

# TVM compiles these for known sizes only, or, of ewise_fma, not at all
STATIC: dict[str, Callable[[Mapping[str, int]], Build]] = {
    **{
        name: lambda _, name=name: CASES[name][0]
        for name in ("attention_bias", "conv1d_transpose", "conv3d_transpose", "quantize and back")
    },
    "resize3d": lambda sizes: lambda x: resized(x, sizes["h"], sizes["w"]),
    "ewise_fma": lambda _: lambda x, y: op.add(op.multiply(x, y), x),
}
REFUSED = {
    "relax.vision.all_class_non_max_suppression",
    "relax.vision.non_max_suppression",
    "relax.vision.get_valid_counts",
}


@pytest.mark.parametrize("name", CASES)
def test_one_network_for_all_sizes(name: str) -> None:
    build, types = CASES[name]
    check_symbolic(build, types, SIZES, rtol=1e-4, atol=1e-5, make=positive, static=STATIC.get(name))


def cases() -> list[Case]:
    """Return the cases of this file and of the two beside it."""
    named_extents = {name: tvm.tirx.Var(name, "int64") for name in "nhw"}
    found = list(CASES.values())
    for build, shape in computing.CASES.values():
        found.append((build, [of(*(named_extents.get(extent, extent) for extent in shape))]))
    found += [(build, types) for build, *types in (*moving.RESHAPES.values(), *moving.SLICES.values())]
    found += [*moving.REPEATS.values(), *moving.INDEXED.values()]
    found += [(build, [of(moving.N, moving.M)]) for build in moving.FILLS.values()]
    found.append((moving.resized((N, N), "NCHW", "half_pixel", ""), [of(1, 1, N, N)]))
    found.append((lambda x: nn.pixel_shuffle(x, 2), [of(N, 8, N, N)]))
    return found


def test_every_converter_has_a_case() -> None:
    met: set[str] = set()
    for build, types in cases():
        extra = [of(moving.M)] if build is moving.REPEATS["broadcast"][0] else []
        module = module_of_types((lambda x, _, build=build: build(x)) if extra else build, [*types, *extra])
        met |= {call.op.name for call in calls_of(module)}
    assert set(REGISTRY) - met == REFUSED
