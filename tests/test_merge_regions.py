"""A module that is partitioned badly gets the fewest regions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from build_case import build, const
from tvm import relax
from tvm.relax import op
from tvm.relax.backend.contrib.tensorrt import partition_for_tensorrt

import relax_glue
from relax_glue.inline import inline
from relax_glue.partition import PartitionOptions
from relax_glue.passes import CanonicalizeSplit, MergeRegions
from relax_glue.region_function import composite_ops, region_functions
from relax_glue.testing import check_equivalent

RNG = np.random.default_rng(0)


def conv(emit: Any, x: relax.Expr, channels: int, kernel: int = 1) -> relax.Expr:
    weight = RNG.uniform(-1, 1, (channels, int(x.ty.shape.values[1]), kernel, kernel))
    y = emit(op.nn.conv2d(x, const(weight), padding=(kernel // 2,) * 4))
    return emit(op.multiply(y, emit(op.sigmoid(y))))


def upsample(emit: Any, x: relax.Expr) -> relax.Expr:
    """Return x twice as large by a rounding that no TensorRT mode has and that upstream's table refuses."""
    size = [int(e) * 2 for e in x.ty.shape.values[2:]]
    return emit(op.image.resize2d(x, size, layout="NCHW", method="nearest_neighbor", rounding_method="round"))


def feature_pyramid(emit: Any, x: relax.Expr) -> tuple[relax.Expr, ...]:
    """Two levels, a split and a concat at each, and a flip: a YOLO neck in small."""
    low = conv(emit, x, 8, 3)
    high = conv(emit, emit(op.nn.max_pool2d(low, (2, 2), (2, 2))), 8)
    joined = emit(op.concat([upsample(emit, high), low], axis=1))
    parts = emit(op.split(conv(emit, joined, 8), 2, axis=1))
    mixed = emit(op.concat([emit(parts[1]), emit(op.flip(emit(parts[0]), 3))], axis=1))
    out = emit(op.concat([conv(emit, mixed, 4), upsample(emit, conv(emit, high, 4))], axis=1))
    return emit(op.reshape(out, (1, 8, 64))), high


def test_a_neck_in_pieces_becomes_one_region() -> None:
    mod = build(feature_pyramid, x=(1, 3, 8, 8))
    theirs = partition_for_tensorrt(mod)
    assert len(region_functions(theirs)) >= 3
    kept = theirs.script()
    after = MergeRegions()(theirs)
    assert theirs.script() == kept
    relax.analysis.well_formed(after)
    assert len(region_functions(after)) == 1 and not relax_glue.explain(after).outside
    tvm.ir.assert_structural_equal(MergeRegions()(after), after)
    check_equivalent(mod, inline(after), [RNG.normal(size=(1, 3, 8, 8)).astype("float32")])


def test_in_a_sequence_with_passes_of_tvm() -> None:
    mod = build(feature_pyramid, x=(1, 3, 8, 8))
    steps = [relax.transform.CanonicalizeBindings(), MergeRegions(), CanonicalizeSplit(), MergeRegions()]
    after = tvm.transform.Sequential(steps)(partition_for_tensorrt(mod))
    assert len(region_functions(after)) == 1


def test_what_tensorrt_lacks_still_cuts() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        y = emit(op.flip(emit(op.negative(x)), 0))
        z = emit(op.reshape(emit(op.cumsum(y, 0)), (8,)))
        return op.negative(emit(op.negative(z)))

    theirs = partition_for_tensorrt(build(make, x=(8,)))
    after = MergeRegions(PartitionOptions(exclude_ops=("cumsum",)))(theirs)
    found = [composite_ops(f) for f in region_functions(after).values()]
    assert found[0] == ["relax.negative", "relax.flip"]
    assert found[1][-2:] == ["relax.negative", "relax.negative"]


@pytest.mark.parametrize("options, count", [(None, 1), (PartitionOptions(exclude_ops=("flip",)), 2)])
def test_options_are_those_of_the_partition(options: PartitionOptions | None, count: int) -> None:
    mod = build(lambda emit, x: op.exp(emit(op.flip(emit(op.exp(x)), 0))), x=(4,))
    assert len(region_functions(MergeRegions(options)(partition_for_tensorrt(mod)))) == count


def test_a_module_without_regions_stays() -> None:
    mod = build(lambda emit, x: op.exp(x), x=(4,))
    assert MergeRegions()(mod).same_as(mod)
