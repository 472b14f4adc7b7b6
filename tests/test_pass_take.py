import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pass_case import declines, fires
from script_case import script

from relax_glue.passes import CanonicalizeTake
from relax_glue.passes.take import _runs

TAKE = CanonicalizeTake()


def take(indices, axis=1, x="x", dtype="int64", **attrs):
    options = "".join(f", {name}={value!r}" for name, value in attrs.items())
    return f"R.take({x}, R.const({indices}, '{dtype}'), axis={axis}{options})"


def cut(axis, begin, end, stride=1, x="x"):
    return f"R.strided_slice({x}, [{axis}], [{begin}], [{end}]{f', [{stride}]' if stride != 1 else ''})"


# -- slices ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [1, -2])
def test_a_scalar_index_is_a_slice_and_a_reshape(axis):
    before = script(f"gv = {take('3', axis)}", x=("n", 4, 5))
    after = script(f"s = {cut(1, 3, 4)}", "gv = R.reshape(s, (n, 5))", x=("n", 4, 5))
    fires(TAKE, before, after)


def test_one_index_in_a_vector_keeps_the_axis():
    fires(TAKE, script(f"gv = {take('[3]')}", x=("n", 4)), script(f"gv = {cut(1, 3, 4)}", x=("n", 4)))


def test_all_indices_in_order_are_the_operand():
    before = script(f"y = {take('[0, 1, 2, 3]', dtype='int32')}", "gv = R.nn.relu(y)", x=("n", 4))
    fires(TAKE, before, script("gv = R.nn.relu(x)", x=("n", 4)))


@pytest.mark.parametrize(
    ("indices", "window"),
    [("[1, 2]", (1, 3)), ("[1, 3]", (1, 5, 2)), ("[5, 3, 1]", (5, -7, -2)), ("[5, 4, 3]", (5, 2, -1))],
)
def test_a_progression_is_a_slice(indices, window):
    fires(TAKE, script(f"gv = {take(indices)}", x=("n", 6)), script(f"gv = {cut(1, *window)}", x=("n", 6)))


def test_a_table_of_indices_in_order_is_reshaped():
    before = script(f"gv = {take('[[1, 2, 3], [4, 5, 6]]')}", x=("n", 8))
    after = script(f"s = {cut(1, 1, 7)}", "gv = R.reshape(s, (n, 2, 3))", x=("n", 8))
    fires(TAKE, before, after)


def test_one_index_again_and_again_is_a_broadcast():
    before = script(f"gv = {take('[2, 2, 2]')}", x=("n", 4))
    fires(TAKE, before, script(f"s = {cut(1, 2, 3)}", "gv = R.broadcast_to(s, (n, 3))", x=("n", 4)))


def test_a_roll_stays_a_take():
    declines(TAKE, script(f"gv = {take('[2, 3, 4, 0, 1]')}", x=("n", 5)))
    before = script(f"gv = {take('[3, 4, 5, 6, 7]', mode='wrap')}", x=("n", 5))
    fires(TAKE, before, script(f"gv = {take('[3, 4, 0, 1, 2]')}", x=("n", 5)))


@pytest.mark.parametrize("axis", [1, -1])
def test_the_end_and_the_beginning_are_a_rotation(axis):
    before = script(f"a = {cut(1, 2, 5)}", f"b = {cut(1, 0, 2)}", f"gv = R.concat((a, b), {axis})", x=("n", 5))
    fires(TAKE, before, script(f"gv = {take('[2, 3, 4, 0, 1]')}", x=("n", 5)))


def test_a_part_of_the_beginning_and_items_of_a_split_too():
    before = script(f"a = {cut(1, 3, 5)}", f"b = {cut(1, 0, 2)}", "gv = R.concat((a, b), 1)", x=("n", 5))
    fires(TAKE, before, script(f"gv = {take('[3, 4, 0, 1]')}", x=("n", 5)))
    before = script("s = R.split(x, [2], axis=1)", "gv = R.concat((s[1], s[0]), 1)", x=("n", 5))
    fires(TAKE, before, script(f"gv = {take('[2, 3, 4, 0, 1]')}", x=("n", 5)))


@pytest.mark.parametrize(
    "lines",
    [
        (f"a = {cut(1, 2, 5)}", f"b = {cut(1, 1, 2)}", "gv = R.concat((a, b), 1)"),  # 0 is left out
        (f"a = {cut(1, 2, 4)}", f"b = {cut(1, 0, 2)}", "gv = R.concat((a, b), 1)"),  # 4 is left out
        (f"a = {cut(1, 3, 5)}", f"b = {cut(1, 0, 2)}", "gv = R.concat((a, b), 0)"),
        (f"a = {cut(1, 2, 5)}", f"b = {cut(1, 0, 2)}", "gv = R.concat((a, b, b), 1)"),
        (f"a = {cut(1, 2, 5)}", "b = R.strided_slice(y, [1], [0], [2])", "gv = R.concat((a, b), 1)"),
        (f"a = {cut(1, 2, 5)}", f"b = {cut(1, 0, 2)}", "c = R.concat((a, b), 1)", "gv = (c, a)"),
        ("a = R.strided_slice(x, [0, 1], [0, 2], [1, 5])", "b = R.strided_slice(x, [0, 1], [0, 0], [1, 2])",
         "gv = R.concat((a, b), 1)"),
    ],
)  # fmt: skip
def test_what_is_no_rotation(lines):
    declines(TAKE, script(*lines, x=(3, 5), y=(3, 5)))


