"""Permutes moved past clusters of operators: where they go, where they stay, and that it never costs more."""

from __future__ import annotations

import ast

import numpy as np
import pytest
import tvm
from build_case import build
from motion_case import DrawnCluster, check_random_clusters, nodes_of
from pass_case import declines, fires, random_inputs
from script_case import cut, script
from tvm import relax

import relax_glue
from relax_glue.movement import Permute, permute_keeps_order
from relax_glue.passes import CancelPermuteDims, SinkPermuteDims
from relax_glue.passes.axis_order import renamed
from relax_glue.rewrite import EXACT, RewriteStats
from relax_glue.testing import Pair, check_many

SINK = SinkPermuteDims()
X, LAST = (1, 3, 4, 5), "[0, 2, 3, 1]"  # NCHW, and the axes that put the channels last
FIRST = "[0, 3, 1, 2]"


def between(*lines: str, x=X, back: str = FIRST, **params) -> tvm.IRModule:
    """Return a module that permutes x to y, runs `lines` up to z, and permutes z."""
    return script(f"y = R.permute_dims(x, {LAST})", *lines, f"gv = R.permute_dims(z, {back})", x=x, **params)


# -- each operator that follows --------------------------------------------------------------------------

FOLLOWS = {
    "unary": ("R.exp(y)", "R.exp(x)"),
    "cast": ("R.astype(y, 'float16')", "R.astype(x, 'float16')"),
    "clip": ("R.clip(y, R.prim_value(0), R.prim_value(2))", "R.clip(x, R.prim_value(0), R.prim_value(2))"),
    "scalar": ("R.add(y, R.const(2, 'float32'))", "R.add(x, R.const(2, 'float32'))"),
    "one operand twice": ("R.multiply(y, y)", "R.multiply(x, x)"),
    "comparison": ("R.where(R.less(y, y), y, y)", None),
    "softmax": ("R.nn.softmax(y, axis=-1)", "R.nn.softmax(x, axis=1)"),
    "log softmax": ("R.nn.log_softmax(y, axis=1)", "R.nn.log_softmax(x, axis=2)"),
    "sum": ("R.sum(y, axis=[-1], keepdims=True)", "R.sum(x, axis=[1], keepdims=True)"),
    "max": ("R.max(y, axis=[1, 3], keepdims=True)", "R.max(x, axis=[1, 2], keepdims=True)"),
    "concat": ("R.concat((y, y), axis=3)", "R.concat((x, x), axis=1)"),
    "concat, counted from the back": ("R.concat((y, y), axis=-2)", "R.concat((x, x), axis=3)"),
    "running sum": ("R.cumsum(y, axis=3)", "R.cumsum(x, axis=1)"),
    "running product": (
        "R.cumprod(y, axis=-2, dtype='float32', exclusive=True)",
        "R.cumprod(x, axis=3, dtype='float32', exclusive=True)",
    ),
    "flip": ("R.flip(y, axis=1)", "R.flip(x, axis=2)"),
    "repeat": ("R.repeat(y, 2, axis=3)", "R.repeat(x, 2, axis=1)"),
    "tile": ("R.tile(y, [1, 2, 1, 3])", "R.tile(x, [1, 3, 2, 1])"),
    "slice": (cut([1, 3], [1, 0], [4, 2], x="y"), cut([1, 2], [0, 1], [2, 4])),
    "slice backwards": (cut([1], [3], [-5], [-2], x="y"), cut([2], [3], [-5], [-2])),
    "pad": (
        "R.nn.pad(y, [0, 0, 1, 2, 0, 0, 3, 0], pad_value=1.5)",
        "R.nn.pad(x, [0, 0, 3, 0, 1, 2, 0, 0], pad_value=1.5)",
    ),
    "mirror": (
        "R.nn.pad(y, [0, 0, 0, 0, 2, 1, 0, 0], pad_mode='reflect')",
        "R.nn.pad(x, [0, 0, 0, 0, 0, 0, 2, 1], pad_mode='reflect')",
    ),
    "take": (
        "R.take(y, R.const([3, 0], 'int64'), axis=2)",
        "R.take(x, R.const([3, 0], 'int64'), axis=3)",
    ),
}


