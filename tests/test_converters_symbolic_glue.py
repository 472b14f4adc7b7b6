"""One network for all sizes: converters of operators that move or make data, along symbolic extents, against LLVM."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from converter_case import calls_of, check_symbolic, layer_types, module_of_types, numbers
from tvm import relax

from relax_glue.tensorrt.converters import REGISTRY
from relax_glue.tensorrt.network import Network, build_network
from relax_glue.tensorrt.reference import evaluate

op = relax.op
nn = relax.op.nn
N, M, H = (tvm.tirx.Var(name, "int64") for name in "nmh")
LAST = 2**63 - 1
SIZES = [{"n": 6, "m": 4, "h": 5}, {"n": 5, "m": 7, "h": 8}, {"n": 8, "m": 2, "h": 6}]
FROM_ONE = [{"n": 1, "m": 1, "h": 1}, {"n": 2, "m": 3, "h": 1}, {"n": 5, "m": 4, "h": 7}]
Build = Callable[..., relax.Expr]


def of(*shape: object, dtype: str = "float32") -> relax.TensorType:
    return relax.TensorType(list(shape), dtype)


def ints(*values: int) -> relax.Expr:
    return relax.const(np.array(values, "int64"))


def cut(begin: object, end: object, step: int = 1, axis: int = 0) -> Build:
    return lambda x: op.strided_slice(x, [axis], [begin], [end], [step])


def resized(
    size: tuple[object, ...], layout: str, coordinates: str, rounding: str, method: str = "nearest_neighbor"
) -> Build:
    return lambda x: op.image.resize2d(
        x,
        size,
        layout=layout,
        method=method,
        coordinate_transformation_mode=coordinates,
        rounding_method=rounding,
    )


RESHAPES = {
    "two extents that are not the input's": (lambda x: op.reshape(x, (N * 2, M * 3)), of(N, 6, M)),
    "an extent split": (lambda x, _: op.reshape(x, (N, 2, M)), of(N * 2, M), of(N)),
    "all in one": (lambda x: op.flatten(x), of(N, M, H)),
    "merged and kept": (lambda x: op.reshape(x, (M, H * N, 3)), of(N, M, H, 3)),
    "extents that change places": (lambda x: op.reshape(x, (M, 4, N)), of(N, 4, M)),
    "moved and merged": (lambda x: op.reshape(op.permute_dims(x, (2, 0, 1)), (M, N * 4)), of(N, 4, M)),
    "reshaped and moved": (lambda x: op.permute_dims(op.reshape(x, (M * 2, 2, N)), (2, 0, 1)), of(N, 4, M)),
    "reshaped twice": (lambda x: op.reshape(op.reshape(x, (M * 2, N * 2)), (N, M, 4)), of(N, 4, M)),
    "channels in groups": (
        lambda x: op.reshape(op.permute_dims(op.reshape(x, (N, 2, 3, H, M)), (0, 2, 1, 3, 4)), (N, 6, H, M)),
        of(N, 6, H, M),
    ),
    "windows": (
        lambda x, _: op.reshape(
            op.permute_dims(op.reshape(x, (N, H, 2, M, 2, 3)), (0, 1, 3, 2, 4, 5)), (N * H * M, 4, 3)
        ),
        of(N, H * 2, M * 2, 3),
        of(H, M),
    ),
    "new axes": (lambda x: op.squeeze(op.expand_dims(op.permute_dims(x), [0, 2]), [0]), of(N, M)),
}


@pytest.mark.parametrize("name", RESHAPES)
def test_reshapes(name: str) -> None:
    build, *types = RESHAPES[name]
    check_symbolic(build, types, FROM_ONE)


SLICES = {
    "1:5": (cut(1, 5), of(N, 3)),
    "1:": (cut(1, LAST), of(N, 3)),
    ":-1": (cut(0, -1), of(N, 3)),
    "-3:": (cut(-3, LAST), of(N, 3)),
    "-10:": (cut(-10, LAST), of(N, 3)),
    "-3:-1": (cut(-3, -1), of(N, 3)),
    "::2": (cut(0, LAST, 2), of(N, 3)),
    "1::3": (cut(1, LAST, 3), of(N, 3)),
    "::-1": (cut(-1, -(2**31), -1), of(N, 3)),
    "4:1:-2": (cut(4, 1, -2), of(N, 3)),
    ":n // 2": (cut(0, N // 2), of(N, 3)),
    "n // 2:": (cut(N // 2, N), of(N, 3)),
    "m: of another axis": (cut(M // 2, N, axis=1), of(M, N)),
    "assume_inbound": (lambda x: op.strided_slice(x, [0], [1], [5], assume_inbound=True), of(N, 3)),
    "of a known axis beside it": (cut(3, -5, -1, axis=1), of(N, 4, M)),
    "split in two": (lambda x: op.split(x, 2, 0), of(N, M)),
    "split at numbers": (lambda x: op.split(x, [2, 4], 1), of(M, N)),
    "split of a double extent": (lambda x, _: op.split(x, 2, 1), of(M, N * 2), of(N)),
    "flip": (lambda x: op.flip(x, 0), of(N, 3)),
    "shifted window": (
        lambda x: op.concat([op.strided_slice(x, [0], [2], [LAST]), op.strided_slice(x, [0], [0], [2])], 0),
        of(N, 3),
    ),
}


@pytest.mark.parametrize("name", SLICES)
def test_slices(name: str) -> None:
    build, *types = SLICES[name]
    check_symbolic(build, types, SIZES)


REPEATS = {
    "broadcast": (lambda x: op.broadcast_to(x, (M, N, 4)), [of(N, 1)]),
    "broadcast beside symbols": (lambda x, y: op.broadcast_to(x, (M, N, H)), [of(1, N, 1), of(M, H)]),
    "tile": (lambda x: op.tile(x, (2, 3)), [of(N, M)]),
    "tile in front": (lambda x: op.tile(x, (2, 1, 1)), [of(N, M)]),
    "repeat": (lambda x: op.repeat(x, 3, 1), [of(M, N)]),
    "repeat of all": (lambda x: op.repeat(x, 2), [of(M, N)]),
    "repeat of a known axis": (lambda x: op.repeat(x, 2, 1), [of(N, 3)]),
    "concat": (lambda x, y: op.concat([x, y, x], 1), [of(N, M), of(N, 2)]),
    "stack": (lambda x: op.stack([x, x], 1), [of(N, M)]),
    "pad": (lambda x: nn.pad(x, [1, 2, 0, 3], "constant", 7.0), [of(N, M)]),
    "pad that cuts": (lambda x: nn.pad(x, [0, 0, -1, 2]), [of(M, N)]),
    "replicate": (lambda x: nn.pad(x, [1, 2, 0, 3], "replicate"), [of(N, M)]),
    "reflect": (lambda x: nn.pad(x, [1, 2], "reflect"), [of(N)]),
    "circular": (lambda x: nn.pad(x, [3, 2], "circular"), [of(N)]),
}


@pytest.mark.parametrize("name", REPEATS)
def test_repeats_and_joins(name: str) -> None:
    build, types = REPEATS[name]
    sizes = SIZES if name in ("reflect", "circular", "pad that cuts") else FROM_ONE
    if name == "broadcast":  # m is a dimension of no operand
        types = [*types, of(M)]
        check_symbolic(lambda x, _: build(x), types, sizes)
        return
    check_symbolic(build, types, sizes)


FILLS = {
    "full": lambda x: op.full((N, 3, M * 2), relax.const(2.5), "float32"),
    "zeros": lambda x: op.zeros((N + M,), "int64"),
    "ones_like": lambda x: op.ones_like(x),
    "arange": lambda x: op.arange(0, N, 1, "int64"),
    "arange with a start and a step": lambda x: op.arange(1, N * 3, 2, "int32"),
    "arange from a symbol": lambda x: op.arange(N, N + M, 1, "int64"),
    "arange of floats": lambda x: op.arange(0, N, 1, "float32"),
    "eye": lambda x: op.eye(N, M, 1),
    "tril": lambda x: op.tril(x, 1),
    "triu": lambda x: op.triu(x, -1),
    "meshgrid": lambda x: op.meshgrid([op.arange(0, N, 1, "float32"), op.arange(0, M, 1, "float32")]),
    "dropout": lambda x: nn.dropout(x, 0.5),
    "numbers of a shape": lambda x: op.add(
        op.max(x), op.astype(op.shape_to_tensor(relax.ShapeExpr([N, M * 2, tvm.tirx.IntImm("int64", 3)])), "float32")
    ),
    "positions added": lambda x: op.add(x, op.reshape(op.arange(0, M, 1, "float32"), (1, M))),
}


@pytest.mark.parametrize("name", FILLS)
def test_fills(name: str) -> None:
    check_symbolic(FILLS[name], [of(N, M)], FROM_ONE)


def indices(*shape: int, dtype: str, seed: int) -> np.ndarray:
    """Numbers, or indices within bounds of any extent in the cases below, the last axis in another order each."""
    if dtype == "float32":
        return numbers(*shape, seed=seed)
    rows = np.random.default_rng(seed).permuted(np.arange(shape[-1], dtype=dtype) if shape else np.array(0, dtype))
    return np.broadcast_to(rows, shape).copy()


INDEXED = {
    "take": (lambda x: op.take(x, ints(1, 0, 3), 0), [of(N, M)]),
    "take by an input": (lambda x, i: op.take(x, i, 0), [of(N, M), of(N, dtype="int64")]),
    "take by a matrix": (lambda x, i: op.take(x, i, 1), [of(M, N), of(M, N, dtype="int32")]),
    "take and clip": (lambda x: op.take(x, ints(-3, 1, 100), 0, "clip"), [of(N, M)]),
    "take and wrap": (lambda x: op.take(x, ints(-3, 1, 100), 0, "wrap"), [of(N, M)]),
    "gather_elements": (lambda x, i: op.gather_elements(x, i, 1), [of(M, N), of(M, N, dtype="int64")]),
    "gather_nd": (lambda x: op.gather_nd(x, relax.const(np.array([[0, 1], [1, 0]]), "int64")), [of(N, M, 3)]),
    "index_tensor": (lambda x, i: op.index_tensor(x, [i, i]), [of(N, N), of(N, dtype="int64")]),
    "reverse_sequence": (
        lambda x, i: op.reverse_sequence(x, i, 1, 0),
        [of(N, N), of(N, dtype="int64")],
    ),
    "scatter_elements": (
        lambda x, i, u: op.scatter_elements(x, i, u, 1),
        [of(M, N), of(M, N, dtype="int64"), of(M, N)],
    ),
    "scatter_nd": (
        lambda x, u: op.scatter_nd(x, relax.const(np.array([[1], [0]])), u, "update"),
        [of(N, M), of(2, M)],
    ),
    "index_put": (
        lambda x, i, v: op.index_put(x, [i, i], v),
        [of(N, N), of(N, dtype="int64"), of(N)],
    ),
    "slice_scatter": (lambda x, s: op.slice_scatter(x, s, 1, 3, 1, axis=1), [of(N, 4, M), of(N, 2, M)]),
    "slice_scatter in steps": (lambda x, s: op.slice_scatter(x, s, 0, 4, 2, axis=1), [of(N, 4, M), of(N, 2, M)]),
    "one_hot": (
        lambda i: op.one_hot(i, tvm.tirx.FloatImm("float32", 1), tvm.tirx.FloatImm("float32", 0), 9, 1),
        [of(M, N, dtype="int64")],
    ),
}


@pytest.mark.parametrize("name", INDEXED)
def test_indices(name: str) -> None:
    build, types = INDEXED[name]
    static = (lambda _: build) if name == "index_put" else None
    check_symbolic(build, types, SIZES, make=indices, static=static)


# the size as a function of height and width
RESIZES = {
    "twice": (lambda h, w: (h * 2, w * 2), "asymmetric", ""),
    "twice, half pixels": (lambda h, w: (h * 2, w * 2), "half_pixel", "round_prefer_floor"),
    "twice and four times": (lambda h, w: (h * 2, w * 4), "half_pixel", "round"),
    "three times": (lambda h, w: (h * 3, w * 3), "asymmetric", "floor"),
    "three times, half pixels": (lambda h, w: (h * 3, w), "half_pixel", "round_prefer_ceil"),
    "corners": (lambda h, w: (h * 2, w + 3), "align_corners", ""),
    "to half": (lambda h, w: (h // 2 + 1, w), "asymmetric", "ceil"),
    "as in PyTorch": (lambda h, w: (h + 2, w * 2), "pytorch_half_pixel", "floor"),
    "to a size": (lambda h, w: (4, 6), "asymmetric", ""),
}


def check_resize(
    size: Callable[..., tuple[object, ...]],
    layout: str,
    *options: str,
    dtype: str = "float32",
    tolerance: float = 0.0,
) -> Network:
    ty = of(N, 2, H, M, dtype=dtype) if layout == "NCHW" else of(N, H, M, 2, dtype=dtype)
    return check_symbolic(
        resized(size(H, M), layout, *options),
        [ty],
        FROM_ONE if tolerance == 0 else SIZES[:2],
        rtol=tolerance,
        atol=tolerance,
        static=lambda sizes: resized(size(sizes["h"], sizes["m"]), layout, *options),
    )


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("name", RESIZES)
def test_nearest_resizes(name: str, layout: str) -> None:
    size, *options = RESIZES[name]
    check_resize(size, layout, *options)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_a_power_of_two_takes_the_layer_where_it_has_the_type(dtype: str) -> None:
    network = check_resize(lambda h, w: (h * 2, w * 4), "NCHW", "asymmetric", "floor", dtype=dtype)
    assert ("RESIZE" in layer_types(network)) == (dtype == "float32")


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("method", ["linear", "cubic"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric"])
def test_smooth_resizes(method: str, coordinates: str, layout: str) -> None:
    check_resize(lambda h, w: (h * 2, w + 3), layout, coordinates, "", method, tolerance=1e-4)


def test_pixel_shuffle() -> None:
    network = build_network(module_of_types(lambda x: nn.pixel_shuffle(x, 2), [of(N, 8, H, M)])["main"])
    for n, h, m in [(1, 1, 1), (2, 3, 4)]:
        x = numbers(n, 8, h, m)
        wanted = x.reshape(n, 2, 2, 2, h, m).transpose(0, 1, 4, 2, 5, 3).reshape(n, 2, 2 * h, 2 * m)
        np.testing.assert_array_equal(evaluate(network, [x])[0], wanted)


REFUSED = {
    "squeeze of what need not be 1": (lambda x: op.squeeze(x, [0]), of(N, 3), "need not be 1"),
    "a broadcast of what need not be 1": (lambda x: op.broadcast_to(x, (M, 3)), of(N, 3), "not known to be 1"),
    "a negative index of an unknown extent": (lambda x: op.take(x, ints(-1), 0), of(N, 3), "index -1"),
    "sort": (lambda x: op.sort(x, 0), of(N, 3), "all elements"),
    "cumprod": (lambda x: op.cumprod(x, 0), of(N, 3), "symbolic"),
    "a choice of extents": (
        lambda x: op.zeros((tvm.tirx.if_then_else((N << 1) > 2, N, 2),), "float32"),
        of(N, 3),
        "no sum, product",
    ),
    "a count backwards": (lambda x: op.arange(N, 0, -1, "int64"), of(N, 3), "positive"),
    "bounds that assume_inbound mixes": (
        lambda x: op.strided_slice(x, [0], [-3], [N], assume_inbound=True),
        of(N, 3),
        "assume_inbound",
    ),
    "corners of a symbolic grid": (
        lambda x: op.image.affine_grid(x, (N, 4)),
        of(N, 2, 3),
        "symbolic size",
    ),
    "slice_scatter along a symbolic axis": (
        lambda x: op.slice_scatter(x, op.strided_slice(x, [0], [0], [2], assume_inbound=True), 0, 2, 1, axis=0),
        of(N, 3),
        "symbolic extent",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    build, ty, reason = REFUSED[name]
    said = [REGISTRY.accepts(call) for call in calls_of(module_of_types(build, [ty]))]
    assert reason in str(said[-1])
