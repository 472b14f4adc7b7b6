"""Public bug reports as tests: the value by numpy, before and after every stage, and what should become of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest
import tvm
import tvm_ffi
from bug_reports import layers, scripts, shapes, slices
from bug_reports.report import INT64_MAX, Array, BugReport, numbered
from tvm import relax, tirx
from tvm.relax import op

import relax_glue
from relax_glue.testing import Pair, check_many, difference, evaluate

REPORTS = (*slices.REPORTS, *shapes.REPORTS, *layers.REPORTS)

every_report = pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.name)


def leaves(result: object) -> list[Array]:
    if isinstance(result, tuple):
        return [array for field in result for array in leaves(field)]
    return [np.asarray(result)]


def assert_answers(module: tvm.IRModule, report: BugReport) -> None:
    found, right = leaves(evaluate(module, report.inputs)), report.answers()
    assert len(found) == len(right)
    for got, expected in zip(found, right, strict=True):
        reason = difference(np.asarray(expected, got.dtype), got, exact=report.exact)
        assert reason is None, f"{reason}\n{module.script()}"


def region_count(module: tvm.IRModule) -> int:
    codegens = [function.attrs.get("Codegen") for function in module.functions.values() if function.attrs]
    return codegens.count("tensorrt")


def operators(module: tvm.IRModule) -> list[str]:
    """The operators that main calls, sorted."""
    names: list[str] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
            names.append(expr.op.name)

    relax.analysis.post_order_visit(module["main"], visit)
    return sorted(names)


@every_report
def test_the_graph_as_reported(report: BugReport) -> None:
    if report.tvm_wrong:
        pytest.skip("TVM itself answers wrongly; numpy is the oracle for what comes out of the passes")
    assert_answers(report.module(), report)


@every_report
def test_canonical_form_answers_right(report: BugReport) -> None:
    module = report.module()
    canonical = relax_glue.canonicalize(module)
    assert_answers(canonical, report)
    if not report.tvm_wrong:
        check_many([Pair(module, canonical, report.inputs, exact=report.exact)])


@every_report
def test_optimized_form_answers_right(report: BugReport) -> None:
    assert_answers(relax_glue.inline(relax_glue.optimize(report.module())), report)


@pytest.mark.parametrize("report", [r for r in REPORTS if r.becomes is not None], ids=lambda r: r.name)
def test_canonical_form_has_the_operators_it_should(report: BugReport) -> None:
    assert operators(relax_glue.canonicalize(report.module())) == list(report.becomes or ())


@pytest.mark.parametrize("report", [r for r in REPORTS if r.regions is not None], ids=lambda r: r.name)
def test_number_of_regions(report: BugReport) -> None:
    optimized = relax_glue.optimize(report.module())
    assert region_count(optimized) == report.regions
    assert not relax_glue.explain(optimized).outside


def assert_script_answers(module: tvm.IRModule, inputs: list[Array], right: Iterable[Array]) -> tvm.IRModule:
    """Check the module, its canonical form and its regions put back; return the optimised form."""
    right = list(right)
    optimized = relax_glue.optimize(module)
    for stage in (module, relax_glue.canonicalize(module), relax_glue.inline(optimized)):
        for found, expected in zip(leaves(evaluate(stage, inputs)), right, strict=True):
            reason = difference(expected, found, exact=False)
            assert reason is None, f"{reason}\n{stage.script()}"
    return optimized


def test_b17_a_tuple_returned_whole_keeps_both_fields() -> None:
    x = numbered([2, 4])
    assert_script_answers(scripts.B17, [x], [x + 1, x[:, :2]])


def test_b73_a_constant_turned_shape_folds_and_the_sum_stays() -> None:
    """TVM cannot lower the sum as it stands, since the type of the reshape's result is open."""
    x, y = numbered([12]), numbered([2, 6])
    canonical = relax_glue.canonicalize(scripts.B73)
    assert operators(canonical) == ["relax.add", "relax.reshape"]
    assert_script_answers(canonical, [x, y], [x.reshape(2, 6) + y])
    assert region_count(relax_glue.optimize(scripts.B73)) == 1


def test_b74_a_kernel_stays_behind_the_symbol_of_its_output() -> None:
    x = numbered([2, 8])
    optimized = assert_script_answers(scripts.B74, [x, np.zeros((2, 8), "float32")], [np.maximum(x, 0)])
    relax.analysis.well_formed(optimized)
    assert region_count(optimized) == 1


def test_b77_only_the_chain_of_data_merges() -> None:
    x = numbered([4])
    assert_script_answers(scripts.B77, [x], [x.reshape(2, 2)])
    assert operators(relax_glue.canonicalize(scripts.B77)) == ["relax.reshape"]


