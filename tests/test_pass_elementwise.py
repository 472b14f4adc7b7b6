import itertools

import numpy as np
import pytest
import tvm
from build_case import build, ops
from pass_case import declines, fires
from script_case import script
from test_pass_broadcast import bound
from tvm.relax import op

import relax_glue
from relax_glue.passes import CanonicalizeElementwise
from relax_glue.passes.elementwise import is_lossless
from relax_glue.rewrite import NAN_SENSITIVE, RewriteStats
from relax_glue.testing import check_equivalent

ELEMENTWISE = CanonicalizeElementwise()
SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, -2.5, 0.3, 1e-40, 3e38, 7.0], "float32")
SHAPE = (10,)


def typed(*lines, **params):
    """A module whose parameters are (shape, dtype)."""
    signature = ", ".join(f'{n}: R.Tensor({s!r}, "{d}")' for n, (s, d) in params.items())
    body = "\n            ".join(lines)
    return tvm.script.from_source(
        f"@I.ir_module\nclass Module:\n    @R.function\n    def main({signature}):\n"
        f"        with R.dataflow():\n            {body}\n            R.output(gv)\n        return gv\n"
    )


# -- units -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        "R.multiply(x, R.const(1, 'float32'))",
        "R.multiply(R.const(1, 'float32'), x)",
        "R.divide(x, R.const(1, 'float32'))",
        "R.subtract(x, R.const(0, 'float32'))",
        "R.add(x, R.const(-0.0, 'float32'))",
        "R.add(R.const(-0.0, 'float32'), x)",
        "R.power(x, R.const(1, 'float32'))",
    ],
)
def test_an_operation_that_changes_no_bit_is_dropped(call):
    fires(ELEMENTWISE, script(f"gv = {call}", x=SHAPE), script("gv = x", x=SHAPE), inputs=[SPECIAL])


@pytest.mark.parametrize(
    "call",
    [
        "R.add(x, R.const(0, 'float32'))",  # -0.0 + 0.0 is 0.0
        "R.subtract(x, R.const(-0.0, 'float32'))",
        "R.subtract(R.const(0, 'float32'), x)",
        "R.divide(R.const(1, 'float32'), x)",
        "R.power(R.const(1, 'float32'), x)",
        "R.multiply(x, R.const(0, 'float32'))",  # NaN stays NaN
        "R.floor_divide(x, R.const(1, 'float32'))",
        "R.add(x, x)",
    ],
)
def test_an_operation_that_changes_a_bit_stays(call):
    declines(ELEMENTWISE, script(f"gv = {call}", x=SHAPE))


def test_an_integer_has_one_zero():
    before = script(
        "a = R.add(x, R.const(0, 'int32'))", "gv = R.floor_divide(a, R.const(1, 'int32'))", dtype="int32", x=SHAPE
    )
    fires(ELEMENTWISE, before, script("gv = x", dtype="int32", x=SHAPE))


@pytest.mark.parametrize(("name", "unit"), [("logical_and", True), ("logical_or", False), ("logical_xor", False)])
def test_a_bool_has_units(name, unit):
    before = typed(f"gv = R.{name}(x, R.const({unit}, 'bool'))", x=((2,), "bool"))
    fires(ELEMENTWISE, before, typed("gv = x", x=((2,), "bool")), inputs=[np.array([True, False])])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_units_of_every_float(dtype):
    lines = [f"a = R.multiply(x, R.const(1, '{dtype}'))", f"b = R.add(a, R.const(-0.0, '{dtype}'))"]
    before = script(*lines, f"gv = R.add(b, R.const(0.0, '{dtype}'))", dtype=dtype, x=SHAPE)
    expected = script(f"gv = R.add(x, R.const(0.0, '{dtype}'))", dtype=dtype, x=SHAPE)
    fires(ELEMENTWISE, before, expected)


def test_a_unit_that_repeats_x_is_a_broadcast():
    before = bound(script("gv = R.multiply(x, c)", x=(3,), c=(2, 3)), c=np.ones((2, 3), "float32"))
    fires(ELEMENTWISE, before, script("gv = R.broadcast_to(x, R.shape([2, 3]))", x=(3,)))


