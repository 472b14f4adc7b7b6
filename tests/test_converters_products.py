"""Converters of products, attention and quantization against LLVM; engines serialise."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from converter_case import check, layer_types, numbers, refusals, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax

from relax_glue.errors import ConversionError
from relax_glue.tensorrt.converters import REGISTRY

op = relax.op
nn = relax.op.nn
drawn = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
HALF = {"rtol": 2e-2, "atol": 2e-2}


def reason(build, *inputs) -> str:
    said = refusals(build, inputs)
    assert len(said) == 1
    return str(said[0])


def constant(values, dtype: str = "float32") -> relax.Expr:
    return relax.const(np.array(values, dtype), dtype)


class TestMatmul:
    @drawn
    @given(st.data())
    def test_any_ranks(self, data):
        m, k, n = (data.draw(st.integers(1, 4)) for _ in range(3))
        batch = data.draw(st.lists(st.integers(1, 3), max_size=3))
        operands = []
        for matrix in ((m, k), (k, n)):
            taken = batch[data.draw(st.integers(0, len(batch))) :]
            operands.append([data.draw(st.sampled_from((1, extent))) for extent in taken] + list(matrix))
        vector = data.draw(st.sampled_from((None, None, 0, 1)))
        if vector is not None:
            operands[vector] = [k]
        a, b = (numbers(*shape, seed=seed) for seed, shape in enumerate(operands))
        check(op.matmul, [a, b], **CLOSE, engine=True)

    def test_dot_product(self):
        check(op.matmul, [numbers(4), numbers(4, seed=1)], **CLOSE, engine=True)

    def test_working_dtype(self):
        a, b = numbers(3, 4, dtype="float16"), numbers(4, 5, dtype="float16")
        check(lambda x, y: op.matmul(x, y, out_dtype="float32"), [a, b], **CLOSE, engine=True)
        check(op.matmul, [a, b], **HALF, engine=True)

    @pytest.mark.parametrize("side", [0, 1])
    def test_a_transpose_is_a_flag(self, side):
        def build(a, b):
            turned = op.permute_dims((a, b)[side], [0, 2, 1])
            return op.matmul(turned, b) if side == 0 else op.matmul(a, turned)

        a, b = ((2, 3, 4), (2, 3, 5)) if side == 0 else ((2, 4, 3), (2, 5, 3))
        network = check(build, [numbers(*a), numbers(*b, seed=1)], **CLOSE, engine=True)
        layer = network.net.get_layer(network.net.num_layers - 1)
        assert layer.get_input(side).is_network_input

    def test_another_permutation_is_a_shuffle(self):
        def build(a, b):
            return op.matmul(op.permute_dims(a, [2, 1, 0]), b)

        network = check(build, [numbers(4, 3, 2), numbers(2, 4, 4)], **CLOSE, engine=True)
        layer = network.net.get_layer(network.net.num_layers - 1)
        assert not layer.get_input(0).is_network_input

    def test_integers_are_refused(self):
        i = numbers(3, 3, dtype="int32")
        assert "cast the operands to float32" in reason(op.matmul, i, i)


class TestEinsum:
    @pytest.mark.parametrize(
        "equation, shapes",
        [
            ("ij,jk->ik", ((2, 3), (3, 4))),
            ("ij,jk", ((2, 3), (3, 4))),
            ("ba", ((2, 3),)),
            ("ij->", ((2, 3),)),
            ("i,j->ij", ((2,), (3,))),
            ("Ab,bC->AC", ((2, 3), (3, 4))),
            ("ij , jk -> ik", ((2, 3), (3, 4))),
            ("...ij,...jk->...ik", ((2, 2, 3), (3, 4))),
            ("...ij,...jk", ((2, 2, 3), (2, 3, 4))),
            ("bhid,bhjd->bhij", ((1, 2, 3, 4), (1, 2, 5, 4))),
            ("ij,jk,kl->il", ((2, 3), (3, 4), (4, 2))),
        ],
    )
    def test_equation(self, equation, shapes):
        inputs = [numbers(*shape, seed=seed) for seed, shape in enumerate(shapes)]
        network = check(lambda *v: op.einsum(v, equation), inputs, **CLOSE, engine=True)
        assert layer_types(network) == ["EINSUM"]

    def test_refused(self):
        assert "diagonal" in reason(lambda v: op.einsum([v], "ii->i"), numbers(3, 3))
        a, b = numbers(2, 1), numbers(3, 4)
        assert "'j'" in reason(lambda v, w: op.einsum([v, w], "ij,jk->ik"), a, b)


class TestAttention:
    @pytest.mark.parametrize("mask", [None, "TopLeft", "BottomRight"])
    @pytest.mark.parametrize("lengths", [(4, 6), (6, 4), (5, 5)])
    @pytest.mark.parametrize("scale", [None, 0.3])
    def test_mask_and_scale(self, mask, lengths, scale):
        queries, keys = lengths
        inputs = [numbers(2, queries, 2, 8), numbers(2, keys, 2, 8, seed=1), numbers(2, keys, 2, 5, seed=2)]
        factor = None if scale is None else tvm.tirx.FloatImm("float32", scale)
        check(lambda q, k, v: nn.attention(q, k, v, None, factor, mask), inputs, **CLOSE, engine=True)

    @pytest.mark.parametrize("bias", [(2, 2, 4, 6), (1, 1, 4, 6), (1, 2, 1, 6)])
    def test_bias(self, bias):
        inputs = [numbers(2, 4, 2, 8), numbers(2, 6, 2, 8, seed=1), numbers(2, 6, 2, 5, seed=2), numbers(*bias)]
        check(nn.attention, inputs, **CLOSE, engine=True)

    def test_window_is_refused(self):
        x = numbers(1, 4, 2, 8)
        assert "window" in reason(lambda q, k, v: nn.attention(q, k, v, None, None, "TopLeft", 3), x, x, x)


SCALES = [(0.7, 0), (0.7, 3), ([0.7, 1.3, 2.0], [0, 0, 0]), ([0.7, 1.3, 2.0], [3, 0, 1])]


class TestQuantize:
    @pytest.mark.parametrize("scale, zero", SCALES)
    @pytest.mark.parametrize("dtype", ["int8", "uint8"])
    def test_quantize(self, scale, zero, dtype):
        x = numbers(2, 3, 4) * 100
        build = op.quantize
        network = check(lambda v: build(v, constant(scale), constant(zero, "int8"), 1, dtype), [x], engine=True)
        assert ("QUANTIZE" in layer_types(network)) == (dtype == "int8")

    def test_ties_go_to_even(self):
        x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 300, -300], np.float32)
        check(lambda v: op.quantize(v, constant(1.0), constant(0, "int8"), 0, "int8"), [x], engine=True)

    @pytest.mark.parametrize("scale, zero", SCALES)
    @pytest.mark.parametrize("source", ["int8", "uint8", "int32"])
    @pytest.mark.parametrize("target", ["float32", "float16"])
    def test_dequantize(self, scale, zero, source, target):
        x = numbers(2, 3, 4, dtype=source)
        check(
            lambda v: op.dequantize(v, constant(scale), constant(zero, "int8"), 1, target),
            [x],
            rtol=1e-6 if target == "float32" else 1e-3,
            engine=True,
        )

    def test_half_precision_ends_at_its_largest_number(self):
        x = numbers(2, 3, dtype="int8")
        outcome = run(lambda v: op.dequantize(v, constant(9000.0), constant(0, "int8"), 1, "float16"), [x])
        np.testing.assert_array_equal(outcome.got[0], outcome.wanted[0])
        assert np.isfinite(outcome.got[0]).all()

    @pytest.mark.parametrize("kind", ["conv", "matmul"])
    def test_a_quantized_layer_builds(self, kind):
        # RTX takes a convolution between dequantize layers for one in eight bits, and does not build that
        step, zero = constant(0.05), constant(0, "int8")
        shape, steps, axis = ((4, 3, 3, 3), [0.1, 0.2, 0.3, 0.4], 0) if kind == "conv" else ((6, 4), [0.1] * 4, 1)
        weight = relax.const(numbers(*shape, dtype="int8"))

        def build(v):
            emit = relax.BlockBuilder.current().emit
            data = emit(op.dequantize(emit(op.quantize(v, step, zero, 1, "int8")), step, zero, 1, "float32"))
            kernel = emit(op.dequantize(weight, constant(steps), constant([0] * 4, "int8"), axis, "float32"))
            out = emit(nn.conv2d(data, kernel) if kind == "conv" else op.matmul(data, kernel))
            return op.dequantize(emit(op.quantize(out, step, zero, 1, "int8")), step, zero, 1, "float32")

        # a sum that lies between two steps goes the other way when it is summed in another order
        check(build, [numbers(2, 3, 5, 6)], **CLOSE, engine=True, step=0.05)

    def test_refused(self):
        x, scale = numbers(2, 3), np.float32(1)
        zero = constant(0, "int8")
        assert "constants" in reason(lambda v, s: op.quantize(v, s, zero, 0, "int8"), x, np.array(scale))
        assert "positive" in reason(lambda v: op.quantize(v, constant(-1.0), zero, 0, "int8"), x)
        assert "scalar" in reason(lambda v: op.quantize(v, constant(1.0), zero, 0, "int8"), numbers())


class TestVision:
    def test_nms_stays_with_tvm(self):
        boxes, scores = (
            relax.Var("b", relax.TensorType((1, 6, 4), "float32")),
            relax.Var("s", relax.TensorType((1, 2, 6), "float32")),
        )
        call = relax.BlockBuilder().normalize(
            op.vision.all_class_non_max_suppression(boxes, scores, constant(3, "int64"), constant(0.5), constant(0.1))
        )
        assert "number of rows" in str(REGISTRY.accepts(call))
        with pytest.raises(ConversionError, match="number of rows"):
            REGISTRY.of(call.op.name).convert(None, call)
