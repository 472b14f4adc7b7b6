import itertools

import numpy as np
import pytest
from build_case import build, const, ops
from pass_case import declines, fires, random_inputs
from script_case import script
from tvm import relax

from relax_glue.movement import Pad, index_map
from relax_glue.passes import CanonicalizePad
from relax_glue.testing import check_equivalent, evaluate

PAD = CanonicalizePad()
LOWEST = float(np.finfo("float32").min)


def pad(widths, value=0.0, mode="constant", x="x"):
    return f"R.nn.pad({x}, {list(widths)}, pad_mode='{mode}', pad_value={value!r})"


HW = (0, 0, 0, 0, 1, 2, 3, 0)  # (before, after) by axis: N, C, H, W


# -- pads by themselves ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_a_pad_of_no_width_is_dropped(mode):
    shape = (1, 2, 3, 4)
    before = script(f"y = {pad([0] * 8, mode=mode)}", "gv = R.nn.relu(y)", x=shape)
    fires(PAD, before, script("gv = R.nn.relu(x)", x=shape))


def test_two_pads_with_one_value_are_one():
    before = script(f"y = {pad((1, 0, 0, 2), 5.0)}", f"gv = {pad((0, 3, 1, 1), 5.0, x='y')}", x=(2, 3))
    fires(PAD, before, script(f"gv = {pad((1, 3, 1, 3), 5.0)}", x=(2, 3)))


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (pad((1, 1, 1, 1), 5.0), pad((1, 1, 1, 1), 6.0, x="y")),
        (pad((1, 1, 1, 1), 0.0), pad((1, 1, 1, 1), -0.0, x="y")),
        (pad((0, 0, 1, 1), mode="replicate"), pad((0, 0, 1, 1), mode="replicate", x="y")),
        (pad((-1, 2, 0, 0)), pad((1, 0, 0, 0), x="y")),  # an element of x is lost in between
    ],
)
def test_other_pairs_of_pads_stay(first, then):
    declines(PAD, script(f"y = {first}", f"gv = {then}", x=(3, 3)))


def test_a_pad_that_is_used_elsewhere_is_not_made_twice():
    declines(PAD, script(f"y = {pad((1, 1))}", f"z = {pad((1, 1), x='y')}", "gv = (y, z)", x=(3,)))


def test_a_pad_that_only_cuts_is_a_slice():
    before = script(f"gv = {pad((-1, 0, 0, -2))}", x=(3, 5))
    fires(PAD, before, script("gv = R.strided_slice(x, [0, 1], [1, 0], [3, 3])", x=(3, 5)))


def test_a_pad_that_cuts_and_adds_stays():
    declines(PAD, script(f"gv = {pad((-1, 1))}", x=(5,)))


def test_sums_of_widths_compose_as_index_maps():
    for first, then in itertools.product(itertools.product((0, 2), repeat=4), repeat=2):
        inner, outer = Pad(first[:2], first[2:]), Pad(then[:2], then[2:])
        once = index_map(inner, [(2, 3)])
        # the inner padding is marked -1, and so is the outer one
        twice = np.pad(once, list(zip(outer.before, outer.after, strict=True)), constant_values=-1)
        sums = Pad(
            tuple(map(sum, zip(inner.before, outer.before, strict=True))),
            tuple(map(sum, zip(inner.after, outer.after, strict=True))),
        )
        np.testing.assert_array_equal(index_map(sums, [(2, 3)]), twice)


# -- convolutions ----------------------------------------------------------------------------------------


def test_a_convolution_pads_by_itself():
    params = dict(x=(1, 2, 5, 6), w=(3, 2, 3, 3))
    before = script(f"y = {pad(HW)}", "gv = R.nn.conv2d(y, w, padding=(1, 0, 2, 1), strides=(2, 1))", **params)
    fires(PAD, before, script("gv = R.nn.conv2d(x, w, padding=(2, 3, 4, 1), strides=(2, 1))", **params))


def test_channels_may_be_last():
    params = dict(x=(1, 5, 6, 4), w=(3, 3, 2, 6))
    rest = "groups=2, dilation=(1, 2), data_layout='NHWC', kernel_layout='HWIO'"
    before = script(f"y = {pad((0, 0, 1, 2, 3, 0, 0, 0))}", f"gv = R.nn.conv2d(y, w, {rest})", **params)
    fires(PAD, before, script(f"gv = R.nn.conv2d(x, w, padding=(1, 3, 2, 0), {rest})", **params))