def test_a_unit_of_an_unknown_shape_stays_symbolic():
    fires(ELEMENTWISE, script("gv = R.multiply(x, R.const(1, 'float32'))", x=("n", 2)), script("gv = x", x=("n", 2)))


def test_an_item_of_a_split_times_one_is_that_item():
    before = script("s = R.split(x, 2, axis=0)", "gv = R.multiply(s[1], R.const(1, 'float32'))", x=(4,))
    fires(ELEMENTWISE, before, script("s = R.split(x, 2, axis=0)", "gv = s[1]", x=(4,)))


# -- the same thing twice --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nn.relu", "abs", "ceil", "floor", "round", "trunc", "sign"])
def test_an_idempotent_operator_is_done_once(name):
    before = script(f"a = R.{name}(x)", f"gv = R.{name}(a)", x=SHAPE)
    fires(ELEMENTWISE, before, script(f"gv = R.{name}(x)", x=SHAPE), inputs=[SPECIAL])


def test_a_negative_of_a_negative_is_x():
    before = script("a = R.negative(x)", "gv = R.negative(a)", x=SHAPE)
    fires(ELEMENTWISE, before, script("gv = x", x=SHAPE), inputs=[SPECIAL])


def test_not_not_is_x():
    before = typed("a = R.logical_not(x)", "gv = R.logical_not(a)", x=((2,), "bool"))
    fires(ELEMENTWISE, before, typed("gv = x", x=((2,), "bool")), inputs=[np.array([True, False])])


def test_not_not_of_a_number_stays():
    before = typed("a = R.logical_not(x)", "gv = R.logical_not(a)", x=((2,), "int32"))
    declines(ELEMENTWISE, before)  # not not 2 is 1


@pytest.mark.parametrize(("first", "then"), [("floor", "ceil"), ("nn.relu", "abs"), ("negative", "abs")])
def test_different_operators_stay(first, then):
    declines(ELEMENTWISE, script(f"a = R.{first}(x)", f"gv = R.{then}(a)", x=SHAPE))


# -- clips -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outer", "bounds"),
    [
        ("R.clip(a, R.prim_value(0.0), R.prim_value(6.0))", (0.0, 3.0)),
        ("R.clip(a, R.prim_value(-9.0), R.prim_value(9.0))", (-1.0, 3.0)),
        ("R.clip(a, R.prim_value(4.0), R.prim_value(6.0))", (4.0, 4.0)),  # disjoint
        ("R.clip(a, R.prim_value(-6.0), R.prim_value(-4.0))", (-4.0, -4.0)),
        ("R.nn.relu(a)", (0.0, 3.0)),
    ],
)
def test_a_clip_of_a_clip_is_one(outer, bounds):
    before = script("a = R.clip(x, R.prim_value(-1.0), R.prim_value(3.0))", f"gv = {outer}", x=SHAPE)
    low, high = bounds
    expected = script(f"gv = R.clip(x, R.prim_value({low}), R.prim_value({high}))", x=SHAPE)
    fires(ELEMENTWISE, before, expected, inputs=[SPECIAL])


@pytest.mark.parametrize(
    ("inner", "outer", "bounds"),
    [
        # of the two zeros a clip gives its own bound
        ((-0.0, 1.0), "R.clip(a, R.prim_value(0.0), R.prim_value(1.0))", (0.0, 1.0)),
        ((0.0, 1.0), "R.clip(a, R.prim_value(-0.0), R.prim_value(1.0))", (-0.0, 1.0)),
        ((0.0, 1.0), "R.clip(a, R.prim_value(-0.0), R.prim_value(-0.0))", (-0.0, -0.0)),
        ((-1.0, 0.0), "R.clip(a, R.prim_value(-0.0), R.prim_value(1.0))", (-0.0, -0.0)),
        ((-0.0, 1.0), "R.nn.relu(a)", (0.0, 1.0)),
    ],
)
def test_a_clip_of_a_clip_keeps_the_sign_of_zero(inner, outer, bounds):
    first = "a = R.clip(x, R.prim_value({}), R.prim_value({}))"
    before = script(first.format(*inner), f"gv = {outer}", x=SHAPE)
    after = script(first.format(*bounds).replace("a =", "gv ="), x=SHAPE)
    fires(ELEMENTWISE, before, after, inputs=[SPECIAL])


