import itertools

import numpy as np
import pytest
from pass_case import declines, fires, random_inputs
from script_case import script
from tvm import relax

from relax_glue.passes import CanonicalizeReshape
from relax_glue.passes.between_reshapes import shape_before
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


# -- linear layers ---------------------------------------------------------------------------------------

LINEAR = dict(x=(2, 5, 4), w=(4, 6), b=(6,))


def test_a_linear_layer_takes_its_rows_as_they_are():
    before = script(
        "r = R.reshape(x, R.shape([10, 4]))", "m = R.matmul(r, w)", "gv = R.reshape(m, R.shape([2, 5, 6]))", **LINEAR
    )
    fires(RESHAPE, before, script("gv = R.matmul(x, w)", **LINEAR), inputs=floats(before))


@pytest.mark.parametrize("add", ["R.add(m, b)", "R.add(b, m)"])
def test_a_bias_stays_where_it_is(add):
    before = script(
        "r = R.reshape(x, R.shape([10, 4]))",
        "m = R.matmul(r, w)",
        f"a = {add}",
        "gv = R.reshape(a, R.shape([2, 5, 6]))",
        **LINEAR,
    )
    fires(RESHAPE, before, script("m = R.matmul(x, w)", f"gv = {add}", **LINEAR), inputs=floats(before))


def test_heads_are_split_behind():
    before = script(
        "r = R.reshape(x, R.shape([10, 4]))",
        "m = R.matmul(r, w)",
        "gv = R.reshape(m, R.shape([2, 5, 3, 2]))",
        **LINEAR,
    )
    expected = script("m = R.matmul(x, w)", "gv = R.reshape(m, R.shape([2, 5, 3, 2]))", **LINEAR)
    fires(RESHAPE, before, expected, inputs=floats(before))


def test_layers_share_the_reshape_until_the_last_leaves_it():
    before = script(
        "r = R.reshape(x, R.shape([10, 4]))",
        "m = R.matmul(r, w)",
        "v = R.nn.relu(w)",
        "n = R.matmul(r, v)",
        "p = R.reshape(m, R.shape([2, 5, 6]))",
        "q = R.reshape(n, R.shape([2, 5, 6]))",
        "gv = (p, q)",
        **LINEAR,
    )
    expected = script("v = R.nn.relu(w)", "p = R.matmul(x, w)", "q = R.matmul(x, v)", "gv = (p, q)", **LINEAR)
    fires(RESHAPE, before, expected, inputs=floats(before))


def test_symbolic_rows():
    before = script(
        "n = T.int64()",
        "r = R.reshape(x, R.shape([n, 4]))",
        "m = R.matmul(r, w)",
        "gv = R.reshape(m, R.shape([n, 1, 6]))",
        x=("n", 1, 4),
        w=(4, 6),
    )
    fires(RESHAPE, before, script("gv = R.matmul(x, w)", x=("n", 1, 4), w=(4, 6)), inputs=floats(before))


@pytest.mark.parametrize(
    ("rows", "tail"),
    [
        ("R.reshape(x, R.shape([10, 4]))", "R.reshape(m, R.shape([5, 2, 6]))"),  # other leading axes
        ("R.reshape(x, R.shape([10, 4]))", "R.reshape(m, R.shape([2, 30]))"),
        ("R.reshape(y, R.shape([10, 4]))", "R.reshape(m, R.shape([2, 5, 6]))"),  # the last axis is not d
    ],
)
def test_other_reshapes_around_a_matmul_stay(rows, tail):
    declines(
        RESHAPE, script(f"r = {rows}", "m = R.matmul(r, w)", f"gv = {tail}", x=(2, 5, 4), y=(2, 5, 2, 2), w=(4, 6))
    )


def test_a_matmul_that_is_used_elsewhere_is_not_made_twice():
    declines(
        RESHAPE,
        script(
            "r = R.reshape(x, R.shape([10, 4]))",
            "m = R.matmul(r, w)",
            "p = R.reshape(m, R.shape([2, 5, 6]))",
            "gv = (m, p)",
            **LINEAR,
        ),
    )


def test_what_is_added_by_row_stays():
    declines(
        RESHAPE,
        script(
            "r = R.reshape(x, R.shape([10, 4]))",
            "m = R.matmul(r, w)",
            "a = R.add(m, c)",
            "gv = R.reshape(a, R.shape([2, 5, 6]))",
            x=(2, 5, 4),
            w=(4, 6),
            c=(10, 1),
        ),
    )


# -- matmuls of attention --------------------------------------------------------------------------------