def test_one_and_three_spatial_axes():
    params = dict(x=(1, 2, 5), w=(3, 2, 3))
    before = script(f"y = {pad((0, 0, 0, 0, 2, 1))}", "gv = R.nn.conv1d(y, w)", **params)
    fires(PAD, before, script("gv = R.nn.conv1d(x, w, padding=(2, 1))", **params))
    params = dict(x=(1, 2, 3, 4, 5), w=(3, 2, 2, 2, 2))
    before = script(f"y = {pad((0, 0, 0, 0, 1, 0, 0, 2, 0, 3))}", "gv = R.nn.conv3d(y, w)", **params)
    fires(PAD, before, script("gv = R.nn.conv3d(x, w, padding=(1, 0, 0, 0, 2, 3))", **params))


def test_every_convolution_pads_for_itself():
    params = dict(x=(1, 2, 5, 6), w=(3, 2, 3, 3))
    tail = ["a = R.nn.conv2d({0}, w{1})", "b = R.nn.conv2d({0}, w{1}, strides=(2, 2))", "gv = (a, b)"]
    before = script(f"y = {pad(HW)}", *[line.format("y", "") for line in tail], **params)
    expected = script(*[line.format("x", ", padding=(1, 3, 2, 0)") for line in tail], **params)
    fires(PAD, before, expected)


def test_symbolic_extents_and_batches():
    params = dict(x=("n", 2, "h", 6), w=(3, 2, 3, 3))
    before = script(f"y = {pad(HW)}", "gv = R.nn.conv2d(y, w)", **params)
    after = PAD(before)
    assert "pad(" not in after.script() and "padding=[1, 3, 2, 0]" in after.script()


@pytest.mark.parametrize(
    "call",
    [
        pad(HW, 1.0),
        pad(HW, -0.0),
        pad(HW, mode="replicate"),
        pad((1, 0, 0, 0, 0, 0, 0, 0)),  # N
        pad((0, 0, 0, 0, -1, 0, 2, 0)),
    ],
)
def test_other_pads_before_a_convolution_stay(call):
    declines(PAD, script(f"y = {call}", "gv = R.nn.conv2d(y, w)", x=(1, 2, 5, 6), w=(3, 2, 3, 3)))


def test_a_pad_of_channels_stays():
    declines(
        PAD, script(f"y = {pad((0, 0, 1, 0, 0, 0, 0, 0))}", "gv = R.nn.conv2d(y, w)", x=(1, 1, 5, 6), w=(3, 2, 3, 3))
    )


def test_a_pad_of_the_weights_stays():
    declines(PAD, script(f"y = {pad(HW, x='w')}", "gv = R.nn.conv2d(x, y)", x=(1, 2, 9, 9), w=(3, 2, 3, 3)))


def test_a_pad_before_a_transposed_convolution_stays():
    declines(PAD, script(f"y = {pad(HW)}", "gv = R.nn.conv2d_transpose(y, w)", x=(1, 2, 5, 6), w=(2, 3, 3, 3)))


# -- poolings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("counted", ["", ", count_include_pad=True, padding=(1, 0, 0, 1)"])
def test_an_average_that_counts_zeros_pads_by_itself(counted):
    before = script(f"y = {pad((0, 0, 0, 0, 1, 0, 0, 1))}", f"gv = R.nn.avg_pool2d(y, (3, 3){counted})", x=(1, 2, 5, 6))
    padding = "(2, 0, 0, 2)" if counted else "(1, 0, 0, 1)"
    after = f"gv = R.nn.avg_pool2d(x, (3, 3), padding={padding}, count_include_pad=True)"
    fires(PAD, before, script(after, x=(1, 2, 5, 6)))


@pytest.mark.parametrize(
    ("widths", "value", "rest"),
    [
        ((0, 0, 0, 0, 1, 0, 0, 1), 0.0, "padding=(1, 1)"),  # its own padding is not counted
        ((0, 0, 0, 0, 1, 0, 0, 1), 0.0, "ceil_mode=True, strides=(2, 2)"),
        ((0, 0, 0, 0, 1, 0, 0, 1), 1.0, "padding=(0, 0)"),
        ((0, 0, 0, 0, 3, 0, 0, 1), 0.0, "padding=(0, 0)"),  # a window of nothing but padding
    ],
)
def test_other_pads_before_an_average_stay(widths, value, rest):
    declines(PAD, script(f"y = {pad(widths, value)}", f"gv = R.nn.avg_pool2d(y, (3, 3), {rest})", x=(1, 2, 5, 6)))


