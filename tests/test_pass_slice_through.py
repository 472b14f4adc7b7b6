import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pass_case import declines, fires
from script_case import cut, script, slices

from relax_glue.movement import index_map
from relax_glue.passes import CanonicalizeStridedSlice
from relax_glue.passes.slice_through import reshape_groups, slice_before_reshape

SLICE = CanonicalizeStridedSlice()


def test_a_slice_of_a_transpose_is_taken_first():
    before = script("t = R.permute_dims(x, [2, 0, 1])", f"gv = {cut([0, 2], [1, 0], [3, 2], x='t')}", x=("n", 4, 5))
    after = script(f"s = {cut([1, 2], [0, 1], [2, 3])}", "gv = R.permute_dims(s, [2, 0, 1])", x=("n", 4, 5))
    fires(SLICE, before, after)


@pytest.mark.parametrize("inner", ["R.permute_dims(x, [1, 0])", "R.reshape(x, (8, 4))"])
def test_a_slice_of_a_movement_that_others_use_stays(inner):
    declines(SLICE, script(f"t = {inner}", f"s = {cut([0], [0], [2], x='t')}", "gv = (t, s)", x=(4, 8)))


def test_a_slice_of_a_broadcast_broadcasts_less():
    before = script("b = R.broadcast_to(x, (3, 4, 6))", f"gv = {cut([0, 2], [1, 2], [2, 5], x='b')}", x=(4, 1))
    fires(SLICE, before, script("gv = R.broadcast_to(x, (1, 4, 3))", x=(4, 1)))


def test_a_slice_of_a_broadcast_cuts_what_is_not_broadcast():
    before = script("b = R.broadcast_to(x, (3, 4, 6))", f"gv = {cut([1, 2], [1, 2], [3, 5], x='b')}", x=(4, 1))
    after = script(f"s = {cut([0], [1], [3])}", "gv = R.broadcast_to(s, (3, 2, 3))", x=(4, 1))
    fires(SLICE, before, after)


def test_a_slice_of_a_broadcast_that_others_use():
    free = script("b = R.broadcast_to(x, (4, 6))", f"s = {cut([1], [0], [2], x='b')}", "gv = (b, s)", x=(4, 1))
    after = script("b = R.broadcast_to(x, (4, 6))", "s = R.broadcast_to(x, (4, 2))", "gv = (b, s)", x=(4, 1))
    fires(SLICE, free, after)
    declines(
        SLICE, script("b = R.broadcast_to(x, (4, 6))", f"s = {cut([0], [0], [2], x='b')}", "gv = (b, s)", x=(4, 1))
    )


def pad(widths, mode="constant", value=0.0):
    return f"p = R.nn.pad(x, {widths}, '{mode}', {value})"


@pytest.mark.parametrize("mode", ["constant", "reflect"])
def test_a_slice_of_a_pad_without_padding_reads_the_operand(mode):
    before = script(pad([0, 0, 2, 2], mode), f"s = {cut([1], [3], [6], x='p')}", "gv = (p, s)", x=(3, 8))
    after = script(pad([0, 0, 2, 2], mode), f"s = {cut([1], [1], [4])}", "gv = (p, s)", x=(3, 8))
    fires(SLICE, before, after)


def test_a_crop_of_a_pad_is_nothing():
    before = script(pad([1, 1, 0, 3]), f"s = {cut([0, 1], [1, 0], [4, 8], x='p')}", "gv = R.nn.relu(s)", x=(3, 8))
    fires(SLICE, before, script("gv = R.nn.relu(x)", x=(3, 8)))


def test_a_slice_of_a_pad_pads_less():
    before = script(pad([0, 0, 2, 2], value=1.5), f"gv = {cut([0, 1], [0, 1], [2, 11], x='p')}", x=(3, 8))
    after = script(f"s = {cut([0], [0], [2])}", "gv = R.nn.pad(s, [0, 0, 1, 1], 'constant', 1.5)", x=(3, 8))
    fires(SLICE, before, after)


def test_a_strided_slice_of_a_pad_counts_what_it_keeps():
    before = script(pad([0, 0, 3, 1], value=2.0), f"gv = {cut([1], [11], [0], [-2], x='p')}", x=(3, 8))
    after = script(f"s = {cut([1], [6], [-9], [-2])}", "gv = R.nn.pad(s, [0, 0, 1, 1], 'constant', 2.0)", x=(3, 8))
    fires(SLICE, before, after)


