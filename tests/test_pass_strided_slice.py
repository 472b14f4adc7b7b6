import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pass_case import declines, fires, random_inputs
from script_case import cut, script, slices
from tvm import relax

from relax_glue.errors import UnknownNameError
from relax_glue.ir.views import slice_window
from relax_glue.movement import compose_slices, index_map
from relax_glue.passes import CanonicalizeStridedSlice
from relax_glue.rewrite import RewriteStats
from relax_glue.testing import check_equivalent

SLICE = CanonicalizeStridedSlice()
INT64_MAX = 2**63 - 1


# -- nop and normal form ---------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [8, 9, INT64_MAX])
def test_a_slice_of_everything_is_dropped(end):
    before = script(f"y = {cut([-1], [0], [end])}", "gv = R.nn.relu(y)", x=(2, 8))
    fires(SLICE, before, script("gv = R.nn.relu(x)", x=(2, 8)))


def test_a_slice_of_everything_may_be_the_result():
    before = script("y = R.nn.relu(x)", f"gv = {cut([0], [0], [2], x='y')}", x=(2, 8))
    fires(SLICE, before, script("gv = R.nn.relu(x)", x=(2, 8)))


def test_a_reversal_keeps_the_shape_and_is_no_nop():
    declines(SLICE, script(f"gv = {cut([1], [7], [-9], [-1])}", x=(2, 8)))


@pytest.mark.parametrize(
    ("axes", "begin", "end", "strides"),
    [
        ([-1], [2], [6], None),
        ([1], [-6], [-2], None),
        ([1, 0], [2, 0], [6, 2], None),
        ([0, 1], [0, 2], [INT64_MAX, 6], None),
        ([1], [2], [6], [1]),
    ],
)
def test_every_spelling_of_a_slice_becomes_one(axes, begin, end, strides):
    before = script(f"gv = {cut(axes, begin, end, strides)}", x=(2, 8))
    fires(SLICE, before, script(f"gv = {cut([1], [2], [6])}", x=(2, 8)))


@pytest.mark.parametrize(
    ("spelling", "normal"),
    [
        (([1], [0], [INT64_MAX], [2]), ([1], [0], [8], [2])),
        (([1], [1], [INT64_MAX], [2]), ([1], [1], [8], [2])),
        (([1], [20], [-20], [-1]), ([1], [7], [-9], [-1])),
        (([1], [6], [-9], [-4]), ([1], [6], [-9], [-4])),
        (([1], [5], [8], [7]), ([1], [5], [6], None)),
        (([1], [5], [4], [-1]), ([1], [5], [6], None)),
    ],
)
def test_strides_and_their_bounds(spelling, normal):
    before, after = (script(f"gv = {cut(*args)}", x=(2, 8)) for args in (spelling, normal))
    fires(SLICE, before, after)


def test_a_bound_outside_that_is_said_to_be_inside_is_left_alone():
    declines(SLICE, script("gv = R.strided_slice(x, [1], [0], [9], assume_inbound=True)", x=(2, 8)))


def test_a_bound_inside_that_is_said_to_be_inside_is_an_ordinary_one():
    before = script("gv = R.strided_slice(x, [1], [0], [4], assume_inbound=True)", x=(2, 8))
    fires(SLICE, before, script(f"gv = {cut([1], [0], [4])}", x=(2, 8)))


def test_an_empty_slice_is_left_to_constant_folding():
    declines(SLICE, script(f"gv = {cut([-1], [4], [4])}", x=(2, 8)))


def test_a_symbolic_axis_beside_the_cut_one_stays_symbolic():
    before = script(f"y = {cut([1], [0], [6])}", f"gv = {cut([1], [1], [INT64_MAX], x='y')}", x=("n", 8))
    fires(SLICE, before, script(f"gv = {cut([1], [1], [6])}", x=("n", 8)))


def test_a_slice_of_a_whole_symbolic_axis_is_dropped():
    # TVM types it as min(INT64_MAX, n), and what follows too
    before = script(f"y = {cut([0], [0], [INT64_MAX])}", f"gv = {cut([1], [0], [3], x='y')}", x=("n", 8))
    after = CanonicalizeStridedSlice(exclude=["slice-of-slice"])(before)
    calls = [binding.value for binding in after["main"].body.blocks[0].bindings]
    assert [str(call.op.name) for call in calls] == ["relax.strided_slice"]
    assert calls[0].args[0].same_as(after["main"].params[0])
    check_equivalent(before, after, random_inputs(before), exact=True)
    relax.analysis.well_formed(after)