@pytest.mark.parametrize("name", FOLLOWS)
def test_two_permutes_go_around_an_operator(name):
    inner, expected = FOLLOWS[name]
    before = between(f"z = {inner}")
    if expected is None:
        after = SINK(before)
        assert not permutes(after)
        check_many([Pair(before, after, random_inputs(before))])
        return
    fires(SINK, before, script(f"gv = {expected}", x=X))


def test_a_slope_goes_with_its_axis():
    before = between("z = R.nn.prelu(y, s, axis=3)", s=(3,))
    fires(SINK, before, script("gv = R.nn.prelu(x, s, axis=1)", x=X, s=(3,)))


def test_a_quantisation_goes_with_its_axis():
    made = "R.quantize({0}, s, R.const([0, 0, 0], 'int8'), axis={1}, out_dtype='int8')"
    before = between(f"z = {made.format('y', -1)}", s=(3,))
    inputs = [np.ones(X, "float32"), np.ones(3, "float32")]
    fires(SINK, before, script(f"gv = {made.format('x', 1)}", x=X, s=(3,)), inputs=inputs)


CHANNEL = "R.const([1, 2, 3], 'float32'), R.const([0, 1, 0], 'float32')"
NORMS = {
    "rows that stay rows": (
        "[0, 2, 1, 3]",
        "R.nn.layer_norm(y, w, b, axes=[-1], epsilon=0.5)",
        "R.nn.layer_norm(x, w, b, axes=[3], epsilon=0.5)",
    ),
    "rows by their root mean square": (
        "[0, 2, 1, 3]",
        "R.nn.rms_norm(y, w, axes=[-1], epsilon=0.5)",
        "R.nn.rms_norm(x, w, axes=[3], epsilon=0.5)",
    ),
    "channels that come first": (
        LAST,
        f"R.nn.instance_norm(y, {CHANNEL}, channel_axis=3, axes=[1, 2])",
        f"R.nn.instance_norm(x, {CHANNEL}, channel_axis=1, axes=[2, 3])",
    ),
    "groups": (
        LAST,
        f"R.nn.group_norm(y, {CHANNEL}, num_groups=3, channel_axis=-1, axes=[1, 2])",
        f"R.nn.group_norm(x, {CHANNEL}, num_groups=3, channel_axis=1, axes=[2, 3])",
    ),
}


@pytest.mark.parametrize("name", NORMS)
def test_a_normalisation(name):
    order, inner, expected = NORMS[name]
    back = str([ast.literal_eval(order).index(a) for a in range(4)])
    params = {p: (5,) for p in ("w", "b") if f" {p}," in inner}
    before = script(f"y = R.permute_dims(x, {order})", f"z = {inner}", f"gv = R.permute_dims(z, {back})", x=X, **params)
    inputs = [np.random.default_rng(0).normal(size=s).astype("float32") for s in (X, *params.values())]
    fires(SINK, before, script(f"gv = {expected}", x=X, **params), inputs=inputs, exact=False)


def test_parameters_over_several_axes_are_permuted_with_them():
    values = [[1, 2, 3]] * 5
    line = f"R.nn.layer_norm(y, R.const({values}, 'float32'), R.const({values}, 'float32'), axes=[2, 3])"
    before = between(f"z = {line}")
    after = SINK(before)
    assert not permutes(after)
    assert [n.array.shape for n in nodes_of(after) if n.op == "constant"] == [(3, 5)]
    check_many([Pair(before, after, [np.random.default_rng(0).normal(size=X).astype("float32")], exact=False)])
    # a mean over two axes is made in another order
    declines(SinkPermuteDims(soundness=[EXACT]), before)
    # and what the model is given would be permuted while it runs
    declines(SINK, between("z = R.nn.layer_norm(y, w, w, axes=[2, 3])", w=(5, 3)))