def test_a_maximum_pads_with_the_lowest_number_by_itself():
    before = script(f"y = {pad((0, 0, 0, 0, 1, 0, 0, 1), LOWEST)}", "gv = R.nn.max_pool2d(y, (2, 2))", x=(1, 1, 2, 3))
    expected = script("gv = R.nn.max_pool2d(x, (2, 2), padding=(1, 0, 0, 1))", x=(1, 1, 2, 3))
    inputs = [np.array([[[[-np.inf, -np.inf, -1], [-np.inf, -3, np.inf]]]], "float32")]
    fires(PAD, before, expected, inputs=inputs)


@pytest.mark.parametrize(("value", "dtype"), [(0.0, "float32"), (-1e30, "float32"), (-128.0, "int8")])
def test_a_maximum_that_sees_the_padding_keeps_it(value, dtype):
    before = script(f"y = {pad(HW, value)}", "gv = R.nn.max_pool2d(y, (5, 5))", dtype=dtype, x=(1, 1, 4, 4))
    declines(PAD, before)


# -- activations in between, and zeros that are concatenated ------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        "nn.relu({0})",
        "nn.leakyrelu({0}, 0.1)",
        "nn.silu({0})",
        "tanh({0})",
        "abs({0})",
        "clip({0}, 0, 6)",
        "clip({0}, -1, 1)",
    ],
)
def test_a_pad_goes_past_an_activation_into_the_convolution(call):
    params = dict(x=(1, 2, 5, 6), w=(3, 2, 3, 3))
    before = script(f"y = {pad(HW)}", f"z = R.{call.format('y')}", "gv = R.nn.conv2d(z, w)", **params)
    expected = script(f"z = R.{call.format('x')}", "gv = R.nn.conv2d(z, w, padding=(1, 3, 2, 0))", **params)
    fires(PAD, before, expected)


def test_a_pad_before_two_activations_stays():
    lines = [f"y = {pad(HW)}", "a = R.abs(y)", "z = R.nn.relu(a)", "gv = R.nn.avg_pool2d(z, (3, 3))"]
    declines(PAD, script(*lines, x=(1, 2, 5, 6)))


def test_an_activated_pad_of_a_symbolic_batch():
    params = dict(x=("n", 2, 5, 6), w=(3, 2, 3, 3))
    after = PAD(script(f"y = {pad(HW)}", "z = R.nn.relu(y)", "gv = R.nn.conv2d(z, w)", **params))
    assert "pad(" not in after.script() and "padding=[1, 3, 2, 0]" in after.script()


@pytest.mark.parametrize(
    ("padded", "call", "tail"),
    [
        (pad(HW, 1.0), "nn.relu(y)", "R.nn.conv2d(z, w)"),
        (pad(HW, -0.0), "nn.relu(y)", "R.nn.conv2d(z, w)"),
        (pad(HW, mode="replicate"), "nn.relu(y)", "R.nn.conv2d(z, w)"),
        (pad((0, 0, 0, 0, -1, 0, 2, 0)), "nn.relu(y)", "R.nn.conv2d(z, w)"),
        (pad(HW), "sigmoid(y)", "R.nn.conv2d(z, w)"),
        (pad(HW), "negative(y)", "R.nn.conv2d(z, w)"),
        (pad(HW), "nn.leakyrelu(y, -0.1)", "R.nn.conv2d(z, w)"),
        (pad(HW), "clip(y, 1, 6)", "R.nn.conv2d(z, w)"),
        (pad(HW), "clip(y, -0.0, 6.0)", "R.nn.conv2d(z, w)"),
        (pad(HW), "nn.relu(y)", "R.nn.max_pool2d(z, (2, 2))"),
        (pad(HW), "nn.relu(y)", "(y, R.nn.conv2d(z, w))"),
        (pad(HW), "nn.relu(y)", "(z, R.nn.conv2d(z, w))"),
    ],
)
def test_other_activated_pads_stay(padded, call, tail):
    lines = [f"y = {padded}", f"z = R.{call}"]
    lines += [f"c = {tail[4:-1]}", f"gv = ({tail[1]}, c)"] if tail.startswith("(") else [f"gv = {tail}"]
    declines(PAD, script(*lines, x=(1, 2, 5, 6), w=(3, 2, 3, 3)))


def joined(make, **params):
    """Return the convolution by w of what `make(emit, x)` returns."""
    return build(lambda emit, x, w: emit(relax.op.nn.conv2d(make(emit, x), w, padding=[1, 0])), **params)


