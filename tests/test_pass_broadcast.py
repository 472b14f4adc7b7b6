import itertools

import numpy as np
import pytest
from pass_case import declines, fires, random_inputs
from script_case import script
from tvm import relax

from relax_glue.movement import Repeat, Tile
from relax_glue.passes import CanonicalizeBroadcast
from relax_glue.passes.broadcast import _repeats_ones
from relax_glue.passes.pointwise import BINARY, UNARY, broadcast_shape

BROADCAST = CanonicalizeBroadcast()


def bound(mod, **arrays):
    """The module with parameters bound to constants."""
    return relax.transform.BindParams("main", arrays)(mod)


def to(name, shape):
    return f"R.broadcast_to({name}, R.shape({list(shape)}))"


# -- broadcasts by themselves ----------------------------------------------------------------------------


def test_a_broadcast_to_the_same_shape_is_dropped():
    before = script(f"y = {to('x', (2, 3))}", "gv = R.nn.softmax(y)", x=(2, 3))
    fires(BROADCAST, before, script("gv = R.nn.softmax(x)", x=(2, 3)))


def test_a_broadcast_to_the_same_symbol_is_dropped():
    before = script("n = T.int64()", "gv = R.broadcast_to(x, R.shape([n, 3]))", x=("n", 3))
    fires(BROADCAST, before, script("gv = x", x=("n", 3)))


def test_a_broadcast_of_a_broadcast_is_one():
    before = script(f"y = {to('x', (4, 3))}", f"gv = {to('y', (2, 4, 3))}", x=(1, 3))
    fires(BROADCAST, before, script(f"gv = {to('x', (2, 4, 3))}", x=(1, 3)))


def test_leading_ones_are_left_to_the_broadcast():
    before = script("y = R.expand_dims(x, [0])", f"gv = {to('y', (2, 4, 3))}", x=(4, 3))
    fires(BROADCAST, before, script(f"gv = {to('x', (2, 4, 3))}", x=(4, 3)))


@pytest.mark.parametrize(("before", "reshaped"), [((1, 1, 3), (1, 3)), ((1, 4, 3), (4, 3)), ((1, "n", 3), ("n", 3))])
def test_leading_ones_that_are_dropped_are_the_broadcast_s_too(before, reshaped):
    wide = (2, *(4 if extent == 1 else extent for extent in before[1:]))
    shapes = [", ".join(map(str, shape)) for shape in (reshaped, wide)]
    fires(
        BROADCAST,
        script(
            f"y = R.reshape(x, R.shape([{shapes[0]}]))", f"gv = R.broadcast_to(y, R.shape([{shapes[1]}]))", x=before
        ),
        script(f"gv = R.broadcast_to(x, R.shape([{shapes[1]}]))", x=before),
    )


def test_more_axes_than_the_result_has_stay():
    declines(BROADCAST, script("y = R.reshape(x, R.shape([3]))", f"gv = {to('y', (4, 3))}", x=(1, 1, 3)))


def test_ones_in_the_middle_stay():
    declines(BROADCAST, script("y = R.expand_dims(x, [1])", f"gv = {to('y', (4, 2, 3))}", x=(4, 3)))


def test_a_broadcast_that_only_adds_ones_is_a_reshape():
    before = script(f"gv = {to('x', (1, 1, 3))}", x=(3,))
    fires(BROADCAST, before, script("gv = R.reshape(x, R.shape([1, 1, 3]))", x=(3,)))


def test_an_item_of_a_split_is_broadcast_as_its_own():
    before = script("s = R.split(x, 2, axis=0)", f"y = {to('s[1]', (2, 3))}", "gv = R.add(y, z)", x=(2, 3), z=(2, 3))
    fires(BROADCAST, before, script("s = R.split(x, 2, axis=0)", "gv = R.add(s[1], z)", x=(2, 3), z=(2, 3)))


# -- tile and repeat -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "shape"),
    [("R.tile(x, [2, 1, 3])", (2, 4, 3)), ("R.tile(x, [5, 1, 1, 1])", (5, 1, 4, 1)), ("R.repeat(x, 3, -1)", (1, 4, 3))],
)
def test_the_repetition_of_ones_is_a_broadcast(call, shape):
    fires(BROADCAST, script(f"gv = {call}", x=(1, 4, 1)), script(f"gv = {to('x', shape)}", x=(1, 4, 1)))


@pytest.mark.parametrize("call", ["R.tile(x, [1, 1])", "R.tile(x, [1])", "R.repeat(x, 1, 0)"])
def test_a_repetition_of_nothing_is_dropped(call):
    fires(BROADCAST, script(f"y = {call}", "gv = R.nn.softmax(y)", x=(2, 3)), script("gv = R.nn.softmax(x)", x=(2, 3)))