@pytest.mark.parametrize("end", [2**31 - 1, 100])
def test_a_bound_that_a_symbolic_axis_may_exceed_is_one(end):
    declines(SLICE, script(f"gv = {cut([0], [0], [end])}", x=("n", 8)))


def test_a_cut_of_a_symbolic_axis_is_left_alone():
    declines(SLICE, script(f"gv = {cut([0], [0], [2])}", x=("n", 8)))


# -- slices of slices, split items, takes ---------------------------------------------------------------


def test_slices_of_two_axes_become_one():
    before = script(f"y = {cut([0], [1], [3])}", f"gv = {cut([1], [2], [6], x='y')}", x=(4, 8))
    fires(SLICE, before, script(f"gv = {cut([0, 1], [1, 2], [3, 6])}", x=(4, 8)))


def test_a_slice_of_a_slice_reads_the_operand_though_the_first_is_used_elsewhere():
    before = script(f"y = {cut([1], [1], [8], [2])}", f"z = {cut([1], [3], [0], [-2], x='y')}", "gv = (y, z)", x=(2, 8))
    after = script(f"y = {cut([1], [1], [8], [2])}", f"z = {cut([1], [7], [-9], [-4])}", "gv = (y, z)", x=(2, 8))
    fires(SLICE, before, after)


def test_slices_that_undo_each_other_vanish():
    reverse = ([1], [7], [-9], [-1])
    before = script(f"y = {cut(*reverse)}", f"z = {cut(*reverse, x='y')}", "gv = R.nn.relu(z)", x=(2, 8))
    fires(SLICE, before, script("gv = R.nn.relu(x)", x=(2, 8)))


def test_a_slice_of_a_split_item_is_one_of_the_operand():
    before = script("sp = R.split(x, [2, 6], -1)", f"gv = {cut([1], [1], [3], x='sp[1]')}", x=(2, 8))
    fires(SLICE, before, script(f"gv = {cut([1], [3], [5])}", x=(2, 8)))


def test_a_slice_of_a_take_takes_less():
    before = script(
        "y = R.take(x, R.const([3, 0, 2, 2], 'int64'), axis=1)", f"gv = {cut([1], [1], [4], [2], x='y')}", x=(2, 4)
    )
    fires(SLICE, before, script("gv = R.take(x, R.const([0, 2], 'int64'), axis=1)", x=(2, 4)))


@pytest.mark.parametrize(
    ("indices", "window"),
    [
        ("[3, 0, 2]", ([0], [0], [1])),  # another axis is cut
        ("[[3, 0, 2], [1, 1, 0]]", ([1], [0], [1])),  # the axis of the take is two axes of its result
    ],
)
def test_a_slice_of_a_take_on_another_axis_stays(indices, window):
    declines(
        SLICE, script(f"y = R.take(x, R.const({indices}, 'int64'), axis=1)", f"gv = {cut(*window, x='y')}", x=(4, 4))
    )


# -- slices of concats -----------------------------------------------------------------------------------


def test_a_slice_within_one_operand_of_a_concat_reads_it():
    before = script(
        "c = R.concat((x, y), -1)", f"a = {cut([1], [6], [2], [-2], x='c')}", "gv = (c, a)", x=(2, 2), y=(2, 6)
    )
    after = script(
        "c = R.concat((x, y), -1)", f"a = {cut([1], [4], [0], [-2], x='y')}", "gv = (c, a)", x=(2, 2), y=(2, 6)
    )
    fires(SLICE, before, after)


def test_a_slice_that_is_an_operand_of_a_concat_is_that_operand():
    before = script(
        "c = R.concat((x, y), 1)", f"z = {cut([1], [2], [8], x='c')}", "gv = R.nn.relu(z)", x=(2, 2), y=(2, 6)
    )
    fires(SLICE, before, script("gv = R.nn.relu(y)", x=(2, 2), y=(2, 6)))


