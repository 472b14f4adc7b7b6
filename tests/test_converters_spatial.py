"""Converters of convolutions and pools against LLVM, over random attributes; engines serialise."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from converter_case import check, layer_types, module_of, numbers, refusals, run, serialise
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax

from relax_glue.tensorrt.converters import REGISTRY
from relax_glue.tensorrt.network import Network, build_network
from relax_glue.tensorrt.reference import evaluate

op = relax.op
nn = relax.op.nn
drawn = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
CONV = {1: nn.conv1d, 2: nn.conv2d, 3: nn.conv3d}
DECONV = {1: nn.conv1d_transpose, 2: nn.conv2d_transpose, 3: nn.conv3d_transpose}
POOLS = {
    (kind, rank): getattr(nn, f"{kind}_pool{rank}d") for kind in ("max", "avg", "adaptive_avg") for rank in (1, 2, 3)
}


def reason(build, *inputs) -> str:
    said = refusals(build, inputs)
    assert len(said) == 1
    return str(said[0])


def built(build, *inputs) -> Network:
    """Return the network of a case that LLVM cannot run."""
    assert not refusals(build, inputs)
    return build_network(module_of(build, inputs)["main"])


def spatial(rank: int) -> str:
    return "DHW"[3 - rank :]


def each(values: st.SearchStrategy[int], count: int) -> st.SearchStrategy[list[int]]:
    return st.lists(values, min_size=count, max_size=count)


def in_order(layout: str, extents: dict[str, int]) -> list[int]:
    return [extents[axis] for axis in layout]


@st.composite
def convolutions(draw, transposed: bool):
    """Return data, kernel and attributes. TVM's LLVM runs transposed convolutions in NCHW only."""
    rank = draw(st.sampled_from((1, 2, 2, 3)))
    axes = spatial(rank)
    groups = draw(st.sampled_from((1, 1, 2, 3)))
    channels, maps = groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 3))
    strides = draw(each(st.integers(1, 3), rank))
    attrs = {
        "strides": strides,
        "padding": draw(each(st.integers(0, 2), 2 * rank)),
        "dilation": draw(each(st.sampled_from((1, 1, 2)), rank)),
        "groups": groups,
    }
    if transposed:
        attrs["output_padding"] = [draw(st.integers(0, stride - 1)) for stride in strides]
        attrs["data_layout"], attrs["kernel_layout"] = f"NC{axes}", f"IO{axes}"
    else:
        attrs["data_layout"] = draw(st.sampled_from((f"NC{axes}", f"N{axes}C")))
        attrs["kernel_layout"] = draw(st.sampled_from((f"OI{axes}", f"{axes}IO", f"O{axes}I", f"{axes}OI")))
    window = dict(zip(axes, draw(each(st.integers(1, 3), rank)), strict=True))
    kernel = {"O": maps // groups, "I": channels} if transposed else {"O": maps, "I": channels // groups}
    data = {"N": draw(st.integers(1, 2)), "C": channels}
    data |= dict(zip(axes, draw(each(st.integers(5, 7), rank)), strict=True))
    x = numbers(*in_order(attrs["data_layout"], data), seed=1)
    return rank, x, numbers(*in_order(attrs["kernel_layout"], window | kernel), seed=2), attrs


class TestConvolution:
    @drawn
    @given(convolutions(transposed=False), st.booleans())
    def test_convolution(self, case, constant):
        rank, x, w, attrs = case
        if constant:
            check(lambda v: CONV[rank](v, relax.const(w), **attrs), [x], **CLOSE, engine=True)
        else:
            check(lambda v, k: CONV[rank](v, k, **attrs), [x, w], **CLOSE, engine=True)

    @drawn
    @given(convolutions(transposed=True), st.booleans())
    def test_transposed(self, case, constant):
        rank, x, w, attrs = case
        if constant:
            check(lambda v: DECONV[rank](v, relax.const(w), **attrs), [x], **CLOSE, engine=True)
        elif max(attrs["strides"]) > 1 and max(attrs["dilation"]) > 1:
            assert "one or the other" in reason(lambda v, k: DECONV[rank](v, k, **attrs), x, w)
        else:
            check(lambda v, k: DECONV[rank](v, k, **attrs), [x, w], **CLOSE, engine=True)

    def test_one_layer_in_nchw(self):
        network = check(lambda v: nn.conv2d(v, relax.const(numbers(4, 3, 3, 3))), [numbers(1, 3, 8, 8)], **CLOSE)
        assert layer_types(network) == ["CONVOLUTION"]

    def test_out_dtype_is_the_working_dtype(self):
        x, w = numbers(1, 3, 6, 6, dtype="float16"), numbers(4, 3, 3, 3, dtype="float16")
        check(lambda v, k: nn.conv2d(v, k, out_dtype="float32"), [x, w], **CLOSE, engine=True)

    @pytest.mark.parametrize("build, kernel", [(nn.conv2d, (4, 3, 3, 3)), (nn.conv2d_transpose, (3, 4, 3, 3))])
    def test_half(self, build, kernel):
        x, w = numbers(1, 3, 6, 6, dtype="float16"), relax.const(numbers(*kernel, dtype="float16"))
        check(lambda v: build(v, w), [x], rtol=2e-2, atol=2e-2, engine=True)

    def test_bfloat16(self):
        x, w, b = (numbers(*shape, dtype="bfloat16") for shape in ((1, 3, 6, 6), (4, 3, 3, 3), (4, 1, 1)))
        outcome = run(nn.conv2d, [x.astype(np.float32), w.astype(np.float32)])
        network = built(lambda v: op.add(nn.conv2d(v, relax.const(w)), relax.const(b)), x)
        (got,) = evaluate(network, [x])
        wanted = outcome.wanted[0] + b.astype(np.float32)
        np.testing.assert_allclose(got.astype(np.float32), wanted, rtol=2e-2, atol=2e-2)
        assert serialise(network) > 0

    def test_transposed_bfloat16_works_in_float32(self):
        x, w = numbers(1, 3, 5, 5, dtype="bfloat16"), numbers(3, 4, 3, 3, dtype="bfloat16")
        network = built(nn.conv2d_transpose, x, w)
        (wanted,) = run(nn.conv2d_transpose, [x.astype(np.float32), w.astype(np.float32)]).wanted
        (got,) = evaluate(network, [x, w])
        np.testing.assert_array_equal(got, wanted.astype(x.dtype))
        assert serialise(network) > 0

    def test_output_layout(self):
        # TVM has no kernel for it, so the plain convolution is permuted here
        x, w = numbers(1, 3, 6, 7), numbers(4, 3, 3, 3)
        network = built(lambda v, k: nn.conv2d(v, k, out_layout="NHWC"), x, w)
        (got,) = evaluate(network, [x, w])
        (wanted,) = run(nn.conv2d, [x, w]).wanted
        np.testing.assert_allclose(got, wanted.transpose(0, 2, 3, 1), **CLOSE)
        assert serialise(network) > 0

    def test_integers_and_channel_blocks_are_refused(self):
        i = numbers(1, 4, 6, 6, dtype="int32")
        assert "int32" in reason(nn.conv2d, i, numbers(4, 4, 3, 3, dtype="int32"))
        x, w = numbers(1, 1, 6, 6, 4), numbers(1, 1, 3, 3, 4, 4)
        said = reason(lambda v, k: nn.conv2d(v, k, data_layout="NCHW4c", kernel_layout="OIHW4i4o"), x, w)
        assert "NCHW4c" in said

    def test_symbolic_batch_and_size(self):
        n, h = tvm.tirx.Var("n", "int64"), tvm.tirx.Var("h", "int64")
        x = relax.Var("x", relax.TensorType((n, 3, h, 8), "float32"))
        call = relax.BlockBuilder().normalize(nn.conv2d(x, relax.const(numbers(4, 3, 3, 3))))
        assert REGISTRY.accepts(call) is None
        x = relax.Var("x", relax.TensorType((1, n, 8, 8), "float32"))
        w = relax.Var("w", relax.TensorType((4, n, 3, 3), "float32"))
        said = REGISTRY.accepts(relax.BlockBuilder().normalize(nn.conv2d(x, w)))
        assert "kernel is symbolic" in str(said)


class TestBias:
    @pytest.mark.parametrize("shape", [(1, 4, 1, 1), (4, 1, 1), (), (1,)])
    @pytest.mark.parametrize("swap", [False, True])
    def test_constant_per_channel_is_the_bias(self, shape, swap):
        w, b = relax.const(numbers(4, 3, 3, 3)), relax.const(numbers(*shape, seed=3))

        def build(v):
            conv = nn.conv2d(v, w)
            return op.add(b, conv) if swap else op.add(conv, b)

        network = check(build, [numbers(1, 3, 8, 8)], **CLOSE, engine=True)
        assert layer_types(network) == ["CONVOLUTION"]
        assert set(network.named) == {"gv"}

    @pytest.mark.parametrize(
        "build, x",
        [
            (lambda v, w, b: op.add(nn.conv2d(v, w, data_layout="NHWC", kernel_layout="HWIO"), b), (1, 8, 8, 3)),
            (
                lambda v, w, b: op.add(op.permute_dims(nn.conv2d(v, w, kernel_layout="HWIO"), [0, 2, 3, 1]), b),
                (1, 3, 8, 8),
            ),
        ],
    )
    def test_through_the_way_back_to_the_layout(self, build, x):
        w, b = relax.const(numbers(3, 3, 3, 4)), relax.const(numbers(4))
        network = check(lambda v: build(v, w, b), [numbers(*x)], **CLOSE, engine=True)
        assert "ELEMENTWISE" not in layer_types(network)

    @pytest.mark.parametrize("layouts", [("NCW", "OIW", (1, 4, 1)), ("NWC", "OIW", (4,))])
    def test_one_dimension(self, layouts):
        data, kernel, shape = layouts
        w, b = relax.const(numbers(4, 3, 3)), relax.const(numbers(*shape))
        x = numbers(1, 3, 8) if data == "NCW" else numbers(1, 8, 3)
        build = nn.conv1d
        network = check(
            lambda v: op.add(build(v, w, data_layout=data, kernel_layout=kernel), b), [x], **CLOSE, engine=True
        )
        assert "ELEMENTWISE" not in layer_types(network)

    def test_transposed(self):
        w, b = relax.const(numbers(3, 4, 3, 3)), relax.const(numbers(4, 1, 1))
        build = nn.conv2d_transpose
        x = numbers(1, 3, 5, 5)
        inside = check(
            lambda v: op.add(build(v, w, strides=2, padding=1, output_padding=1), b), [x], **CLOSE, engine=True
        )
        assert layer_types(inside) == ["DECONVOLUTION"]
        # the zeros that output_padding appends get the term too, and they come after the layer
        beyond = check(lambda v: op.add(build(v, w, strides=2, output_padding=1), b), [x], **CLOSE, engine=True)
        assert layer_types(beyond)[:2] == ["DECONVOLUTION", "SLICE"]
        assert "ELEMENTWISE" in layer_types(beyond)

    @pytest.mark.parametrize("shape", [(1, 1, 1, 6), (1, 4, 6, 6), (6,)])
    def test_other_constants_stay(self, shape):
        w, b = relax.const(numbers(4, 3, 3, 3)), relax.const(numbers(*shape, seed=3))
        network = check(lambda v: op.add(nn.conv2d(v, w), b), [numbers(1, 3, 8, 8)], **CLOSE, engine=True)
        assert "ELEMENTWISE" in layer_types(network)

    @pytest.mark.parametrize("shape", [(6,), (6, 5)])
    def test_a_sum_after_a_permute_alone(self, shape):
        b = relax.const(numbers(shape[0], seed=3))
        check(lambda v: op.add(op.permute_dims(v), b), [numbers(*shape)], **CLOSE, engine=True)

    def test_a_convolution_read_twice_stays(self):
        w, b = relax.const(numbers(4, 3, 3, 3)), relax.const(numbers(4, 1, 1))

        def build(v):
            builder = relax.BlockBuilder.current()
            conv = builder.emit(nn.conv2d(v, w))
            return op.multiply(builder.emit(op.add(conv, b)), conv)

        network = check(build, [numbers(1, 3, 8, 8)], **CLOSE, engine=True)
        assert layer_types(network).count("ELEMENTWISE") == 2


@st.composite
def pools(draw):
    rank = draw(st.sampled_from((1, 2, 2, 3)))
    axes = spatial(rank)
    layout = draw(st.sampled_from((f"NC{axes}", f"N{axes}C")))
    extents = {"N": draw(st.integers(1, 2)), "C": 2}
    extents |= dict(zip(axes, draw(each(st.integers(4, 8), rank)), strict=True))
    window = draw(each(st.integers(1, 4), rank))
    attrs = {
        "pool_size": window,
        "strides": draw(each(st.integers(1, 3), rank)),
        "padding": [draw(st.integers(0, size - 1)) for size in window * 2],
        "dilation": draw(each(st.sampled_from((1, 1, 1, 2)), rank)),
        "ceil_mode": draw(st.booleans()),
        "count_include_pad": draw(st.booleans()),
        "layout": layout,
    }
    return draw(st.sampled_from(("max", "avg"))), rank, numbers(*in_order(layout, extents)), attrs


class TestPools:
    @drawn
    @given(pools())
    def test_pool(self, case):
        kind, rank, x, attrs = case
        build = POOLS[kind, rank]
        if refusals(lambda v: build(v, **attrs), [x]):
            assert "padding" in reason(lambda v: build(v, **attrs), x) or "empty" in reason(
                lambda v: build(v, **attrs), x
            )
            return
        check(lambda v: build(v, **attrs), [x], **({} if kind == "max" else CLOSE), engine=True)

    @pytest.mark.parametrize("ceil_mode", [False, True])
    @pytest.mark.parametrize("counts", [False, True])
    def test_what_an_average_divides_by(self, ceil_mode, counts):
        # 1..6 under windows of 3 with a padding of 1: at the end a window reaches over the padding
        x = np.arange(1, 7, dtype=np.float32).reshape(1, 1, 6)
        check(lambda v: nn.avg_pool1d(v, 3, 3, (1, 1), 1, ceil_mode, counts), [x], **CLOSE, engine=True)

    def test_a_window_that_would_start_in_the_end_padding_is_none(self):
        # along the second axis 3 + 2 elements and a stride of 2 make two windows, not three
        attrs = {"pool_size": [4, 1], "strides": [3, 2], "padding": [2, 0, 0, 2], "dilation": [1, 1]}
        x = numbers(1, 2, 9, 3)
        check(lambda v: nn.avg_pool2d(v, **attrs, ceil_mode=True, count_include_pad=True), [x], **CLOSE, engine=True)

    def test_one_layer(self):
        network = check(lambda v: nn.max_pool2d(v, 3, 2, 1, 1, True), [numbers(1, 2, 7, 8)])
        assert layer_types(network) == ["POOLING"]

    def test_windows_in_the_padding_are_refused(self):
        said = reason(lambda v: nn.max_pool2d(v, 2, 1, 2), numbers(1, 2, 6, 6))
        assert "wholly in the padding" in said


@st.composite
def adaptive_pools(draw):
    rank = draw(st.sampled_from((1, 2, 2, 3)))
    axes = spatial(rank)
    layout = draw(st.sampled_from((f"NC{axes}", f"N{axes}C")))
    sizes = draw(each(st.integers(3, 9), rank))
    extents = {"N": draw(st.integers(1, 2)), "C": 2} | dict(zip(axes, sizes, strict=True))
    cells = draw(
        st.just([1] * rank)
        | st.tuples(*(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]) for size in sizes)).map(list)
        | st.tuples(*(st.integers(1, size) for size in sizes)).map(list)
    )
    return rank, numbers(*in_order(layout, extents)), {"output_size": cells, "layout": layout}


class TestAdaptivePools:
    @drawn
    @given(adaptive_pools())
    def test_average(self, case):
        rank, x, attrs = case
        check(lambda v: POOLS["adaptive_avg", rank](v, **attrs), [x], **CLOSE, engine=True)

    @pytest.mark.parametrize("size, layers", [((1, 1), ["REDUCE"]), ((2, 4), ["POOLING"])])
    def test_one_layer_where_cells_agree(self, size, layers):
        network = check(lambda v: nn.adaptive_avg_pool2d(v, size), [numbers(1, 2, 6, 8)], **CLOSE, engine=True)
        assert layer_types(network) == layers

    def test_too_many_cells(self):
        assert "cells" in reason(lambda v: nn.adaptive_avg_pool1d(v, 70), numbers(1, 1, 99))
