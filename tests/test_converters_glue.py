"""Converters of the operators that move data: bit exact against LLVM, engines that serialise, and refusals.

A draw of hypothesis is built by TensorRT-RTX, evaluated from the network in numpy, and compared with LLVM.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import tvm
from converter_case import (
    calls_of,
    check,
    layer_types,
    module_of,
    numbers,
    refusals,
    run_llvm,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax

from relax_glue.tensorrt.converters import REGISTRY
from relax_glue.tensorrt.network import build_network
from relax_glue.tensorrt.reference import evaluate

op = relax.op
DTYPES = ("float32", "float16", "bfloat16", "int8", "int32", "int64", "bool")
drawn = settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@st.composite
def tensors(draw, ranks=(1, 4), extent=5, dtypes=DTYPES) -> np.ndarray:
    shape = draw(st.lists(st.integers(1, extent), min_size=ranks[0], max_size=ranks[1]))
    return numbers(*shape, dtype=draw(st.sampled_from(dtypes)), seed=draw(st.integers(0, 9)))


def axes_of(array: np.ndarray) -> st.SearchStrategy[int]:
    return st.integers(-array.ndim, array.ndim - 1)


def ints(*values, dtype="int64") -> relax.Expr:
    return relax.const(np.array(values, dtype=dtype))


def reason(build, *inputs) -> str:
    """Return why the one refused call of a case is refused."""
    said = refusals(build, inputs)
    assert len(said) == 1
    return str(said[0])


class TestShuffle:
    @drawn
    @given(st.data())
    def test_permute_dims(self, data):
        x = data.draw(tensors(ranks=(1, 6), extent=3))
        perm = data.draw(st.none() | st.permutations(range(x.ndim)))
        if perm and data.draw(st.booleans()):
            perm = [axis - x.ndim for axis in perm]
        assert layer_types(check(lambda v: op.permute_dims(v, perm), [x])) == ["SHUFFLE"]

    @pytest.mark.parametrize(
        "build",
        [
            lambda x: op.reshape(x, (4, -1)),
            lambda x: op.reshape(x, (2, 3, 1, 2, 2)),
            lambda x: op.flatten(x),
            lambda x: op.nn.batch_flatten(x),
            lambda x: op.expand_dims(x, [0, 2, -1]),
            lambda x: op.squeeze(op.expand_dims(x, [0, 2])),
            lambda x: op.squeeze(op.expand_dims(x, [0, 2]), [0]),
            lambda x: op.layout_transform(x, lambda a, b, c: (c, a, b)),
        ],
    )
    def test_one_shuffle(self, build):
        assert layer_types(check(build, [numbers(2, 3, 4)], engine=True)) == ["SHUFFLE"]

    def test_a_scalar_is_reshaped(self):
        check(lambda x: op.reshape(x, (1, 1)), [numbers(dtype="int32")], engine=True)
        check(lambda x: op.reshape(x, ()), [numbers(1, 1)], engine=True)

    def test_pixel_shuffle(self):
        # TVM 0.27 has the operator and no kernel for it, so its definition stands on the other side
        x = numbers(2, 12, 3, 5)
        network = build_network(module_of(lambda v: op.nn.pixel_shuffle(v, 2), [x])["main"])
        split = x.reshape(2, 3, 2, 2, 3, 5).transpose(0, 1, 4, 2, 5, 3).reshape(2, 3, 6, 10)
        np.testing.assert_array_equal(evaluate(network, [x])[0], split)

    def test_refusals(self):
        assert "not a permutation" in reason(
            lambda x: op.layout_transform(x, lambda a, b: (a, b // 2, b % 2)), numbers(2, 4)
        )
        assert "float64" in reason(lambda x: op.flatten(x), numbers(2, 4).astype("float64"))
        assert "uint8" in reason(lambda x: op.flatten(x), numbers(2, 4, dtype="uint8"))
        assert "rank 9" in reason(lambda x: op.reshape(x, [1] * 9), numbers(1))


class TestSlice:
    @drawn
    @given(st.data())
    def test_strided_slice(self, data):
        x = data.draw(tensors(extent=7))
        axes = data.draw(st.lists(st.integers(0, x.ndim - 1), min_size=1, unique=True))
        bounds = [-(2**31), 2**31 - 1, 2**63 - 1]
        begin, end, strides = [], [], []
        for axis in axes:
            extent = x.shape[axis]
            near = st.integers(-extent - 2, extent + 2)
            begin.append(data.draw(near))
            end.append(data.draw(near | st.sampled_from(bounds)))
            strides.append(data.draw(st.sampled_from([1, 1, 2, 3, -1, -2])))

        def build(v):
            return op.strided_slice(v, axes, begin, end, strides)

        said = refusals(build, [x])
        if said:
            assert "is empty" in str(said[0])
        else:
            assert layer_types(check(build, [x])) == ["SLICE"]

    @pytest.mark.parametrize("stride", [1, 3, -1, -2])
    def test_the_engine_of_every_stride(self, stride):
        begin, end = (1, 9) if stride > 0 else (-1, -(2**31))
        check(lambda x: op.strided_slice(x, [1], [begin], [end], [stride]), [numbers(2, 10)], engine=True)

    @drawn
    @given(st.data())
    def test_split(self, data):
        x = data.draw(tensors(extent=7))
        axis = data.draw(axes_of(x))
        extent = x.shape[axis]
        cuts = st.lists(st.integers(1, max(extent - 1, 1)), min_size=1, max_size=3, unique=True)
        where = data.draw(st.integers(1, extent) | cuts.map(sorted))
        if not refusals(lambda v: op.split(v, where, axis), [x]):
            check(lambda v: op.split(v, where, axis), [x])

    @pytest.mark.parametrize(
        ("begin", "end", "stride", "taken"),
        [(1, 5, 2, True), (2, 7, 1, True), (6, 0, -2, False), (-3, 7, 1, False), (0, 100, 1, False)],
    )
    def test_assume_inbound(self, begin, end, stride, taken):
        def build(x):
            return op.strided_slice(x, [0], [begin], [end], [stride], assume_inbound=True)

        if taken:
            check(build, [numbers(7)])
        else:
            assert "Relax counts" in reason(build, numbers(7))

    def test_split_builds(self):
        network = check(lambda x: op.split(x, [2, 3], -1), [numbers(2, 7)], engine=True)
        assert layer_types(network) == ["SLICE"] * 3

    @drawn
    @given(st.data())
    def test_flip(self, data):
        x = data.draw(tensors())
        axis = data.draw(axes_of(x))
        assert layer_types(check(lambda v: op.flip(v, axis), [x])) == ["SLICE"]

    @drawn
    @given(st.data())
    def test_broadcast_to(self, data):
        x = data.draw(tensors(ranks=(0, 4), extent=2))
        shape = [data.draw(st.integers(1, 3)) if extent == 1 else extent for extent in x.shape]
        shape = data.draw(st.lists(st.integers(1, 3), min_size=not shape, max_size=2)) + shape
        check(lambda v: op.broadcast_to(v, shape), [x])

    @drawn
    @given(st.data())
    def test_tile(self, data):
        x = data.draw(tensors(ranks=(1, 3), extent=3))
        repeats = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
        check(lambda v: op.tile(v, repeats), [x])

    @drawn
    @given(st.data())
    def test_repeat(self, data):
        x = data.draw(tensors(ranks=(1, 3), extent=3))
        axis = data.draw(st.none() | axes_of(x))
        count = data.draw(st.integers(1, 3))
        check(lambda v: op.repeat(v, count, axis), [x])

    def test_they_build(self):
        def build(x):
            y = op.broadcast_to(op.flip(x, 1), (2, 3, 4))
            return op.repeat(op.tile(y, (2, 1, 2)), 3, 0)

        check(build, [numbers(1, 4)], engine=True)

    def test_refusals(self):
        assert "is empty" in reason(lambda x: op.strided_slice(x, [0], [2], [2]), numbers(4))
        assert "is empty" in reason(lambda x: op.split(x, [2, 2], 0), numbers(4))


class TestPad:
    @drawn
    @given(st.data(), st.sampled_from(["constant", "reflect", "replicate", "circular"]))
    def test_pad(self, data, mode):
        x = data.draw(tensors(ranks=(1, 3)))
        most = {"reflect": -1, "circular": 0}.get(mode, 3)
        widths = [data.draw(st.integers(0, max(extent + most, 0))) for extent in x.shape for _ in range(2)]
        value = data.draw(st.sampled_from([0.0, 1.0, -3.0]))
        assert "SLICE" in layer_types(check(lambda v: op.nn.pad(v, widths, mode, value), [x]))

    @pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
    @pytest.mark.parametrize("dtype", ["float16", "int8", "bool"])
    def test_the_engine(self, mode, dtype):
        check(lambda x: op.nn.pad(x, [0, 0, 2, 1], mode, 1.0), [numbers(2, 3, dtype=dtype)], engine=True)

    def test_infinite_padding(self):
        check(lambda x: op.nn.pad(x, [1, 1], "constant", -math.inf), [numbers(3)], engine=True)

    def test_refusals(self):
        assert "reflect padding of (3, 0)" in reason(lambda x: op.nn.pad(x, [3, 0], "reflect"), numbers(3))
        assert "circular padding of (0, 4)" in reason(lambda x: op.nn.pad(x, [0, 4], "circular"), numbers(3))


class TestConcat:
    @drawn
    @given(st.data())
    def test_concat(self, data):
        x = data.draw(tensors())
        axis = data.draw(axes_of(x))
        parts = [x]
        for _ in range(data.draw(st.integers(0, 3))):
            shape = list(x.shape)
            shape[axis] = data.draw(st.integers(1, 4))
            parts.append(numbers(*shape, dtype=str(x.dtype), seed=len(parts)))
        inputs = data.draw(st.integers(1, len(parts)))
        constants = [relax.const(part, str(part.dtype)) for part in parts[inputs:]]
        check(lambda *v: op.concat([*v, *constants], axis), parts[:inputs])

    @drawn
    @given(st.data())
    def test_stack(self, data):
        x = data.draw(tensors(ranks=(0, 3)))
        axis = data.draw(st.integers(-x.ndim - 1, x.ndim))
        count = data.draw(st.integers(1, 3))
        check(lambda *v: op.stack(list(v), axis), [numbers(*x.shape, dtype=str(x.dtype), seed=i) for i in range(count)])

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_a_constant_part_builds(self, dtype):
        token = relax.const(numbers(1, 1, 4, dtype=dtype), dtype)
        check(lambda x: op.concat([token, x, token], 1), [numbers(1, 2, 4, dtype=dtype, seed=1)], engine=True)

    def test_no_axis(self):
        # TVM 0.27 has no kernel for it
        inputs = [numbers(3), numbers(2)]
        network = build_network(module_of(lambda x, y: op.concat([x, y], None), inputs)["main"])
        np.testing.assert_array_equal(evaluate(network, inputs)[0], np.concatenate(inputs))


class TestGather:
    @drawn
    @given(st.data(), st.sampled_from(["fast", "clip", "wrap"]), st.booleans())
    def test_take(self, data, mode, constant):
        x = data.draw(tensors())
        axis = data.draw(axes_of(x))
        extent = x.shape[axis]
        low, high = (0, extent - 1) if mode == "fast" else (-2 * extent, 3 * extent)
        shape = data.draw(st.lists(st.integers(1, 3), max_size=2))
        indices = np.random.default_rng(0).integers(low, high + 1, shape).astype("int32")
        indices = np.asarray(indices)
        if constant:
            check(lambda v: op.take(v, relax.const(indices), axis, mode), [x])
        else:
            check(lambda v, i: op.take(v, i, axis, mode), [x, indices])

    @pytest.mark.parametrize("begin, count, mode", [(3, 5, "fast"), (4, 3, "clip"), (2, 5, "wrap"), (1, 9, "fast")])
    def test_a_rotation_is_one_slice(self, begin, count, mode):
        x, indices = numbers(2, 5, 3), (begin + np.arange(count)) % 5
        check(lambda v: op.take(v, ints(*indices), 1, mode), [x], engine=True)
        network = build_network(module_of(lambda v: op.take(v, ints(*indices), 1, mode), [x])["main"])
        assert [network.net.get_layer(k).type.name for k in range(network.net.num_layers)] == ["SLICE"]

    def test_negative_constants_count_from_the_end(self):
        x = numbers(5, 2)
        module = module_of(lambda v: op.take(v, ints(-1, 0, -5), 0), [x])
        np.testing.assert_array_equal(evaluate(build_network(module["main"]), [x])[0], x[[-1, 0, -5]])

    def test_a_constant_table(self):
        table = relax.const(numbers(7, 3))
        check(lambda i: op.take(table, i, 0), [np.array([[6, 0], [3, 3]])], engine=True)

    def test_without_an_axis(self):
        check(lambda x, i: op.take(x, i), [numbers(6), np.array([5, 0])])

    @drawn
    @given(st.data())
    def test_gather_elements(self, data):
        x = data.draw(tensors())
        axis = data.draw(axes_of(x))
        shape = [data.draw(st.integers(1, extent)) for extent in x.shape]
        shape[axis] = data.draw(st.integers(1, 6))
        indices = np.random.default_rng(1).integers(0, x.shape[axis], shape)
        check(lambda v, i: op.gather_elements(v, i, axis), [x, indices])

    @drawn
    @given(st.data())
    def test_gather_nd(self, data):
        x = data.draw(tensors())
        batch = data.draw(st.integers(0, min(2, x.ndim - 1)))
        depth = data.draw(st.integers(1, x.ndim - batch))
        shape = [*x.shape[:batch], *data.draw(st.lists(st.integers(1, 3), max_size=2))]
        random = np.random.default_rng(2)
        indices = np.stack([random.integers(0, x.shape[batch + i], shape) for i in range(depth)], -1)
        check(lambda v, i: op.gather_nd(v, i, batch), [x, indices])

    @drawn
    @given(st.data())
    def test_index_tensor(self, data):
        x = data.draw(tensors())
        count = data.draw(st.integers(1, min(3, x.ndim)))
        random = np.random.default_rng(3)
        shapes = data.draw(st.lists(st.sampled_from([(2, 3), (3,), (1, 3), (2, 1)]), min_size=count, max_size=count))
        items = [random.integers(0, x.shape[i], shape) for i, shape in enumerate(shapes)]
        known = data.draw(st.integers(0, count))
        rest = [relax.const(item) for item in items[known:]]
        check(lambda v, *i: op.index_tensor(v, [*i, *rest]), [x, *items[:known]])

    @drawn
    @given(st.data())
    def test_reverse_sequence(self, data):
        x = data.draw(tensors(ranks=(2, 4)))
        batch, sequence = data.draw(st.permutations(range(x.ndim)))[:2]
        lengths = np.random.default_rng(6).integers(1, x.shape[sequence] + 1, x.shape[batch])
        check(lambda v, n: op.reverse_sequence(v, n, sequence, batch), [x, lengths])

    @pytest.mark.parametrize(
        "build",
        [
            lambda x, i: op.reverse_sequence(x, op.take(i, relax.const(1), 0), 1, 0),
            lambda x, i: op.take(x, i, 1, "wrap"),
            lambda x, i: op.take(x, i, 1, "clip"),
            lambda x, i: op.gather_elements(x, i, 1),
            lambda x, i: op.gather_nd(x, i),
            lambda x, i: op.index_tensor(x, [i, i]),
        ],
    )
    @pytest.mark.parametrize("dtype", ["float16", "int64", "bool"])
    def test_the_engine(self, build, dtype):
        check(build, [numbers(2, 2, dtype=dtype), np.array([[0, 1], [1, 1]])], engine=True)

    def test_refusals(self):
        x = numbers(3, 4)
        assert "index 3 is outside" in reason(lambda v: op.take(v, ints(3), 0), x)
        assert "index -4 is outside" in reason(lambda v: op.take(v, ints(-4), 0), x)
        assert "mode nan" in reason(lambda v, i: op.take(v, i, 0, "nan"), x, np.array([0]))
        assert "index 4 is outside" in reason(lambda v: op.index_tensor(v, [ints(1), ints(4)]), x)
        assert "the index tensor is int8" in reason(lambda v, i: op.take(v, i, 0), x, np.array([0], "int8"))


class TestScatter:
    @drawn
    @given(st.data(), st.booleans())
    def test_scatter_elements(self, data, constant):
        x = data.draw(tensors())
        axis = data.draw(axes_of(x))
        rows = data.draw(st.integers(1, x.shape[axis]))
        order = np.argsort(np.random.default_rng(4).random(x.shape), axis=axis)
        indices = np.take(order, range(rows), axis=axis)
        indices = np.where(indices % 2, indices - x.shape[axis], indices)
        updates = numbers(*indices.shape, dtype=str(x.dtype), seed=7)
        if constant:
            check(lambda v, u: op.scatter_elements(v, relax.const(indices), u, axis), [x, updates])
        else:
            check(lambda v, i, u: op.scatter_elements(v, i, u, axis), [x, indices, updates])

    @drawn
    @given(st.data(), st.booleans())
    def test_scatter_nd(self, data, constant):
        x = data.draw(tensors())
        depth = data.draw(st.integers(1, x.ndim))
        places = math.prod(x.shape[:depth])
        chosen = np.random.default_rng(5).permutation(places)[: data.draw(st.integers(1, places))]
        indices = np.stack(np.unravel_index(chosen, x.shape[:depth]), -1)
        updates = numbers(len(chosen), *x.shape[depth:], dtype=str(x.dtype), seed=7)
        if constant:
            check(lambda v, u: op.scatter_nd(v, relax.const(indices), u), [x, updates])
        else:
            check(lambda v, i, u: op.scatter_nd(v, i, u), [x, indices, updates])

    @drawn
    @given(st.data())
    def test_index_put(self, data):
        x = data.draw(tensors(ranks=(1, 3)))
        chosen = np.random.default_rng(5).permutation(x.size)[: data.draw(st.integers(1, x.size))]
        items = [np.where(i % 2, i - n, i) for i, n in zip(np.unravel_index(chosen, x.shape), x.shape, strict=True)]
        known = data.draw(st.integers(0, x.ndim))
        rest = [relax.const(item) for item in items[known:]]
        values = numbers(len(chosen), dtype=str(x.dtype), seed=7)
        check(lambda v, u, *i: op.index_put(v, (*i, *rest), u), [x, values, *items[:known]])

    @drawn
    @given(st.data())
    def test_slice_scatter(self, data):
        x = data.draw(tensors(extent=6))
        axis = data.draw(axes_of(x))
        start = data.draw(st.integers(0, x.shape[axis] - 1))
        end = data.draw(st.integers(start + 1, x.shape[axis]))
        step = data.draw(st.integers(1, 3))
        shape = list(x.shape)
        shape[axis] = len(range(start, end, step))
        src = numbers(*shape, dtype=str(x.dtype), seed=8)
        check(lambda v, s: op.slice_scatter(v, s, start, end, step, axis), [x, src])

    @pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
    def test_the_engine(self, dtype):
        x, update = numbers(3, 4, dtype=dtype), numbers(2, 4, dtype=dtype, seed=1)
        check(lambda v, u: op.slice_scatter(v, u, 0, 3, 2, 0), [x, update], engine=True)
        check(lambda v, u: op.scatter_nd(v, ints([2], [0]), u), [x, update], engine=True)
        check(lambda v, u: op.index_put(v, (ints(2, -3), ints(0, 1)), u), [x, update[0, :2]], engine=True)
        indices = np.tile(np.array([[0], [-1]]), (1, 4))
        check(lambda v, i, u: op.scatter_elements(v, i, u, 0), [x, indices, update], engine=True)

    def test_refusals(self):
        x, update = numbers(3, 4), numbers(2, 4)
        assert "'add'" in reason(lambda v, u: op.scatter_nd(v, ints([2], [0]), u, "add"), x, update)
        assert "updated twice" in reason(lambda v, u: op.scatter_nd(v, ints([2], [-1]), u), x, update)
        twice = (ints(2, -1), ints(1, 1))
        assert "written twice" in reason(lambda v, u: op.index_put(v, twice, u), x, update[0, :2])
        assert "accumulates" in reason(lambda v, u: op.index_put(v, twice, u, True), x, update[0, :2])
        rows = relax.const(np.array([[0] * 4, [-3] * 4]))
        assert "updated twice" in reason(lambda v, u: op.scatter_elements(v, rows, u, 0), x, update)
        narrow = relax.const(np.array([[0], [1]]))
        assert "rows at axis 1" in reason(lambda v, u: op.scatter_elements(v, narrow, u, 0), x, update[:, :1])


class TestCreation:
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_fills(self, dtype):
        value = relax.const(np.asarray(numbers(1, dtype=dtype).reshape(())), dtype)

        def build(x):
            made = [op.full((2, 3), value, dtype), op.zeros((4,), dtype), op.ones((), dtype)]
            like = [op.zeros_like(x), op.ones_like(x), op.full_like(x, value)]
            return relax.Tuple([relax.BlockBuilder.current().emit(item) for item in made + like])

        check(build, [numbers(1, 3, dtype=dtype)], engine=True)

    @pytest.mark.parametrize(
        "build",
        [
            lambda x: op.arange(0, 7, 2, "int64"),
            lambda x: op.arange(0.5, 4.0, 0.5, "float32"),
            lambda x: op.eye(3, 4, 1, "float32"),
            lambda x: op.eye_like(x, -1),
            lambda x: op.tril(x, 1),
            lambda x: op.triu(x),
        ],
    )
    def test_constants_and_masks(self, build):
        check(build, [numbers(3, 4)], engine=True)

    @pytest.mark.parametrize("axis", [0, 1, -1])
    @pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
    def test_one_hot(self, axis, dtype):
        on, off = (relax.prim_value(tvm.tirx.const(value, dtype)) for value in (1, 0))
        check(lambda i: op.one_hot(i, on, off, 4, axis), [np.array([[0, 3, 9], [-1, 2, 4]])], engine=True)

    def test_meshgrid(self):
        check(lambda a, b, c: op.meshgrid([a, b, c], "ij"), [numbers(2), numbers(3), numbers(1)], engine=True)

    def test_refusals(self):
        assert "there are 3 numbers" in reason(lambda x: op.arange(10, 2, -3, "int64"), numbers(1))
        assert "float64" in reason(lambda x: op.zeros((2,), "float64"), numbers(1))
        assert "'xy'" in reason(lambda a, b: op.meshgrid([a, b], "xy"), numbers(2), numbers(3))


COORDINATES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn")
ROUNDINGS = ("round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "")


# without the one that LLVM takes half a minute to compile
SAMPLING = [
    (method, padding, align)
    for method in ("nearest", "bilinear", "bicubic")
    for padding in ("zeros", "border", "reflection")
    for align in (True, False)
    if (method, padding, align) != ("bicubic", "reflection", False)
]


def resized(size, **attrs):
    return lambda x: op.image.resize2d(x, relax.ShapeExpr(size), **attrs)


class TestResize:
    @pytest.mark.parametrize("coordinates", COORDINATES)
    @pytest.mark.parametrize("rounding", ROUNDINGS)
    def test_every_nearest_mode_is_exact(self, coordinates, rounding):
        attrs = {
            "method": "nearest_neighbor",
            "coordinate_transformation_mode": coordinates,
            "rounding_method": rounding,
        }
        check(resized((9, 7), **attrs), [numbers(1, 2, 3, 5)])
        check(resized((3, 14), **attrs), [numbers(1, 2, 6, 7)])

    @pytest.mark.parametrize(
        ("coordinates", "rounding"),
        [("asymmetric", "floor"), ("half_pixel", "round"), ("half_pixel", "round_prefer_floor")],
    )
    def test_the_usual_upsampling_is_one_resize_layer(self, coordinates, rounding):
        attrs = {
            "method": "nearest_neighbor",
            "coordinate_transformation_mode": coordinates,
            "rounding_method": rounding,
        }
        network = check(resized((40, 40), **attrs), [numbers(1, 3, 20, 20)], engine=True)
        assert layer_types(network) == ["RESIZE"]

    def test_what_no_mode_picks_is_gathered(self):
        attrs = {
            "method": "nearest_neighbor",
            "coordinate_transformation_mode": "asymmetric",
            "rounding_method": "round",
        }
        network = check(resized((8, 6), **attrs), [numbers(1, 2, 4, 6)], engine=True)
        assert layer_types(network) == ["CONSTANT", "GATHER"]

    def test_integers_are_gathered(self):
        network = check(resized((8, 6), method="nearest_neighbor"), [numbers(1, 2, 4, 3, dtype="int32")], engine=True)
        assert "GATHER" in layer_types(network)

    @pytest.mark.parametrize("coordinates", COORDINATES[:4])
    @pytest.mark.parametrize(("method", "exclude"), [("linear", 0), ("cubic", 0), ("cubic", 1)])
    def test_smooth_modes(self, coordinates, method, exclude):
        attrs = {
            "method": method,
            "coordinate_transformation_mode": coordinates,
            "cubic_exclude": exclude,
        }
        check(resized((9, 7), **attrs), [numbers(1, 2, 4, 5)], rtol=2e-5, atol=2e-5)
        if coordinates != "align_corners":
            check(resized((2, 1), **attrs), [numbers(1, 2, 4, 5)], rtol=2e-5, atol=2e-5)

    @pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
    @pytest.mark.parametrize("method", ["linear", "cubic", "nearest_neighbor"])
    def test_channels_last(self, method, dtype):
        tolerance = 2e-5 if dtype == "float32" else 2e-2
        network = check(
            resized((6, 8), method=method, layout="NHWC"),
            [numbers(2, 3, 4, 5, dtype=dtype)],
            rtol=tolerance,
            atol=tolerance,
            engine=True,
        )
        assert layer_types(network) == ["SHUFFLE", "RESIZE", "SHUFFLE"]

    @pytest.mark.parametrize("layout", ["NCDHW", "NDHWC"])
    @pytest.mark.parametrize("method", ["linear", "nearest_neighbor"])
    def test_three_axes(self, method, layout):
        shape = (1, 2, 3, 2, 4) if layout == "NCDHW" else (1, 3, 2, 4, 2)
        check(
            lambda x: op.image.resize3d(
                x, relax.ShapeExpr((5, 4, 3)), layout=layout, method=method, rounding_method="floor"
            ),
            [numbers(*shape)],
            rtol=2e-5,
            atol=2e-5,
            engine=True,
        )

    def test_refusals(self):
        x = numbers(1, 2, 4, 5)
        assert "'tf_half_pixel_for_nn' with linear" in reason(
            resized((8, 8), method="linear", coordinate_transformation_mode="tf_half_pixel_for_nn"), x
        )
        assert "tf_crop_and_resize" in reason(
            resized(
                (8, 8),
                roi=(0, 0, 1, 1),
                method="nearest_neighbor",
                coordinate_transformation_mode="tf_crop_and_resize",
            ),
            x,
        )
        assert "divides by 0" in reason(
            resized((1, 8), method="linear", coordinate_transformation_mode="align_corners"), x
        )
        assert "int32" in reason(resized((8, 8), method="linear"), x.astype("int32"))

    @pytest.mark.parametrize(("method", "padding", "align"), SAMPLING)
    def test_grid_sample(self, method, padding, align):
        grid = (numbers(2, 2, 3, 4, seed=1) * 1.3).astype("float32")
        network = check(
            lambda x, g: op.image.grid_sample(x, g, method, "NCHW", padding, align),
            [numbers(2, 3, 4, 5), grid],
            rtol=1e-4,
            atol=1e-4,
            engine=align,
        )
        assert layer_types(network) == ["SHUFFLE", "GRID_SAMPLE"]

    def test_a_grid_with_its_coordinates_last_is_refused(self):
        said = reason(lambda x, g: op.image.grid_sample(x, g), numbers(1, 3, 4, 5), numbers(1, 6, 7, 2))
        assert "it has to have its two coordinates along axis 1" in said


class TestAffineGrid:
    @pytest.mark.parametrize("align", [True, False])
    @pytest.mark.parametrize("size", [(4, 5), (2, 3, 4)])
    def test_grids(self, size, align):
        theta = numbers(2, len(size), len(size) + 1)
        check(lambda x: op.image.affine_grid(x, size, align), [theta], rtol=1e-5, atol=1e-5, engine=True)


N, M = tvm.tirx.Var("n", "int64"), tvm.tirx.Var("m", "int64")


def symbolic(shape, build):
    """Return a module over one float32 tensor of a shape with symbolic extents."""
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(build(x))
        builder.emit_func_output(result)
    return builder.get()


class TestSymbolic:
    @pytest.mark.parametrize(
        "build",
        [
            lambda x: op.reshape(x, (N, 2, 2, M)),
            lambda x: op.reshape(x, (M, 4, N)),
            lambda x: op.flatten(x),
            lambda x: op.squeeze(op.expand_dims(op.permute_dims(x), [0, 2]), [0]),
            lambda x: op.strided_slice(x, [1], [3], [-5], [-1]),
            lambda x: op.split(x, 2, 1),
            lambda x: op.concat([x, x], 0),
            lambda x: op.stack([x, x], 1),
            lambda x: op.broadcast_to(x, (2, N, 4, M)),
            lambda x: op.take(x, ints(1, 3), 1),
            lambda x: op.flip(x, 1),
            lambda x: op.tile(x, (1, 2, 1)),
            lambda x: op.nn.pad(x, [0, 0, 1, 2, 0, 0], "reflect"),
        ],
    )
    def test_extents_that_are_kept(self, build):
        module = symbolic((N, 4, M), build)
        for call in calls_of(module):
            assert REGISTRY.accepts(call) is None
        network = build_network(module["main"])
        for shape in [(3, 4, 6), (1, 4, 2)]:
            x = numbers(*shape)
            for got, wanted in zip(evaluate(network, [x]), run_llvm(module, [x]), strict=True):
                np.testing.assert_array_equal(got, wanted)
        assert _plan(network) is not None

    @pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
    def test_a_symbolic_batch_is_resized(self, layout):
        shape = (N, 4, 3, 3) if layout == "NCHW" else (N, 3, 3, 4)
        module = symbolic(shape, resized((6, 6), method="nearest_neighbor", layout=layout))
        network = build_network(module["main"])
        x = numbers(2, *shape[1:])
        np.testing.assert_array_equal(evaluate(network, [x])[0], run_llvm(module, [x])[0])
        assert _plan(network) is not None


def _plan(network):
    builder = network.builder
    config = builder.config()
    profile = builder.builder.create_optimization_profile()
    for index in range(network.net.num_inputs):
        tensor = network.net.get_input(index)
        shapes = [[size if extent == -1 else extent for extent in tensor.shape] for size in (1, 3, 8)]
        profile.set_shape(tensor.name, *shapes)
    config.add_optimization_profile(profile)
    return builder.builder.build_serialized_network(network.net, config)


UNKNOWN = [
    relax.TensorType(dtype="float32", ndim=-1),
    relax.TensorType(dtype="float32", ndim=3),
    relax.TensorType((N, M, N + 1), "float32"),
    relax.TensorType((2, N * 2, 3), "float16"),
]


class TestAcceptsNeverRaises:
    @pytest.mark.parametrize("ty", UNKNOWN, ids=str)
    @pytest.mark.parametrize(
        "build",
        [
            lambda x: op.permute_dims(x),
            lambda x: op.reshape(x, (-1,)),
            lambda x: op.flatten(x),
            lambda x: op.expand_dims(x, 0),
            lambda x: op.squeeze(x),
            lambda x: op.strided_slice(x, [1], [0], [2]),
            lambda x: op.split(x, 2, 0),
            lambda x: op.flip(x, 0),
            lambda x: op.tile(x, (2,)),
            lambda x: op.repeat(x, 2, 0),
            lambda x: op.nn.pad(x, [0, 0, 1, 1, 0, 0], "reflect"),
            lambda x: op.concat([x, x], 0),
            lambda x: op.stack([x, x], 0),
            lambda x: op.take(x, ints(1), 0),
            lambda x: op.take(x, ints(1), 1, "clip"),
            lambda x: op.zeros_like(x),
            lambda x: op.tril(x),
            lambda x: op.index_tensor(x, [ints(1)]),
            lambda x: op.gather_elements(x, relax.const(np.zeros((1, 1, 1), "int64")), 1),
            lambda x: op.gather_nd(x, relax.const(np.zeros((1, 1), "int64"))),
            lambda x: op.scatter_elements(x, relax.const(np.zeros((1, 1, 1), "int64")), x, 0),
        ],
    )
    def test_unknown_shapes(self, build, ty):
        x = relax.Var("x", ty)
        try:
            call = relax.BlockBuilder().normalize(build(x))
        except (ValueError, TypeError, tvm.error.InternalError):
            pytest.skip("TVM does not make this call")
        refusal = REGISTRY.accepts(call)
        assert refusal is None or refusal.reason

    def test_a_shape_bound_to_a_variable(self):
        shape = relax.Var("shape", relax.ShapeType(ndim=2))
        x = relax.Var("x", relax.TensorType((2, 3), "float32"))
        call = relax.BlockBuilder().normalize(op.reshape(x, shape))
        assert "not known" in str(REGISTRY.accepts(call))