def test_a_slice_over_operands_of_a_concat_is_a_concat_of_less():
    before = script("c = R.concat((x, y, x), 1)", f"gv = {cut([1], [1], [10], x='c')}", x=(2, 4), y=(2, 6))
    fires(SLICE, before, script(f"a = {cut([1], [1], [4])}", "gv = R.concat((a, y), 1)", x=(2, 4), y=(2, 6)))


@pytest.mark.parametrize(
    ("window", "result"),
    [
        (([1], [1], [10]), "(c, s)"),  # the concat is used elsewhere
        (([1], [1], [10], [2]), "(s,)"),  # strides over two operands
        (([0, 1], [0, 1], [1, 10]), "(s,)"),  # both would be cut twice
        (([0], [0], [1]), "(s,)"),  # another axis
    ],
)
def test_a_slice_over_operands_that_would_cost_more_stays(window, result):
    declines(
        SLICE, script("c = R.concat((x, y), 1)", f"s = {cut(*window, x='c')}", f"gv = {result}", x=(2, 4), y=(2, 6))
    )


def test_a_slice_of_a_concat_of_symbolic_extents_stays():
    declines(SLICE, script("c = R.concat((x, y), 0)", f"gv = {cut([1], [0], [1], x='c')}", x=("n", 4), y=(2, 4)))


# -- flip ------------------------------------------------------------------------------------------------


def test_a_flip_is_a_slice_that_runs_backwards():
    fires(SLICE, script("gv = R.flip(x, -1)", x=("n", 8)), script(f"gv = {cut([1], [7], [-9], [-1])}", x=("n", 8)))


def test_two_flips_of_one_axis_vanish_though_it_is_symbolic():
    before = script("y = R.flip(x, 0)", "z = R.flip(y, -2)", "gv = R.nn.relu(z)", x=("n", 8))
    fires(SLICE, before, script("gv = R.nn.relu(x)", x=("n", 8)))


def test_a_flip_of_a_symbolic_axis_stays():
    declines(SLICE, script("y = R.flip(x, 0)", "gv = R.nn.relu(y)", x=("n", 8)))


def test_a_flip_of_a_single_element_is_dropped():
    fires(SLICE, script("y = R.flip(x, 0)", "gv = R.nn.relu(y)", x=(1, 8)), script("gv = R.nn.relu(x)", x=(1, 8)))


# -- slice_scatter ---------------------------------------------------------------------------------------


def test_a_slice_scatter_is_a_concat():
    before = script("gv = R.slice_scatter(x, y, 1, 3, 1, axis=-1)", x=("n", 8), y=("n", 2))
    after = script(
        f"a = {cut([1], [0], [1])}", f"b = {cut([1], [3], [8])}", "gv = R.concat((a, y, b), 1)", x=("n", 8), y=("n", 2)
    )
    fires(SLICE, before, after)


def test_a_slice_scatter_at_an_end_keeps_one_part():
    outside = script("gv = R.slice_scatter(x, y, 5, 7, 2, axis=1)", x=(2, 6), y=(2, 1))
    declines(SLICE, outside)  # TVM's kernel does not clamp
    before = script("gv = R.slice_scatter(x, y, 5, 6, 2, axis=1)", x=(2, 6), y=(2, 1))
    fires(SLICE, before, script(f"a = {cut([1], [0], [5])}", "gv = R.concat((a, y), 1)", x=(2, 6), y=(2, 1)))


def test_a_slice_scatter_over_everything_is_what_is_written():
    before = script("z = R.slice_scatter(x, y, 0, 6, 1, axis=1)", "gv = R.nn.relu(z)", x=(2, 6), y=(2, 6))
    fires(SLICE, before, script("gv = R.nn.relu(y)", x=(2, 6), y=(2, 6)))


@pytest.mark.parametrize(("start", "end", "step"), [(0, 4, 2), (-4, -2, 1)])
def test_a_slice_scatter_with_gaps_or_bounds_from_the_end_stays(start, end, step):
    declines(SLICE, script(f"gv = R.slice_scatter(x, y, {start}, {end}, {step}, axis=1)", x=(2, 6), y=(2, 2)))


# -- the pass --------------------------------------------------------------------------------------------


def test_rules_are_left_out_by_name_and_counted():
    before = script(f"gv = {cut([-1], [0], [4])}", x=(2, 8))
    declines(CanonicalizeStridedSlice(exclude=["slice-normal-form"]), before)
    stats = RewriteStats()
    CanonicalizeStridedSlice(stats=stats)(before)
    assert stats.rules["slice-normal-form"].fired == stats.fired == 1
    with pytest.raises(UnknownNameError, match="slice-normal-from"):
        CanonicalizeStridedSlice(exclude=["slice-normal-from"])


