import numpy as np
import pytest
from pass_case import declines, fires
from script_case import script

from relax_glue.movement import Split, index_map
from relax_glue.passes import CanonicalizeSplit

SPLIT = CanonicalizeSplit()


def test_a_split_of_which_all_items_are_used_stays():
    declines(SPLIT, script("sp = R.split(x, 2, 1)", "gv = R.add(sp[0], sp[1])", x=(2, 8)))


def test_a_split_of_which_all_items_are_results_stays():
    declines(SPLIT, script("sp = R.split(x, [2, 5], -1)", "gv = (sp[0], sp[1], sp[2])", x=("n", 8)))


@pytest.mark.parametrize("sections", ["1", "[]"])
def test_a_split_into_one_section_is_dropped(sections):
    before = script(f"y = R.split(x, {sections}, 1)", "gv = R.nn.relu(y)", x=("n", 8))
    fires(SPLIT, before, script("gv = R.nn.relu(x)", x=("n", 8)))


def test_items_that_nothing_uses_are_not_computed():
    before = script("sp = R.split(x, [2, 6], -1)", "gv = R.add(sp[0], sp[2])", x=("n", 8))
    after = script(
        "a = R.strided_slice(x, [1], [0], [2])",
        "b = R.strided_slice(x, [1], [6], [8])",
        "gv = R.add(a, b)",
        x=("n", 8),
    )
    fires(SPLIT, before, after)


def test_an_item_that_holds_everything_is_the_operand():
    before = script("sp = R.split(x, [8], 1)", "gv = R.nn.relu(sp[0])", x=(2, 8))
    fires(SPLIT, before, script("gv = R.nn.relu(x)", x=(2, 8)))


def test_a_split_with_an_empty_item_that_is_used_stays():
    declines(SPLIT, script("sp = R.split(x, [3, 3], 1)", "gv = (sp[0], sp[1])", x=(2, 8)))


def test_a_split_of_a_symbolic_axis_stays():
    declines(SPLIT, script("sp = R.split(x, 2, 0)", "gv = R.nn.relu(sp[0])", x=("n", 8)))


# -- of a concat -----------------------------------------------------------------------------------------


def test_a_split_where_a_concat_joined_gives_the_operands_back():
    before = script(
        "c = R.concat((x, y), -1)",
        "sp = R.split(c, [2], 1)",
        "z = R.nn.relu(sp[0])",
        "w = R.nn.relu(sp[1])",
        "gv = (c, z, w)",
        x=(2, 2),
        y=(2, 6),
    )
    after = script(
        "c = R.concat((x, y), -1)", "z = R.nn.relu(x)", "w = R.nn.relu(y)", "gv = (c, z, w)", x=(2, 2), y=(2, 6)
    )
    fires(SPLIT, before, after)


def test_a_split_between_groups_of_operands_is_smaller_concats():
    before = script("c = R.concat((x, y, x), 1)", "sp = R.split(c, [8], 1)", "gv = (sp[0], sp[1])", x=(2, 2), y=(2, 6))
    after = script("a = R.concat((x, y), 1)", "gv = (a, x)", x=(2, 2), y=(2, 6))
    fires(SPLIT, before, after)


def test_a_group_stays_a_slice_where_the_concat_is_kept_anyway():
    before = script(
        "c = R.concat((x, y, x), 1)", "sp = R.split(c, [8], 1)", "gv = (c, sp[0], sp[1])", x=(2, 2), y=(2, 6)
    )
    after = script(
        "c = R.concat((x, y, x), 1)", "a = R.strided_slice(c, [1], [0], [8])", "gv = (c, a, x)", x=(2, 2), y=(2, 6)
    )
    fires(SPLIT, before, after)


@pytest.mark.parametrize(
    "lines",
    [
        ("c = R.concat((x, x), 1)", "sp = R.split(c, [3], 1)"),  # no cut at an operand's end
        ("c = R.concat((x, x), 0)", "sp = R.split(c, 2, 1)"),  # another axis
    ],
)
def test_a_split_of_a_concat_stays(lines):
    declines(SPLIT, script(*lines, "gv = (sp[0], sp[1])", x=(2, 4)))


def test_a_split_of_a_concat_of_symbolic_extents_stays():
    declines(
        SPLIT, script("c = R.concat((x, y), 0)", "sp = R.split(c, 2, 1)", "gv = (sp[0], sp[1])", x=("n", 4), y=(2, 4))
    )


# -- of a slice ------------------------------------------------------------------------------------------


def test_a_split_of_an_item_reads_the_operand():
    before = script("a = R.split(x, [2], 1)", "b = R.split(a[1], 2, 1)", "gv = (a[0], b[0], b[1])", x=(2, 8))
    after = script(
        "a = R.strided_slice(x, [1], [0], [2])",
        "b = R.strided_slice(x, [1], [2], [5])",
        "c = R.strided_slice(x, [1], [5], [8])",
        "gv = (a, b, c)",
        x=(2, 8),
    )
    fires(SPLIT, before, after)


def test_a_split_of_a_strided_slice_reads_the_operand():
    before = script(
        "s = R.strided_slice(x, [0, 1], [1, 0], [2, 8], [1, 2])",
        "sp = R.split(s, 2, 1)",
        "gv = (sp[0], sp[1])",
        x=(2, 8),
    )
    after = script(
        "a = R.strided_slice(x, [0, 1], [1, 0], [2, 4], [1, 2])",
        "b = R.strided_slice(x, [0, 1], [1, 4], [2, 8], [1, 2])",
        "gv = (a, b)",
        x=(2, 8),
    )
    fires(SPLIT, before, after)


def test_a_split_of_a_slice_that_is_kept_stays():
    declines(
        SPLIT,
        script("s = R.strided_slice(x, [1], [0], [4])", "sp = R.split(s, 2, 1)", "gv = (s, sp[0], sp[1])", x=(2, 8)),
    )
    declines(
        SPLIT, script("a = R.split(x, 2, 1)", "b = R.split(a[1], 2, 1)", "gv = (a[0], a[1], b[0], b[1])", x=(2, 8))
    )


def test_the_parts_of_a_split_are_the_elements_that_numpy_splits_off():
    for bounds in ((0, 3, 4, 9), (0, 9), (0, 1, 9)):
        split = Split(1, bounds)
        want = np.split(np.arange(18).reshape(2, 9), bounds[1:-1], axis=1)
        parts = [index_map(split.part(k, (2, 9)), [(2, 9)]) for k in range(len(bounds) - 1)]
        assert all(np.array_equal(p, w) for p, w in zip(parts, want, strict=True))


def test_a_split_into_more_than_there_is_stays():
    # TVM types the parts of 5 as 2, 2, 2 and -1
    declines(SPLIT, script("sp = R.split(x, 4, 1)", "gv = R.nn.relu(sp[0])", x=(2, 5)))


def test_a_split_that_is_used_as_a_tuple_stays():
    declines(SPLIT, script("gv = R.split(x, 2, 1)", x=(2, 8)))