@pytest.mark.parametrize(
    "line",
    [
        f"R.nn.layer_norm(y, {CHANNEL}, axes=[-1])",
        "R.nn.rms_norm(y, R.const([1, 2, 3], 'float32'), axes=[-1])",
        "R.nn.instance_norm(y, R.const([1] * 4, 'float32'), R.const([1] * 4, 'float32'), channel_axis=1, axes=[2, 3])",
    ],
)
def test_a_normalisation_that_is_one_layer_stays_one(line):
    declines(SINK, between(f"z = {line.replace('[1] * 4', '[1, 1, 1, 1]')}"))


def test_cancelling_wants_fewer_permutes():
    cancel = CancelPermuteDims()
    fires(cancel, between("z = R.exp(y)", "z = R.add(z, z)"), script("z = R.exp(x)", "gv = R.add(z, z)", x=X))
    two = script(f"a = R.permute_dims(x, {LAST})", f"b = R.permute_dims(y, {LAST})", "gv = R.add(a, b)", x=X, y=X)
    fires(cancel, two, script("z = R.add(x, y)", f"gv = R.permute_dims(z, {LAST})", x=X, y=X))
    # sinking would move fewer bytes, with one permute as before
    declines(cancel, script(f"y = R.permute_dims(x, {LAST})", f"gv = {cut([1], [0], [1], x='y')}", x=X))
    stats = RewriteStats()
    CancelPermuteDims(stats=stats)(script(f"y = R.permute_dims(x, {LAST})", "gv = R.exp(y)", x=X))
    assert list(stats.of("cancel-permute-dims").declined.values()) == [1]


def test_cancelling_does_not_part_a_layer_from_its_bias():
    def make(emit, x, y, w):
        layer = emit(relax.op.matmul(x, w))
        a = emit(relax.op.permute_dims(emit(relax.op.nn.relu(layer)), [0, 2, 1]))
        return emit(relax.op.add(a, emit(relax.op.permute_dims(y, [0, 2, 1]))))

    after = CancelPermuteDims()(build(make, x=(2, 3, 4), y=(2, 3, 5), w=(4, 5)))
    (moved,) = [n for n in nodes_of(after) if n.op == "relax.permute_dims"]
    assert moved.inputs[0].op == "relax.add"


def test_cancelling_is_on_by_default():
    assert "permute_dims" not in relax_glue.canonicalize(between("z = R.exp(y)")).script()
    left = relax_glue.canonicalize(between("z = R.exp(y)"), disable=["CancelPermuteDims"])
    assert left.script().count("permute_dims") == 2


def test_a_broadcast_of_extents_of_1():
    before = between("z = R.broadcast_to(y, R.shape([2, 4, 5, 3]))")
    fires(SINK, before, script("gv = R.broadcast_to(x, R.shape([2, 3, 4, 5]))", x=X))


@pytest.mark.parametrize("sides", [("y", "c"), ("c", "y")])
def test_a_constant_of_lower_rank_is_lifted_at_the_left_and_permuted(sides):
    constant = f"R.const({[[1, 2, 3]] * 5}, 'float32')"
    before = between(f"z = R.subtract({', '.join(constant if s == 'c' else s for s in sides)})")
    after = SINK(before)
    assert not permutes(after)
    check_many([Pair(before, after, random_inputs(before))])
    constants = [n.array for n in nodes_of(after) if n.op == "constant"]
    assert [c.shape for c in constants] == [(1, 3, 1, 5)]


def test_a_small_operand_gets_the_permute_instead():
    before = between("z = R.add(y, b)", b=(3,))
    after = SINK(before)
    assert not permutes(after)  # (1, 1, 1, 3) to (1, 3, 1, 1) is a reshape
    check_many([Pair(before, after, random_inputs(before))])