# -- the closed formulas, against index maps -------------------------------------------------------------

BOUND = st.integers(-12, 12)
STRIDE = st.integers(-3, 3).filter(bool)
EXTENT = st.integers(1, 9)


@given(EXTENT, BOUND, BOUND, STRIDE)
@settings(derandomize=True, max_examples=300)
def test_a_window_counts_as_numpy_does(extent, begin, end, stride):
    first, size, step = slice_window(extent, begin, end, stride)
    want = np.arange(extent)[begin:end:stride]
    assert [first + step * k for k in range(size)] == want.tolist()


@given(st.data())
@settings(derandomize=True, max_examples=200)
def test_a_slice_of_a_slice_is_the_composition_of_their_index_maps(data):
    shape = data.draw(st.tuples(EXTENT, EXTENT))
    first = data.draw(slices(shape))
    then = data.draw(slices(first.size))
    both = index_map(first, [shape]).ravel()[index_map(then, [first.size])]
    assert np.array_equal(index_map(compose_slices(first, then), [shape]), both)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float16"])
def test_movements_are_rewritten_for_every_dtype(dtype):
    lines = (
        "p = R.nn.pad(x, [0, 0, 2, 1])",
        f"f = {cut([1], [9], [-12], [-1], x='p')}",
        f"gv = {cut([1], [1], [8], x='f')}",
    )
    fires(
        SLICE, script(*lines, dtype=dtype, x=(3, 8)), script(f"gv = {cut([1], [6], [-9], [-1])}", dtype=dtype, x=(3, 8))
    )


# -- slices before reductions and products ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (
            ["y = R.sum(x, axis=[2])", "gv = R.strided_slice(y, [1], [1], [3])"],
            ["y = R.strided_slice(x, [1], [1], [3])", "gv = R.sum(y, axis=[2])"],
        ),
        (
            ["y = R.max(x, axis=[0], keepdims=True)", "gv = R.strided_slice(y, [-1], [0], [6], [2])"],
            ["y = R.strided_slice(x, [2], [0], [6], [2])", "gv = R.max(y, axis=[0], keepdims=True)"],
        ),
    ],
)
def test_a_slice_goes_before_a_reduction(lines: list[str], wanted: list[str]) -> None:
    fires(CanonicalizeStridedSlice(), script(*lines, x=(2, 4, 6)), script(*wanted, x=(2, 4, 6)))


@pytest.mark.parametrize(
    ("cut", "wanted"),
    [
        ("[1], [0], [2]", ["a = R.strided_slice(x, [1], [0], [2])", "gv = R.matmul(a, y)"]),
        ("[2], [1], [4]", ["a = R.strided_slice(y, [1], [1], [4])", "gv = R.matmul(x, a)"]),
        ("[0], [1], [2]", ["a = R.strided_slice(x, [0], [1], [2])", "gv = R.matmul(a, y)"]),
    ],
    ids=["rows", "columns", "batch"],
)
def test_a_slice_goes_before_a_product(cut: str, wanted: list[str]) -> None:
    shapes = {"x": (2, 3, 5), "y": (5, 4)}
    before = script("z = R.matmul(x, y)", f"gv = R.strided_slice(z, {cut})", **shapes)
    fires(CanonicalizeStridedSlice(), before, script(*wanted, **shapes), exact=False)


@pytest.mark.parametrize("op", ["R.sum(x, axis=[2])", "R.matmul(x, x)"])
def test_what_is_read_elsewhere_is_not_cut_before(op: str) -> None:
    lines = [f"y = {op}", "a = R.strided_slice(y, [1], [0], [2])", "b = R.strided_slice(y, [1], [1], [3])"]
    declines(CanonicalizeStridedSlice(), script(*lines, "gv = R.add(a, b)", x=(4, 4, 4)))


def test_a_product_with_a_vector_is_not_cut_before() -> None:
    lines = ["z = R.matmul(x, y)", "gv = R.strided_slice(z, [0], [0], [2])"]
    declines(CanonicalizeStridedSlice(), script(*lines, x=(3, 5), y=(5,)))
