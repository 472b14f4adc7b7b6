"""The partition: what goes into regions, in which form, and that nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from build_case import build, const, ops
from tvm import relax
from tvm.relax import op
from tvm.relax.backend.contrib.tensorrt import _tensorrt_patterns, partition_for_tensorrt
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import relax_glue
from relax_glue.errors import OffloadError, UnknownNameError
from relax_glue.inline import inline
from relax_glue.partition import PartitionOptions, partition_with_report
from relax_glue.region_function import composite_name, composite_ops, region_functions
from relax_glue.testing import check_equivalent


def regions_of(mod: tvm.IRModule) -> list[list[str]]:
    """Return the operators of each region, without the prefix."""
    return [[o.removeprefix("relax.") for o in composite_ops(f)] for f in region_functions(mod).values()]


def partitioned(mod: tvm.IRModule, **options: Any) -> tvm.IRModule:
    """Partition, and check what holds for every partition."""
    kept = tvm_ffi.structural_hash(mod)
    after = relax_glue.partition(mod, **options)
    assert tvm_ffi.structural_hash(mod) == kept, "the partition changed its input"
    relax.analysis.well_formed(after)
    tvm.ir.assert_structural_equal(relax_glue.partition(after, **options), after)
    back = inline(after)
    relax.analysis.well_formed(back)
    assert not region_functions(back)
    for var, func in mod.functions_items():
        if isinstance(func, relax.Function):
            assert sorted(ops(back, var.name_hint)) == sorted(ops(mod, var.name_hint))
            tvm.ir.assert_structural_equal(after[var.name_hint].ty, func.ty, map_free_vars=True)
    return after


def whole(mod: tvm.IRModule) -> tvm.IRModule:
    """Check that a module with one block becomes one region and comes back as it was."""
    after = partitioned(mod)
    assert len(region_functions(after)) == 1
    tvm.ir.assert_structural_equal(inline(after), mod)
    return after


def chain(emit: Any, x: relax.Expr) -> relax.Expr:
    return op.sigmoid(emit(op.nn.relu(emit(op.exp(x)))))


# -- where code may stand --------------------------------------------------------------------------------


def test_a_chain_is_one_region_and_the_numbers_stay() -> None:
    mod = build(chain, x=(2, 3))
    after = whole(mod)
    assert regions_of(after) == [["exp", "nn.relu", "sigmoid"]]
    check_equivalent(mod, inline(after), [np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)])


@I.ir_module
class Functions:
    @R.function(private=True)
    def helper(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            y = R.exp(x)
            R.output(y)
        return y

    @R.function
    def encode(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Functions
        with R.dataflow():
            a = R.nn.relu(x)
            b = cls.helper(a)
            c = R.tanh(b)
            R.output(c)
        return c

    @R.function
    def decode(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.sigmoid(x)
            R.output(a)
        return a


def test_every_function_by_its_own_name() -> None:
    after = partitioned(Functions)
    assert sorted(region_functions(after)) == [
        "decode_tensorrt_0",
        "encode_tensorrt_0",
        "encode_tensorrt_1",
        "helper_tensorrt_0",
    ]
    outside = partition_with_report(Functions)[1].outside
    assert [(o.op, o.name, o.function) for o in outside] == [("call of helper", "b", "encode")]
    assert outside[0].reason == "TensorRT has no layer for a call to a function, helper"
    assert "inline the function" in outside[0].hint


def test_a_kernel_and_a_packed_function_are_named() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        y = emit(op.erf(x))
        call = relax.Call(tvm.ir.Op.get("relax.call_pure_packed"), [relax.ExternFunc("mine"), y], None, [x.ty])
        return emit(call)

    _, report = partition_with_report(relax.transform.LegalizeOps()(build(make, x=(2, 3))))
    assert [o.reason for o in report.outside] == [
        "TensorRT has no layer for a TIR kernel, erf",
        "TensorRT has no layer for a packed function, mine",
    ]
    assert all(o.hint for o in report.outside)


def test_a_region_that_returns_a_tuple_tells_its_items() -> None:
    mod = build(lambda emit, x: relax.Tuple([emit(op.split(x, 2)), emit(op.exp(x))]), x=(4,))
    _, report = partition_with_report(mod)
    assert [r.outputs for r in report.regions] == [["(float32(2), float32(2))", "float32(4)"]]


def test_a_name_that_is_taken_is_not_used_again() -> None:
    mod = build(chain, x=(2, 3)).clone()
    mod.update_func(
        tvm.ir.GlobalVar("main_tensorrt_0"), Functions["decode"].with_attr("global_symbol", "main_tensorrt_0")
    )
    after = relax_glue.partition(mod)
    assert sorted(region_functions(after)) == ["main_tensorrt_0_tensorrt_0", "main_tensorrt_1"]


@I.ir_module
class Branches:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool")):
        with R.dataflow():
            y = R.exp(x)
            R.output(y)
        if c:
            with R.dataflow():
                a = R.multiply(y, y)
                z1 = R.add(a, y)
                R.output(z1)
            z = z1
        else:
            with R.dataflow():
                z2 = R.subtract(y, x)
                R.output(z2)
            z = z2
        with R.dataflow():
            w = R.tanh(z)
            R.output(w)
        return w


def test_branches_and_blocks_each_have_their_regions() -> None:
    after = partitioned(Branches)
    assert sorted(regions_of(after)) == [["exp"], ["multiply", "add"], ["subtract"], ["tanh"]]
    tvm.ir.assert_structural_equal(inline(after), Branches)


@I.ir_module
class Impure:
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            R.output(a)
        R.print(a, format="{}")
        b = R.negative(a)
        with R.dataflow():
            c = R.nn.relu(b)
            R.output(c)
        return c


def test_code_outside_blocks_keeps_its_order_and_is_reported() -> None:
    after, report = partition_with_report(Impure)
    assert regions_of(after) == [["exp"], ["nn.relu"]]
    assert [o.op for o in report.outside] == ["relax.print", "relax.negative"]
    assert all("outside every dataflow block" in o.reason and o.hint for o in report.outside)
    kinds = [type(b).__name__ for b in after["main"].body.blocks]
    assert kinds == ["DataflowBlock", "BindingBlock", "DataflowBlock"]
    taken = relax_glue.optimize(Impure)
    assert regions_of(taken) == [["exp"], ["negative", "nn.relu"]]
    relax.analysis.well_formed(taken)


@I.ir_module
class Kernels:
    @T.prim_func(private=True, s_tir=True)
    def copy(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("copy"):
                v = T.axis.spatial(4, i)
                b[v] = a[v]

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = Kernels
        with R.dataflow():
            a = R.exp(x)
            b = R.call_tir(cls.copy, (a,), out_ty=R.Tensor((4,), "float32"))
            c = R.nn.relu(b)
            R.output(c)
        return c


def test_a_tir_call_stands_between_two_regions() -> None:
    # apache/tvm issue 17120 (bugs.md B95)
    after, report = partition_with_report(Kernels)
    assert regions_of(after) == [["exp"], ["nn.relu"]]
    assert [(o.op, o.name) for o in report.outside] == [("relax.call_tir", "b")]
    tvm.ir.assert_structural_equal(inline(after), Kernels)


def test_a_match_cast_is_no_wall() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(ndim=2, dtype="float32"), y: R.Tensor((4, 4), "float32")):
            m = T.int64()
            with R.dataflow():
                p = R.exp(y)
                a = R.match_cast(x, R.Tensor((m, 4), "float32"))
                b = R.nn.relu(a)
                q = R.negative(p)
                R.output(b, q)
            return (b, q)

    after = partitioned(Mod)
    assert len(region_functions(after)) == 1
    casts = [b for b in after["main"].body.blocks[0].bindings if isinstance(b, relax.MatchCast)]
    assert len(casts) == 1


# -- what goes in and out --------------------------------------------------------------------------------


@I.ir_module
class Tuples:
    @R.function
    def main(
        x: R.Tensor((2, 6), "float32"),
        t: R.Tuple(R.Tensor((2, 2), "float32"), R.Tuple(R.Tensor((2, 2), "float32"), R.Tensor((1,), "float32"))),
    ):
        with R.dataflow():
            s = R.split(x, 3, axis=1)
            t0 = t[0]
            t1 = t[1]
            t10 = t1[0]
            s2 = s[2]
            s0 = s[0]
            a = R.add(s2, t0)
            b = R.multiply(s0, t10)
            nested = (a, (b, x))
            R.output(nested, a)
        return (nested, a, x, a)


def test_tuples_nested_results_parameters_and_duplicates() -> None:
    after = partitioned(Tuples)
    assert [sorted(r) for r in regions_of(after)] == [["add", "multiply", "split"]]
    tvm.ir.assert_structural_equal(after["main"].ret_ty, Tuples["main"].ret_ty)


def test_items_keep_their_numbers_across_a_region() -> None:
    # the split is inside, its items leave in another order (bugs.md B89)
    def make(emit: Any, x: relax.Expr) -> tuple[relax.Expr, ...]:
        parts = emit(op.split(x, [3, 5], axis=1))
        return emit(parts[2]), emit(parts[0]), emit(op.concat([emit(parts[1]), emit(parts[0])], axis=1))

    mod = build(make, x=(1, 8))
    after = partitioned(mod)
    (region,) = region_functions(after).values()
    assert isinstance(region.ret_ty, relax.TupleType)
    check_equivalent(mod, inline(after), [np.arange(8, dtype="float32").reshape(1, 8)])


def test_a_value_that_is_used_inside_and_outside_leaves_once() -> None:
    def make(emit: Any, x: relax.Expr) -> tuple[relax.Expr, ...]:
        y = emit(op.exp(x))
        return y, emit(op.negative(y)), y

    mod = build(make, x=(3,))
    after = partitioned(mod)
    (region,) = region_functions(after).values()
    assert len(region.ret_ty.fields) == 2
    check_equivalent(mod, inline(after), [np.arange(3, dtype="float32")])


def test_a_parameter_and_a_constant_as_results() -> None:
    def make(emit: Any, x: relax.Expr) -> tuple[relax.Expr, ...]:
        return x, emit(op.exp(x)), const([1.0, 2.0])

    mod = build(make, x=(2,))
    after = partitioned(mod)
    assert regions_of(after) == [["exp"]]
    check_equivalent(mod, inline(after), [np.zeros(2, "float32")])


def test_one_tensor_twice_is_one_parameter() -> None:
    mod = build(lambda emit, x: op.multiply(emit(op.add(x, x)), x), x=(3,))
    (region,) = region_functions(whole(mod)).values()
    assert len(region.params) == 1


def test_a_module_without_work_stays() -> None:
    mod = build(lambda emit, x: (x, const(1.0)), x=(2,))
    assert relax_glue.partition(mod).same_as(mod)


# -- symbols ---------------------------------------------------------------------------------------------


def test_a_symbolic_batch_is_the_region_s_own() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        n = x.ty.shape.values[0]
        return op.exp(emit(op.reshape(emit(op.nn.relu(x)), relax.ShapeExpr([n, 12]))))

    mod = build(make, x=("n", 3, 4))
    after = whole(mod)
    (region,) = region_functions(after).values()
    inner, outer = region.params[0].ty.shape.values[0], after["main"].params[0].ty.shape.values[0]
    assert isinstance(inner, tvm.tirx.Var) and not inner.same_as(outer)
    check_equivalent(mod, inline(after), [np.arange(24, dtype="float32").reshape(2, 3, 4)])


def test_symbols_that_no_operand_defines_come_as_a_shape() -> None:
    def make(emit: Any, y: relax.Expr) -> relax.Expr:
        n = y.ty.shape.values[0]
        twice = emit(op.concat([y, y]))  # (n * 2,) does not define n
        return op.reshape(emit(op.exp(twice)), relax.ShapeExpr([n, 2]))

    mod = build(make, y=("n",))
    after = partitioned(mod, exclude_ops=["concat"])
    regions = list(region_functions(after).values())
    assert regions, "nothing was offloaded"
    (shape,) = [p for p in regions[0].params if isinstance(p.ty, relax.ShapeType)]
    assert len(shape.ty.values) == 1
    tvm.ir.assert_structural_equal(inline(after), mod)


def test_the_numbers_of_a_shape_are_computed_where_they_are_read() -> None:
    """On the host they would be an input that lies elsewhere than the others; what TVM keeps has them there."""

    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        numbers = emit(op.astype(emit(op.shape_to_tensor(relax.ShapeExpr(x.ty.shape.values))), "float32"))
        return op.add(emit(op.max(x)), numbers)

    mod = build(make, x=("n", 3))
    (region,) = regions_of(whole(mod))
    assert "shape_to_tensor" in region
    kept = regions_of(partitioned(mod, exclude_ops=["astype"]))
    assert kept and not any("shape_to_tensor" in region for region in kept)


# -- options ---------------------------------------------------------------------------------------------


def softmaxed(emit: Any, x: relax.Expr) -> relax.Expr:
    return op.exp(emit(op.nn.softmax(emit(op.nn.relu(x)))))


@pytest.mark.parametrize("name", ["nn.softmax", "relax.nn.softmax"])
def test_an_operator_can_be_excluded(name: str) -> None:
    mod = build(softmaxed, x=(2, 3))
    after = partitioned(mod, exclude_ops=[name])
    assert regions_of(after) == [["nn.relu"], ["exp"]]
    assert relax_glue.partition(mod, exclude_ops=name).script() == after.script()
    (outside,) = relax_glue.explain(mod, exclude_ops=[name]).outside
    assert (outside.op, outside.reason) == ("relax.nn.softmax", "relax.nn.softmax is excluded by exclude_ops")


def test_a_binding_can_be_excluded_by_name_and_a_call_by_predicate() -> None:
    mod = build(lambda emit, x: op.exp(emit(op.exp(emit(op.exp(x))))), x=(2, 3))
    names = [b.var.name for b in mod["main"].body.blocks[0].bindings]
    by_name = partitioned(mod, exclude_names=[names[1]])
    seen: list[str] = []

    def exclude(call: relax.Call, name: str) -> bool:
        assert call.op.name == "relax.exp"
        seen.append(name)
        return name == names[1]

    by_predicate = relax_glue.partition(mod, exclude=exclude)
    assert len(region_functions(by_name)) == 2 and set(seen) == set(names[:3])
    tvm.ir.assert_structural_equal(by_name, by_predicate)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"exclude_ops": ["nn.softmacks"]}, "'nn.softmacks'.*no Relax operator"),
        ({"exclude_names": ["lv99"]}, "'lv99'.*no binding"),
    ],
)
def test_an_unknown_name_is_an_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UnknownNameError, match=message):
        relax_glue.partition(build(softmaxed, x=(2, 3)), **options)


def test_small_regions_stay_outside_unless_they_are_all_there_is() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        y = emit(op.nn.softmax(emit(op.exp(x))))
        return op.exp(emit(op.negative(emit(op.exp(y)))))

    mod = build(make, x=(2, 3))
    options = {"exclude_ops": ["nn.softmax"], "min_region_ops": 2}
    after, report = partition_with_report(mod, PartitionOptions(("nn.softmax",), min_region_ops=2))
    assert regions_of(after) == [["exp", "negative", "exp"]]
    small = next(o for o in report.outside if o.op == "relax.exp")
    assert "below min_region_ops = 2" in small.reason and "min_region_ops" in small.hint
    tvm.ir.assert_structural_equal(partitioned(mod, **options), after)
    alone = build(lambda emit, x: op.exp(x), x=(2, 3))
    assert regions_of(partitioned(alone, min_region_ops=5)) == [["exp"]]


def test_glue_alone_is_no_region_unless_it_is_all_there_is() -> None:
    def make(emit: Any, x: relax.Expr) -> tuple[relax.Expr, ...]:
        flat = emit(op.reshape(emit(op.permute_dims(x)), (6,)))
        return emit(op.nn.softmax(flat)), flat

    mod = build(make, x=(2, 3))
    after, report = partition_with_report(mod, PartitionOptions(("nn.softmax",)))
    assert not region_functions(after)
    moved = [o for o in report.outside if o.op != "relax.nn.softmax"]
    assert len(moved) == 2 and all("only move data" in o.reason for o in moved)
    alone = build(lambda emit, x: op.reshape(emit(op.permute_dims(x)), (6,)), x=(2, 3))
    assert regions_of(partitioned(alone)) == [["permute_dims", "reshape"]]


def test_full_offload_names_operator_place_and_reason() -> None:
    mod = build(lambda emit, x: op.negative(emit(op.nonzero(x))), "int64", x=(4,))
    with pytest.raises(OffloadError, match=r"relax\.nonzero \(lv in main\): TensorRT has no layer for relax\.nonzero"):
        relax_glue.partition(mod, require_full_offload=True)
    fine = build(chain, x=(2, 3))
    assert len(region_functions(relax_glue.partition(fine, require_full_offload=True))) == 1


def test_a_long_list_of_what_stays_is_cut() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        for _ in range(7):
            x = emit(op.exp(x))
        return x

    with pytest.raises(OffloadError, match="7 operators cannot go to TensorRT: .*; and 2 more"):
        relax_glue.partition(build(make, x=(2,)), exclude_ops=["exp"], require_full_offload=True)


# -- the form --------------------------------------------------------------------------------------------


def composites(region: relax.Function) -> list[relax.Function]:
    bindings = [b for block in region.body.blocks for b in block.bindings]
    return [b.value for b in bindings if isinstance(b.value, relax.Function)]


def test_region_functions_have_the_form_of_upstream() -> None:
    mod = build(chain, x=(2, 3))
    (ours,), (theirs,) = (region_functions(p(mod)).values() for p in (relax_glue.partition, partition_for_tensorrt))
    assert dict(ours.attrs.items()).keys() == dict(theirs.attrs.items()).keys() == {"Codegen", "global_symbol"}
    assert str(ours.attrs["global_symbol"]) == "main_tensorrt_0"
    assert [type(b).__name__ for b in ours.body.blocks] == [type(b).__name__ for b in theirs.body.blocks]
    for mine, right in zip(composites(ours), composites(theirs), strict=True):
        assert str(mine.attrs["Composite"]) == str(right.attrs["Composite"])
        tvm.ir.assert_structural_equal(mine, right, map_free_vars=True)


def test_constants_stay_inside_their_composite() -> None:
    mod = build(lambda emit, x: op.add(x, const([1.0, 2.0])), x=(2,))
    (region,) = region_functions(whole(mod)).values()
    (composite,) = composites(region)
    assert len(region.params) == len(composite.params) == 1


def pattern_names() -> list[tuple[str, str]]:
    """Return (composite name, operator) of each pattern of TVM's table that matches one operator."""
    found = []
    for name, pattern, *_ in _tensorrt_patterns():
        found.append((name, str(pattern.op.expr.name)))
    return found


