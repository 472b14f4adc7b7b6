import itertools

import numpy as np
import pytest
from pass_case import declines, fires, random_inputs
from script_case import script
from tvm import relax

from relax_glue.passes import CanonicalizeReshape
from relax_glue.passes.between_reshapes import shape_before

RESHAPE = CanonicalizeReshape()


def floats(mod, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=a.shape).astype(a.dtype) for a in random_inputs(mod)]


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


@pytest.mark.parametrize("shape", [(3,), ("n",)])
def test_a_scalar_stays_one(shape):
    lines = ["m = R.multiply(R.const(0.0, 'float32'), r)", "gv = R.reshape(m, R.shape([3]))"]
    if shape == ("n",):
        lines[1] = "gv = R.reshape(m, R.shape([n]))"
    ones = ", ".join(["1", *map(str, shape)])
    before = script(f"r = R.reshape(x, R.shape([{ones}]))", *lines, x=shape)
    inputs = [np.array([-1, 0, 2], "float32")]
    fires(RESHAPE, before, script("gv = R.multiply(R.const(0.0, 'float32'), x)", x=shape), inputs=inputs)


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


# -- prelu -----------------------------------------------------------------------------------------------


def prelu(slope, shape=(2, 3, 4), middle=(24,), axis=0):
    module = script(
        f"a = R.reshape(x, R.shape({list(middle)}))",
        f"b = R.nn.prelu(a, s, axis={axis})",
        f"gv = R.reshape(b, R.shape({list(shape)}))",
        x=shape,
        s=slope.shape,
    )
    return relax.transform.BindParams("main", {"s": slope.astype("float32")})(module)


def prelu_of(slope, axis, shape=(2, 3, 4)):
    module = script(f"gv = R.nn.prelu(x, s, axis={axis})", x=shape, s=slope.shape)
    return relax.transform.BindParams("main", {"s": slope.astype("float32")})(module)


@pytest.mark.parametrize(
    ("axis", "slope"), [(0, [0.5, -2]), (1, [1, 2, 3]), (2, [0.1, 0.2, 0.3, 0.4]), (2, [1, 1, 1, 1])]
)
def test_a_slope_that_was_repeated_is_one_by_channel(axis, slope):
    slope = np.array(slope)
    repeated = np.broadcast_to(slope.reshape([-1 if a == axis else 1 for a in range(3)]), (2, 3, 4))
    fires(RESHAPE, prelu(repeated.reshape(-1)), prelu_of(slope, axis))


def test_a_slope_of_joined_axes_is_one_of_theirs():
    repeated = np.repeat([1.0, 2.0, 3.0], 4)
    fires(RESHAPE, prelu(repeated, middle=(2, 12), axis=-1), prelu_of(np.array([1.0, 2.0, 3.0]), 1))


@pytest.mark.parametrize(
    ("slope", "middle", "axis"),
    [
        (np.arange(24), (24,), 0),  # another slope for each element
        (np.array([0.0, -0.0] * 2 + [0.0] * 20), (24,), 0),  # equal, but not the same bits
        (np.ones(4), (4, 6), 0),  # no whole axes of x
    ],
)
def test_other_slopes_keep_their_reshapes(slope, middle, axis):
    declines(RESHAPE, prelu(slope, middle=middle, axis=axis))


def test_a_slope_that_is_no_constant_keeps_its_reshapes():
    declines(
        RESHAPE,
        script(
            "a = R.reshape(x, R.shape([24]))",
            "b = R.nn.prelu(a, s, axis=0)",
            "gv = R.reshape(b, R.shape([2, 3, 4]))",
            x=(2, 3, 4),
            s=(24,),
        ),
    )
