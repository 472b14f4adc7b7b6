"""Converters of elementwise operators and activations against LLVM; engines serialise; refusals say why."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from converter_case import check, layer_types, numbers, refusals, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax

from relax_glue.tensorrt.converters import REGISTRY
from relax_glue.tensorrt.converters.limits import FLOATS, INTS

op = relax.op
nn = relax.op.nn
drawn = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
CLOSE = {"rtol": 1e-5, "atol": 1e-6}
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5], np.float32)
X = np.array([[-2.5, -1.5, -0.5, -0.3], [0.3, 0.5, 1.5, 2.5]], np.float32)
UNIT = np.linspace(-0.99, 0.99, 8, dtype=np.float32).reshape(2, 4)
POSITIVE = np.abs(X) + np.float32(0.1)
DOMAINS = {
    **dict.fromkeys(("log", "sqrt", "rsqrt"), POSITIVE),
    **dict.fromkeys(("asin", "acos", "atanh"), UNIT),
    "acosh": POSITIVE + 1,
}
UNARY = [
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "abs",
    "negative",
    "ceil",
    "floor",
    "round",
    "trunc",
    "sign",
    "erf",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "asin",
    "acos",
    "atan",
    "asinh",
    "acosh",
    "atanh",
    "square",
    "sigmoid",
    "isnan",
    "isinf",
    "isfinite",
]
ARITHMETIC = ["add", "subtract", "multiply", "divide", "floor_divide", "floor_mod", "maximum", "minimum"]
COMPARE = ["equal", "not_equal", "greater", "greater_equal", "less", "less_equal"]
LOGICAL = ["logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"]


def reason(build, *inputs) -> str:
    said = refusals(build, inputs)
    assert len(said) == 1
    return str(said[0])


@st.composite
def operands(draw, count: int, dtype: str) -> list[np.ndarray]:
    """Return arrays that broadcast to one shape of up to five axes, some with fewer axes."""
    shape = draw(st.lists(st.integers(1, 4), min_size=0, max_size=5))
    found = []
    for seed in range(count):
        part = [draw(st.sampled_from((1, extent))) for extent in shape[draw(st.integers(0, len(shape))) :]]
        found.append(numbers(*part, dtype=dtype, seed=seed))
    return found


class TestUnary:
    @pytest.mark.parametrize("name", UNARY)
    def test_float(self, name):
        check(getattr(op, name), [DOMAINS.get(name, X)], **CLOSE, engine=True)

    @pytest.mark.parametrize("name", ["isnan", "isinf", "isfinite", "trunc", "round", "floor", "abs", "negative"])
    def test_special_values(self, name):
        check(getattr(op, name), [SPECIAL], engine=True)

    def test_round_goes_to_even(self):
        x = np.array([-1.5, -0.5, 0.5, 1.5, 2.5], np.float32)
        check(lambda v: op.round(v), [x], engine=True)

    @pytest.mark.parametrize("dtype", INTS)
    @pytest.mark.parametrize(
        "name",
        [
            "abs",
            "negative",
            "sign",
            "ceil",
            "floor",
            "round",
            "trunc",
            "square",
            "bitwise_not",
            "isnan",
            "isinf",
            "isfinite",
        ],
    )
    def test_integer(self, name, dtype):
        check(getattr(op, name), [numbers(3, 4, dtype=dtype)], engine=True)

    @pytest.mark.parametrize("name", ["logical_not", "bitwise_not"])
    def test_bool(self, name):
        check(getattr(op, name), [numbers(3, 4, dtype="bool")], engine=True)

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    @pytest.mark.parametrize("name", ["exp", "abs", "floor", "sqrt"])
    def test_half(self, name, dtype):
        x = np.abs(numbers(2, 3, dtype=dtype))
        check(getattr(op, name), [x], rtol=2e-2, atol=2e-2, engine=True)

    def test_integer_rounding_adds_no_layer(self):
        network = check(lambda v: op.abs(op.floor(v)), [numbers(3, dtype="int32")])
        assert layer_types(network) == ["UNARY"]


class TestBinary:
    @drawn
    @given(st.data())
    def test_broadcast(self, data):
        dtype = data.draw(st.sampled_from(("float32", *INTS)))
        name = data.draw(st.sampled_from(ARITHMETIC + COMPARE + ([] if dtype == "float32" else ["mod"])))
        a, b = data.draw(operands(2, dtype))
        if name in ("divide", "floor_divide", "floor_mod", "mod"):
            b = np.where(b == 0, np.ones_like(b), b)
        check(getattr(op, name), [a, b], **(CLOSE if dtype == "float32" else {}), engine=True)

    @pytest.mark.parametrize("name", ["divide", "floor_divide", "mod", "floor_mod"])
    @pytest.mark.parametrize("dtype", INTS)
    def test_integer_division_by_sign(self, name, dtype):
        a = np.array([-7, 7, -7, 7, -6, 6], dtype)
        b = np.array([2, 2, -2, -2, 3, -3], dtype)
        check(getattr(op, name), [a, b], engine=True)

    @pytest.mark.parametrize("name", LOGICAL)
    def test_logical(self, name):
        check(getattr(op, name), [numbers(3, 4, dtype="bool"), numbers(4, dtype="bool", seed=2)], engine=True)

    @pytest.mark.parametrize("name", [name for name in COMPARE if name != "not_equal"])
    def test_nan_compares_as_in_c(self, name):
        check(getattr(op, name), [SPECIAL, np.flip(SPECIAL).copy()], engine=True)

    def test_nan_differs_from_itself(self):
        # LLVM is no measure here: TVM lowers != to an ordered comparison, which no other target does
        outcome = run(op.not_equal, [SPECIAL, SPECIAL])
        np.testing.assert_array_equal(outcome.got[0], np.isnan(SPECIAL))

    def test_power(self):
        check(op.power, [POSITIVE, X[:1]], **CLOSE, engine=True)

    @pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)])
    def test_square_of_negative_numbers(self, shape):
        exponent = relax.const(np.full(shape, 2.0, np.float32))
        check(lambda v: op.power(v, exponent), [X], **CLOSE, engine=True)

    @pytest.mark.parametrize("exponent", [3.0, -2.0, 0.0, 1.0])
    def test_whole_power_of_negative_numbers(self, exponent):
        check(lambda v: op.power(v, relax.const(exponent)), [X], **CLOSE, engine=True)

    def test_atan2_in_every_quadrant(self):
        y = np.array([0, -0.0, 1, -1, 0, -0.0, np.inf, -np.inf, np.inf, 0, -0.0, 2, -3, 3], np.float32)
        x = np.array([-1, -1, 0, 0, 0, 1, np.inf, -np.inf, -1, -0.0, -0.0, -0.0, -2, -2], np.float32)
        check(op.atan2, [y, x], **CLOSE, engine=True)

    def test_log_add_exp(self):
        check(op.log_add_exp, [X * 10, X[:1] * 10], **CLOSE, engine=True)

    def test_log_add_exp_does_not_overflow(self):
        # TVM's own kernel does: exp(90) is beyond float32
        outcome = run(op.log_add_exp, [X * 60, X[:1] * 60])
        wanted = np.logaddexp(X.astype(np.float64) * 60, X[:1].astype(np.float64) * 60)
        np.testing.assert_allclose(outcome.got[0], wanted, rtol=1e-6)

    def test_outer(self):
        check(op.outer, [numbers(3), numbers(4)], engine=True)

    @pytest.mark.parametrize("bits", [0, 3, [[1, 5, 2, 0]]])
    @pytest.mark.parametrize("name", ["left_shift", "right_shift"])
    @pytest.mark.parametrize("dtype", INTS)
    def test_shift_by_constants(self, name, dtype, bits):
        amount = relax.const(np.array(bits, dtype), dtype)
        check(lambda v: getattr(op, name)(v, amount), [numbers(3, 4, dtype=dtype)], engine=True)


class TestWhereClipCast:
    @drawn
    @given(st.data())
    def test_where(self, data):
        dtype = data.draw(st.sampled_from(("float32", "float16", "bool", *INTS)))
        a, b = data.draw(operands(2, dtype))
        condition = numbers(*np.broadcast_shapes(a.shape, b.shape), dtype="bool", seed=7)
        check(op.where, [condition, a, b], engine=True)

    @pytest.mark.parametrize("low, high", [(-1, 1.5), (0, float("inf")), (float("-inf"), 0.5), (3, 1)])
    @pytest.mark.parametrize("dtype", ["float32", "float16"])
    def test_clip(self, low, high, dtype):
        check(lambda v: op.clip(v, low, high), [X.astype(dtype)], engine=True)

    @pytest.mark.parametrize("dtype", INTS)
    def test_clip_integers(self, dtype):
        check(lambda v: op.clip(v, -3, 2), [numbers(4, 5, dtype=dtype)], engine=True)

    @pytest.mark.parametrize("source", ["float32", "float16", "bool", "uint8", "int8", *INTS])
    @pytest.mark.parametrize("target", ["float32", "float16", "bool", "uint8", *INTS])
    def test_astype(self, source, target):
        x = numbers(3, 4, dtype=source)
        x = np.abs(x * 5) if source in FLOATS and target == "uint8" else x
        if refusals(lambda v: op.astype(v, target), [x]):
            assert "uint8" in (source, target) and source != target
            return
        check(lambda v: op.astype(v, target), [x], engine=True)


class TestActivations:
    @pytest.mark.parametrize(
        "build",
        [
            nn.relu,
            nn.silu,
            nn.gelu,
            nn.gelu_tanh,
            nn.selu,
            nn.softplus,
            nn.leakyrelu,
            nn.dropout,
            lambda v: nn.leakyrelu(v, 1.7),
            lambda v: nn.leakyrelu(v, -0.5),
            lambda v: nn.softplus(v, 2.0, 3.0),
            lambda v: nn.softplus(v, -1.0, 5.0),
        ],
    )
    @pytest.mark.parametrize("scale", [1, 40])
    def test_float(self, build, scale):
        check(build, [X * scale], **CLOSE, engine=True)

    @pytest.mark.parametrize("dtype", INTS)
    def test_relu_of_integers(self, dtype):
        check(nn.relu, [numbers(4, 5, dtype=dtype)], engine=True)

    def test_hard_swish_as_importers_spell_it(self):
        def hard_swish(x):
            shifted = op.clip(op.add(x, relax.const(3.0)), 0, 6)
            return op.multiply(x, op.divide(shifted, relax.const(6.0)))

        check(hard_swish, [X * 3], **CLOSE, engine=True)

    @pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 2, 2, 2)])
    @pytest.mark.parametrize("build", [nn.softmax, nn.log_softmax])
    def test_softmax(self, build, shape):
        for axis in range(-len(shape), len(shape)):
            check(lambda v, axis=axis: build(v, axis), [numbers(*shape) * 30], **CLOSE, engine=True)

    @pytest.mark.parametrize("axis", [0, 1, 2])
    @pytest.mark.parametrize("constant", [False, True])
    def test_prelu(self, axis, constant):
        x, slope = numbers(2, 3, 4), numbers((2, 3, 4)[axis], seed=5)
        if constant:
            check(lambda v: nn.prelu(v, relax.const(slope), axis), [x], **CLOSE, engine=True)
        else:
            check(lambda v, s: nn.prelu(v, s, axis), [x, slope], **CLOSE, engine=True)


class TestRefusals:
    def test_slopes_of_another_axis(self):
        assert reason(lambda v: nn.prelu(v, relax.const(numbers(3)), 2), numbers(2, 3, 4)).startswith(
            "3 slopes for axis 2"
        )

    def test_float_mod(self):
        assert "remainder" in reason(op.mod, X, X)

    def test_logic_on_numbers(self):
        assert "takes bool" in reason(op.logical_and, X, X)

    def test_computed_shift(self):
        i = numbers(3, dtype="int32")
        assert "computed" in reason(op.left_shift, i, i)

    def test_shift_into_the_sign(self):
        assert "31" in reason(lambda v: op.left_shift(v, relax.const(31, "int32")), numbers(3, dtype="int32"))

    def test_double(self):
        assert "cast it to float32" in reason(op.exp, X.astype(np.float64))

    def test_integer_to_int8(self):
        assert "wraps" in reason(lambda v: op.astype(v, "int8"), numbers(3, dtype="int32"))

    def test_symbolic_bound(self):
        n = tvm.tirx.Var("n", "int64")
        x = relax.Var("x", relax.TensorType((n,), "float32"))
        call = relax.BlockBuilder().normalize(op.clip(x, 0, n))
        assert "not a number" in str(REGISTRY.accepts(call))

    def test_unknown_shape(self):
        x = relax.Var("x", relax.TensorType(dtype="float32", ndim=3))
        assert "not known" in str(REGISTRY.accepts(relax.BlockBuilder().normalize(op.exp(x))))