def zeros(*shape, value=0.0):
    return const(np.full(shape, value))


def padded_by(*padding, **params):
    return build(lambda emit, x, w: emit(relax.op.nn.conv2d(x, w, padding=list(padding))), **params)


def test_zeros_around_an_image_are_padding():
    params = dict(x=(1, 2, 5, 6), w=(3, 2, 3, 3))

    def rows_and_columns(emit, x):
        y = emit(relax.op.concat([zeros(1, 2, 2, 6), x, zeros(1, 2, 1, 6)], 2))
        return emit(relax.op.concat([y, zeros(1, 2, 8, 3)], -1))

    fires(PAD, joined(rows_and_columns, **params), padded_by(3, 0, 2, 3, **params))


def test_zeros_at_one_end_of_one_axis():
    params = dict(x=(1, 2, 5), w=(3, 2, 3))

    def make(emit, x, w):
        return emit(relax.op.nn.conv1d(emit(relax.op.concat([x, zeros(1, 2, 1)], 2)), w, strides=2))

    expected = build(lambda emit, x, w: emit(relax.op.nn.conv1d(x, w, strides=2, padding=[0, 1])), **params)
    fires(PAD, build(make, **params), expected)


def test_zeros_that_others_read_stay_for_them():
    def make(emit, x, w):
        y = emit(relax.op.concat([x, zeros(1, 2, 1, 6)], 2))
        return emit(relax.op.nn.conv2d(y, w)), y

    before = build(make, x=(1, 2, 5, 6), w=(3, 2, 3, 3))
    after = PAD(before)
    assert "padding=[0, 0, 1, 0]" in after.script() and ops(after) == ["relax.concat", "relax.nn.conv2d"]
    check_equivalent(before, after, random_inputs(before))


def test_zeros_beside_an_item_of_a_tuple():
    def make(emit, x, w):
        item = emit(relax.TupleGetItem(emit(relax.op.split(x, 2, 1)), 1))
        return emit(relax.op.nn.conv2d(emit(relax.op.concat([item, zeros(1, 2, 1, 6)], 2)), w))

    after = PAD(build(make, x=(1, 4, 5, 6), w=(3, 2, 3, 3)))
    assert ops(after) == ["relax.split", "relax.nn.conv2d"]


@pytest.mark.parametrize(
    "parts",
    [
        lambda x: ([x, zeros(1, 2, 1, 6, value=1.0)], 2),
        lambda x: ([x, zeros(1, 2, 1, 6, value=-0.0)], 2),
        lambda x: ([x, const(np.eye(6)[None, None, :2].repeat(2, 1))], 2),
        lambda x: ([x, zeros(1, 2, 1, 6), x], 2),
        lambda x: ([zeros(1, 1, 5, 6), zeros(1, 1, 5, 6)], 1),
        lambda x: ([zeros(1, 2, 5, 6), x], 0),
    ],
)
def test_other_concatenations_before_a_convolution_stay(parts):
    before = joined(lambda emit, x: emit(relax.op.concat(*parts(x))), x=(1, 2, 5, 6), w=(3, 2, 3, 3))
    declines(PAD, before)


def test_zeros_after_channels_stay():
    before = joined(lambda emit, x: emit(relax.op.concat([x, zeros(1, 1, 5, 6)], 1)), x=(1, 1, 5, 6), w=(3, 2, 3, 3))
    declines(PAD, before)


# -- the reader ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("widths", [(1, 2, 2, 1), (0, 0, 0, 2), (2, 0, 3, 3)])
def test_a_pad_is_read_as_what_llvm_does(mode, widths):
    x = np.arange(12, dtype="float32").reshape(1, 1, 3, 4)
    module = script(f"gv = {pad((0, 0, 0, 0, *widths), 7.0, mode)}", x=x.shape)
    view = Pad((0, 0, *widths[::2]), (0, 0, *widths[1::2]), mode, 7.0)
    np.testing.assert_array_equal(evaluate(module, [x]), view.apply(x))


@pytest.mark.parametrize("widths", [(-1, 0, 0, -2), (-1, 2, 1, -1)])
def test_negative_widths_cut_as_llvm_does(widths):
    x = np.arange(12, dtype="float32").reshape(3, 4)
    module = script(f"gv = {pad(widths, 7.0)}", x=x.shape)
    np.testing.assert_array_equal(evaluate(module, [x]), Pad(widths[::2], widths[1::2], "constant", 7.0).apply(x))