@pytest.mark.parametrize("call", ["R.tile(x, [2, 1])", "R.repeat(x, 2, 1)", "R.repeat(x, 2)", "R.tile(x, [3, 2, 1])"])
def test_other_repetitions_stay(call):
    declines(BROADCAST, script(f"gv = {call}", x=(2, 3)))


def test_a_symbolic_extent_may_repeat_more_than_a_one():
    declines(BROADCAST, script("gv = R.tile(x, [2, 1])", x=("n", 3)))


def test_repetitions_of_ones_are_what_numpy_broadcasts():
    for shape in itertools.product((1, 2), repeat=2):
        x = np.arange(int(np.prod(shape))).reshape(shape)
        views = [Tile(r) for r in itertools.product((1, 2, 3), repeat=3)]
        views += [Repeat(k, a) for k in (1, 2) for a in (0, 1)]
        for view in views:
            right = view.apply(x)
            if _repeats_ones(view, shape):
                np.testing.assert_array_equal(np.broadcast_to(x, right.shape), right)


# -- consumers -------------------------------------------------------------------------------------------

NUMERIC = [
    op.removeprefix("relax.") for op in BINARY if "logical" not in op and "bitwise" not in op and "shift" not in op
]


@pytest.mark.parametrize("name", NUMERIC)
def test_a_pointwise_operator_broadcasts_by_itself(name):
    params = dict(x=(1, 3, 1), y=(2, 3, 4))
    before = script(f"b = {to('x', (2, 3, 4))}", f"gv = R.{name}(b, y)", **params)
    inputs = [np.abs(a) + 1 for a in random_inputs(before)]
    fires(BROADCAST, before, script(f"gv = R.{name}(x, y)", **params), inputs=inputs)


def test_a_lower_rank_aligns_at_the_right():
    params = dict(x=(4,), y=(2, 3, 4))
    before = script(f"b = {to('x', (2, 3, 4))}", "gv = R.subtract(y, b)", **params)
    fires(BROADCAST, before, script("gv = R.subtract(y, x)", **params))


def test_every_operand_of_a_where_may_be_a_broadcast():
    params = dict(x=(3, 1), y=(1, 4), z=(3, 4))
    head = "c = R.less(z, R.const(0, 'float32'))"
    before = script(head, f"a = {to('x', (3, 4))}", f"b = {to('y', (3, 4))}", "gv = R.where(c, a, b)", **params)
    fires(BROADCAST, before, script(head, "gv = R.where(c, x, y)", **params))


def test_a_broadcast_with_other_users_stays_for_them():
    params = dict(x=(1, 4), y=(3, 4))
    before = script(f"a = {to('x', (3, 4))}", "b = R.add(a, y)", "c = R.nn.softmax(a)", "gv = (b, c)", **params)
    expected = script(f"a = {to('x', (3, 4))}", "b = R.add(x, y)", "c = R.nn.softmax(a)", "gv = (b, c)", **params)
    fires(BROADCAST, before, expected)


def test_two_broadcasts_follow_their_sum():
    params = dict(x=(3, 1), y=(1, 1))
    before = script(f"a = {to('x', (2, 3, 4))}", f"b = {to('y', (2, 3, 4))}", "gv = R.add(a, b)", **params)
    fires(BROADCAST, before, script("c = R.add(x, y)", f"gv = {to('c', (2, 3, 4))}", **params))


def test_a_broadcast_follows_unary_operators_to_a_consumer():
    params = dict(x=(3, 1), y=(3, 4))
    before = script(f"a = {to('x', (3, 4))}", "b = R.nn.relu(a)", "c = R.negative(b)", "gv = R.add(c, y)", **params)
    fires(BROADCAST, before, script("b = R.nn.relu(x)", "c = R.negative(b)", "gv = R.add(c, y)", **params))


def test_a_scalar_constant_keeps_its_zero():
    # TVM makes x * 0.0 a 0.0 where the 0.0 is a scalar, and NaN would be lost
    before = script("b = R.broadcast_to(R.const(0, 'float32'), R.shape([3]))", "gv = R.multiply(b, y)", y=(3,))
    expected = bound(script("gv = R.multiply(c, y)", y=(3,), c=(1,)), c=np.zeros(1, "float32"))
    fires(BROADCAST, before, expected, inputs=[np.array([np.nan, -1, 2], "float32")])