def test_b79_part_of_a_shape_folds_to_the_part() -> None:
    x, y = numbered([1, 3, 8, 6]), numbered([1, 3, 10, 9])
    assert_script_answers(scripts.B79, [x, y], [y[:, :, :8, :6]])
    assert operators(relax_glue.canonicalize(scripts.B79)) == ["relax.strided_slice"]


def test_b82_a_cast_shape_beside_a_split() -> None:
    x = numbered([4, 16])
    assert_script_answers(scripts.B82, [x], [-x])


def test_b83_an_alias_by_match_cast() -> None:
    x = numbered([5, 8])
    assert_script_answers(scripts.B83, [x], [2 * x + np.float32(0.375)])


def test_b94_a_diamond_around_an_unsupported_operator_makes_two_regions() -> None:
    x = numbered([4, 4])
    a = np.maximum(x, 0)
    optimized = assert_script_answers(scripts.B94, [x], [a.T + np.sort(a, 1)[:, 1:2]])
    assert region_count(optimized) == 2
    assert [outside.op for outside in relax_glue.explain(optimized).outside] == ["relax.median"]


def test_b95_two_regions_around_a_kernel() -> None:
    x = numbered([10])
    gelu = np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x], "float32")
    optimized = assert_script_answers(scripts.B95, [x], [np.maximum(3 * gelu + 1, 0)])
    assert region_count(optimized) == 2


def test_b04_a_slice_that_runs_against_its_bounds_is_no_crash() -> None:
    """TVM refuses it when it lowers the call; a canonical form may fold it, and TensorRT must not get it."""
    report = BugReport(
        "B04",
        "https://github.com/apache/tvm/issues/19532",
        (numbered([10]),),
        lambda emit, x: emit(op.strided_slice(x, [0], [0], [5], [-1])),
        lambda x: x[:0],
    )
    module = report.module()
    canonical = relax_glue.canonicalize(module)
    if "relax.strided_slice" not in operators(canonical):
        assert_answers(canonical, report)
    assert region_count(relax_glue.optimize(module)) == 0


def test_b10_slices_behind_common_subexpression_elimination() -> None:
    def two_slices(emit: Callable[..., relax.Var], x: relax.Var) -> list[relax.Expr]:
        return [emit(op.strided_slice(x, [axis], [2], [6])) for axis in (0, 1)]

    report = BugReport(
        "B10",
        "https://github.com/apache/tvm/pull/14895",
        (numbered([8, 8]),),
        two_slices,
        lambda x: [x[2:6], x[:, 2:6]],
    )
    module = relax.transform.EliminateCommonSubexpr()(report.module())
    assert_answers(relax_glue.canonicalize(module), report)
    assert_answers(relax_glue.inline(relax_glue.optimize(module)), report)


def test_b13_sections_that_do_not_divide_the_extent_stay_out_of_regions() -> None:
    x = relax.Var("x", relax.TensorType([5, 6], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(op.split(x, 4, 0))
        builder.emit_func_output(result)
    module = builder.get()
    optimized = relax_glue.optimize(module)
    assert region_count(optimized) == 0
    assert tvm_ffi.structural_equal(optimized["main"].ret_ty, module["main"].ret_ty)


def test_b32_a_squeeze_of_an_open_extent_stays_a_squeeze() -> None:
    """At run time the extent may be 2, and then the axis is not to be dropped."""
    x = relax.Var("x", relax.TensorType([tirx.Var("n", "int64"), 3], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(op.squeeze(x, [0]))
        builder.emit_func_output(result)
    module = builder.get()
    canonical = relax_glue.canonicalize(module)
    assert operators(canonical) == ["relax.squeeze"]
    check_many([Pair(module, canonical, [numbered([1, 3])])])


def test_b109_an_end_past_the_extent_is_clamped() -> None:
    x = relax.Var("x", relax.TensorType([1, 8, 16], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(op.strided_slice(x, [1], [5], [INT64_MAX]))
        builder.emit_func_output(result)
    canonical = relax_glue.canonicalize(builder.get())
    call = canonical["main"].body.blocks[0].bindings[0].value
    assert [int(end.value) for end in call.args[3].fields] == [8]


def test_b97_no_region_boundary_has_a_rank_above_eight() -> None:
    (report,) = (report for report in REPORTS if report.name == "B97")
    optimized = relax_glue.optimize(report.module())
    for function in optimized.functions.values():
        if function.attrs and function.attrs.get("Codegen") == "tensorrt":
            types = [parameter.ty for parameter in function.params] + [function.ret_ty]
            assert all(len(ty.shape.values) <= 8 for ty in types if isinstance(ty, relax.TensorType))
    assert region_count(optimized) == 1