def test_a_split_and_its_items():
    before = script(
        f"y = R.permute_dims(x, {LAST})",
        "s = R.split(y, [1, 3], axis=2)",
        "a = R.add(s[0], s[2])",
        f"gv = R.permute_dims(a, {FIRST})",
        x=(1, 3, 4, 4),
    )
    expected = script("s = R.split(x, [1, 3], axis=3)", "gv = R.add(s[0], s[2])", x=(1, 3, 4, 4))
    fires(SINK, before, expected)


def test_an_item_of_a_split_behind_the_permute():
    before = script(
        "s = R.split(x, 2, axis=0)",
        f"y = R.permute_dims(s[1], {LAST})",
        "z = R.exp(y)",
        f"gv = R.permute_dims(z, {FIRST})",
        x=(2, 3, 4, 5),
    )
    fires(SINK, before, script("s = R.split(x, 2, axis=0)", "gv = R.exp(s[1])", x=(2, 3, 4, 5)))


def test_symbolic_extents():
    x = ("n", 3, "h", 5)
    fires(SINK, between("z = R.nn.softmax(y, axis=3)", x=x), script("gv = R.nn.softmax(x, axis=1)", x=x))


# -- where a permute goes --------------------------------------------------------------------------------


def test_two_permutes_meet_behind_a_sum():
    before = script(f"a = R.permute_dims(x, {LAST})", f"b = R.permute_dims(y, {LAST})", "gv = R.add(a, b)", x=X, y=X)
    fires(SINK, before, script("z = R.add(x, y)", f"gv = R.permute_dims(z, {LAST})", x=X, y=X))


def test_a_permute_sinks_below_a_slice_and_rises_above_a_pad():
    sliced = cut([1], [0], [1], x="y")
    before = script(f"y = R.permute_dims(x, {LAST})", f"gv = {sliced}", x=X)
    fires(SINK, before, script(f"z = {cut([2], [0], [1])}", f"gv = R.permute_dims(z, {LAST})", x=X))
    before = script("y = R.nn.pad(x, [0, 0, 1, 1, 0, 0, 0, 0])", f"gv = R.permute_dims(y, {LAST})", x=X)
    fires(SINK, before, script(f"y = R.permute_dims(x, {LAST})", "gv = R.nn.pad(y, [0, 0, 0, 0, 0, 0, 1, 1])", x=X))


def test_a_reduction_that_drops_its_axes_takes_them_as_they_come():
    before = script(f"y = R.permute_dims(x, {LAST})", "z = R.exp(y)", "gv = R.sum(z, axis=[3])", x=X)
    fires(SINK, before, script("z = R.exp(x)", "gv = R.sum(z, axis=[1])", x=X))
    before = script("y = R.permute_dims(x, [0, 3, 2, 1])", "z = R.exp(y)", "gv = R.sum(z, axis=[1])", x=X)
    expected = script("z = R.exp(x)", "s = R.sum(z, axis=[3])", "gv = R.permute_dims(s, [0, 2, 1])", x=X)
    fires(SINK, before, expected)


def test_a_permute_inside_the_cluster_is_between_two_of_its_values():
    # both summands stem from x, one by way of another permute
    before = script(
        f"y = R.permute_dims(x, {LAST})", "z = R.exp(y)", "t = R.permute_dims(z, [0, 2, 1, 3])", "u = R.add(z, t)",
        f"gv = R.permute_dims(u, {FIRST})", x=(1, 3, 4, 4),
    )  # fmt: skip
    expected = script("z = R.exp(x)", "t = R.permute_dims(z, [0, 1, 3, 2])", "gv = R.add(z, t)", x=(1, 3, 4, 4))
    fires(SINK, before, expected)