@pytest.mark.parametrize(
    "lines",
    [
        (pad([0, 0, 2, 2], "reflect"), f"gv = {cut([1], [1], [6], x='p')}"),  # what is mirrored would be cut
        (pad([0, 0, 2, 2]), f"s = {cut([1], [1], [6], x='p')}", "gv = (p, s)"),  # used elsewhere
        (pad([0, 0, 2, 2]), f"gv = {cut([1], [0], [2], x='p')}"),  # only padding
        (pad([0, 0, -1, 2]), f"gv = {cut([1], [0], [2], x='p')}"),  # a width that cuts
    ],
)
def test_a_slice_of_a_pad_stays(lines):
    declines(SLICE, script(*lines, x=(3, 8)))


@pytest.mark.parametrize(
    ("shape", "target", "window", "first", "last"),
    [
        ((4, 6), (4, 2, 3), ([0], [1], [3]), ([0], [1], [3]), (2, 2, 3)),
        ((4, 6), (4, 2, 3), ([1], [1], [2]), ([1], [3], [6]), (4, 1, 3)),
        ((4, 6), (24,), ([0], [6], [18]), ([0], [1], [3]), (12,)),
        ((4, 6), (1, 4, 1, 6), ([3], [5], [-7], [-2]), ([1], [5], [-7], [-2]), (1, 4, 1, 3)),
        ((24,), (2, 3, 4), ([0, 1, 2], [1, 1, 1], [2, 2, 3]), ([0], [17], [19]), (1, 1, 2)),
        (("n", 6), ("n", 2, 3), ([1], [0], [1]), ([1], [0], [3]), ("n", 1, 3)),
    ],
)
def test_a_slice_of_a_reshape_is_taken_first(shape, target, window, first, last):
    before = script("n = T.int64()", f"r = R.reshape(x, {named(target)})", f"gv = {cut(*window, x='r')}", x=shape)
    after = script("n = T.int64()", f"s = {cut(*first)}", f"gv = R.reshape(s, {named(last)})", x=shape)
    fires(SLICE, before, after)


def named(shape):
    return "(" + "".join(f"{e}, " for e in shape) + ")"


@pytest.mark.parametrize(
    ("shape", "target", "window"),
    [
        ((4, 6), (24,), ([0], [5], [18])),  # begins within a row
        ((4, 6), (8, 3), ([0], [0], [8], [2])),  # every second half row
        ((4, 6), (6, 4), ([1], [0], [2])),  # gaps
        ((2, 3, 4), (6, 4), ([0], [0], [5])),  # one whole block and a part
    ],
)
def test_a_slice_of_a_reshape_that_is_no_box_stays(shape, target, window):
    declines(SLICE, script(f"r = R.reshape(x, {target})", f"gv = {cut(*window, x='r')}", x=shape))


# -- the closed formulas, against index maps -------------------------------------------------------------

SHAPES_OF_24 = [(24,), (4, 6), (2, 3, 4), (6, 4), (2, 1, 12), (3, 8), (2, 2, 2, 3), (1, 24), (4, 2, 3)]


@given(st.data())
@settings(derandomize=True, max_examples=400)
def test_a_slice_before_a_reshape_keeps_the_same_elements_in_order(data):
    before, after = (data.draw(st.sampled_from(SHAPES_OF_24)) for _ in range(2))
    view = data.draw(slices(after))
    found = slice_before_reshape(view, before, after)
    wanted = index_map(view, [after]).ravel()
    if found is not None:
        assert np.array_equal(index_map(found, [before]).ravel(), wanted)
    else:
        assert not _is_unit_box(wanted, before)


def _is_unit_box(addresses, shape):
    """Whether ascending addresses are a box without strides: then a slice must have been found."""
    digits = [np.unique(d) for d in np.unravel_index(addresses, shape)]
    dense = all(len(d) == d[-1] - d[0] + 1 for d in digits)
    return dense and np.prod([len(d) for d in digits]) == len(addresses) and np.all(np.diff(addresses) == 1)


def test_groups_of_a_reshape_are_the_smallest():
    assert reshape_groups((4, 6, 5), (2, 2, 6, 5)) == [([0], [0, 1]), ([1], [2]), ([2], [3])]
    assert reshape_groups((6, 4), (4, 6)) == [([0, 1], [0, 1])]
    assert reshape_groups((1, 4), (4,)) == [([0, 1], [0])]
    assert reshape_groups((4,), (1, 4, 1)) == [([0], [0, 1, 2])]
    assert reshape_groups((4, 3), (6,)) is None