HEADS = dict(q=(2, 3, 5, 4), k=(2, 3, 4, 6))


def attention(back=(2, 3, 5, 6), **params):
    return script(
        "a = R.reshape(q, R.shape([6, 5, 4]))",
        "b = R.reshape(k, R.shape([6, 4, 6]))",
        "m = R.matmul(a, b)",
        f"gv = R.reshape(m, R.shape({list(back)}))",
        **(params or HEADS),
    )


def test_batch_axes_that_come_back_stay_apart():
    before = attention()
    fires(RESHAPE, before, script("gv = R.matmul(q, k)", **HEADS), inputs=floats(before))


def test_transposed_matrices_are_transposed_in_place():
    params = dict(q=(2, 3, 5, 4), k=(2, 3, 6, 4))
    before = script(
        "a = R.reshape(q, R.shape([6, 5, 4]))",
        "b = R.reshape(k, R.shape([6, 6, 4]))",
        "c = R.permute_dims(b, [0, 2, 1])",
        "m = R.matmul(a, c)",
        "gv = R.reshape(m, R.shape([2, 3, 5, 6]))",
        **params,
    )
    expected = script("c = R.permute_dims(k, [0, 1, 3, 2])", "gv = R.matmul(q, c)", **params)
    fires(RESHAPE, before, expected, inputs=floats(before))


def test_an_operand_of_another_shape_keeps_one_reshape():
    params = dict(q=(2, 3, 5, 4), k=(1, 6, 4, 6))
    before = attention(**params)
    expected = script("b = R.reshape(k, R.shape([2, 3, 4, 6]))", "gv = R.matmul(q, b)", **params)
    fires(RESHAPE, before, expected, inputs=floats(before))


@pytest.mark.parametrize(
    "case",
    [
        attention(back=(2, 3, 30)),  # the matrices are reshaped
        attention(back=(6, 30)),
        script(  # one operand is no reshape
            "a = R.reshape(q, R.shape([6, 5, 4]))",
            "m = R.matmul(a, k)",
            "gv = R.reshape(m, R.shape([2, 3, 5, 6]))",
            q=(2, 3, 5, 4),
            k=(6, 4, 6),
        ),
        script(  # the batch is broadcast
            "a = R.reshape(q, R.shape([6, 5, 4]))",
            "b = R.reshape(k, R.shape([1, 4, 6]))",
            "m = R.matmul(a, b)",
            "gv = R.reshape(m, R.shape([2, 3, 5, 6]))",
            q=(2, 3, 5, 4),
            k=(4, 1, 6),
        ),
        script(  # an operand has another user
            "a = R.reshape(q, R.shape([6, 5, 4]))",
            "b = R.reshape(k, R.shape([6, 4, 6]))",
            "m = R.matmul(a, b)",
            "n = R.nn.relu(a)",
            "p = R.reshape(m, R.shape([2, 3, 5, 6]))",
            "gv = (n, p)",
            **HEADS,
        ),
    ],
)
def test_other_matmuls_keep_their_reshapes(case):
    declines(RESHAPE, case)


# -- pointwise operators ---------------------------------------------------------------------------------


def test_a_pointwise_operator_is_done_in_the_shape_that_comes_back():
    before = script(
        "a = R.reshape(x, R.shape([6, 4]))", "b = R.negative(a)", "gv = R.reshape(b, R.shape([2, 3, 4]))", x=(2, 3, 4)
    )
    fires(RESHAPE, before, script("gv = R.negative(x)", x=(2, 3, 4)))


def test_an_operand_follows_with_whole_groups():
    params = dict(x=(4, 2, 3), c=(1, 4, 1, 3))
    before = script(
        "a = R.reshape(x, R.shape([1, 4, 2, 3]))",
        "b = R.subtract(c, a)",
        "gv = R.reshape(b, R.shape([4, 2, 3]))",
        **params,
    )
    expected = script("d = R.reshape(c, R.shape([4, 1, 3]))", "gv = R.subtract(d, x)", **params)
    fires(RESHAPE, before, expected)


def test_a_constant_follows_by_itself():
    before = script(
        "a = R.reshape(x, R.shape([6, 4]))",
        "b = R.add(a, c)",
        "gv = R.reshape(b, R.shape([2, 3, 4]))",
        x=(2, 3, 4),
        c=(6, 1),
    )
    column = np.arange(6, dtype="float32").reshape(6, 1)
    bind = relax.transform.BindParams("main", {"c": column})
    expected = script("gv = R.add(x, c)", x=(2, 3, 4), c=(2, 3, 1))
    expected = relax.transform.BindParams("main", {"c": column.reshape(2, 3, 1)})(expected)
    fires(RESHAPE, bind(before), expected)


