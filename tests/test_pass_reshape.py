import numpy as np
import pytest
from pass_case import declines, fires, random_inputs
from script_case import script

from relax_glue.passes import CanonicalizeReshape
from relax_glue.passes.reduce import blocks
from relax_glue.rewrite import NAN_SENSITIVE

RESHAPE = CanonicalizeReshape()
SELECTIONS = ("max", "min")
SUMS = ("sum", "mean", "prod")


def floats(mod, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=a.shape).astype(a.dtype) for a in random_inputs(mod)]


# -- reshapes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        ("R.flatten(x)", (24,)),
        ("R.nn.batch_flatten(x)", (2, 12)),
        ("R.expand_dims(x, [0, -1])", (1, 2, 3, 1, 4, 1)),
        ("R.squeeze(x)", (2, 3, 4)),
        ("R.squeeze(x, [-2])", (2, 3, 4)),
        ("R.reshape(x, R.shape([6, 4]))", (6, 4)),
    ],
)
def test_every_spelling_of_a_reshape_becomes_one(call, shape):
    expected = script(f"gv = R.reshape(x, R.shape({list(shape)}))", x=(2, 3, 1, 4))
    fires(RESHAPE, script(f"gv = {call}", x=(2, 3, 1, 4)), expected)


@pytest.mark.parametrize("call", ["R.reshape(x, R.shape([2, 3]))", "R.squeeze(x)", "R.flatten(R.flatten(x))"])
def test_a_reshape_to_the_same_shape_is_dropped(call):
    shape = (6,) if "flatten" in call else (2, 3)
    fires(RESHAPE, script(f"y = {call}", "gv = R.nn.relu(y)", x=shape), script("gv = R.nn.relu(x)", x=shape))


def test_a_chain_is_one_reshape_and_its_middle_stays_for_others():
    before = script(
        "a = R.reshape(x, R.shape([6, 4]))",
        "b = R.expand_dims(a, [0])",
        "c = R.nn.relu(a)",
        "gv = (b, c)",
        x=(2, 3, 4),
    )
    expected = script(
        "a = R.reshape(x, R.shape([6, 4]))",
        "b = R.reshape(x, R.shape([1, 6, 4]))",
        "c = R.nn.relu(a)",
        "gv = (b, c)",
        x=(2, 3, 4),
    )
    fires(RESHAPE, before, expected)


def test_an_item_of_a_split_is_reshaped_back_to_itself():
    before = script("s = R.split(x, 2, axis=0)", "a = R.flatten(s[1])", "gv = R.reshape(a, R.shape([2, 3]))", x=(4, 3))
    fires(RESHAPE, before, script("s = R.split(x, 2, axis=0)", "gv = s[1]", x=(4, 3)))


def test_a_squeeze_of_a_symbolic_extent_is_no_reshape():
    declines(RESHAPE, script("gv = R.squeeze(x, [0])", x=("n", 3)))


def test_symbolic_extents_are_carried():
    before = script("n = T.int64()", "a = R.expand_dims(x, [1])", "gv = R.squeeze(a, [1])", x=("n", 3))
    fires(RESHAPE, before, script("gv = x", x=("n", 3)))


def test_a_product_with_a_symbolic_extent_is_there_and_back():
    lines = ["n = T.int64()", "a = R.reshape(x, R.shape([n * 3, 4]))", "gv = R.reshape(a, R.shape([n, 3, 4]))"]
    fires(RESHAPE, script(*lines, x=("n", 3, 4)), script("gv = x", x=("n", 3, 4)))


def test_a_product_of_symbols_is_flattened_once():
    lines = ["n = T.int64()", "m = T.int64()", "a = R.reshape(x, R.shape([n * m, 4]))"]
    after = script(*lines[:2], "gv = R.reshape(x, R.shape([n * m * 4]))", x=("n", "m", 4))
    fires(RESHAPE, script(*lines, "gv = R.flatten(a)", x=("n", "m", 4)), after)


def test_a_linear_layer_over_a_free_batch_needs_no_reshape():
    lines = ["n = T.int64()", "a = R.reshape(x, R.shape([n * 3, 4]))", "b = R.matmul(a, w)"]
    before = script(*lines, "gv = R.reshape(b, R.shape([n, 3, 5]))", x=("n", 3, 4), w=(4, 5))
    fires(RESHAPE, before, script("gv = R.matmul(x, w)", x=("n", 3, 4), w=(4, 5)))


# -- reductions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*SELECTIONS, *SUMS, "variance", "std"])
def test_a_reshape_that_puts_the_ones_back_is_keepdims(name):
    before = script(f"a = R.{name}(x, axis=[-1], keepdims=False)", "gv = R.expand_dims(a, [2])", x=(2, 3, 4))
    expected = script(f"gv = R.{name}(x, axis=[2], keepdims=True)", x=(2, 3, 4))
    fires(RESHAPE, before, expected, inputs=floats(before))


