"""Convolutions as matrix products: which become one, and that the numbers are those of the convolution."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tvm
from converter_case import check, module_of, module_of_types, run_gpu, run_llvm
from tvm import relax

import relax_glue
from relax_glue.region_function import region_functions
from relax_glue.tensorrt import BuildOptions, get_provider
from relax_glue.tensorrt.network import build_network
from relax_glue.tensorrt.products import Products, products_for
from relax_glue.tensorrt.profiles import Profile
from relax_glue.tensorrt.reference import evaluate

RNG = np.random.default_rng(0)
CONV = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}
DECONV = {1: relax.op.nn.conv1d_transpose, 2: relax.op.nn.conv2d_transpose, 3: relax.op.nn.conv3d_transpose}
NAMES = {1: "W", 2: "HW", 3: "DHW"}
PLENTY = Products(1 << 20)


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def laid(array: np.ndarray, source: str, target: str) -> np.ndarray:
    """Return an array of the layout `source` in the layout `target`."""
    return np.ascontiguousarray(array.transpose([source.index(axis) for axis in target]))


def kinds(network: Any) -> list[str]:
    return [network.net.get_layer(k).type.name for k in range(network.net.num_layers)]


def convolved(spatial: int, kernel: np.ndarray, transposed: bool = False, **attrs: Any) -> Any:
    make = (DECONV if transposed else CONV)[spatial]
    return lambda x: make(x, relax.const(kernel), **attrs)


# extents, kernel, and the attributes of the convolution
PRODUCTS = [
    pytest.param((5, 7), (1, 1), {}, id="1x1"),
    pytest.param((5, 7), (3, 3), {"padding": (1, 1)}, id="3x3"),
    pytest.param((6, 5), (3, 3), {"padding": (1, 1), "strides": (2, 2)}, id="3x3 stride 2"),
    pytest.param((7, 6), (2, 3), {"padding": (1, 0, 2, 1), "strides": (1, 2)}, id="uneven"),
    pytest.param((9, 9), (3, 2), {"padding": (2, 1), "dilation": (2, 3)}, id="dilated"),
    pytest.param((7, 9), (1, 1), {"strides": (2, 3)}, id="1x1 strided"),
    pytest.param((4, 4), (1, 1), {"padding": (1, 2)}, id="1x1 padded"),
    pytest.param((8, 6), (4, 2), {"strides": (4, 2)}, id="blocks"),
    pytest.param((9, 7), (4, 2), {"strides": (4, 2)}, id="blocks and a rest"),
    pytest.param((3, 3), (3, 3), {}, id="one pixel"),
    pytest.param((9,), (3,), {"padding": (1,), "strides": (2,)}, id="1d"),
    pytest.param((6,), (1,), {}, id="1d 1x1"),
    pytest.param((8,), (4,), {"strides": (4,)}, id="1d blocks"),
    pytest.param((4, 5, 3), (3, 2, 1), {"padding": (1, 0, 0, 1, 1, 0)}, id="3d"),
    pytest.param((4, 6, 2), (2, 3, 1), {"strides": (2, 3, 1)}, id="3d blocks"),
]


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize(("extents", "window", "attrs"), PRODUCTS)
def test_a_convolution_becomes_a_product(extents, window, attrs, last):
    spatial = len(extents)
    names = NAMES[spatial]
    x, kernel = numbers(2, 3, *extents), numbers(5, 3, *window)
    if last:
        x, kernel = laid(x, "NC" + names, f"N{names}C"), laid(kernel, "OI" + names, f"{names}IO")
        attrs = {**attrs, "data_layout": f"N{names}C", "kernel_layout": f"{names}IO"}
    build = convolved(spatial, kernel, **attrs)
    network = check(build, [x], rtol=1e-4, atol=1e-4, engine=True, products=PLENTY)
    assert "MATRIX_MULTIPLY" in kinds(network)
    assert "CONVOLUTION" not in kinds(network)


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize(
    ("extents", "window"), [((3, 4), (2, 2)), ((3, 2), (2, 3)), ((5,), (4,)), ((2, 1, 3), (1, 2, 3)), ((4, 3), (1, 1))]
)
def test_a_transposed_convolution_whose_taps_do_not_overlap_becomes_a_product(extents, window, last):
    spatial = len(extents)
    names = NAMES[spatial]
    x, kernel = numbers(2, 3, *extents), numbers(3, 5, *window)
    attrs: dict[str, Any] = {"strides": window}
    if last:
        x, kernel = laid(x, "NC" + names, f"N{names}C"), laid(kernel, "IO" + names, f"{names}OI")
        attrs |= {"data_layout": f"N{names}C", "kernel_layout": f"{names}OI"}
    build = convolved(spatial, kernel, transposed=True, **attrs)
    # LLVM's transposed convolutions are NCW, NCHW and NCDHW
    if last:
        network = build_network(module_of(build, [x])["main"], products=PLENTY)
        first = convolved(spatial, laid(kernel, f"{names}OI", "IO" + names), transposed=True, strides=window)
        data = laid(x, f"N{names}C", "NC" + names)
        (wanted,) = run_llvm(module_of(first, [data]), [data])
        (got,) = evaluate(network, [x])
        np.testing.assert_allclose(got, laid(wanted, "NC" + names, f"N{names}C"), rtol=1e-4, atol=1e-4)
    else:
        network = check(build, [x], rtol=1e-4, atol=1e-4, engine=True, products=PLENTY)
    assert "MATRIX_MULTIPLY" in kinds(network)
    assert "DECONVOLUTION" not in kinds(network)


def test_a_bias_and_an_activation_follow_a_product():
    kernel, bias = numbers(6, 4, 3, 3), numbers(1, 6, 1, 1)

    def build(x):
        conv = relax.op.nn.conv2d(x, relax.const(kernel), padding=(1, 1))
        return relax.op.nn.relu(relax.op.add(conv, relax.const(bias)))

    network = check(build, [numbers(1, 4, 6, 6)], rtol=1e-4, atol=1e-4, engine=True, products=PLENTY)
    assert "CONVOLUTION" not in kinds(network)


LAYERS = [
    pytest.param((4, 4, 1, 1), {"groups": 2, "_channels": 8}, id="groups"),
    pytest.param((4, 3, 8, 8), {"padding": (4, 4)}, id="more taps than are worth it"),
    pytest.param((4, 3, 1, 1), {"out_layout": "NHWC"}, id="another layout of the result"),
    pytest.param((4, 3, 1, 1), {"data_layout": "CNHW", "_channels_at": 0}, id="the batch is not the first axis"),
]


@pytest.mark.parametrize(("shape", "attrs"), LAYERS)
def test_what_stays_a_convolution(shape, attrs):
    attrs = dict(attrs)
    channels, place = attrs.pop("_channels", shape[1]), attrs.pop("_channels_at", 1)
    extents = [2, 9, 9]
    extents.insert(place, channels)
    network = network_of(convolved(2, numbers(*shape), **attrs), numbers(*extents))
    assert "CONVOLUTION" in kinds(network)
    assert "MATRIX_MULTIPLY" not in kinds(network)


def network_of(build: Any, *inputs: np.ndarray, tiles: int = PLENTY.tiles) -> Any:
    return build_network(module_of(build, list(inputs))["main"], products=Products(tiles))


def test_a_computed_kernel_stays_a_convolution():
    computed = network_of(lambda x, w: relax.op.nn.conv2d(x, w), numbers(1, 3, 4, 4), numbers(2, 3, 1, 1))
    assert "CONVOLUTION" in kinds(computed)


HALF = [
    pytest.param((12, 8, 1, 1), {}, True, id="12 channels out"),
    pytest.param((8, 12, 1, 1), {}, True, id="12 channels in"),
    pytest.param((16, 8, 1, 1), {}, False, id="channels of tensor cores"),
    pytest.param((12, 8, 3, 3), {}, False, id="3x3"),
    pytest.param((12, 8, 1, 1), {"strides": (2, 2)}, False, id="strided"),
    pytest.param((12, 8, 1, 1), {"padding": (1, 1)}, False, id="padded"),
]


@pytest.mark.parametrize(("shape", "attrs", "wanted"), HALF)
def test_half_precision_whose_channels_do_not_fit_tensor_cores_becomes_a_product(shape, attrs, wanted):
    x, kernel = (RNG.integers(-3, 4, extents).astype("float16") for extents in ((1, shape[1], 6, 5), shape))
    build = convolved(2, kernel, **attrs)
    network = check(build, [x], rtol=1e-3, atol=1e-3, engine=True, products=PLENTY)
    assert ("MATRIX_MULTIPLY" in kinds(network)) == wanted
    assert ("CONVOLUTION" in kinds(network)) != wanted


def test_float32_with_tensor_cores_stays_a_convolution():
    cores = Products(PLENTY.tiles, float32=False)
    conv = module_of(convolved(2, numbers(2, 3, 1, 1)), [numbers(1, 3, 4, 4)])
    transposed = module_of(convolved(2, numbers(3, 2, 2, 2), transposed=True, strides=(2, 2)), [numbers(1, 3, 4, 4)])
    assert "CONVOLUTION" in kinds(build_network(conv["main"], products=cores))
    assert "DECONVOLUTION" in kinds(build_network(transposed["main"], products=cores))


def test_extents_of_no_known_range_stay_convolutions():
    n = tvm.tirx.Var("n", "int64")
    build = convolved(2, numbers(2, 3, 1, 1))
    module = module_of_types(build, [relax.TensorType((n, 3, 4, 4), "float32")])
    assert "CONVOLUTION" in kinds(build_network(module["main"], products=PLENTY))


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize(
    ("window", "attrs"), [((1, 1), {}), ((3, 3), {"padding": (1, 1), "strides": (2, 2)}), ((2, 2), {"strides": (2, 2)})]
)
def test_free_extents_are_judged_by_the_greatest(window, attrs, last):
    n, h, w = (tvm.tirx.Var(name, "int64") for name in "nhw")
    kernel = numbers(5, 3, *window)
    extents = (n, 3, h, w)
    if last:
        kernel, extents = laid(kernel, "OIHW", "HWIO"), (n, h, w, 3)
        attrs = {**attrs, "data_layout": "NHWC", "kernel_layout": "HWIO"}
    module = module_of_types(convolved(2, kernel, **attrs), [relax.TensorType(extents, "float32")])
    sizes = {"n": 2, "h": 16, "w": 16}  # 512 pixels of the operand, 4 tiles where the stride is 1
    few, many = (build_network(module["main"], products=Products(tiles, sizes)) for tiles in (1, 5))
    assert "CONVOLUTION" in kinds(few)
    assert "MATRIX_MULTIPLY" in kinds(many)
    for size in ((2, 16, 16), (1, 2, 3)):
        x = numbers(size[0], 3, *size[1:])
        x = laid(x, "NCHW", "NHWC") if last else x
        (got,) = evaluate(many, [x])
        np.testing.assert_allclose(got, run_llvm(module, [x])[0], rtol=1e-4, atol=1e-4)


def test_free_extents_of_a_transposed_convolution():
    h, w = (tvm.tirx.Var(name, "int64") for name in "hw")
    build = convolved(2, numbers(3, 5, 2, 3), transposed=True, strides=(2, 3))
    module = module_of_types(build, [relax.TensorType((1, 3, h, w), "float32")])
    network = build_network(module["main"], products=Products(PLENTY.tiles, {"h": 9, "w": 9}))
    assert "DECONVOLUTION" not in kinds(network)
    x = numbers(1, 3, 4, 5)
    np.testing.assert_allclose(evaluate(network, [x])[0], run_llvm(module, [x])[0], rtol=1e-4, atol=1e-4)


def test_the_greatest_of_several_profiles_counts():
    rtx = get_provider("tensorrt_rtx")
    profiles = [Profile.of({"n": (1, 4), "h": (8, 64)}), Profile.of({"n": (2, 3), "h": (1, 99)})]
    assert dict(products_for(BuildOptions(conv_as_matmul=True), rtx, profiles).sizes) == {"n": 4, "h": 99}


def test_free_extents_are_left_alone_unless_products_are_asked_for():
    rtx = get_provider("tensorrt_rtx")
    found = products_for(BuildOptions(), rtx, [Profile.of({"n": (1, 4)})])
    assert found.tiles > 0
    assert found.numbers([tvm.tirx.Var("n", "int64"), 3]) is None


def test_patches_of_more_bytes_than_stay_in_the_cache_stay_convolutions():
    kernel = numbers(8, 96, 3, 3)
    inside, beyond = (network_of(convolved(2, kernel), numbers(1, 96, extent, 98)) for extent in (98, 106))
    assert "MATRIX_MULTIPLY" in kinds(inside)  # 96 * 96 pixels of 864 numbers are 31.9 MB
    assert "CONVOLUTION" in kinds(beyond)


@pytest.mark.parametrize(("tiles", "kind"), [(0, "CONVOLUTION"), (6, "CONVOLUTION"), (7, "MATRIX_MULTIPLY")])
def test_as_many_tiles_as_multiprocessors_stay_a_convolution(tiles, kind):
    network = network_of(convolved(2, numbers(129, 2, 1, 1)), numbers(3, 2, 8, 16), tiles=tiles)  # 3 by 2 tiles
    assert kind in kinds(network)


@pytest.mark.parametrize("attrs", [{"padding": (1, 1)}, {"output_padding": (1, 1)}, {"groups": 3}])
def test_transposed_convolutions_that_are_no_product(attrs):
    kernel = numbers(3, 1 if "groups" in attrs else 4, 2, 2)
    build = convolved(2, kernel, transposed=True, strides=(2, 2), **attrs)
    network = network_of(build, numbers(1, 3, 5, 5))
    assert "DECONVOLUTION" in kinds(network)


def test_taps_that_overlap_stay_a_transposed_convolution():
    build = convolved(2, numbers(3, 4, 3, 3), transposed=True, strides=(2, 2))
    assert "DECONVOLUTION" in kinds(network_of(build, numbers(1, 3, 5, 5)))


def test_the_options_decide():
    rtx = get_provider("tensorrt_rtx")
    mainline = dataclasses.replace(rtx, name="tensorrt")
    assert products_for(BuildOptions(), rtx).tiles > 0
    assert products_for(BuildOptions(), rtx).float32
    assert not products_for(BuildOptions(tf32=True), rtx).float32
    assert products_for(BuildOptions(conv_as_matmul=False), rtx).tiles == 0
    assert products_for(BuildOptions(), mainline).tiles == 0
    assert products_for(BuildOptions(conv_as_matmul=True, tf32=True), mainline).float32


@pytest.mark.gpu
@pytest.mark.parametrize("extent", [1, 7, 20, 40])
def test_products_agree_on_the_gpu(extent):
    kernels = [numbers(24, 16, 3, 3) / 12, numbers(40, 24, 1, 1) / 5, numbers(40, 8, 2, 2) / 6]

    def build(x):
        x = relax.op.nn.relu(relax.op.nn.conv2d(x, relax.const(kernels[0]), padding=(1, 1)))
        x = relax.op.nn.relu(relax.op.nn.conv2d(x, relax.const(kernels[1])))
        return relax.op.nn.conv2d_transpose(x, relax.const(kernels[2]), strides=(2, 2))

    x = numbers(2, 16, extent, extent)
    (got,), (wanted,) = run_gpu(build, [x]), run_llvm(module_of(build, [x]), [x])
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_a_model_agrees_with_its_convolutions():
    """Through `optimize`: the region as products and as convolutions, by numpy."""
    weights = [numbers(8, 3, 3, 3), numbers(12, 8, 1, 1), numbers(4, 12, 3, 3)]

    def build(x):
        x = relax.op.nn.relu(relax.op.nn.conv2d(x, relax.const(weights[0]), padding=(1, 1), strides=(2, 2)))
        x = relax.op.nn.silu(relax.op.nn.conv2d(x, relax.const(weights[1])))
        return relax.op.nn.conv2d(relax.op.concat([x, x], 2), relax.const(weights[2]), padding=(1, 1))

    x = numbers(1, 3, 12, 10)
    module = relax_glue.optimize(module_of(build, [x]))
    (region,) = region_functions(module).values()
    networks = [build_network(region, products=Products(tiles)) for tiles in (0, PLENTY.tiles)]
    assert [kinds(network).count("CONVOLUTION") for network in networks] == [3, 0]
    (layers,), (products,) = (evaluate(network, [x]) for network in networks)
    np.testing.assert_allclose(products, layers, rtol=1e-4, atol=1e-4)
