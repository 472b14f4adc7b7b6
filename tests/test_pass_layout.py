"""Layouts with the channels last become layouts with the channels first: same numbers, same shapes, fewer permutes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tvm
from onnx_case import zoo_model
from pass_case import declines
from script_case import script
from tvm import relax

import relax_glue
from relax_glue import zoo
from relax_glue.ir import read_block
from relax_glue.passes import ConvertLayout
from relax_glue.passes.layout import channels_first, reorder
from relax_glue.rewrite import EXACT
from relax_glue.testing import check_equivalent

LAYOUT = ConvertLayout()
LAYOUTS = ("ConvertLayout", "SinkPermuteDims")
RNG = np.random.default_rng(0)


def module(*params: tuple[int, ...], make) -> tvm.IRModule:
    """Return a module of one call."""
    builder = relax.BlockBuilder()
    variables = [relax.Var(f"x{k}", relax.TensorType(shape, "float32")) for k, shape in enumerate(params)]
    with builder.function("main", variables):
        with builder.dataflow():
            result = builder.emit_output(make(*variables))
        builder.emit_func_output(result)
    return builder.get()


def kernel(*shape: int, dtype: str = "float32") -> relax.Expr:
    return relax.const(RNG.normal(size=shape).astype(dtype))


def ops(mod: tvm.IRModule) -> list[str]:
    found = sorted((n for block in mod["main"].body.blocks for n in read_block(block)), key=lambda n: n.order)
    return [n.op.rsplit(".", 1)[-1] for n in found if n.op not in ("input", "constant")]


def layers(mod: tvm.IRModule) -> list:
    calls = [b.value for block in mod["main"].body.blocks for b in block.bindings]
    attrs = [c.attrs for c in calls if isinstance(c, relax.Call)]
    return [a for a in attrs if hasattr(a, "layout") or hasattr(a, "data_layout")]


def converts(before: tvm.IRModule, *shapes: tuple[int, ...], exact: bool = True, check=None) -> tvm.IRModule:
    """Check that one layer is put between two permutes, once, and computes the same; return the module."""
    after = LAYOUT(before)
    assert ops(after) == ["permute_dims", *[o for o in ops(before) if o != "permute_dims"], "permute_dims"]
    tvm.ir.assert_structural_equal(LAYOUT(after), after)
    inputs = [RNG.normal(size=shape).astype("float32") for shape in shapes]
    check_equivalent(check or before, after, inputs, exact=exact, rtol=1e-5)
    return after


# -- convolutions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((1, 8, 4), (3, 4, 6), {"data_layout": "NWC", "kernel_layout": "WIO", "padding": (1, 2)}),
        ((2, 7, 8, 4), (3, 2, 4, 6), {"data_layout": "NHWC", "kernel_layout": "HWIO", "strides": (2, 1)}),
        ((1, 7, 8, 4), (6, 3, 3, 4), {"data_layout": "NHWC", "kernel_layout": "OHWI", "padding": (0, 1, 2, 0)}),
        ((1, 9, 9, 4), (3, 3, 4, 6), {"data_layout": "NHWC", "kernel_layout": "HWIO", "dilation": (2, 3)}),
        ((1, 7, 8, 4), (3, 3, 2, 6), {"data_layout": "NHWC", "kernel_layout": "HWIO", "groups": 2}),
        ((1, 7, 8, 4), (3, 3, 4, 1), {"data_layout": "NHWC", "kernel_layout": "HWOI", "groups": 4}),
        ((1, 7, 8, 4), (3, 3, 8, 1), {"data_layout": "NHWC", "kernel_layout": "HWOI", "groups": 4}),
        ((1, 4, 5, 6, 3), (2, 3, 3, 3, 5), {"data_layout": "NDHWC", "kernel_layout": "DHWIO"}),
    ],
)
def test_a_convolution(x: tuple[int, ...], w: tuple[int, ...], options: dict) -> None:
    make = getattr(relax.op.nn, f"conv{len(x) - 2}d")
    after = converts(module(x, make=lambda v: make(v, kernel(*w), **options)), x, exact=False)
    (attrs,) = layers(after)
    first = channels_first(len(x))
    assert (attrs.data_layout, attrs.out_layout, attrs.kernel_layout) == (first, first, "OI" + first[2:])


def test_the_layout_of_the_result_is_kept() -> None:
    x = (1, 3, 7, 8)

    def make(v: relax.Expr) -> relax.Expr:
        return relax.op.nn.conv2d(v, weight, data_layout="NCHW", kernel_layout="HWIO")

    weight = kernel(3, 3, 3, 5)
    after = LAYOUT(module(x, make=make))
    assert ops(after) == ["conv2d"]  # only the kernel had another layout
    inputs = [RNG.normal(size=x).astype("float32")]
    check_equivalent(module(x, make=make), after, inputs, exact=False, rtol=1e-5)

    mixed = module((1, 7, 8, 3), make=lambda v: relax.op.nn.conv2d(
        v, weight, data_layout="NHWC", kernel_layout="HWIO", out_layout="NCHW"))  # fmt: skip
    after = LAYOUT(mixed)
    assert ops(after) == ["permute_dims", "conv2d"]
    assert after["main"].ret_ty == mixed["main"].ret_ty


@pytest.mark.parametrize(
    ("name", "x", "w", "data", "kernel_layout"),
    [
        ("conv1d_transpose", (1, 4, 3), (3, 3, 5), "NWC", "WIO"),
        ("conv2d_transpose", (1, 4, 5, 3), (3, 5, 2, 2), "NHWC", "IOHW"),
        ("conv2d_transpose", (1, 4, 5, 3), (2, 2, 3, 5), "NHWC", "HWIO"),
        ("conv3d_transpose", (1, 3, 4, 5, 3), (2, 2, 2, 3, 5), "NDHWC", "DHWIO"),
    ],
)
def test_a_transposed_convolution(name: str, x: tuple, w: tuple, data: str, kernel_layout: str) -> None:
    """TVM computes none with the channels last, so permutes by hand are what it is compared with."""
    make, spatial = getattr(relax.op.nn, name), len(x) - 2
    weight = kernel(*w)
    options = {"strides": (2,) * spatial, "output_padding": (1,) * spatial}
    before = module(x, make=lambda v: make(v, weight, data_layout=data, kernel_layout=kernel_layout, **options))
    first = channels_first(len(x))
    turned = relax.const(weight.value.numpy().transpose(reorder(kernel_layout, "IO" + first[2:])))

    def by_hand(v: relax.Expr) -> relax.Expr:
        v = relax.op.permute_dims(v, reorder(data, first))
        return relax.op.permute_dims(make(v, turned, **options), reorder(first, data))

    converts(before, x, check=module(x, make=by_hand))


def test_weights_of_half_precision_keep_their_bits() -> None:
    weight = relax.const(RNG.normal(size=(1, 1, 4, 6)).astype("float16"))

    def make(v: relax.Expr) -> relax.Expr:
        half = relax.op.astype(v, "float16")
        return relax.op.nn.conv2d(half, weight, data_layout="NHWC", kernel_layout="HWIO", out_dtype="float32")

    mod = module((1, 2, 2, 4), make=make)
    after = LAYOUT(mod)
    assert str(layers(after)[0].out_dtype) == "float32"
    (array,) = [n.array for block in after["main"].body.blocks for n in read_block(block) if n.op == "constant"]
    assert array.tobytes() == weight.value.numpy().transpose(3, 2, 0, 1).tobytes()


def test_two_layers_share_the_permute_of_their_operand() -> None:
    def make(v: relax.Expr) -> relax.Expr:
        convs = [relax.op.nn.conv2d(v, kernel(1, 1, 3, 5), data_layout="NHWC", kernel_layout="HWIO") for _ in "ab"]
        return relax.op.add(*convs)

    assert ops(LAYOUT(module((1, 4, 4, 3), make=make))).count("permute_dims") == 3


# -- pools and resizes -----------------------------------------------------------------------------------

WINDOW = {"pool_size": 3, "strides": 2, "padding": 1}


@pytest.mark.parametrize("name", ["max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d"])
@pytest.mark.parametrize("more", [{}, {"ceil_mode": True}, {"count_include_pad": True, "dilation": 2}])
def test_a_pool_is_exact(name: str, more: dict) -> None:
    spatial = int(name[-2])
    x = (1, *(7, 6, 5)[:spatial], 3)
    layout = "N" + channels_first(spatial + 2)[2:] + "C"
    make = getattr(relax.op.nn, name)
    windows = {k: (v,) * spatial if k == "dilation" else v for k, v in more.items()}
    options = {k: (v,) * (2 * spatial if k == "padding" else spatial) for k, v in WINDOW.items()}
    converts(module(x, make=lambda v: make(v, **options, **windows, layout=layout)), x)


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (4, 6)])
def test_an_adaptive_pool_is_exact(size: tuple[int, int]) -> None:
    x = (1, 5, 6, 3)
    converts(module(x, make=lambda v: relax.op.nn.adaptive_avg_pool2d(v, size, layout="NHWC")), x)


@pytest.mark.parametrize("method", ["nearest_neighbor", "linear", "cubic"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric"])
def test_a_resize_is_exact(method: str, coordinates: str) -> None:
    x = (1, 4, 5, 3)
    options = {"method": method, "coordinate_transformation_mode": coordinates, "rounding_method": "floor"}
    converts(module(x, make=lambda v: relax.op.image.resize2d(v, (8, 7), layout="NHWC", **options)), x)


def test_a_symbolic_batch() -> None:
    before = script("gv = R.nn.max_pool2d(x, [2, 2], layout='NHWC')", x=("n", 4, 4, 3))
    after = LAYOUT(before)
    assert ops(after) == ["permute_dims", "max_pool2d", "permute_dims"]
    check_equivalent(before, after, [RNG.normal(size=(2, 4, 4, 3)).astype("float32")])


# -- what stays ------------------------------------------------------------------------------------------


def test_channels_that_come_first_stay() -> None:
    x = (1, 4, 6, 6)
    declines(LAYOUT, module(x, make=lambda v: relax.op.nn.conv2d(v, kernel(2, 4, 3, 3))))
    declines(LAYOUT, module(x, make=lambda v: relax.op.nn.max_pool2d(v, (2, 2))))
    declines(LAYOUT, module(x, make=lambda v: relax.op.image.resize2d(v, (3, 3), layout="NCHW")))


def test_a_kernel_that_is_computed_stays() -> None:
    declines(LAYOUT, module((1, 4, 4, 3), (1, 1, 3, 5), make=lambda v, w: relax.op.nn.conv2d(
        v, w, data_layout="NHWC", kernel_layout="HWIO")))  # fmt: skip


def test_blocked_channels_stay() -> None:
    declines(LAYOUT, module((1, 2, 6, 6, 4), make=lambda v: relax.op.nn.max_pool2d(v, (2, 2), layout="NCHW4c")))


def test_a_crop_stays() -> None:
    options = {"layout": "NHWC", "coordinate_transformation_mode": "tf_crop_and_resize", "roi": (0.0, 0.0, 1.0, 0.5)}
    declines(LAYOUT, module((1, 4, 4, 3), make=lambda v: relax.op.image.resize2d(v, (2, 2), **options)))


def test_exact_rules_leave_convolutions_and_take_pools() -> None:
    def make(v: relax.Expr) -> relax.Expr:
        v = relax.op.nn.conv2d(v, kernel(1, 1, 3, 5), data_layout="NHWC", kernel_layout="HWIO")
        return relax.op.nn.max_pool2d(v, (2, 2), layout="NHWC")

    after = ConvertLayout(soundness=[EXACT])(module((1, 4, 4, 3), make=make))
    assert [getattr(a, "layout", None) or a.data_layout for a in layers(after)] == ["NHWC", "NCHW"]


def test_orders_of_letters() -> None:
    assert reorder("NHWC", "NCHW") == (0, 3, 1, 2) and reorder("NCHW4c", "NCHW") is None
    for source, target in itertools.permutations(["NHWC", "NCHW", "HWNC"], 2):
        assert [source[a] for a in reorder(source, target)] == list(target)


# -- in the pipeline -------------------------------------------------------------------------------------


def block(v: relax.Expr, channels: int) -> relax.Expr:
    """Return a residual block as TFLite spells one: depthwise, bias, clip, pointwise, bias, sum."""
    options = {"data_layout": "NHWC", "padding": 1}
    y = relax.op.nn.conv2d(v, kernel(3, 3, channels, 1), kernel_layout="HWOI", groups=channels, **options)
    y = relax.op.clip(relax.op.add(y, kernel(channels)), 0, 6)
    y = relax.op.nn.conv2d(y, kernel(1, 1, channels, channels), data_layout="NHWC", kernel_layout="HWIO")
    y = relax.op.nn.prelu(relax.op.add(y, kernel(channels)), kernel(channels), axis=3)
    return relax.op.add(v, y)


def test_a_model_with_channels_last_is_permuted_where_it_begins_and_ends() -> None:
    def model(v: relax.Expr) -> relax.Expr:
        v = block(block(v, 4), 4)
        v = relax.op.nn.pad(v, [0, 0, 0, 0, 0, 0, 0, 4])
        v = block(relax.op.nn.max_pool2d(v, (2, 2), strides=(2, 2), layout="NHWC"), 8)
        return relax.op.image.resize2d(v, (8, 8), layout="NHWC", method="linear")

    mod = module((1, 8, 8, 4), make=model)
    after = relax_glue.canonicalize(mod, enable=LAYOUTS)
    assert ops(after).count("permute_dims") == 2 and ops(after)[0] == ops(after)[-1] == "permute_dims"
    tvm.ir.assert_structural_equal(relax_glue.canonicalize(after, enable=LAYOUTS), after)
    check_equivalent(mod, after, [RNG.normal(size=(1, 8, 8, 4)).astype("float32")], exact=False, rtol=1e-5)


# how many permutes are left: that of the image, and those of results that the model flattens channels last
LEFT = {
    "face_detection_full_range_sparse": 3,
    "face_detection_short_range": 5,
    "face_landmark": 1,
    "hand_landmark_full": 1,
    "hand_landmark_lite": 1,
    "hand_recrop": 1,
    "iris_landmark": 1,
    "palm_detection_full": 5,
    "palm_detection_lite": 5,
    "pose_detection": 10,
    "pose_landmark_full": 2,
}


@pytest.mark.parametrize("name", LEFT)
def test_models_of_tflite(name: str) -> None:
    mod = relax_glue.load(zoo_model(name), zoo.MODELS[name].input_shape)
    after = relax_glue.canonicalize(mod, enable=LAYOUTS)
    assert ops(after).count("permute_dims") <= LEFT[name]
    assert {getattr(a, "layout", None) or a.data_layout for a in layers(after)} == {"NCHW"}
    tvm.ir.assert_structural_equal(relax_glue.canonicalize(after, enable=LAYOUTS), after)
    report = relax_glue.explain(mod)
    assert len(report.regions) == 1 and not report.outside
    if name in ("hand_recrop", "face_detection_short_range"):
        inputs = [RNG.random(zoo.MODELS[name].input_shape).astype("float32")]
        check_equivalent(mod, after, inputs, exact=False)
