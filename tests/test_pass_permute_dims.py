import random

import numpy as np
import pytest
from pass_case import declines, fires
from script_case import script

from relax_glue.errors import UnknownNameError
from relax_glue.movement import Permute, Reshape, index_map
from relax_glue.passes import CanonicalizePermuteDims
from relax_glue.rewrite import RewriteStats
from relax_glue.shuffle import permute_rank, shortest

PERMUTE = CanonicalizePermuteDims()


# -- one permute -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["R.permute_dims(x, [0, 1, 2])", "R.permute_dims(x, [0, -2, -1])"])
def test_a_permute_that_moves_nothing_is_dropped(call):
    fires(PERMUTE, script(f"y = {call}", "gv = R.nn.relu(y)", x=(2, 3, 4)), script("gv = R.nn.relu(x)", x=(2, 3, 4)))


def test_a_vector_has_no_axes_to_reverse():
    fires(PERMUTE, script("y = R.permute_dims(x)", "gv = R.abs(y)", x=(4,)), script("gv = R.abs(x)", x=(4,)))


@pytest.mark.parametrize(
    "call",
    [
        "R.permute_dims(x)",
        "R.permute_dims(x, [-1, -2, -3])",
        "R.permute_dims(x, [2, 1, -3])",
        "R.layout_transform(x, index_map=lambda a, b, c: (c, b, a))",
    ],
)
def test_every_spelling_of_a_permute_becomes_one(call):
    fires(PERMUTE, script(f"gv = {call}", x=(2, 3, 4)), script("gv = R.permute_dims(x, [2, 1, 0])", x=(2, 3, 4)))


def test_a_layout_transform_keeps_the_direction_of_its_axes():
    before = script("gv = R.layout_transform(x, index_map=lambda n, c, h, w: (n, h, w, c))", x=(2, 3, 4, 5))
    fires(PERMUTE, before, script("gv = R.permute_dims(x, [0, 2, 3, 1])", x=(2, 3, 4, 5)))


def test_a_layout_transform_that_blocks_an_axis_is_no_permute():
    declines(PERMUTE, script("gv = R.layout_transform(x, index_map=lambda n, c: (n, c // 2, c % 2))", x=(2, 4)))


def test_a_permute_in_normal_form_stays():
    declines(PERMUTE, script("gv = R.permute_dims(x, [1, 0])", x=(2, 3)))


@pytest.mark.parametrize("axes", ["[1, 3, 2, 0]", "[1, 2, 3, 0]"])
def test_ones_are_named_in_their_order(axes):
    before = script(f"gv = R.permute_dims(x, {axes})", x=(5, 6, 1, 1))
    fires(PERMUTE, before, script("gv = R.permute_dims(x, [1, 2, 3, 0])", x=(5, 6, 1, 1)))


def test_symbolic_extents_are_not_named_anew():
    declines(PERMUTE, script("gv = R.permute_dims(x, [1, 3, 2, 0])", x=(5, 6, "n", 1)))


# -- two permutes ----------------------------------------------------------------------------------------


def test_two_permutes_are_one():
    before = script("y = R.permute_dims(x, [1, 2, 0])", "gv = R.permute_dims(y, [1, 0, 2])", x=(2, 3, 4))
    fires(PERMUTE, before, script("gv = R.permute_dims(x, [2, 1, 0])", x=(2, 3, 4)))


def test_two_permutes_that_undo_each_other_are_none():
    before = script("y = R.permute_dims(x, [1, 2, 0])", "gv = R.permute_dims(y, [2, 0, 1])", x=(2, 3, 4))
    fires(PERMUTE, before, script("gv = x", x=(2, 3, 4)))


def test_the_first_permute_stays_for_its_other_user():
    before = script(
        "y = R.permute_dims(x, [1, 2, 0])",
        "z = R.nn.relu(y)",
        "w = R.permute_dims(y, [1, 0, 2])",
        "gv = (z, w)",
        x=(2, 3, 4),
    )
    expected = script(
        "y = R.permute_dims(x, [1, 2, 0])",
        "z = R.nn.relu(y)",
        "w = R.permute_dims(x, [2, 1, 0])",
        "gv = (z, w)",
        x=(2, 3, 4),
    )
    fires(PERMUTE, before, expected)


