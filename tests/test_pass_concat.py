from itertools import permutations, product

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from pass_case import declines, fires
from script_case import script
from tvm import relax

from relax_glue.movement import Permute, Reshape, Slice, index_map
from relax_glue.passes import CanonicalizeConcat
from relax_glue.passes.concat import SMALL, _continued
from relax_glue.passes.interleave import _order, _phases_to_axis

CONCAT = CanonicalizeConcat()


# -- operands --------------------------------------------------------------------------------------------


def test_a_concat_of_one_operand_is_dropped():
    fires(
        CONCAT,
        script("y = R.concat((x,), 1)", "gv = R.nn.relu(y)", x=("n", 4)),
        script("gv = R.nn.relu(x)", x=("n", 4)),
    )


def test_a_concat_of_different_operands_stays():
    declines(CONCAT, script("gv = R.concat((x, y), -1)", x=("n", 4), y=("n", 5)))


def test_empty_operands_are_left_out():
    before = script("gv = R.concat((x, y, z), 1)", x=(2, 4), y=(2, 0), z=(2, 3))
    after = script("gv = R.concat((x, z), 1)", x=(2, 4), y=(2, 0), z=(2, 3))
    # a tensor of no elements cannot be drawn with distinct ones, nor need it be
    fires(CONCAT, before, after, [np.ones((2, 4), "float32"), np.ones((2, 0), "float32"), np.zeros((2, 3), "float32")])


def test_a_concat_in_a_concat_is_one():
    before = script("c = R.concat((x, y), -1)", "gv = R.concat((y, c, x), 1)", x=("n", 4), y=("n", 5))
    fires(CONCAT, before, script("gv = R.concat((y, x, y, x), 1)", x=("n", 4), y=("n", 5)))


@pytest.mark.parametrize(
    "lines",
    [
        ("c = R.concat((x, y), 1)", "d = R.concat((c, x), 1)", "gv = (c, d)"),  # a result
        ("c = R.concat((x, y), 1)", "d = R.concat((c, x, c), 1)", "gv = d"),  # twice
        ("c = R.concat((x, y), 0)", "gv = R.concat((c, c), 1)"),  # another axis
    ],
)
def test_a_concat_in_a_concat_stays(lines):
    declines(CONCAT, script(*lines, x=(4, 4), y=(4, 4)))


# -- adjacent slices -------------------------------------------------------------------------------------


def test_a_concat_of_a_split_is_the_operand_though_an_item_is_used_elsewhere():
    before = script(
        "sp = R.split(x, 2, 1)", "c = R.concat((sp[0], sp[1]), -1)", "gv = (sp[0], R.nn.relu(c))", x=("n", 8)
    )
    after = script("sp = R.split(x, 2, 1)", "gv = (sp[0], R.nn.relu(x))", x=("n", 8))
    fires(CONCAT, before, after)


def test_items_in_another_order_are_no_identity():
    declines(CONCAT, script("sp = R.split(x, 2, 1)", "gv = R.concat((sp[1], sp[0]), 1)", x=(2, 8)))


def test_items_of_two_splits_are_no_identity():
    lines = ("a = R.split(x, 2, 1)", "b = R.split(y, 2, 1)", "gv = R.concat((a[0], b[1]), 1)")
    declines(CONCAT, script(*lines, x=(2, 8), y=(2, 8)))


def test_items_put_together_along_another_axis_are_no_identity():
    # on axis 1 the two halves would be the operand; on axis 0 they are a transpose of it
    before = script("sp = R.split(x, 2, 1)", "gv = R.concat((sp[0], sp[1]), 0)", x=(2, 8))
    declines(CONCAT, before)


def test_a_run_of_items_is_one_slice():
    before = script("sp = R.split(x, [2, 4, 6], 1)", "gv = R.concat((sp[1], sp[2], y, sp[0]), 1)", x=(2, 8), y=(2, 1))
    after = script(
        "sp = R.split(x, [2, 4, 6], 1)",
        "first = sp[0]",
        "s = R.strided_slice(x, [1], [2], [6])",
        "gv = R.concat((s, y, first), 1)",
        x=(2, 8),
        y=(2, 1),
    )
    fires(CONCAT, before, after)


