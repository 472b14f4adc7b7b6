import itertools

import numpy as np
import pytest
from pass_case import declines, fires
from script_case import script

from relax_glue.passes import CanonicalizeResize
from relax_glue.passes.resize import source_index
from relax_glue.rewrite import NAN_SENSITIVE
from relax_glue.testing import evaluate

RESIZE = CanonicalizeResize()
MODES = ("asymmetric", "half_pixel", "pytorch_half_pixel", "tf_half_pixel_for_nn", "align_corners")
ROUNDINGS = ("round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "")


def resize(size, mode, rounding, method="nearest_neighbor", layout="NCHW"):
    op = "resize3d" if len(layout) == 5 else "resize2d"
    return (
        f"R.image.{op}(x, R.shape({list(size)}), layout='{layout}', method='{method}', "
        f"coordinate_transformation_mode='{mode}', rounding_method='{rounding}')"
    )


def normal(size, layout="NCHW"):
    return f"gv = {resize(size, 'asymmetric', 'floor', layout=layout)}"


@pytest.mark.parametrize(
    ("mode", "rounding"),
    [
        ("half_pixel", "round"),  # torch.export
        ("half_pixel", "round_prefer_floor"),  # ONNX's default
        ("half_pixel", "round_prefer_ceil"),
        ("pytorch_half_pixel", "round"),
        ("tf_half_pixel_for_nn", "floor"),  # TensorFlow
        ("tf_half_pixel_for_nn", ""),
        ("asymmetric", ""),
    ],
)
@pytest.mark.parametrize("size", [(6, 8), (3, 12), (15, 4), (21, 28)])
def test_what_repeats_every_element_is_asymmetric_and_floor(mode, rounding, size):
    fires(RESIZE, script(f"gv = {resize(size, mode, rounding)}", x=(1, 2, 3, 4)), script(normal(size), x=(1, 2, 3, 4)))


def test_corners_that_happen_to_repeat():
    before = script(f"gv = {resize((6, 8), 'align_corners', 'round')}", x=(1, 2, 3, 4))
    fires(RESIZE, before, script(normal((6, 8)), x=(1, 2, 3, 4)))


def test_channels_may_be_last():
    before = script(f"gv = {resize((6, 8), 'half_pixel', 'round', layout='NHWC')}", x=(1, 3, 4, 2))
    fires(RESIZE, before, script(normal((6, 8), "NHWC"), x=(1, 3, 4, 2)))


def test_three_spatial_axes():
    before = script(f"gv = {resize((4, 6, 8), 'half_pixel', 'round', layout='NCDHW')}", x=(1, 1, 2, 3, 4))
    fires(RESIZE, before, script(normal((4, 6, 8), "NCDHW"), x=(1, 1, 2, 3, 4)))


def test_three_spatial_axes_by_three_are_not_exact_in_float32():
    declines(RESIZE, script(f"gv = {resize((6, 6, 6), 'half_pixel', 'round', layout='NCDHW')}", x=(1, 1, 2, 2, 2)))


@pytest.mark.parametrize(
    ("size", "mode", "rounding"),
    [
        ((6, 8), "asymmetric", "floor"),  # it has that form
        ((6, 8), "half_pixel", "floor"),
        ((6, 8), "half_pixel", "ceil"),
        ((9, 12), "align_corners", "round"),
        ((6, 8), "asymmetric", "round"),  # ties
        ((6, 8), "asymmetric", "ceil"),
        ((6, 8), "tf_half_pixel_for_nn", "round"),
        ((5, 8), "half_pixel", "round"),  # no integer
        ((1, 2), "half_pixel", "round"),  # smaller
    ],
)
def test_other_nearest_neighbours_stay(size, mode, rounding):
    declines(RESIZE, script(f"gv = {resize(size, mode, rounding)}", x=(1, 2, 3, 4)))


def test_symbolic_extents_stay_but_batches_may_be():
    declines(RESIZE, script(f"gv = {resize((6, 8), 'half_pixel', 'round')}", x=(1, 2, "h", 4)))
    before = script(f"gv = {resize((6, 8), 'half_pixel', 'round')}", x=("n", 2, 3, 4))
    fires(RESIZE, before, script(normal((6, 8)), x=("n", 2, 3, 4)))


@pytest.mark.parametrize("mode", MODES)
def test_a_nearest_resize_to_the_same_size_is_dropped(mode):
    rounding = "floor" if mode in ("asymmetric", "tf_half_pixel_for_nn") else "round"
    before = script(f"y = {resize((3, 4), mode, rounding)}", "gv = R.nn.relu(y)", x=(1, 2, 3, 4))
    fires(RESIZE, before, script("gv = R.nn.relu(x)", x=(1, 2, 3, 4)))


@pytest.mark.parametrize("mode", MODES)
def test_a_nearest_resize_of_single_elements_is_a_broadcast(mode):
    before = script(f"gv = {resize((5, 4), mode, 'round')}", x=(1, 2, 1, 1))
    fires(RESIZE, before, script("gv = R.broadcast_to(x, R.shape([1, 2, 5, 4]))", x=(1, 2, 1, 1)))


@pytest.mark.parametrize("method", ["linear", "cubic"])
@pytest.mark.parametrize("size", [(3, 4), (6, 8)])
def test_other_methods_stay(method, size):
    declines(RESIZE, script(f"gv = {resize(size, 'half_pixel', '', method)}", x=(1, 2, 3, 4)))


ASKED = CanonicalizeResize(soundness=[NAN_SENSITIVE])


@pytest.mark.parametrize("mode", ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"])
def test_linear_ones_between_equal_elements_go_if_infinities_may_change(mode):
    before = script(f"gv = {resize((3, 4), mode, '', 'linear')}", x=(1, 2, 3, 4))
    fires(ASKED, before, script("gv = x", x=(1, 2, 3, 4)))
    before = script(f"gv = {resize((3, 5), mode, '', 'linear')}", x=(1, 2, 1, 1))
    fires(ASKED, before, script("gv = R.broadcast_to(x, R.shape([1, 2, 3, 5]))", x=(1, 2, 1, 1)), exact=False)


def test_a_linear_one_of_integers_is_cut_off():
    # 15 / 3 + 15 * 2 / 3 is 14.999999 in float32, and so 14
    declines(ASKED, script(f"gv = {resize((3, 5), 'asymmetric', '', 'linear')}", dtype="uint8", x=(1, 2, 1, 1)))
    before = script(f"gv = {resize((3, 4), 'asymmetric', '', 'linear')}", dtype="uint8", x=(1, 2, 3, 4))
    fires(ASKED, before, script("gv = x", dtype="uint8", x=(1, 2, 3, 4)))


@pytest.mark.parametrize(
    ("method", "mode", "size"),
    [("linear", "tf_half_pixel_for_nn", (3, 4)), ("linear", "half_pixel", (6, 4)), ("cubic", "half_pixel", (3, 4))],
)
def test_what_interpolates_stays_whatever_is_asked(method, mode, size):
    declines(ASKED, script(f"gv = {resize(size, mode, '', method)}", x=(1, 2, 3, 4)))


def test_an_integer_that_float32_does_not_hold_keeps_its_resize():
    before = script(f"gv = {resize((3, 4), 'asymmetric', 'floor')}", dtype="int32", x=(1, 2, 3, 4))
    declines(RESIZE, before)


@pytest.mark.parametrize("mode", MODES)
def test_the_source_index_is_tvms(mode):
    """Every (mode, rounding) at scales up and down: where the formula is sure, LLVM takes that element."""
    extents = [(3, 7), (4, 12), (5, 5), (6, 4), (8, 2)]
    sure = 0
    for rounding, (extent, size) in itertools.product(ROUNDINGS, extents):
        module = script(f"gv = {resize((extent, size), mode, rounding)}", x=(1, 1, extent, extent))
        x = np.broadcast_to(np.arange(extent, dtype="float32"), (1, 1, extent, extent))
        found = evaluate(module, [np.ascontiguousarray(x)])[0, 0, 0]
        for position in range(size):
            index = source_index(position, extent, size, mode, rounding)
            if index is not None:
                sure += 1
                assert found[position] == index, (rounding, extent, size, position)
    assert sure > 60


@pytest.mark.parametrize("extent", [1, 2, 13, 80, 333])
@pytest.mark.parametrize("factor", [2, 3, 7, 16])
def test_asymmetric_and_floor_repeat_exactly(extent, factor):
    module = script(normal((1, extent * factor)), x=(1, 1, 1, extent))
    x = np.arange(extent, dtype="float32").reshape(1, 1, 1, extent)
    np.testing.assert_array_equal(evaluate(module, [x]), np.repeat(x, factor, axis=3))
