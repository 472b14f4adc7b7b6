"""Reshapes moved past clusters of operators: where they go, where they stay, and that there are never more."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from build_case import build
from motion_case import DrawnCluster, check_random_clusters, nodes_of
from pass_case import declines, fires
from script_case import cut, script
from tvm import relax

import relax_glue
from relax_glue.movement import Reshape
from relax_glue.passes import MoveReshapes
from relax_glue.passes.regroup import Regroup, regrouped
from relax_glue.rewrite import RewriteStats
from relax_glue.testing import Pair, check_many

MOVE = MoveReshapes()
X, FLAT = (2, 3, 4, 5), "R.shape([2, 3, 20])"  # channels of images, and of their pixels in a row
BACK = "R.shape([2, 3, 4, 5])"


def between(*lines: str, x=X, flat: str = FLAT, back: str = BACK, **params) -> tvm.IRModule:
    """Return a module that reshapes x to y, runs `lines` up to z, and reshapes z back."""
    return script(f"y = R.reshape(x, {flat})", *lines, f"gv = R.reshape(z, {back})", x=x, **params)


def reshapes(mod: tvm.IRModule) -> int:
    return sum(isinstance(n.view, Reshape) for n in nodes_of(mod))


# -- each operator that follows --------------------------------------------------------------------------

FOLLOWS = {
    "unary": ("R.exp(y)", "R.exp(x)"),
    "cast": ("R.astype(y, 'float16')", "R.astype(x, 'float16')"),
    "scalar": ("R.add(y, R.const(2, 'float32'))", "R.add(x, R.const(2, 'float32'))"),
    "one operand twice": ("R.multiply(y, y)", "R.multiply(x, x)"),
    "softmax": ("R.nn.softmax(y, axis=1)", "R.nn.softmax(x, axis=1)"),
    "log softmax from the back": ("R.nn.log_softmax(y, axis=-2)", "R.nn.log_softmax(x, axis=1)"),
    "running sum": ("R.cumsum(y, axis=0)", "R.cumsum(x, axis=0)"),
    "flip": ("R.flip(y, axis=-2)", "R.flip(x, axis=1)"),
}
GROWS = {
    "max": ("R.max(y, axis=[-2], keepdims=True)", "R.max(x, axis=[1], keepdims=True)", (2, 1, 4, 5)),
    "concat": ("R.concat((y, y), axis=-2)", "R.concat((x, x), axis=1)", (2, 6, 4, 5)),
    "repeat": ("R.repeat(y, 2, axis=0)", "R.repeat(x, 2, axis=0)", (4, 3, 4, 5)),
    "tile": ("R.tile(y, [1, 2, 1])", "R.tile(x, [1, 2, 1, 1])", (2, 6, 4, 5)),
    "slice": (cut([1], [1], [3], x="y"), cut([1], [1], [3]), (2, 2, 4, 5)),
    "pad": ("R.nn.pad(y, [0, 0, 1, 2, 0, 0])", "R.nn.pad(x, [0, 0, 1, 2, 0, 0, 0, 0])", (2, 6, 4, 5)),
    "mirror": (
        "R.nn.pad(y, [1, 0, 0, 0, 0, 0], pad_mode='reflect')",
        "R.nn.pad(x, [1, 0, 0, 0, 0, 0, 0, 0], pad_mode='reflect')",
        (3, 3, 4, 5),
    ),
    "take": (
        "R.take(y, R.const([2, 0], 'int64'), axis=1)",
        "R.take(x, R.const([2, 0], 'int64'), axis=1)",
        (2, 2, 4, 5),
    ),
}


@pytest.mark.parametrize("name", FOLLOWS)
def test_two_reshapes_go_around_an_operator(name):
    inner, expected = FOLLOWS[name]
    fires(MOVE, between(f"z = {inner}"), script(f"gv = {expected}", x=X))


@pytest.mark.parametrize("name", GROWS)
def test_two_reshapes_go_around_an_operator_that_changes_an_extent(name):
    inner, expected, shape = GROWS[name]
    fires(MOVE, between(f"z = {inner}", back=f"R.shape({list(shape)})"), script(f"gv = {expected}", x=X))


def test_a_split_and_its_items():
    before = between("s = R.split(y, [1], axis=1)", "z = R.add(s[0], s[1])", back="R.shape([2, 2, 4, 5])")
    fires(MOVE, before, script("s = R.split(x, [1], axis=1)", "gv = R.add(s[0], s[1])", x=X))


def test_a_broadcast_of_whole_runs():
    before = script(
        "y = R.reshape(x, R.shape([2, 1, 20]))", "z = R.broadcast_to(y, R.shape([2, 3, 20]))",
        f"gv = R.reshape(z, {BACK})", x=(2, 1, 4, 5),
    )  # fmt: skip
    fires(MOVE, before, script(f"gv = R.broadcast_to(x, {BACK})", x=(2, 1, 4, 5)))


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
def test_a_normalisation_of_the_last_axis(op):
    params = {"w": (5,), "b": (5,)} if op == "layer_norm" else {"w": (5,)}
    call = f"R.nn.{op}({{}}, {', '.join(params)}, axes=[-1], epsilon=0.5)"
    before = between(f"z = {call.format('y')}", flat="R.shape([6, 4, 5])", **params)
    inputs = [np.random.default_rng(0).normal(size=s).astype("float32") for s in (X, *params.values())]
    fires(MOVE, before, script(f"gv = {call.format('x').replace('[-1]', '[3]')}", x=X, **params), inputs=inputs)


def test_an_item_of_a_split_behind_the_reshape():
    before = script(
        "s = R.split(x, 2, axis=0)", f"y = R.reshape(s[1], {FLAT})", "z = R.exp(y)", f"gv = R.reshape(z, {BACK})",
        x=(4, 3, 4, 5),
    )  # fmt: skip
    fires(MOVE, before, script("s = R.split(x, 2, axis=0)", "gv = R.exp(s[1])", x=(4, 3, 4, 5)))


def test_symbolic_extents():
    def make(emit, x):
        n = x.ty.shape.values[0]
        y = emit(relax.op.nn.softmax(emit(relax.op.reshape(x, relax.ShapeExpr([n, 3, 20]))), axis=1))
        return relax.op.reshape(y, relax.ShapeExpr([n, 3, 4, 5]))

    x = ("n", 3, 4, 5)
    fires(MOVE, build(make, x=x), script("gv = R.nn.softmax(x, axis=1)", x=x))


# -- where a reshape goes --------------------------------------------------------------------------------


def test_both_sides_of_a_gate():
    before = between("s = R.sigmoid(y)", "z = R.multiply(y, s)")
    fires(MOVE, before, script("s = R.sigmoid(x)", "gv = R.multiply(x, s)", x=X))


def test_a_vector_too():
    before = between("z = R.exp(y)", flat="R.shape([120])")
    fires(MOVE, before, script("gv = R.exp(x)", x=X))


def test_two_reshapes_meet_behind_a_sum():
    before = script(f"a = R.reshape(x, {FLAT})", f"b = R.reshape(y, {FLAT})", "gv = R.add(a, b)", x=X, y=X)
    fires(MOVE, before, script("a = R.add(x, y)", f"gv = R.reshape(a, {FLAT})", x=X, y=X))


def test_a_reshape_passes_an_operator_to_meet_the_next():
    before = between("z = R.exp(y)", back="R.shape([6, 20])")
    fires(MOVE, before, script("z = R.exp(x)", "gv = R.reshape(z, R.shape([6, 20]))", x=X))


def test_a_constant_is_reshaped_where_it_spans_whole_runs():
    values = np.arange(3).reshape(3, 1).tolist()
    before = between(f"z = R.add(y, R.const({values}, 'float32'))")
    fires(MOVE, before, script(f"gv = R.add(x, R.const({[[[[v]] for v in (0, 1, 2)]]}, 'float32'))", x=X))


def test_a_reshape_that_is_used_elsewhere_stays_and_the_other_goes():
    before = script(f"y = R.reshape(x, {FLAT})", "z = R.exp(y)", f"a = R.reshape(z, {BACK})", "gv = (a, y)", x=X)
    fires(MOVE, before, script(f"y = R.reshape(x, {FLAT})", "a = R.exp(x)", "gv = (a, y)", x=X))


# -- where it stays --------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["R.nn.softmax(y, axis=2)", "R.flip(y, axis=-1)"])
def test_an_axis_that_is_cut_is_no_axis(line):
    declines(MOVE, between(f"z = {line}"))


def test_a_result_keeps_its_shape():
    declines(MOVE, script(f"y = R.reshape(x, {FLAT})", "gv = R.exp(y)", x=X))


def test_an_operand_that_would_need_one_more():
    declines(MOVE, script(f"y = R.reshape(x, {FLAT})", "gv = R.add(y, c)", x=X, c=(2, 3, 20)))
    declines(MOVE, between("a = R.add(y, c)", "z = R.add(a, d)", c=(2, 3, 20), d=(2, 3, 20)))
    # a smaller one may get it instead
    assert reshapes(MOVE(between("a = R.add(y, c)", "z = R.add(a, d)", c=(1, 3, 20), d=(1, 3, 20)))) == 2


def test_an_operand_that_spans_a_part_of_a_run():
    c = (4, 1)
    declines(MOVE, between("z = R.add(y, c)", x=(2, 12, 5), flat="R.shape([2, 3, 4, 5])", back="R.shape([2, 12, 5])",
                           c=c))  # fmt: skip


def test_an_operand_without_elements():
    # pad gives (n, 0, n) three elements for each; a reshape of that to (n, 1, 0, n) would copy an extent
    shapes = ("R.shape([n, 1, 3, n])", "R.shape([n, 3, n])")
    lines = ["p = R.nn.pad(x, [0, 0, 2, 1, 0, 0])", f"y = R.reshape(p, {shapes[0]})", "z = R.exp(y)"]
    declines(MOVE, script(*lines[:1], f"gv = R.reshape(p, {shapes[0]})", x=("n", 0, "n")))
    after = MOVE(script(*lines, f"gv = R.reshape(z, {shapes[1]})", x=("n", 0, "n")))
    assert "0" not in [str(e) for b in after["main"].body.blocks[0].bindings for e in b.var.ty.shape.values]


def test_extents_without_common_runs():
    declines(MOVE, between("z = R.nn.softmax(y)", flat="R.shape([8, 15])", back="R.shape([10, 12])"))


def test_a_reshape_beside_a_permute_costs_nothing():
    before = script(
        "p = R.permute_dims(x, [1, 0, 2, 3])", "y = R.reshape(p, R.shape([3, 2, 20]))", "z = R.exp(y)",
        "gv = R.reshape(z, R.shape([6, 20]))", x=X,
    )  # fmt: skip
    after = MOVE(before)
    assert reshapes(after) <= 2
    check_many([Pair(before, after, [np.ones(X, "float32")])])


def test_a_normalisation_of_the_last_axis_stays_one():
    declines(MOVE, between("z = R.nn.layer_norm(y, w, w, axes=[1])", x=(2, 5, 4, 5), flat="R.shape([2, 5, 20])",
                           back="R.shape([2, 5, 4, 5])", w=(5,)))  # fmt: skip


def test_a_long_chain_is_left_alone():
    lines = [f"v{k + 1} = R.exp(v{k})" for k in range(70)]
    before = script(f"v0 = R.reshape(x, {FLAT})", *lines, f"gv = R.reshape(v70, {BACK})", x=X)
    declines(MOVE, before)


def test_a_split_whose_tuple_is_a_result():
    declines(MOVE, script(f"y = R.reshape(x, {FLAT})", "gv = R.split(y, 3, axis=1)", x=X))


def test_what_has_no_axes_is_refused():
    regroup = Regroup.between((2, 3), (6,))
    assert regroup is not None and regroup.axis(0) is None
    with pytest.raises(ValueError, match="axis 0 does not stay one axis"):
        regroup.moved(0)
    with pytest.raises(TypeError, match="no axes to regroup"):
        regrouped(Reshape((6,)), regroup, None, (6,))  # type: ignore[arg-type]


def test_stats_count_the_clusters():
    stats = RewriteStats()
    MoveReshapes(stats=stats)(between("z = R.exp(y)"))
    assert (stats.of("move-reshapes").tried, stats.of("move-reshapes").fired) == (1, 1)


def test_it_is_on_by_default():
    mod = between("s = R.sigmoid(y)", "z = R.multiply(y, s)")
    assert reshapes(relax_glue.canonicalize(mod)) == 0
    assert reshapes(relax_glue.canonicalize(mod, disable=["MoveReshapes"])) == 2


# -- random clusters -------------------------------------------------------------------------------------


class Drawn(DrawnCluster):
    """A random module over the ways to group twenty-four elements, with more reshapes than anything else."""

    SHAPES = ((24,), (2, 12), (2, 3, 4), (6, 4), (1, 6, 4), (2, 3, 2, 2), (24, 1), (2, 1, 12))

    def input_shapes(self) -> list[tuple[int, ...]]:
        return [self.random.choice(self.SHAPES) for _ in range(2)]

    def call(self) -> relax.Expr:
        x = self.random.choice(self.values[-4:])
        shape = self.shape(x)
        if self.random.random() < 0.45 and np.prod(shape) == 24:
            return relax.op.reshape(x, self.random.choice(self.SHAPES))
        return self.random.choice([self.pair, self.with_constant, self.single])(x, shape)

    def pair(self, x: relax.Expr, shape: list[int]) -> relax.Expr:
        same = self.random.choice([v for v in self.values if self.shape(v) == shape])
        if self.random.random() < 0.3:
            return relax.op.concat([x, same], self.random.randrange(len(shape)))
        return self.random.choice([relax.op.add, relax.op.subtract, relax.op.maximum])(x, same)

    def with_constant(self, x: relax.Expr, shape: list[int]) -> relax.Expr:
        return relax.op.subtract(x, self.constant(shape))

    def single(self, x: relax.Expr, shape: list[int]) -> relax.Expr:
        rank = len(shape)
        axis = self.random.randrange(rank)
        makers = [
            lambda: relax.op.nn.relu(x),
            lambda: relax.op.nn.softmax(x, axis - rank),
            lambda: relax.op.max(x, axis, keepdims=True),
            lambda: relax.op.sum(x, axis, keepdims=rank == 1),
            lambda: relax.op.flip(x, axis),
            lambda: relax.op.cumsum(x, axis),
            lambda: relax.op.strided_slice(x, [axis], [shape[axis] // 2], [shape[axis]]),
            lambda: relax.op.nn.pad(x, [int(k == 2 * axis) for k in range(2 * rank)], "constant", 0.5),
            lambda: relax.op.take(x, relax.const(np.array([shape[axis] - 1, 0], "int64")), axis),
            lambda: relax.op.permute_dims(x, self.random.sample(range(rank), rank)),
        ]
        if shape[axis] > 1:
            makers.append(lambda: relax.TupleGetItem(self.builder.emit(relax.op.split(x, [1], axis)), 1))
        return self.random.choice(makers)()


def test_random_clusters_stay_exact_and_never_have_more():
    assert check_random_clusters(Drawn, MOVE, lambda mod: [reshapes(mod)]) > 20