def test_both_operands_may_come_back():
    params = dict(x=(2, 3, 4), y=(2, 3, 4))
    before = script(
        "a = R.reshape(x, R.shape([24]))",
        "b = R.reshape(y, R.shape([24]))",
        "c = R.multiply(a, b)",
        "gv = R.reshape(c, R.shape([2, 3, 4]))",
        **params,
    )
    fires(RESHAPE, before, script("gv = R.multiply(x, y)", **params))


@pytest.mark.parametrize(
    "lines",
    [
        # 3 of the 6 rows are no whole group of axes
        ["a = R.reshape(x, R.shape([2, 3, 4]))", "b = R.add(a, c)", "gv = R.reshape(b, R.shape([6, 4]))"],
        # the result has another shape
        ["a = R.reshape(x, R.shape([4, 6]))", "b = R.negative(a)", "gv = R.reshape(b, R.shape([8, 3]))"],
        # other users
        ["a = R.reshape(x, R.shape([24]))", "b = R.abs(a)", "d = R.reshape(b, R.shape([6, 4]))", "gv = (a, d)"],
        ["a = R.reshape(x, R.shape([24]))", "b = R.abs(a)", "d = R.reshape(b, R.shape([6, 4]))", "gv = (b, d)"],
    ],
)
def test_other_pointwise_operators_keep_their_reshapes(lines):
    declines(RESHAPE, script(*lines, x=(6, 4), c=(3, 1)))


def test_two_operands_that_need_reshapes_are_too_many():
    declines(
        RESHAPE,
        script(
            "a = R.reshape(x, R.shape([1, 2, 3]))",
            "b = R.less(c, d)",
            "e = R.where(b, a, d)",
            "gv = R.reshape(e, R.shape([2, 3]))",
            x=(2, 3),
            c=(1, 2, 3),
            d=(1, 1, 3),
        ),
    )


def test_an_operand_before_a_reshape_is_the_same_after_it():
    """Every way to broadcast over (2, 3, 1, 4), reshaped to shapes with the same elements."""
    result = (2, 3, 1, 4)
    operands = list(itertools.product((1, 2), (1, 3), (1,), (1, 4)))
    followed = 0
    for target, shape in itertools.product([(2, 3, 4), (6, 4), (2, 12), (24,), (1, 2, 3, 2, 2), (3, 8)], operands):
        array = np.arange(int(np.prod(shape))).reshape(shape)
        found = shape_before(shape, result, target)
        if found is not None:
            followed += 1
            right = np.broadcast_to(array, result).reshape(target)
            np.testing.assert_array_equal(np.broadcast_to(array.reshape(found), target), right)
    assert followed == 8 + 4 + 4 + 2 + 8 + 2


# -- softmax ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize(
    ("middle", "axis", "own"), [((6, 4), -1, 2), ((1, 2, 12), 1, 0), ((2, 3, 1, 2, 2), 1, 1), ((2, 1, 3, 4), 2, 1)]
)
def test_a_softmax_is_done_in_the_shape_that_comes_back(name, middle, axis, own):
    before = script(
        f"a = R.reshape(x, R.shape({list(middle)}))",
        f"b = R.nn.{name}(a, axis={axis})",
        "gv = R.reshape(b, R.shape([2, 3, 4]))",
        x=(2, 3, 4),
    )
    fires(RESHAPE, before, script(f"gv = R.nn.{name}(x, axis={own})", x=(2, 3, 4)), inputs=floats(before))


@pytest.mark.parametrize(("middle", "axis"), [((6, 4), 0), ((2, 3, 2, 2), 3), ((2, 12), 1), ((3, 2, 4), 0)])
def test_a_softmax_over_part_of_an_axis_or_several_stays(middle, axis):
    declines(
        RESHAPE,
        script(
            f"a = R.reshape(x, R.shape({list(middle)}))",
            f"b = R.nn.softmax(a, axis={axis})",
            "gv = R.reshape(b, R.shape([2, 3, 4]))",
            x=(2, 3, 4),
        ),
    )


def test_a_softmax_of_what_others_use_stays():
    declines(
        RESHAPE,
        script(
            "a = R.reshape(x, R.shape([6, 4]))",
            "b = R.nn.softmax(a)",
            "c = R.reshape(b, R.shape([2, 3, 4]))",
            "gv = (a, c)",
            x=(2, 3, 4),
        ),
    )
