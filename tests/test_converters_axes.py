"""Converters along axes against LLVM: reductions, order, softmax and norms; engines serialise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tvm
from converter_case import check, layer_types, module_of, numbers, refusals
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax

from relax_glue.tensorrt.converters import REGISTRY
from relax_glue.tensorrt.converters.limits import INTS
from relax_glue.tensorrt.network import build_network
from relax_glue.tensorrt.reference import evaluate

op = relax.op
nn = relax.op.nn
drawn = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
HALF = {"rtol": 2e-2, "atol": 2e-2}
NUMBERS = ("float32", *INTS)


def reason(build, *inputs) -> str:
    said = refusals(build, inputs)
    assert len(said) == 1
    return str(said[0])


@st.composite
def arrays(draw, ranks=(1, 4), extent=5, dtypes=NUMBERS) -> np.ndarray:
    shape = draw(st.lists(st.integers(1, extent), min_size=ranks[0], max_size=ranks[1]))
    return numbers(*shape, dtype=draw(st.sampled_from(dtypes)), seed=draw(st.integers(0, 9)))


class TestReductions:
    @drawn
    @given(st.data())
    def test_reduce(self, data):
        x = data.draw(arrays(extent=3))
        name = data.draw(st.sampled_from(("sum", "prod", "max", "min", "mean", "variance", "std")))
        if x.dtype == np.int32 and name == "mean":  # LLVM returns int64 there, against the type
            x = x.astype(np.int64)
        if x.dtype != np.float32 and name in ("variance", "std"):
            assert "float32" in reason(getattr(op, name), x)
            return
        axes = data.draw(
            st.none() | st.lists(st.integers(-x.ndim, x.ndim - 1), min_size=1, unique_by=lambda a: a % x.ndim)
        )
        keep = data.draw(st.booleans())
        close = CLOSE if x.dtype == np.float32 else {}
        check(lambda v: getattr(op, name)(v, axes, keep), [x], **close, engine=True)

    def test_integer_mean_goes_towards_zero(self):
        check(op.mean, [np.array([-7, 2, -2], np.int64)], engine=True)

    def test_all(self):
        check(op.prod, [numbers(3, 4, dtype="bool")], engine=True)

    @pytest.mark.parametrize("name, wanted", [("max", np.any), ("min", np.all)])
    def test_any_and_all(self, name, wanted):
        # LLVM has no smallest boolean to start from
        x = numbers(3, 4, dtype="bool")
        build = getattr(op, name)
        network = build_network(module_of(lambda v: build(v, [1]), [x])["main"])
        np.testing.assert_array_equal(evaluate(network, [x])[0], wanted(x, axis=1))

    def test_sum_of_booleans_is_refused(self):
        assert "bool" in reason(op.sum, numbers(3, dtype="bool"))

    @drawn
    @given(st.data())
    def test_first_place_of_the_extreme(self, data):
        x = data.draw(arrays(extent=4)) // 3  # many equals
        axis = data.draw(st.none() | st.integers(-x.ndim, x.ndim - 1))
        name, keep = data.draw(st.sampled_from(("argmax", "argmin"))), data.draw(st.booleans())
        check(lambda v: getattr(op, name)(v, axis, keep), [x], engine=True)


@st.composite
def distinct(draw, ranks=(1, 4)) -> np.ndarray:
    """Return an array without equal elements: TensorRT promises no order of equals, so no index of theirs."""
    shape = draw(st.lists(st.integers(1, 4), min_size=ranks[0], max_size=ranks[1]))
    order = np.random.default_rng(draw(st.integers(0, 9))).permutation(math.prod(shape))
    return (order - math.prod(shape) // 2).reshape(shape).astype(draw(st.sampled_from(NUMBERS)))


class TestOrder:
    @drawn
    @given(st.data())
    def test_topk(self, data):
        x = data.draw(distinct(ranks=(1, 6)))
        axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
        k = data.draw(st.sampled_from((-1, 1, x.shape[axis])))
        kind, largest = data.draw(st.sampled_from(("both", "values", "indices"))), data.draw(st.booleans())
        dtype = data.draw(st.sampled_from(INTS))
        check(lambda v: op.topk(v, k, axis, kind, largest, dtype), [x], engine=True)

    @drawn
    @given(st.data())
    def test_argsort(self, data):
        x = data.draw(distinct())
        axis, down = data.draw(st.integers(-x.ndim, x.ndim - 1)), data.draw(st.booleans())
        check(lambda v: op.argsort(v, axis, down, "int64"), [x], engine=True)

    @drawn
    @given(st.data())
    def test_sort_with_equals(self, data):
        x = data.draw(arrays())
        axis, down = data.draw(st.integers(-x.ndim, x.ndim - 1)), data.draw(st.booleans())
        check(lambda v: op.sort(v, axis, down), [x], engine=True)

    @pytest.mark.parametrize("right", [False, True])
    @pytest.mark.parametrize("narrow", [False, True])
    @pytest.mark.parametrize("dtype", NUMBERS)
    def test_bucketize(self, dtype, narrow, right):
        boundaries = np.sort(numbers(5, dtype=dtype, seed=4))
        x = np.concatenate([numbers(6, dtype=dtype), boundaries[:2]]).reshape(2, 4)
        check(lambda v, b: op.bucketize(v, b, narrow, right), [x, boundaries], engine=True)

    @drawn
    @given(st.data())
    def test_scans(self, data):
        x = data.draw(arrays(extent=4))
        axis = data.draw(st.none() | st.integers(-x.ndim, x.ndim - 1))
        dtype = data.draw(st.sampled_from((None, "float32", "int64") if x.dtype != np.float32 else (None,)))
        name, exclusive = data.draw(st.sampled_from(("cumsum", "cumprod"))), data.draw(st.booleans())
        close = CLOSE if "float32" in (str(x.dtype), dtype) else {}
        check(lambda v: getattr(op, name)(v, axis, dtype, exclusive), [x], **close, engine=True)

    def test_limits(self):
        assert "3840" in reason(lambda v: op.sort(v), numbers(3841))
        assert "64" in reason(lambda v: op.cumprod(v, 0), numbers(65))
        assert "65" in reason(op.bucketize, numbers(3), np.sort(numbers(65)))
        check(lambda v: op.sort(v), [numbers(3840)], engine=True)


class TestNorms:
    @pytest.mark.parametrize("dtype, close", [("float32", CLOSE), ("float16", HALF)])
    @pytest.mark.parametrize("fixed", [False, True])
    @pytest.mark.parametrize(
        "shape, axes",
        [
            ((2, 3, 8), [-1]),
            ((2, 3, 8), [1, 2]),
            ((2, 3, 8), [1]),
            ((2, 3, 4, 5), [2, 3]),
            ((2, 3, 4, 5), [0]),
            ((8,), [0]),
        ],
    )
    def test_layer_norm(self, shape, axes, fixed, dtype, close):
        x = numbers(*shape, dtype=dtype)
        pair = [numbers(*(shape[axis] for axis in axes), dtype=dtype, seed=seed) for seed in (1, 2)]
        if fixed:
            constants = [relax.const(array) for array in pair]
            check(lambda v: nn.layer_norm(v, *constants, axes, 1e-3), [x], **close, engine=True)
        else:
            check(lambda v, g, b: nn.layer_norm(v, g, b, axes), [x, *pair], **close, engine=True)

    def test_layer_norm_over_the_last_axis_is_one_layer(self):
        pair = [relax.const(numbers(8, seed=seed)) for seed in (1, 2)]
        network = check(lambda v: nn.layer_norm(v, *pair, [-1]), [numbers(2, 3, 8)], **CLOSE)
        assert sorted(set(layer_types(network))) == ["CONSTANT", "NORMALIZATION"]

    def test_axes_out_of_order_are_refused(self):
        pair = [relax.const(numbers(8, 3, seed=seed)) for seed in (1, 2)]
        assert "not in order" in reason(lambda v: nn.layer_norm(v, *pair, [2, 1]), numbers(2, 3, 8))

    @pytest.mark.parametrize("dtype, close", [("float32", CLOSE), ("float16", HALF)])
    @pytest.mark.parametrize("shape, axes", [((2, 3, 8), [-1]), ((2, 3, 8), [1, 2])])
    def test_rms_norm(self, shape, axes, dtype, close):
        weight = numbers(*(shape[axis] for axis in axes), dtype=dtype, seed=1)
        check(lambda v, w: nn.rms_norm(v, w, axes), [numbers(*shape, dtype=dtype), weight], **close, engine=True)

    @pytest.mark.parametrize(
        "shape, channel, axes",
        [((2, 3, 4, 5), 1, [2, 3]), ((2, 4, 5, 3), 3, [1, 2]), ((2, 3, 5), 1, [2]), ((2, 3, 2, 4, 5), 1, [2, 3, 4])],
    )
    def test_instance_norm(self, shape, channel, axes):
        pair = [numbers(shape[channel], seed=seed) for seed in (1, 2)]
        check(lambda v, g, b: nn.instance_norm(v, g, b, channel, axes), [numbers(*shape), *pair], **CLOSE, engine=True)

    @pytest.mark.parametrize("groups", [1, 2, 4])
    @pytest.mark.parametrize(
        "shape, channel, axes",
        [((2, 4, 4, 5), 1, [2, 3]), ((2, 4, 5, 4), 3, [1, 2]), ((2, 4, 5), 1, [2]), ((2, 4, 3, 3), -3, [2, 3])],
    )
    def test_group_norm(self, shape, channel, axes, groups):
        pair = [numbers(4, seed=seed) for seed in (1, 2)]
        check(
            lambda v, g, b: nn.group_norm(v, g, b, groups, channel, axes),
            [numbers(*shape), *pair],
            **CLOSE,
            engine=True,
        )

    @pytest.mark.parametrize("fixed", [False, True])
    @pytest.mark.parametrize("center", [False, True])
    @pytest.mark.parametrize("scale", [False, True])
    @pytest.mark.parametrize("shape, axis", [((2, 3, 4, 5), 1), ((2, 4, 3), -1)])
    def test_batch_norm(self, shape, axis, scale, center, fixed):
        statistics = [numbers(3, seed=seed) for seed in (1, 2, 3)] + [np.abs(numbers(3, seed=4)) + np.float32(0.5)]
        attrs = {"axis": axis, "center": center, "scale": scale, "training": False}
        if fixed:
            constants = [relax.const(array) for array in statistics]
            check(lambda v: nn.batch_norm(v, *constants, **attrs), [numbers(*shape)], **CLOSE, engine=True)
        else:
            check(lambda v, *p: nn.batch_norm(v, *p, **attrs), [numbers(*shape), *statistics], **CLOSE, engine=True)

    def test_training_is_refused(self):
        assert "training" in reason(lambda v, *p: nn.batch_norm(v, *p, axis=1), numbers(2, 3, 4), *[numbers(3)] * 4)


def test_what_takes_a_known_number_of_elements():
    n = tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 4), "float32"))
    builder = relax.BlockBuilder()
    assert REGISTRY.accepts(builder.normalize(op.mean(x, [0]))) is None
    assert REGISTRY.accepts(builder.normalize(op.cumsum(x, 0))) is None
    assert REGISTRY.accepts(builder.normalize(op.topk(x, 2, 0))) is None
    assert "symbolic" in str(REGISTRY.accepts(builder.normalize(op.topk(x, -1, 0))))
    assert "symbolic" in str(REGISTRY.accepts(builder.normalize(op.argsort(x, 0))))
    assert "symbolic" in str(REGISTRY.accepts(builder.normalize(op.cumprod(x, 0))))


def test_infinities_pass_a_softmax_mask():
    x = np.array([[0.5, -math.inf, 1.0], [-math.inf, -math.inf, 2.0]], np.float32)
    check(lambda v: nn.softmax(v, 1), [x], **CLOSE)