@pytest.mark.parametrize("composite, operator", sorted(set(pattern_names())))
def test_composites_are_named_as_upstream_names_them(composite: str, operator: str) -> None:
    assert composite_name(operator) == composite


def test_a_partition_by_upstream_is_accepted() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        y = emit(op.take(emit(op.nn.relu(x)), const([1, 0], "int64"), 1))
        return op.exp(y)

    theirs = partition_for_tensorrt(build(make, x=(2, 3)))
    after = relax_glue.partition(theirs)
    assert sorted(regions_of(after)) == [["exp"], ["nn.relu"], ["take"]]
    for name, region in region_functions(theirs).items():
        assert after[name].same_as(region)
    tvm.ir.assert_structural_equal(relax_glue.optimize(after), after)
    check_equivalent(inline(theirs), inline(after), [np.arange(6, dtype="float32").reshape(2, 3)])


def test_regions_are_put_back_outside_blocks_too() -> None:
    mod = build(chain, x=(2, 3))
    flat = relax.transform.ToNonDataflow()(relax_glue.partition(mod))
    back = inline(flat)
    relax.analysis.well_formed(back)
    tvm.ir.assert_structural_equal(back, mod)


def test_putting_back_keeps_the_names() -> None:
    mod = build(chain, x=(2, 3))
    before, back = (
        [b.var.name for b in m["main"].body.blocks[0].bindings] for m in (mod, inline(relax_glue.partition(mod)))
    )
    assert back[:2] == before[:2] == ["lv", "lv1"] and back[-1] == before[-1] == "gv"