def test_a_run_of_slices_that_others_use_stays():
    declines(
        CONCAT,
        script("sp = R.split(x, [2, 4], 1)", "c = R.concat((sp[0], sp[1]), 1)", "gv = (sp[0], sp[2], c)", x=(2, 8)),
    )


def test_strided_slices_continue_at_their_stride():
    before = script(
        "a = R.strided_slice(x, [1], [7], [4], [-2])",
        "b = R.strided_slice(x, [1], [3], [4])",  # a single element goes with any stride
        "gv = R.concat((a, b), 1)",
        x=(2, 8),
    )
    after = script("gv = R.strided_slice(x, [1], [7], [1], [-2])", x=(2, 8))
    fires(CONCAT, before, after)


def test_single_channels_backwards_are_one_slice():
    before = script(
        "r = R.strided_slice(x, [1], [0], [1])",
        "g = R.strided_slice(x, [1], [1], [2])",
        "b = R.strided_slice(x, [1], [2], [3])",
        "gv = R.concat((b, g, r), 1)",
        x=("n", 3, 4),
    )
    fires(CONCAT, before, script("gv = R.strided_slice(x, [1], [2], [-4], [-1])", x=("n", 3, 4)))


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (([1], [0], [3]), ([1], [4], [8])),  # a gap
        (([1], [0], [4]), ([1], [3], [8])),  # an overlap
        (([1], [0], [4]), ([1], [4], [8], [2])),  # another stride
        (([0, 1], [0, 0], [1, 4]), ([0, 1], [1, 4], [2, 8])),  # another row
    ],
)
def test_slices_that_are_not_adjacent_stay(first, then):
    lines = [f"{name} = R.strided_slice(x, {', '.join(map(str, args))})" for name, args in (("a", first), ("b", then))]
    declines(CONCAT, script(*lines, "gv = R.concat((a, b), 1)", x=(2, 8)))


@given(
    st.integers(0, 9),
    st.integers(1, 4),
    st.sampled_from([-3, -2, -1, 1, 2, 3]),
    st.integers(-3, 12),
    st.integers(1, 4),
    st.sampled_from([-2, -1, 1, 2, 3]),
)
@settings(derandomize=True, max_examples=400)
def test_one_slice_continues_another_if_the_elements_do(b1, n1, s1, b2, n2, s2):
    first = Slice((b1,), (n1,), (s1 if n1 > 1 else 1,))
    then = Slice((b2,), (n2,), (s2 if n2 > 1 else 1,))
    elements = [b1 + first.stride[0] * k for k in range(n1)] + [b2 + then.stride[0] * k for k in range(n2)]
    steps = set(np.diff(elements).tolist())
    found = _continued(first, then, 0)
    assert (found is not None) == (len(steps) == 1 and 0 not in steps)
    if found is not None:
        assert [found.begin[0] + found.stride[0] * k for k in range(found.size[0])] == elements


# -- copies and constants --------------------------------------------------------------------------------


def test_copies_of_an_extent_of_one_are_a_broadcast():
    before = script("gv = R.concat((x, x, x), -1)", x=("n", 1))
    fires(CONCAT, before, script("gv = R.broadcast_to(x, (n, 3))", x=("n", 1)))


def test_copies_of_more_than_one_element_stay():
    declines(CONCAT, script("gv = R.concat((x, x), 1)", x=(2, 2)))
    declines(CONCAT, script("gv = R.concat((x, y), 1)", x=(2, 1), y=(2, 1)))


def test_constants_that_stand_together_are_one():
    c = "R.const([[{}]], 'float32')"
    before = script(f"gv = R.concat((x, {c.format('1, 2')}, {c.format('3')}, x), 1)", x=(1, 4))
    fires(CONCAT, before, script(f"gv = R.concat((x, {c.format('1, 2, 3')}, x), 1)", x=(1, 4)))