def test_a_permute_follows_the_bias_of_a_matmul_at_no_cost():
    before = script(
        "m = R.matmul(x, w)", "y = R.permute_dims(m, [0, 2, 1])", "gv = R.nn.relu(y)", x=(2, 3, 4), w=(4, 5)
    )
    expected = script(
        "m = R.matmul(x, w)", "y = R.nn.relu(m)", "gv = R.permute_dims(y, [0, 2, 1])", x=(2, 3, 4), w=(4, 5)
    )
    fires(SINK, before, expected)


# -- where it stays --------------------------------------------------------------------------------------


def test_the_result_keeps_its_axes():
    declines(SINK, script(f"y = R.permute_dims(x, {LAST})", "gv = R.exp(y)", x=X))


def test_a_second_use_of_the_permute_pays_for_itself():
    # y stays a result: a permute behind exp would be one more
    before = script(f"y = R.permute_dims(x, {LAST})", "z = R.exp(y)", "gv = (y, z)", x=X)
    declines(SINK, before)


def test_all_of_a_cluster_or_nothing():
    # two operands would need a permute each for the one that goes
    declines(SINK, script(f"a = R.permute_dims(x, {LAST})", "b = R.add(a, y)", "gv = R.add(b, z)",
                          x=X, y=(1, 4, 5, 3), z=(1, 4, 5, 3)))  # fmt: skip


def test_a_smaller_permute_is_not_two():
    # before the concat there would be two permutes of the same bytes
    declines(SINK, script("y = R.concat((x, b), axis=1)", f"gv = R.permute_dims(y, {LAST})", x=X, b=X))


def test_an_order_has_to_be_cheaper_for_every_value_of_the_symbols():
    def module(n: int | str, m: int | str) -> tvm.IRModule:
        lines = "a = R.permute_dims(x, [2, 1, 0])", "b = R.add(a, y)", "gv = R.max(b, axis=[0, 1])"
        return script(*lines, x=(4, 1, n), y=(1, m, 4))

    assert permutes(SINK(module(8, 2))) == [8]  # y's permute moves less than x's
    declines(SINK, module(2, 8))
    declines(SINK, module("n", "m"))


@pytest.mark.parametrize(
    "line",
    [
        "R.nn.layer_norm(y, R.ones([3], 'float32'), R.zeros([3], 'float32'), axes=[-1])",
        "R.cumsum(y)",
        "R.take(y, R.const([[0, 1]], 'int64'), axis=3)",
    ],
)
def test_what_does_not_follow(line):
    back = {"R.nn.l": FIRST, "R.cums": "[0]"}.get(line[:6], "[0, 2, 1, 3, 4]")
    before = between(f"z = {line}", back=back)
    declines(SINK, before)


def test_sums_over_several_axes_stay_where_every_bit_has_to():
    before = between("z = R.mean(y, axis=[1, 3], keepdims=True)", x=(1, 3, 4, 5))
    declines(SinkPermuteDims(soundness=[EXACT]), before)
    inputs = [np.random.default_rng(0).normal(size=X).astype("float32")]
    fires(SINK, before, script("gv = R.mean(x, axis=[1, 2], keepdims=True)", x=X), inputs=inputs, exact=False)
    largest = between("z = R.max(y, axis=[1, 3], keepdims=True)")
    assert not permutes(SinkPermuteDims(soundness=[EXACT])(largest))


def test_stats_count_the_clusters():
    stats = RewriteStats()
    SinkPermuteDims(stats=stats)(between("z = R.exp(y)"))
    count = stats.of("sink-permute-dims")
    assert (count.tried, count.fired) == (1, 1)
    SinkPermuteDims(stats=stats)(script(f"y = R.permute_dims(x, {LAST})", "gv = R.exp(y)", x=X))
    assert (count.tried, count.fired) == (2, 1) and sum(count.declined.values()) == 1