def test_items_of_a_split_are_permuted_as_their_own():
    before = script(
        "s = R.split(x, 2, axis=0)",
        "a = R.permute_dims(s[1], [1, 0])",
        "gv = R.permute_dims(a, [1, 0])",
        x=(2, 3),
    )
    fires(PERMUTE, before, script("s = R.split(x, 2, axis=0)", "gv = s[1]", x=(2, 3)))


# -- extents of 1 ----------------------------------------------------------------------------------------


def test_a_permute_that_moves_ones_only_is_a_reshape():
    before = script("gv = R.permute_dims(x, [0, 2, 3, 1])", x=(2, 1, 3, 4))
    fires(PERMUTE, before, script("gv = R.reshape(x, R.shape([2, 3, 4, 1]))", x=(2, 1, 3, 4)))


def test_a_permute_past_a_one_still_moves_the_others():
    declines(PERMUTE, script("gv = R.permute_dims(x, [2, 1, 0])", x=(3, 1, 2)))


def test_a_symbolic_extent_may_be_more_than_one():
    declines(PERMUTE, script("gv = R.permute_dims(x, [1, 0])", x=("n", 3)))


def test_a_one_moves_past_symbolic_extents():
    before = script("gv = R.permute_dims(x, [0, 2, 1])", x=("n", 1, 3))
    after = PERMUTE(before)
    assert "permute_dims" not in after.script()
    fires(PERMUTE, before, after)


# -- chains ----------------------------------------------------------------------------------------------


def chain(*steps, **params):
    lines, last = [], "x"
    for k, step in enumerate(steps):
        name = "gv" if k == len(steps) - 1 else f"y{k}"
        call = (
            f"R.permute_dims({last}, {step})" if isinstance(step, list) else f"R.reshape({last}, R.shape({list(step)}))"
        )
        lines.append(f"{name} = {call}")
        last = name
    return script(*lines, **params)


def test_a_window_partition_and_its_reverse_are_nothing():
    steps = [(2, 2, 4, 2, 4, 3), [0, 1, 3, 2, 4, 5], (8, 16, 3), (2, 2, 2, 4, 4, 3), [0, 1, 3, 2, 4, 5], (2, 8, 8, 3)]
    fires(PERMUTE, chain(*steps, x=(2, 8, 8, 3)), script("gv = x", x=(2, 8, 8, 3)))


def test_permutes_meet_across_a_reshape_of_whole_axes():
    before = chain([0, 2, 3, 1], (2, 12, 5), [0, 2, 1], x=(2, 5, 3, 4))
    fires(PERMUTE, before, chain((2, 5, 12), x=(2, 5, 3, 4)))


def test_two_channel_shuffles_are_one_chain():
    shuffle = [(2, 2, 6, 4), [0, 2, 1, 3], (2, 12, 4)]
    back = [(2, 6, 2, 4), [0, 2, 1, 3], (2, 12, 4)]
    fires(PERMUTE, chain(*shuffle, *back, x=(2, 12, 4)), script("gv = x", x=(2, 12, 4)))


@pytest.mark.parametrize(
    "steps",
    [
        [(2, 2, 6, 4), [0, 2, 1, 3], (2, 12, 4)],  # a channel shuffle
        [(2, 3, 4, 4), [0, 2, 1, 3]],
        [[0, 2, 1], (8, 12)],
        [[1, 0, 2], (8, 3, 4), [1, 0, 2]],  # 8 ends inside the 12 and does not divide it
    ],
)
def test_a_chain_that_is_as_short_as_can_be_stays(steps):
    declines(PERMUTE, chain(*steps, x=(2, 12, 4)))


def test_a_chain_with_another_user_is_only_shortened_if_operators_die():
    steps = [
        "a = R.reshape(x, R.shape([2, 2, 6, 4]))",
        "b = R.permute_dims(a, [0, 2, 1, 3])",
        "c = R.nn.relu(b)",
        "d = R.reshape(b, R.shape([2, 12, 4]))",
        "e = R.reshape(d, R.shape([2, 6, 2, 4]))",
        "f = R.permute_dims(e, [0, 2, 1, 3])",
        "gv = (c, f)",
    ]
    expected = [*steps[:3], "gv = (c, a)"]
    fires(PERMUTE, script(*steps, x=(2, 12, 4)), script(*expected, x=(2, 12, 4)))