def test_more_than_two_runs_stay_a_take():
    declines(TAKE, script(f"gv = {take('[0, 1, 3, 4, 6, 7]')}", x=("n", 8)))
    declines(TAKE, script(f"gv = {take('[0, 2, 4, 1, 3]')}", x=("n", 8)))


@given(st.lists(st.integers(0, 7), min_size=2, max_size=6).filter(lambda i: len(set(i)) > 1))
@settings(derandomize=True, max_examples=400)
def test_runs_hold_the_indices(indices):
    runs = _runs(indices)
    steps = np.diff(indices)
    if runs is None:
        assert len(set(steps)) > 1 and np.count_nonzero(steps != 1) > 1
    else:
        assert len(runs) == 1 or (len(runs) == 2 and all(step == 1 for _, _, step in runs))
        assert [first + step * k for first, count, step in runs for k in range(count)] == indices


# -- plain indices ---------------------------------------------------------------------------------------

SCATTERED = "[0, 3, 1, 4]"


@pytest.mark.parametrize(
    ("indices", "attrs"),
    [
        ("[-5, 3, -4, 9]", {"mode": "wrap"}),
        ("[-7, 3, 1, 11]", {"mode": "clip"}),
        (SCATTERED, {"mode": "nan"}),
        (SCATTERED, {"axis": -1}),
    ],
)
def test_indices_are_brought_within_the_extent_as_the_mode_says(indices, attrs):
    before = script(f"gv = {take(indices, **attrs)}", x=("n", 5))
    fires(TAKE, before, script(f"gv = {take(SCATTERED)}", x=("n", 5)))


def test_a_vector_needs_no_axis():
    before = script(f"gv = R.take(x, R.const({SCATTERED}, 'int64'))", x=(5,))
    fires(TAKE, before, script(f"gv = {take(SCATTERED, 0)}", x=(5,)))


@pytest.mark.parametrize("mode", ["fast", "nan"])
@pytest.mark.parametrize("indices", ["[-1]", "[5]", "[0, 1, 5]"])
def test_indices_outside_that_no_mode_brings_inside_stay(indices, mode):
    declines(TAKE, script(f"gv = {take(indices, mode=mode)}", x=("n", 5)))


def test_a_take_along_a_symbolic_axis_stays():
    declines(TAKE, script(f"gv = {take('[0]', 0)}", x=("n", 5)))


def test_a_take_by_indices_of_the_caller_stays():
    declines(TAKE, script("i = R.astype(y, 'int64')", "gv = R.take(x, i, axis=1)", x=("n", 5), y=(3,)))


# -- takes of other movements ----------------------------------------------------------------------------


def test_a_take_of_a_take_reads_the_operand():
    before = script(
        f"y = {take(SCATTERED)}", f"z = {take('[[3, 3, 1], [0, 2, 1]]', -1, 'y')}", "gv = (y, z)", x=("n", 5)
    )
    after = script(f"y = {take(SCATTERED)}", f"z = {take('[[4, 4, 3], [0, 1, 3]]')}", "gv = (y, z)", x=("n", 5))
    fires(TAKE, before, after)


@pytest.mark.parametrize("inner", [take(SCATTERED, 0), take("[[0, 3, 1], [4, 2, 2]]")])
def test_a_take_of_a_take_on_another_axis_stays(inner):
    declines(TAKE, script(f"y = {inner}", f"gv = {take('[1, 0, 0, 1]', 1, 'y')}", x=(5, 5)))


def test_a_take_of_a_slice_reads_the_operand():
    before = script(f"y = {cut(1, 9, 0, -2)}", f"gv = {take(SCATTERED, 1, 'y')}", x=("n", 10))
    fires(TAKE, before, script(f"gv = {take('[9, 3, 7, 1]')}", x=("n", 10)))


def test_a_take_of_a_split_item_reads_the_operand():
    before = script("sp = R.split(x, [3], 1)", f"gv = ({take(SCATTERED, 1, 'sp[1]')}, sp[0])", x=(2, 8))
    after = script("sp = R.split(x, [3], 1)", "b = sp[0]", f"a = {take('[3, 6, 4, 7]')}", "gv = (a, b)", x=(2, 8))
    fires(TAKE, before, after)


def test_a_take_of_a_slice_of_another_axis_stays():
    declines(TAKE, script(f"y = {cut(0, 0, 2)}", f"gv = {take(SCATTERED, 1, 'y')}", x=(4, 5)))


def test_a_take_within_one_operand_of_a_concat_reads_it():
    before = script(
        "c = R.concat((y, x, y), 1)", f"z = {take('[2, 5, 3, 6]', 1, 'c')}", "gv = (c, z)", x=(2, 5), y=(2, 2)
    )
    after = script("c = R.concat((y, x, y), 1)", f"z = {take(SCATTERED)}", "gv = (c, z)", x=(2, 5), y=(2, 2))
    fires(TAKE, before, after)


@pytest.mark.parametrize(("axis", "indices"), [(1, "[1, 5, 3, 6]"), (0, "[0, 1, 1, 0]")])
def test_a_take_over_operands_of_a_concat_stays(axis, indices):
    declines(TAKE, script("c = R.concat((y, x), 1)", f"gv = {take(indices, axis, 'c')}", x=(2, 5), y=(2, 2)))


def test_a_take_of_a_concat_of_symbolic_extents_stays():
    declines(TAKE, script("c = R.concat((x, y), 0)", f"gv = {take(SCATTERED, 1, 'c')}", x=("n", 5), y=(2, 5)))