def test_a_split_has_no_axes_to_rename_here():
    with pytest.raises(TypeError, match="no axes to rename"):
        renamed(Permute((1, 0)), (1, 0))


# -- random clusters -------------------------------------------------------------------------------------


def permutes(mod: tvm.IRModule) -> list[int]:
    """Return how many elements each permute moves, those that are reshapes left out."""
    found = [n for n in nodes_of(mod) if n.op == "relax.permute_dims"]
    moving = [n for n in found if not permute_keeps_order(n.view.axes, n.inputs[0].shape)]
    return [int(np.prod(n.value.shape)) for n in moving]


class Drawn(DrawnCluster):
    """A random module over a few shapes, so that values meet, with more permutes than anything else."""

    def input_shapes(self) -> list[list[int]]:
        extents = [self.random.choice([1, 2, 3, 4]) for _ in range(self.random.choice([2, 3, 4]))]
        return [extents, extents]

    def call(self) -> relax.Expr:
        x = self.random.choice(self.values[-4:])
        shape = self.shape(x)
        if self.random.random() < 0.4:
            return relax.op.permute_dims(x, self.random.sample(range(len(shape)), len(shape)))
        return self.random.choice([self.pair, self.with_constant, self.single])(x, shape)

    def pair(self, x: relax.Expr, shape: list[int]) -> relax.Expr:
        if self.random.random() < 0.4:
            same = self.random.choice([v for v in self.values if self.shape(v) == shape])
            return relax.op.concat([x, same], self.random.randrange(len(shape)))
        fitting = [v for v in self.values if self.broadcasts(self.shape(v), shape)]
        make = self.random.choice([relax.op.add, relax.op.subtract, relax.op.maximum])
        return make(*self.random.sample([x, self.random.choice(fitting)], 2))

    def broadcasts(self, own: list[int], shape: list[int]) -> bool:
        return len(own) <= len(shape) and all(a in (1, b) for a, b in zip(own[::-1], shape[::-1], strict=False))

    def with_constant(self, x: relax.Expr, shape: list[int]) -> relax.Expr:
        return relax.op.subtract(*self.random.sample([x, self.constant(shape)], 2))

    def single(self, x: relax.Expr, shape: list[int]) -> relax.Expr:
        rank = len(shape)
        axis = self.random.randrange(rank)
        extent = shape[axis]
        makers = [
            lambda: relax.op.nn.relu(x),
            lambda: relax.op.nn.softmax(x, axis - rank),
            lambda: relax.op.max(x, axis, keepdims=True),
            lambda: relax.op.flip(x, axis),
            lambda: relax.op.cumsum(x, axis),
            lambda: relax.op.strided_slice(x, [axis], [extent // 2], [extent]),
            lambda: relax.op.nn.pad(x, [int(k == 2 * axis) for k in range(2 * rank)], "constant", 0.5),
            lambda: relax.op.take(x, relax.const(np.array([extent - 1, 0], "int64")), axis),
            lambda: relax.op.nn.prelu(x, relax.const(np.linspace(-1, 1, extent, dtype="float32")), axis),
        ]
        if extent > 1:
            makers.append(lambda: relax.TupleGetItem(self.builder.emit(relax.op.split(x, [1], axis)), 1))
        if rank > 2:
            makers.append(lambda: relax.op.sum(x, axis, keepdims=False))
        return self.random.choice(makers)()


def test_random_clusters_stay_exact_and_never_cost_more():
    assert check_random_clusters(Drawn, SINK, lambda mod: [sum(permutes(mod)), len(permutes(mod))]) > 40


def test_a_split_that_is_a_result_as_a_whole_stays_where_it_is():
    """Its tuple cannot be permuted behind it; a motion that forgot this went on for ever."""
    declines(
        SINK,
        script("a = R.permute_dims(x, axes=[3, 0, 2, 1])", "gv = R.split(a, 3, axis=3)", x=(3, 3, 6, 4)),
    )