def test_a_squeeze_of_kept_axes_keeps_none():
    before = script("a = R.max(x, axis=[1, 2], keepdims=True)", "gv = R.squeeze(a, [1, 2])", x=(2, 3, 4))
    fires(RESHAPE, before, script("gv = R.max(x, axis=[1, 2], keepdims=False)", x=(2, 3, 4)))


def test_a_reduction_of_all_axes_is_kept_in_full():
    before = script("a = R.max(x)", "gv = R.reshape(a, R.shape([1, 1]))", x=(2, 3))
    fires(RESHAPE, before, script("gv = R.max(x, axis=[0, 1], keepdims=True)", x=(2, 3)))


def test_kept_axes_of_symbolic_extents():
    before = script("a = R.max(x, axis=[1], keepdims=False)", "gv = R.expand_dims(a, [1])", x=("n", 3))
    fires(RESHAPE, before, script("gv = R.max(x, axis=[1], keepdims=True)", x=("n", 3)))


@pytest.mark.parametrize("shape", [(1, 2, 3), (6, 1), (2, 3, 1, 1)])
def test_a_reshape_elsewhere_is_not_keepdims(shape):
    declines(
        RESHAPE,
        script("a = R.max(x, axis=[-1], keepdims=False)", f"gv = R.reshape(a, R.shape({list(shape)}))", x=(2, 3, 4)),
    )


def test_a_reduction_that_is_used_elsewhere_is_not_made_twice():
    declines(
        RESHAPE,
        script(
            "a = R.max(x, axis=[1], keepdims=False)",
            "b = R.reshape(a, R.shape([2, 1]))",
            "gv = (a, b)",
            x=(2, 3),
        ),
    )


@pytest.mark.parametrize("name", [*SELECTIONS, "sum"])
def test_an_integer_reduction_of_ones_is_a_reshape(name):
    before = script(f"gv = R.{name}(x, axis=[-1])", dtype="int32", x=(2, 3, 1))
    fires(RESHAPE, before, script("gv = R.reshape(x, R.shape([2, 3]))", dtype="int32", x=(2, 3, 1)))


def test_a_float_product_of_ones_is_a_reshape():
    before = script("gv = R.prod(x, axis=[1], keepdims=True)", x=(4, 1))
    special = np.array([[np.nan], [-np.inf], [-0.0], [3.0]], "float32")
    fires(RESHAPE, before, script("gv = x", x=(4, 1)), inputs=[special])


@pytest.mark.parametrize("name", [*SELECTIONS, "sum", "mean"])
def test_other_float_reductions_of_ones_stay_unless_infinities_may_change(name):
    before = script(f"gv = R.{name}(x, axis=[1])", x=(4, 1))
    declines(RESHAPE, before)
    asked = CanonicalizeReshape(soundness=[NAN_SENSITIVE])
    fires(asked, before, script("gv = R.reshape(x, R.shape([4]))", x=(4, 1)))


def test_a_reduction_of_a_symbolic_extent_stays():
    declines(RESHAPE, script("gv = R.sum(x, axis=[0])", dtype="int32", x=("n", 3)))


@pytest.mark.parametrize("name", [*SELECTIONS, *SUMS, "variance"])
@pytest.mark.parametrize("keepdims", [False, True])
def test_the_axes_that_a_reshape_joined_are_reduced_as_they_were(name, keepdims):
    before = script(
        "a = R.reshape(x, R.shape([2, 3, 20]))",
        f"gv = R.{name}(a, axis=[2], keepdims={keepdims})",
        x=(2, 3, 4, 5),
    )
    reduced = f"R.{name}(x, axis=[2, 3], keepdims=False)"
    if keepdims:  # (2, 3, 1) is neither (2, 3) nor (2, 3, 1, 1)
        declines(RESHAPE, before)
    else:
        fires(RESHAPE, before, script(f"gv = {reduced}", x=(2, 3, 4, 5)), inputs=floats(before), exact=False)


def test_a_kept_reduction_of_split_axes_goes_back():
    before = script("a = R.reshape(x, R.shape([2, 3, 4]))", "gv = R.max(a, axis=[1, 2], keepdims=False)", x=(2, 12))
    fires(RESHAPE, before, script("gv = R.max(x, axis=[1], keepdims=False)", x=(2, 12)))


@pytest.mark.parametrize(("axis", "shape"), [(1, (2, 6, 2)), (0, (4, 6))])
def test_a_reduction_of_part_of_an_axis_stays(axis, shape):
    declines(
        RESHAPE,
        script(f"a = R.reshape(x, R.shape({list(shape)}))", f"gv = R.max(a, axis=[{axis}])", x=(2, 3, 4)),
    )


def test_blocks_are_the_smallest_runs_with_the_same_elements():
    assert blocks((2, 3, 4), (6, 4)) == [([0, 1], [0]), ([2], [1])]
    assert blocks((2, 1, 6), (2, 2, 3, 1)) == [([0], [0]), ([1], []), ([2], [1, 2]), ([], [3])]
    assert blocks((2, 3), (3, 2)) == [([0, 1], [0, 1])]
    assert blocks((2, 3), (4, 2)) is None
