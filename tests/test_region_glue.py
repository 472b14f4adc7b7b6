"""Glue at the edges of regions: what crosses is as small as can be, and nothing cheap makes a region of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from build_case import build, const
from tvm import relax
from tvm.relax import op

import relax_glue
from relax_glue.inline import inline
from relax_glue.partition import PartitionOptions, partition_with_report
from relax_glue.region_function import composite_ops, region_functions
from relax_glue.report import Report
from relax_glue.testing import check_equivalent


def partitioned(mod: tvm.IRModule, *excluded: str) -> tuple[tvm.IRModule, Report]:
    """Partition with operators excluded, and check that the module still computes the same."""
    after, report = partition_with_report(mod, PartitionOptions(excluded))
    relax.analysis.well_formed(after)
    tvm.ir.assert_structural_equal(relax_glue.partition(after, exclude_ops=excluded), after)
    rng = np.random.default_rng(0)
    inputs = [
        rng.uniform(1, 2, [int(e) for e in p.ty.shape.values]).astype(str(p.ty.dtype)) for p in mod["main"].params
    ]
    check_equivalent(mod, inline(after), inputs)
    return after, report


def regions_of(mod: tvm.IRModule) -> list[list[str]]:
    return [[o.removeprefix("relax.") for o in composite_ops(f)] for f in region_functions(mod).values()]


def between(emit: Any, x: relax.Expr, *others: relax.Expr) -> relax.Expr:
    """Return exp(cumsum(exp(x))) + others; the cumsum stays outside in these tests."""
    y = emit(op.exp(emit(op.cumsum(emit(op.exp(x)), 0))))
    for other in others:
        y = emit(op.add(y, other))
    return y


def test_a_concat_stays_where_one_tensor_crosses_instead_of_three() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        parts = [emit(op.reshape(emit(f(x)), (1, 4))) for f in (op.sin, op.cos, op.tanh)]
        return between(emit, x, emit(op.concat(parts, axis=0)))

    after, _ = partitioned(build(make, x=(4,)), "cumsum")
    first, second = regions_of(after)
    assert "concat" in first and "reshape" not in second


def test_a_slice_crosses_and_a_pad_is_made_where_it_is_wanted() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        y = emit(op.sin(x))
        small = emit(op.strided_slice(y, [0], [0], [1]))
        large = emit(op.nn.pad(emit(op.cos(small)), (0, 3, 0, 0)))
        return between(emit, x, small, large)

    after, _ = partitioned(build(make, x=(4, 8)), "cumsum")
    first, second = regions_of(after)
    assert "strided_slice" in first and "nn.pad" in second


def test_a_cast_is_made_on_the_side_where_fewer_bytes_cross() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        narrowed = emit(op.astype(emit(op.sin(x)), "float16"))
        widened = emit(op.astype(emit(op.tanh(emit(op.astype(emit(op.cos(x)), "float16")))), "float32"))
        return between(emit, x, emit(op.astype(emit(op.exp(narrowed)), "float32")), widened)

    after, _ = partitioned(build(make, x=(256,)), "cumsum")
    first, _ = region_functions(after).values()
    # sin(x) and tanh(cos(x)) as float16, and exp(x), which the cumsum reads
    assert sorted(str(ty.dtype) for ty in first.ret_ty.fields) == ["float16", "float16", "float32"]


def test_glue_that_both_regions_want_is_made_in_both_where_it_grows() -> None:
    def make(emit: Any, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        grown = emit(op.reshape(emit(op.broadcast_to(emit(op.sin(y)), (64, 8, 4))), (64, 32)))
        before = emit(op.cumsum(emit(op.multiply(x, grown)), 0))
        return op.add(emit(op.exp(before)), grown)

    after, report = partitioned(build(make, x=(64, 32), y=(8, 4)), "cumsum")
    assert [r.count("broadcast_to") for r in regions_of(after)] == [1, 1]
    first, second = region_functions(after).values()
    assert len(first.ret_ty.fields) == 2 and sum(r.count("sin") for r in regions_of(after)) == 1
    shapes = [tuple(int(e) for e in p.ty.shape.values) for p in second.params]
    assert sorted(shapes) == [(8, 4), (64, 32)] and len(report.outside) == 1


@pytest.mark.parametrize("extent", [8, 1])
def test_glue_that_does_not_grow_is_made_once(extent: int) -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        flat = emit(op.reshape(emit(op.sin(x)), (extent * 8,)))
        before = emit(op.cumsum(emit(op.exp(flat)), 0))
        return op.add(emit(op.exp(before)), flat)

    after, _ = partitioned(build(make, x=(extent, 8)), "cumsum")
    assert sum(r.count("reshape") for r in regions_of(after)) == 1


def test_an_input_is_read_again_rather_than_what_is_made_of_it() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        half = emit(op.astype(x, "float16"))
        before = emit(op.astype(emit(op.exp(half)), "float32"))
        after = emit(op.cumsum(before, 0))
        return op.add(emit(op.astype(after, "float16")), half)

    after, _ = partitioned(build(make, x=(16,)), "cumsum")
    _, second = region_functions(after).values()
    assert [str(p.ty.dtype) for p in second.params] == ["float32", "float32"]


def test_an_item_of_a_split_crosses_alone() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        parts = emit(op.split(emit(op.sin(x)), 2, axis=0))
        first, second = emit(parts[0]), emit(parts[1])
        return op.add(emit(op.exp(emit(op.cumsum(emit(op.exp(first)), 0)))), emit(op.reshape(second, (4, 8))))

    after, _ = partitioned(build(make, x=(8, 8)), "cumsum")
    second = list(region_functions(after).values())[1]
    assert regions_of(after)[0].count("split") == 1 and len(second.params) == 2


def indices(emit: Any, x: relax.Expr) -> relax.Expr:
    """Two excluded operators with arithmetic of indices between them, and work that only needs the first."""
    order = emit(op.astype(emit(op.cumsum(emit(op.exp(x)), 0)), "int32"))
    inside = emit(op.minimum(emit(op.add(order, const(1, "int32"))), const(3, "int32")))
    again = emit(op.cumsum(emit(op.astype(inside, "float32")), 0))
    return op.add(emit(op.sin(emit(op.astype(order, "float32")))), again)


def test_casts_and_arithmetic_of_indices_make_no_region() -> None:
    after, report = partitioned(build(indices, x=(4,)), "cumsum")
    assert regions_of(after)[0] == ["exp"] and "sin" in regions_of(after)[1] and len(regions_of(after)) == 2
    assert {o.op for o in report.outside} >= {"relax.add", "relax.minimum", "relax.cumsum"}
    reason = next(o for o in report.outside if o.op == "relax.minimum").reason
    assert "indices" in reason


def test_they_do_where_the_user_says_that_everything_is_worth_a_region() -> None:
    mod = build(indices, x=(4,))
    after, report = partition_with_report(mod, PartitionOptions(("cumsum",), min_region_ops=0))
    assert {o.op for o in report.outside} == {"relax.cumsum"} and len(region_functions(after)) == 3


def test_arithmetic_of_indices_goes_along_where_a_region_is() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        rows = emit(op.add(emit(op.astype(x, "int32")), const(1, "int32")))
        return op.sin(emit(op.astype(emit(op.multiply(rows, rows)), "float32")))

    after, report = partitioned(build(make, x=(4,)))
    assert len(region_functions(after)) == 1 and not report.outside


def test_what_grows_for_an_operator_outside_is_made_there() -> None:
    def grow(rows: int, result: bool = False) -> tvm.IRModule:
        def make(emit: Any, x: relax.Expr) -> relax.Expr | tuple[relax.Expr, ...]:
            wide = emit(op.reshape(emit(op.broadcast_to(emit(op.sin(x)), (rows, 2, 256))), (rows * 2, 256)))
            summed = emit(op.cumsum(wide, 0))
            return (emit(op.exp(summed)), wide) if result else op.exp(summed)

        return build(make, x=(1, 2, 256))

    after, report = partitioned(grow(64), "cumsum")
    assert regions_of(after) == [["sin"], ["exp"]]
    assert [o.op for o in report.outside] == ["relax.broadcast_to", "relax.reshape", "relax.cumsum"]
    assert "smaller" in report.outside[0].reason
    # a few bytes are not worth a kernel, and a result of the model is made where it is
    for mod in (grow(8), grow(64, result=True)):
        assert regions_of(partitioned(mod, "cumsum")[0])[0] == ["sin", "broadcast_to", "reshape"]
    _, report = partition_with_report(grow(64), PartitionOptions(("cumsum",), min_region_ops=0))
    assert [o.op for o in report.outside] == ["relax.cumsum"]


def test_an_input_that_is_a_result_is_read_where_it_comes_from() -> None:
    def make(emit: Any, x: relax.Expr) -> tuple[relax.Expr, ...]:
        same = emit(op.reshape(x, (2, 3)))
        again = emit(op.astype(emit(op.permute_dims(same, [0, 1])), "float32"))
        return emit(op.exp(same)), same, again

    mod = build(make, x=(2, 3))
    after, _ = partition_with_report(mod)
    assert regions_of(after) == [["exp"]]
    (region,) = region_functions(after).values()
    assert isinstance(region.ret_ty, relax.TensorType)
    tvm.ir.assert_structural_equal(after["main"].ret_ty, mod["main"].ret_ty)
    check_equivalent(mod, inline(after), [np.arange(6, dtype="float32").reshape(2, 3)])


def test_what_a_region_makes_and_returns_twice_leaves_once() -> None:
    def make(emit: Any, x: relax.Expr) -> tuple[relax.Expr, ...]:
        y = emit(op.exp(x))
        return y, y, emit(op.cumsum(y, 0))

    after, _ = partitioned(build(make, x=(2, 3)), "cumsum")
    (region,) = region_functions(after).values()
    assert isinstance(region.ret_ty, relax.TensorType)


def test_a_module_of_nothing_but_what_does_nothing_has_no_region() -> None:
    after, report = partition_with_report(build(lambda emit, x: op.reshape(x, (2, 3)), x=(2, 3)))
    assert not region_functions(after) and not report.outside
    check_equivalent(build(lambda emit, x: op.reshape(x, (2, 3)), x=(2, 3)), after, [np.ones((2, 3), "float32")])


def test_arithmetic_of_a_free_shape_and_casts_of_it_do_not_cut() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        y = emit(op.nn.relu(x))
        shape = emit(op.shape_to_tensor(emit(op.shape_of(y))))
        count = emit(op.astype(emit(op.take(shape, const(0, "int64"), axis=0)), "float32"))
        half = emit(op.astype(emit(op.divide(y, count)), "float16"))
        return op.astype(emit(op.nn.softmax(half)), "float32")

    mod = build(make, x=("n", 4))
    after = relax_glue.optimize(mod)
    assert len(region_functions(after)) == 1 and not relax_glue.explain(mod).outside
    check_equivalent(mod, inline(after), [np.arange(12, dtype="float32").reshape(3, 4)], exact=False, rtol=1e-2)