def test_operands_that_broadcast_each_other_need_no_broadcast():
    params = dict(x=(3, 1), y=(1, 4))
    before = script(f"a = {to('x', (3, 4))}", f"b = {to('y', (3, 4))}", "gv = R.add(a, b)", **params)
    fires(BROADCAST, before, script("gv = R.add(x, y)", **params))


def test_nothing_is_computed_before_a_broadcast_that_others_use():
    declines(
        BROADCAST,
        script(f"a = {to('x', (3, 4))}", "b = R.nn.relu(a)", "c = R.nn.softmax(a)", "gv = (b, c)", x=(3, 1)),
    )


def test_a_broadcast_that_is_a_result_stays():
    declines(BROADCAST, script(f"a = {to('x', (3, 4))}", "b = R.nn.relu(a)", "gv = (a, b)", x=(3, 1)))


def test_a_symbol_is_not_broadcast_to_a_number():
    declines(BROADCAST, script("gv = R.nn.softmax(R.broadcast_to(x, R.shape([3, 4])))", x=("n", 4)))


def test_symbolic_extents_of_the_other_operand_count():
    params = dict(x=(1, 4), y=("n", 4))
    before = script("n = T.int64()", "a = R.broadcast_to(x, R.shape([n, 4]))", "gv = R.add(a, y)", **params)
    fires(BROADCAST, before, script("gv = R.add(x, y)", **params))


def test_shapes_that_broadcast_are_numpys():
    extents = (1, 2, 3)
    shapes = [s for r in range(3) for s in itertools.product(extents, repeat=r)]
    for a, b in itertools.product(shapes, repeat=2):
        try:
            right = np.broadcast_shapes(a, b)
        except ValueError:
            right = None
        assert broadcast_shape([a, b]) == right


def test_the_operators_are_relax_operators():
    from tvm.ir import Op

    assert {*BINARY, *UNARY} <= set(Op.list_op_names())


# -- matmul ----------------------------------------------------------------------------------------------


def test_a_matmul_repeats_batch_axes_by_itself():
    params = dict(x=(1, 3, 4), y=(5, 4, 2))
    before = script(f"a = {to('x', (5, 3, 4))}", "gv = R.matmul(a, y)", **params)
    fires(BROADCAST, before, script("gv = R.matmul(x, y)", **params))


def test_a_matrix_is_repeated_too():
    params = dict(x=(5, 3, 4), y=(4, 2))
    before = script(f"a = {to('y', (5, 4, 2))}", "gv = R.matmul(x, a)", **params)
    fires(BROADCAST, before, script("gv = R.matmul(x, y)", **params))


@pytest.mark.parametrize(
    ("x", "target", "y"),
    [
        ((1, 3, 4), (5, 3, 4), (1, 4, 2)),  # the result would shrink
        ((5, 1, 4), (5, 3, 4), (5, 4, 2)),  # rows are repeated
        ((4,), (3, 4), (4, 2)),  # a vector is another product
    ],
)
def test_other_broadcasts_before_a_matmul_stay(x, target, y):
    declines(BROADCAST, script(f"a = {to('x', target)}", "gv = R.matmul(a, y)", x=x, y=y))


# -- constants of one value ------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [2.5, -0.0, np.nan, np.inf])
def test_a_constant_of_one_value_is_one_element(value):
    before = bound(script("gv = R.multiply(x, c)", x=(2, 3), c=(2, 3)), c=np.full((2, 3), value, "float32"))
    expected = bound(script("gv = R.multiply(x, c)", x=(2, 3), c=(1, 1)), c=np.full((1, 1), value, "float32"))
    fires(BROADCAST, before, expected)


def test_a_constant_of_more_axes_keeps_their_number():
    before = bound(script("gv = R.add(c, x)", x=(3,), c=(1, 3)), c=np.ones((1, 3), "float32"))
    fires(BROADCAST, before, bound(script("gv = R.add(c, x)", x=(3,), c=(1, 1)), c=np.ones((1, 1), "float32")))


@pytest.mark.parametrize(
    "array",
    [
        np.array([[0.0, -0.0, 0.0]], "float32"),  # equal, but not the same bits
        np.array([[1.0, 2.0, 1.0]], "float32"),
        np.ones((2, 1), "float32"),  # the result would shrink
    ],
)
def test_other_constants_stay(array):
    declines(BROADCAST, bound(script("gv = R.add(x, c)", x=(1, 3), c=array.shape), c=array))


def test_what_may_be_the_bias_of_a_convolution_stays():
    before = script("y = R.nn.conv2d(x, w)", "gv = R.add(y, c)", x=(1, 2, 4, 4), w=(3, 2, 1, 1), c=(1, 3, 1, 1))
    declines(BROADCAST, bound(before, c=np.ones((1, 3, 1, 1), "float32")))
