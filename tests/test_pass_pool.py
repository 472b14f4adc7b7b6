import numpy as np
import pytest
from pass_case import declines, fires, random_inputs
from script_case import script

from relax_glue.passes import CanonicalizePool
from relax_glue.passes.pool import RULES
from relax_glue.rewrite import FLOAT_REASSOC

POOL = CanonicalizePool()


def check(before, expected):
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=a.shape).astype(a.dtype) for a in random_inputs(before)]
    fires(POOL, before, expected, inputs=inputs, exact=False)


@pytest.mark.parametrize(
    ("rank", "layout", "shape", "axes"),
    [
        (1, "NCW", (2, 3, 5), [2]),
        (2, "NCHW", (2, 3, 5, 4), [2, 3]),
        (2, "NHWC", (2, 5, 4, 3), [1, 2]),
        (3, "NCDHW", (1, 2, 3, 4, 5), [2, 3, 4]),
    ],
)
def test_a_global_average_is_a_mean(rank, layout, shape, axes):
    call = f"R.nn.adaptive_avg_pool{rank}d(x, {[1] * rank}, layout='{layout}')"
    check(script(f"gv = {call}", x=shape), script(f"gv = R.mean(x, axis={axes}, keepdims=True)", x=shape))


def test_a_global_average_of_symbolic_extents_is_a_mean():
    before = script("gv = R.nn.adaptive_avg_pool2d(x, [1, 1])", x=("n", 3, "h", "w"))
    check(before, script("gv = R.mean(x, axis=[2, 3], keepdims=True)", x=("n", 3, "h", "w")))


@pytest.mark.parametrize(("size", "window"), [((2, 3), (3, 4)), ((6, 1), (1, 12)), ((6, 12), (1, 1))])
def test_equal_windows_are_a_pooling(size, window):
    before = script(f"gv = R.nn.adaptive_avg_pool2d(x, {list(size)})", x=(1, 2, 6, 12))
    expected = f"gv = R.nn.avg_pool2d(x, {list(window)}, strides={list(window)})"
    check(before, script(expected, x=(1, 2, 6, 12)))


def test_channels_may_be_last():
    before = script("gv = R.nn.adaptive_avg_pool2d(x, [2, 2], layout='NHWC')", x=(1, 4, 6, 3))
    expected = "gv = R.nn.avg_pool2d(x, [2, 3], strides=[2, 3], layout='NHWC')"
    check(before, script(expected, x=(1, 4, 6, 3)))


def test_the_pooling_of_an_item_of_a_split():
    before = script("s = R.split(x, 2, axis=1)", "gv = R.nn.adaptive_avg_pool2d(s[1], [1, 1])", x=(1, 2, 3, 3))
    expected = script("s = R.split(x, 2, axis=1)", "gv = R.mean(s[1], axis=[2, 3], keepdims=True)", x=(1, 2, 3, 3))
    check(before, expected)


@pytest.mark.parametrize(("size", "shape"), [((4, 3), (1, 2, 6, 12)), ((2, 2), (1, 2, "h", 4))])
def test_windows_that_differ_stay(size, shape):
    declines(POOL, script(f"gv = R.nn.adaptive_avg_pool2d(x, {list(size)})", x=shape))


def test_blocked_channels_stay():
    before = script("gv = R.nn.adaptive_avg_pool2d(x, [1, 1], layout='NCHW4c')", x=(1, 2, 6, 6, 4))
    declines(POOL, before)


def test_integers_are_averaged_as_they_were():
    declines(POOL, script("gv = R.nn.adaptive_avg_pool2d(x, [1, 1])", dtype="int32", x=(1, 2, 6, 6)))


def test_the_rules_say_that_sums_may_change():
    assert {r.soundness for r in RULES} == {FLOAT_REASSOC}