def test_an_inner_result_that_is_used_elsewhere_stays():
    steps = [
        "a = R.permute_dims(x, [0, 2, 1])",
        "b = R.reshape(a, R.shape([2, 2, 2, 12]))",
        "c = R.permute_dims(b, [1, 2, 0, 3])",
        "gv = (b, c)",
    ]
    declines(PERMUTE, script(*steps, x=(2, 12, 4)))


def test_symbolic_extents_move_as_a_whole():
    before = script(
        "n = T.int64()",
        "a = R.permute_dims(x, [0, 2, 1])",
        "b = R.reshape(a, R.shape([n, 2, 2, 6]))",
        "c = R.permute_dims(b, [0, 3, 1, 2])",
        "gv = R.reshape(c, R.shape([n, 6, 4]))",
        x=("n", 6, 4),
    )
    fires(PERMUTE, before, script("gv = x", x=("n", 6, 4)))


def test_more_axes_than_tensorrt_has_are_brought_down():
    many = (2, 2, 2, 2, 2, 2, 2, 2, 2)
    steps = [many, [1, 0, 2, 3, 4, 5, 6, 7, 8], (512,)]
    fires(PERMUTE, chain(*steps, x=(512,)), chain((2, 2, 128), [1, 0, 2], (512,), x=(512,)))


def test_rules_can_be_left_out_and_counted():
    stats = RewriteStats()
    before = script("gv = R.permute_dims(x)", x=(2, 3))
    declines(CanonicalizePermuteDims(exclude=["permute-normal-form"], stats=stats), before)
    assert stats.rules["nop-permute"].declined == {"axes move": 1}
    with pytest.raises(UnknownNameError, match="no rule 'nop'"):
        CanonicalizePermuteDims(exclude=["nop"])


# -- the formula -----------------------------------------------------------------------------------------


def random_shape(rng, size):
    shape = []
    while size > 1:
        shape.append(rng.choice([d for d in range(2, size + 1) if size % d == 0]))
        size //= shape[-1]
    for _ in range(rng.randrange(3)):
        shape.insert(rng.randrange(len(shape) + 1), 1)
    return tuple(shape)


def random_chain(rng, shape, size):
    steps = []
    for _ in range(rng.randrange(1, 6)):
        if rng.random() < 0.5:
            shape = random_shape(rng, size)
            steps.append(Reshape(shape))
        else:
            axes = tuple(rng.sample(range(len(shape)), len(shape)))
            shape = tuple(shape[a] for a in axes)
            steps.append(Permute(axes))
    return steps


def address(shape, steps):
    addresses = np.arange(int(np.prod(shape))).reshape(shape)
    for step in steps:
        addresses = addresses.ravel()[index_map(step, [addresses.shape])]
    return addresses


@pytest.mark.parametrize("seed", range(4))
def test_the_shortest_chain_has_the_same_index_map(seed):
    rng = random.Random(seed)
    followed = 0
    for _ in range(500):
        size = rng.choice([6, 12, 16, 24, 36])
        shape = random_shape(rng, size)
        steps = random_chain(rng, shape, size)
        found = shortest(shape, steps)
        if found is None:
            continue
        followed += 1
        assert len(found) <= min(3, len(steps))
        assert shortest(shape, found) is not None
        assert len(shortest(shape, found)) == len(found)
        right = address(shape, steps)
        got = address(shape, found)
        assert got.shape == right.shape
        np.testing.assert_array_equal(got, right)
    assert followed > 300


def test_the_shortest_chain_permutes_few_axes():
    steps = [Reshape((2, 3, 4, 5)), Permute((1, 0, 2, 3)), Reshape((120,))]
    assert shortest((120,), steps) == [Reshape((2, 3, 20)), Permute((1, 0, 2)), Reshape((120,))]
    assert permute_rank(steps) == 4


def test_extents_that_cut_across_factors_cannot_be_followed():
    assert shortest((2, 6), [Permute((1, 0)), Reshape((4, 3)), Permute((1, 0))]) is None
