import pytest
from pass_case import declines, fires
from script_case import cut, script

from relax_glue.passes import CanonicalizeStridedSlice

SLICES = CanonicalizeStridedSlice(exclude=["slice-normal-form", "slice-of-slice"])
HALF = cut([2, 3], [0, 0], [5, 7], [2, 2])
PARAMS = dict(x=(1, 2, 5, 7), w=(3, 2, 1, 1))


def test_a_strided_slice_goes_into_a_1x1_convolution():
    before = script(f"y = {HALF}", "gv = R.nn.conv2d(y, w)", **PARAMS)
    fires(SLICES, before, script("gv = R.nn.conv2d(x, w, strides=(2, 2))", **PARAMS))


def test_strides_multiply():
    before = script(f"y = {HALF}", "gv = R.nn.conv2d(y, w, strides=(1, 3))", **PARAMS)
    fires(SLICES, before, script("gv = R.nn.conv2d(x, w, strides=(2, 6))", **PARAMS))


@pytest.mark.parametrize("extent", range(2, 9))
@pytest.mark.parametrize("step", [2, 3])
@pytest.mark.parametrize("stride", [1, 2])
def test_odd_and_even_extents(extent, step, stride):
    params = dict(x=(1, 2, extent, 4), w=(3, 2, 1, 1))
    lines = f"y = {cut([2], [0], [extent], [step])}", f"gv = R.nn.conv2d(y, w, strides=({stride}, 1))"
    before = script(*lines, **params)
    joint = stride if extent <= step else step * stride  # one row that is left has no step
    if extent <= step and extent > stride:
        declines(SLICES, before)
    else:
        fires(SLICES, before, script(f"gv = R.nn.conv2d(x, w, strides=({joint}, 1))", **params))


def test_an_end_that_cuts_off_what_is_not_read_anyway():
    before = script(f"y = {cut([2], [0], [5], [2])}", "gv = R.nn.conv2d(y, w)", x=(1, 2, 6, 4), w=(3, 2, 1, 1))
    expected = script("gv = R.nn.conv2d(x, w, strides=(2, 1))", x=(1, 2, 6, 4), w=(3, 2, 1, 1))
    fires(SLICES, before, expected)


def test_channels_may_be_last_and_axes_negative():
    params = dict(x=(1, 5, 7, 4), w=(1, 1, 2, 6))
    rest = "groups=2, data_layout='NHWC', kernel_layout='HWIO'"
    before = script(f"y = {cut([-3, -2], [0, 0], [5, 7], [2, 2])}", f"gv = R.nn.conv2d(y, w, {rest})", **params)
    fires(SLICES, before, script(f"gv = R.nn.conv2d(x, w, strides=(2, 2), {rest})", **params))


def test_one_and_three_spatial_axes():
    params = dict(x=(1, 2, 5), w=(3, 2, 1))
    before = script(f"y = {cut([2], [0], [5], [3])}", "gv = R.nn.conv1d(y, w)", **params)
    fires(SLICES, before, script("gv = R.nn.conv1d(x, w, strides=(3,))", **params))
    params = dict(x=(1, 2, 3, 4, 5), w=(3, 2, 1, 1, 1))
    before = script(f"y = {cut([2, 4], [0, 0], [3, 5], [2, 2])}", "gv = R.nn.conv3d(y, w)", **params)
    fires(SLICES, before, script("gv = R.nn.conv3d(x, w, strides=(2, 1, 2))", **params))


def test_two_convolutions_share_a_slice():
    tail = ["a = R.nn.conv2d({0}, w{1})", "b = R.nn.conv2d({0}, w{1})", "c = R.add(a, b)", "gv = R.nn.relu(c)"]
    before = script(f"y = {HALF}", *[line.format("y", "") for line in tail], **PARAMS)
    fires(SLICES, before, script(*[line.format("x", ", strides=(2, 2)") for line in tail], **PARAMS))


def test_an_item_of_a_tuple_is_sliced():
    params = dict(x=(1, 4, 5, 7), w=(3, 2, 1, 1))
    lines = ["s = R.split(x, 2, axis=1)", "p = s[1]"]
    before = script(*lines, f"y = {HALF.replace('(x', '(p')}", "gv = R.nn.conv2d(y, w)", **params)
    after = script(*lines, "gv = R.nn.conv2d(p, w, strides=(2, 2))", **params)
    fires(SLICES, before, after)


def test_a_symbolic_batch():
    params = dict(x=("n", 2, 5, 7), w=(3, 2, 1, 1))
    before = script(f"y = {HALF}", "gv = R.nn.conv2d(y, w)", **params)
    fires(SLICES, before, script("gv = R.nn.conv2d(x, w, strides=(2, 2))", **params))


@pytest.mark.parametrize(
    ("slice_", "rest", "kernel"),
    [
        (HALF, "", (3, 2, 3, 3)),
        (HALF, ", padding=(1, 1)", (3, 2, 1, 1)),
        (cut([2], [1], [5], [2]), "", (3, 2, 1, 1)),
        (cut([2], [0], [3]), "", (3, 2, 1, 1)),  # rows 3 and 4 would be read as well
        (cut([2], [0], [3], [2]), "", (3, 2, 1, 1)),  # so would row 4
        (cut([2], [4], [-6], [-1]), "", (3, 2, 1, 1)),
        (cut([1], [0], [2], [2]), "", (3, 1, 1, 1)),
    ],
)
def test_other_slices_stay(slice_, rest, kernel):
    declines(SLICES, script(f"y = {slice_}", f"gv = R.nn.conv2d(y, w{rest})", x=(1, 2, 5, 7), w=kernel))


@pytest.mark.parametrize(
    "tail",
    [
        ["z = R.nn.conv2d(y, w)", "r = R.nn.relu(y)", "gv = (z, r)"],
        ["z = R.nn.conv2d(y, w)", "r = R.nn.conv2d(y, w, padding=(1, 1))", "gv = (z, r)"],
        ["z = R.nn.conv2d(y, w)", "gv = (z, y)"],
    ],
)
def test_a_slice_that_others_read_stays(tail):
    declines(SLICES, script(f"y = {HALF}", *tail, **PARAMS))


def test_a_slice_of_the_weights_stays():
    weights = cut([2, 3], [0, 0], [3, 3], [3, 3], x="w")
    declines(SLICES, script(f"y = {weights}", "gv = R.nn.conv2d(x, y)", x=(1, 2, 5, 7), w=(3, 2, 3, 3)))