@pytest.mark.parametrize(
    "lines",
    [
        # NaN: relu gives 0, clip its upper bound
        ["a = R.nn.relu(x)", "gv = R.clip(a, R.prim_value(-1.0), R.prim_value(6.0))"],
        ["gv = R.clip(x, R.prim_value(0.0), R.prim_value(float('inf')))"],
        ["a = R.maximum(x, R.const(0, 'float32'))", "gv = R.minimum(a, R.const(6, 'float32'))"],
        # bounds out of order
        ["a = R.clip(x, R.prim_value(3.0), R.prim_value(1.0))", "gv = R.nn.relu(a)"],
    ],
)
def test_what_is_no_clip_for_nan_stays(lines):
    declines(ELEMENTWISE, script(*[line.replace("float('inf')", "3.0e38") for line in lines], x=SHAPE))


def test_a_clip_of_a_relu_is_a_clip_if_nan_may_change():
    before = script("a = R.nn.relu(x)", "gv = R.clip(a, R.prim_value(-1.0), R.prim_value(6.0))", x=SHAPE)
    expected = script("gv = R.clip(x, R.prim_value(0.0), R.prim_value(6.0))", x=SHAPE)
    fires(CanonicalizeElementwise(soundness=[NAN_SENSITIVE]), before, expected, inputs=[np.nan_to_num(SPECIAL)])


# -- casts -----------------------------------------------------------------------------------------------


def test_a_cast_to_the_same_dtype_is_dropped():
    before = script("a = R.astype(x, 'float32')", "gv = R.nn.relu(a)", x=SHAPE)
    fires(ELEMENTWISE, before, script("gv = R.nn.relu(x)", x=SHAPE), inputs=[SPECIAL])


@pytest.mark.parametrize(
    ("source", "middle", "target"),
    [
        ("float16", "float32", "float16"),
        ("float16", "float32", "float64"),
        ("int8", "int32", "float32"),
        ("int8", "int32", "uint8"),
        ("uint8", "float32", "int64"),
        ("bool", "int32", "float32"),
        ("int32", "int64", "float32"),
    ],
)
def test_a_cast_that_keeps_every_value_is_skipped(source, middle, target):
    values = np.array([0, 1, 1, 0] if source == "bool" else [0, 1, 100, 127]).astype(source)
    if source.startswith(("int", "float")):
        values[3] = -5
    before = typed(f"a = R.astype(x, '{middle}')", f"gv = R.astype(a, '{target}')", x=((4,), source))
    last = "gv = x" if source == target else f"gv = R.astype(x, '{target}')"
    fires(ELEMENTWISE, before, typed(last, x=((4,), source)), inputs=[values])


@pytest.mark.parametrize(
    ("source", "middle"),
    [("float32", "float16"), ("int64", "int32"), ("int32", "float32"), ("float32", "int32"), ("int64", "float64")],
)
def test_a_cast_that_may_change_a_value_stays(source, middle):
    declines(ELEMENTWISE, typed(f"a = R.astype(x, '{middle}')", f"gv = R.astype(a, '{source}')", x=((4,), source)))


def test_lossless_casts_are_numpys_safe_ones_but_for_large_integers():
    names = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
    names += ["float16", "float32", "float64"]
    for source, target in itertools.product(names, repeat=2):
        large = source in ("int64", "uint64") and target == "float64"  # numpy calls 2**53 + 1 safe in float64
        assert is_lossless(source, target) == (np.can_cast(source, target, "safe") and not large), (source, target)
    assert is_lossless("bfloat16", "float32") and not is_lossless("bfloat16", "float16")
    assert not is_lossless("float16", "bfloat16") and not is_lossless("float8_e4m3fn", "float32")


# -- casts of images -------------------------------------------------------------------------------------

IMAGE = dict(x=((2, 3, 4), "uint8"))
BYTES = np.arange(24).reshape(2, 3, 4).astype("uint8") * 10