def shared_constants(size):
    big, x = relax.const(np.arange(size, dtype="float32")), relax.Var("x", relax.TensorType((4,), "float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            joined = bb.emit(relax.op.concat([x, big, big]))
            out = bb.emit_output(relax.Tuple([joined, big]))
        bb.emit_func_output(out)
    return bb.get()


def test_large_constants_with_other_users_are_not_copied():
    declines(CONCAT, shared_constants(SMALL // 4))
    few = CONCAT(shared_constants(SMALL // 8))
    tvm.ir.assert_structural_equal(few["main"].ret_ty, shared_constants(SMALL // 8)["main"].ret_ty)
    assert len(few["main"].body.blocks[0].bindings[0].value.args[0].fields) == 2


# -- stack -----------------------------------------------------------------------------------------------


def test_a_stack_is_reshapes_and_a_concat():
    before = script("gv = R.stack((x, y), -1)", x=("n", 4), y=("n", 4))
    after = script(
        "a = R.reshape(x, (n, 4, 1))", "b = R.reshape(y, (n, 4, 1))", "gv = R.concat((a, b), 2)", x=("n", 4), y=("n", 4)
    )
    fires(CONCAT, before, after)


def test_a_stack_of_copies_is_a_broadcast():
    before = script("gv = R.stack((x, x, x), 1)", x=("n", 4))
    fires(CONCAT, before, script("a = R.reshape(x, (n, 1, 4))", "gv = R.broadcast_to(a, (n, 3, 4))", x=("n", 4)))


def test_a_stack_that_is_reduced_is_left_to_become_a_binary_operator():
    declines(CONCAT, script("a = R.stack((x, y), 0)", "gv = R.max(a, 0)", x=("n", 4), y=("n", 4)))


def test_a_stack_of_one_is_a_reshape():
    fires(CONCAT, script("gv = R.stack((x,), 0)", x=("n", 4)), script("gv = R.reshape(x, (1, n, 4))", x=("n", 4)))


# -- interleaved slices ----------------------------------------------------------------------------------


def phases(order, axes, step=2, size=8):
    lines, names = [], []
    for k, phase in enumerate(order):
        names.append(f"s{k}")
        ends = [size] * len(axes)
        lines.append(f"s{k} = R.strided_slice(x, {list(axes)}, {list(phase)}, {ends}, {[step] * len(axes)})")
    return lines, ", ".join(names)


SWIN = [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_patch_merging_is_a_transpose():
    lines, names = phases(SWIN, (1, 2))
    before = script(*lines, f"gv = R.concat(({names}), -1)", x=("n", 8, 8, 3))
    after = script(
        "a = R.reshape(x, (n, 4, 2, 4, 2, 3))",
        "b = R.permute_dims(a, [0, 1, 3, 4, 2, 5])",
        "gv = R.reshape(b, (n, 4, 4, 12))",
        x=("n", 8, 8, 3),
    )
    fires(CONCAT, before, after)


def test_a_focus_layer_is_a_transpose():
    lines, names = phases(SWIN, (2, 3))
    before = script(*lines, f"gv = R.concat(({names}), 1)", x=(1, 3, 8, 8))
    after = script(
        "a = R.reshape(x, (1, 3, 4, 2, 4, 2))",
        "b = R.permute_dims(a, [0, 5, 3, 1, 2, 4])",
        "gv = R.reshape(b, (1, 12, 4, 4))",
        x=(1, 3, 8, 8),
    )
    fires(CONCAT, before, after)


def test_patches_of_the_whole_extent_have_no_stride_left():
    lines, names = phases(SWIN, (1, 2), size=2)
    before = script(*lines, f"gv = R.concat(({names}), 3)", x=(5, 2, 2, 3))
    after = script(
        "a = R.reshape(x, (5, 1, 2, 1, 2, 3))",
        "b = R.permute_dims(a, [0, 1, 3, 4, 2, 5])",
        "gv = R.reshape(b, (5, 1, 1, 12))",
        x=(5, 2, 2, 3),
    )
    fires(CONCAT, before, after)


def test_even_and_odd_elements_are_a_transpose_of_two():
    lines, names = phases([(0,), (1,)], (1,))
    before = script(*lines, f"gv = R.concat(({names}), 1)", x=(2, 8))
    after = script(
        "a = R.reshape(x, (2, 4, 2))", "b = R.permute_dims(a, [0, 2, 1])", "gv = R.reshape(b, (2, 8))", x=(2, 8)
    )
    fires(CONCAT, before, after)


@pytest.mark.parametrize(
    ("order", "step", "size"),
    [
        ([(0, 0), (1, 0), (1, 1), (0, 1)], 2, 8),  # no order of nested loops
        ([(0, 0), (1, 0), (0, 1)], 2, 8),  # one phase is missing
        ([(0, 0), (1, 0), (0, 1), (0, 1)], 2, 8),  # one phase comes twice
        (SWIN, 2, 6),  # the last rows and columns are left out
    ],
)
def test_other_strided_slices_stay(order, step, size):
    lines, names = phases(order, (1, 2), step, size=size)
    declines(CONCAT, script(*lines, f"gv = R.concat(({names}), 3)", x=(1, 8, 8, 3)))


def test_interleaved_slices_that_others_use_stay():
    lines, names = phases(SWIN, (1, 2))
    declines(CONCAT, script(*lines, f"c = R.concat(({names}), 3)", "gv = (c, s1)", x=(1, 8, 8, 3)))


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("strided", [(0,), (1,), (0, 2), (2, 1), (0, 1, 2)])
def test_phases_to_an_axis_move_what_the_slices_and_the_concat_move(strided, axis):
    shape, steps = (4, 6, 8), dict(zip(strided, (2, 3, 4), strict=False))
    steps = {a: s for a, s in steps.items() if shape[a] % s == 0}
    for order in permutations(steps):
        cuts = []
        for phase in product(*(range(steps[a]) for a in order)):
            cut = Slice.whole(shape)
            for a, begin in zip(order, phase, strict=True):
                cut = cut.with_axis(a, begin, shape[a] // steps[a], steps[a])
            cuts.append(cut)
        assert _order(cuts, steps) == order
        want = np.concatenate([index_map(cut, [shape]) for cut in cuts], axis)
        split, axes = _phases_to_axis(shape, steps, order, axis)
        moved = index_map(Permute(axes), [split])
        assert np.array_equal(Reshape(want.shape).apply(moved), want)


# -- all the elements of an axis -------------------------------------------------------------------------


def elements(count, axis, shape, order=None):
    lines = []
    for k, element in enumerate(order or range(count)):
        lines.append(f"e{k} = R.strided_slice(x, [{axis}], [{element}], [{element + 1}])")
        lines.append(f"r{k} = R.reshape(e{k}, {shape})")
    return lines, "(" + "".join(f"r{k}, " for k in range(count)) + ")"


@pytest.mark.parametrize("axis", range(3))
def test_unbind_and_stack_move_an_axis(axis):
    lines, names = elements(3, 1, "(n, 4)")
    before = script(*lines, f"gv = R.stack({names}, {axis})", x=("n", 3, 4))
    after = {
        0: ("gv = R.permute_dims(x, [1, 0, 2])",),
        1: ("gv = R.nn.relu(x)",),
        2: ("gv = R.permute_dims(x, [0, 2, 1])",),
    }[axis]
    if axis == 1:
        before = script(*lines, f"y = R.stack({names}, 1)", "gv = R.nn.relu(y)", x=("n", 3, 4))
    fires(CONCAT, before, script(*after, x=("n", 3, 4)))


def test_unbind_and_concat_merge_an_axis_into_another():
    lines, names = elements(3, 0, "(2, 4)")
    before = script(*lines, f"gv = R.concat({names}, 1)", x=(3, 2, 4))
    after = script("a = R.permute_dims(x, [1, 0, 2])", "gv = R.reshape(a, (2, 12))", x=(3, 2, 4))
    fires(CONCAT, before, after)


@pytest.mark.parametrize(
    ("count", "order", "shape"),
    [
        (3, (1, 0, 2), "(2, 4)"),  # out of order
        (2, None, "(2, 4)"),  # not all
        (3, None, "(4, 2)"),  # reshaped otherwise as well
    ],
)
def test_other_elements_stay(count, order, shape):
    lines, names = elements(count, 0, shape, order)
    declines(CONCAT, script(*lines, f"gv = R.concat({names}, 1)", x=(3, 2, 4)))