@pytest.mark.parametrize(
    "move",
    [
        "R.permute_dims({}, axes=[-1, 0, 1])",
        "R.reshape({}, R.shape([6, 4]))",
        "R.flip({}, axis=-1)",
        "R.broadcast_to({}, R.shape([5, 2, 3, 4]))",
        "R.concat(({}, {}), axis=-2)",
        "R.stack(({}, {}), axis=-1)",
        "R.tile({}, repeats=[1, 2, 1])",
        "R.repeat({}, repeats=2, axis=-1)",
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_an_image_is_cast_before_it_is_moved(move, dtype):
    before = typed(f"a = {move.format('x', 'x')}", f"gv = R.astype(a, '{dtype}')", **IMAGE)
    after = ELEMENTWISE(before)
    names = [name.removeprefix("relax.") for name in ops(after)]
    assert names[0] == "astype" and names[-1] != "astype"
    check_equivalent(before, after, [BYTES])
    for motion in ((), ("SinkPermuteDims",)):
        assert not relax_glue.explain(before, min_region_ops=0, enable=motion).outside


def test_an_image_of_symbolic_extents_is_cast_before_it_is_moved():
    before = build(lambda emit, x: op.astype(emit(op.permute_dims(x, [0, 2, 1])), "float32"), "uint8", x=("n", "h", 3))
    assert ops(ELEMENTWISE(before)) == ["relax.astype", "relax.permute_dims"]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["a = R.permute_dims(x)", "gv = R.astype(a, 'int32')"], "TensorRT takes a movement"),
        (["a = R.strided_slice(x, axes=[1], begin=[0], end=[2])", "gv = R.astype(a, 'float32')"], "keeps all elements"),
        (["s = R.split(x, 3, axis=1)", "a = s[1]", "gv = R.astype(a, 'float32')"], "keeps all elements"),
        (["gv = R.astype(x, 'float32')"], "keeps all elements"),
        (["a = R.permute_dims(x)", "b = R.astype(a, 'float32')", "gv = (a, b)"], "other users"),
    ],
)
def test_a_cast_of_an_image_that_stays(lines, why):
    stats = RewriteStats()
    before = typed(*lines, **IMAGE)
    tvm.ir.assert_structural_equal(CanonicalizeElementwise(stats=stats)(before), before)
    assert any(why in reason for reason in stats.of("cast-before-movement").declined)


def test_what_tensorrt_moves_is_cast_where_it_was():
    declines(ELEMENTWISE, typed("a = R.permute_dims(x)", "gv = R.astype(a, 'float32')", x=((2, 3), "int8")))


# -- where -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "name"), [(True, "x"), (False, "y")])
def test_a_constant_condition_decides(value, name):
    params = dict(x=((3,), "float32"), y=((2, 3), "float32"))
    before = bound(typed("gv = R.where(c, x, y)", c=((2, 3), "bool"), **params), c=np.full((2, 3), value))
    last = "gv = R.broadcast_to(x, R.shape([2, 3]))" if name == "x" else "gv = y"
    fires(ELEMENTWISE, before, typed(last, **params))


def test_equal_branches_need_no_condition():
    params = dict(c=((2, 1), "bool"), x=((2, 1), "float32"))
    fires(ELEMENTWISE, typed("gv = R.where(c, x, x)", **params), typed("gv = x", **params))


def test_items_of_one_split_are_different_branches():
    declines(
        ELEMENTWISE,
        typed("s = R.split(x, 2, axis=0)", "gv = R.where(c, s[0], s[1])", c=((2,), "bool"), x=((4,), "float32")),
    )


def test_a_mixed_condition_stays():
    before = typed("gv = R.where(c, x, y)", c=((2,), "bool"), x=((2,), "float32"), y=((2,), "float32"))
    declines(ELEMENTWISE, bound(before, c=np.array([True, False])))


def test_a_negated_condition_exchanges_the_branches():
    params = dict(c=((4,), "bool"), x=((4,), "float32"), y=((4,), "float32"))
    before = typed("n = R.logical_not(c)", "gv = R.where(n, x, y)", **params)
    fires(ELEMENTWISE, before, typed("gv = R.where(c, y, x)", **params))
