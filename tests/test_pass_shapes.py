"""What is known of shapes is written into calls, and everything after them becomes static."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from build_case import build, const, ops
from pass_case import declines
from tvm import relax
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import relax_glue
from relax_glue.passes import FoldShapes
from relax_glue.testing import check_equivalent, evaluate


def ints(*values: int) -> relax.Expr:
    return const(values, "int64")


def shape_of_types(mod: tvm.IRModule) -> list[Any]:
    """Return the shape of what each binding of `main` computes."""
    values = [b.value.ty for block in mod["main"].body.blocks for b in block.bindings]
    return [getattr(ty, "shape", None) for ty in values]


def static(mod: tvm.IRModule) -> bool:
    return all(isinstance(s, relax.ShapeExpr) for s in shape_of_types(mod))


def known(emit: Any, tensor: relax.Expr, rank: int) -> relax.ShapeExpr:
    """Return a tensor as a shape of fresh symbols, as TVM's importers write it."""
    symbols = relax.ShapeExpr([tvm.tirx.Var(f"d{k}", "int64") for k in range(rank)])
    emit.__self__.match_cast(emit(op.tensor_to_shape(tensor)), relax.ShapeType(symbols.values))
    return symbols


def by_tensor(emit: Any, x: relax.Expr, *target: int) -> relax.Expr:
    """Return x reshaped to a shape that comes as a constant tensor."""
    return emit(op.reshape(x, known(emit, ints(*target), len(target))))


# -- chains of shape arithmetic --------------------------------------------------------------------------


def test_a_reshape_by_a_constant_tensor_is_static() -> None:
    # apache/tvm issue 20192 (bugs.md B73): the sum after it must know its shape
    def make(emit: Any, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        return op.add(by_tensor(emit, x, 2, 6), y)

    before = build(make, x=(12,), y=(2, 6))
    after = FoldShapes()(before)
    assert ops(after) == ["relax.reshape", "relax.add"] and static(after)
    x, y = np.arange(12, dtype="float32"), np.ones((2, 6), "float32")
    np.testing.assert_array_equal(evaluate(after, [x, y]), x.reshape(2, 6) + y)  # TVM cannot compile `before`


def test_the_shape_arithmetic_of_an_importer_folds_to_one_reshape() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        shape = emit(op.shape_to_tensor(emit(op.shape_of(x))))
        lead = emit(op.take(shape, ints(0), 0))
        rest = emit(op.prod(emit(op.take(shape, ints(1, 2), 0)), axis=[0], keepdims=True))
        target = emit(op.concat([lead, emit(op.multiply(rest, ints(1)))], 0))
        return op.reshape(x, known(emit, target, 2))

    before = build(make, x=(2, 3, 4))
    after = FoldShapes()(before)
    assert ops(after) == ["relax.reshape"] and static(after)
    check_equivalent(before, after, [np.arange(24, dtype="float32").reshape(2, 3, 4)])


def test_symbols_stay_where_their_binding_is_left_out() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        return op.exp(by_tensor(emit, x, 2, 6))

    before = build(make, x=(3, 4))
    name = "bind-known-symbols"
    for after in (FoldShapes()(before), relax_glue.canonicalize(before)):
        tvm.ir.assert_structural_equal(after["main"].ret_ty, relax.TensorType([2, 6], "float32"))
    for kept in (FoldShapes(exclude=name)(before), relax_glue.canonicalize(before, disable=name)):
        assert kept["main"].ret_ty.shape is None  # a symbol of a cast within


def test_only_the_extents_asked_for_reach_the_slice() -> None:
    # OnnxSlim issue 38 (bugs.md B79): shape_of(x)[2:4] are two ends, not four
    def make(emit: Any, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        shape = emit(op.shape_to_tensor(emit(op.shape_of(y))))
        ends = emit(op.strided_slice(shape, [0], [2], [4]))
        full = emit(op.concat([ints(1, 3), ends], 0))
        return op.dynamic_strided_slice(x, ints(0, 0, 0, 0), full, ints(1, 1, 1, 1))

    before = build(make, x=(1, 3, 9, 9), y=(1, 3, 8, 6))
    after = FoldShapes()(before)
    assert ops(after) == ["relax.strided_slice"]
    assert list(after["main"].body.blocks[0].bindings[-1].value.ty.shape.values) == [1, 3, 8, 6]
    x, y = np.arange(243, dtype="float32").reshape(1, 3, 9, 9), np.zeros((1, 3, 8, 6), "float32")
    check_equivalent(before, after, [x, y])


def test_the_size_of_a_static_tensor_ends_a_slice() -> None:
    # apache/tvm issue 20177 (bugs.md B76)
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        size = emit(op.prod(emit(op.shape_to_tensor(emit(op.shape_of(x)))), axis=[0], keepdims=True))
        flat = emit(op.reshape(x, (8,)))
        part = emit(op.dynamic_strided_slice(flat, ints(0), size, ints(1)))
        return op.reshape(part, known(emit, ints(2, 4), 2))

    before = build(make, x=(2, 4))
    after = FoldShapes()(before)
    assert ops(after) == ["relax.reshape", "relax.strided_slice", "relax.reshape"] and static(after)
    assert ops(relax_glue.canonicalize(before)) == []
    check_equivalent(before, relax_glue.canonicalize(before), [np.arange(8, dtype="float32").reshape(2, 4)])


def test_a_reshape_of_the_target_shape_is_no_reshape_of_the_data() -> None:
    # onnxruntime issue 32105 (bugs.md B77): s (2, 1) -> (2,) is the target of x
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        target = emit(op.reshape(const([[2], [2]], "int64"), (2,)))
        return op.reshape(x, known(emit, target, 2))

    before = build(make, x=(4,))
    after = FoldShapes()(before)
    assert ops(after) == ["relax.reshape"] and static(after)
    check_equivalent(before, after, [np.arange(4, dtype="float32")])


# -- inline-shape ----------------------------------------------------------------------------------------


def shapes(emit: Any, x: relax.Expr, name: Any) -> relax.Expr:
    n = x.ty.shape.values[1]
    flat, full = name(relax.ShapeExpr([n, 2])), name(relax.ShapeExpr([3, n, 2]))
    y = emit(op.broadcast_to(emit(op.reshape(x, flat)), full))
    ones = emit(op.add(emit(op.ones(full, "float32")), emit(op.zeros(full, "float32"))))
    twos = emit(op.add(ones, emit(op.full(full, const(2.0), "float32"))))
    return op.add(y, twos)


def test_a_shape_variable_is_written_into_the_call() -> None:
    before = build(lambda emit, x: shapes(emit, x, emit), x=(2, "n"))
    after = FoldShapes()(before)
    expected = build(lambda emit, x: shapes(emit, x, lambda s: s), x=(2, "n"))
    assert static(after)
    # what is bound to no variable is typed anew: TVM itself says that the spelling before is ill-formed
    tvm.ir.assert_structural_equal(after["main"].body.blocks, expected["main"].body.blocks, map_free_vars=True)


def test_a_resize_by_a_shape_variable() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        return op.image.resize2d(x, emit(op.tensor_to_shape(ints(4, 6))), layout="NCHW", method="nearest_neighbor")

    after = FoldShapes()(build(make, x=(1, 2, 2, 3)))
    expected = build(
        lambda emit, x: op.image.resize2d(x, (4, 6), layout="NCHW", method="nearest_neighbor"), x=(1, 2, 2, 3)
    )
    calls = [mod["main"].body.blocks[0].bindings[0].value for mod in (after, expected)]
    tvm.ir.assert_structural_equal(*calls, map_free_vars=True)


def test_a_shape_that_a_caller_gives_stays() -> None:
    @I.ir_module
    class Given:
        @R.function
        def main(x: R.Tensor((4,), "float32"), s: R.Shape(ndim=2)) -> R.Tensor(ndim=2, dtype="float32"):
            with R.dataflow():
                y = R.reshape(x, s)
                R.output(y)
            return y

    declines(FoldShapes(), Given)


# -- shape-to-tensor-constant, tensor-to-shape-constant --------------------------------------------------


def test_a_static_shape_as_a_tensor_is_a_constant() -> None:
    before = build(lambda emit, x: op.shape_to_tensor(emit(op.shape_of(x))), x=(2, 0, 3))
    after = FoldShapes()(before)
    np.testing.assert_array_equal(after["main"].body.body.value.numpy(), [2, 0, 3])
    check_equivalent(before, after, [np.zeros((2, 0, 3), "float32")])


def test_a_symbolic_shape_as_a_tensor_stays() -> None:
    after = FoldShapes()(build(lambda emit, x: op.shape_to_tensor(emit(op.shape_of(x))), x=("n", 3)))
    assert "relax.shape_to_tensor" in ops(after)


def test_a_tensor_that_is_no_constant_or_no_shape_stays() -> None:
    variable = build(lambda emit, x, s: op.reshape(x, emit(op.tensor_to_shape(s))), "int64", x=(4,), s=(2,))
    declines(FoldShapes(), variable)
    negative = build(lambda emit, x: op.reshape(x, emit(op.tensor_to_shape(ints(-1, 2)))), x=(4,))
    declines(FoldShapes(), negative)


def test_a_shape_used_twice_and_as_a_result() -> None:
    def make(emit: Any, x: relax.Expr) -> tuple[relax.Expr, ...]:
        s = known(emit, ints(2, 2), 2)
        return emit(op.reshape(x, s)), emit(op.zeros(s, "float32"))

    before = build(make, x=(4,))
    after = FoldShapes()(before)
    assert "relax.tensor_to_shape" not in ops(after)
    check_equivalent(before, after, [np.arange(4, dtype="float32")])


# -- static-slice ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "begin, end, stride",
    [((0, 1), (4, 5), (1, 2)), ((-3, 0), (4, -1), (1, 1)), ((1, 0), (99, 99), (2, 3)), ((3, 5), (0, 0), (-1, -2))],
)
def test_a_dynamic_slice_with_constant_bounds_is_a_slice(begin: Any, end: Any, stride: Any) -> None:
    bounds = [ints(*b) for b in (begin, end, stride)]
    before = build(lambda emit, x: op.nn.relu(emit(op.dynamic_strided_slice(x, *bounds))), x=(4, 6))
    after = FoldShapes()(before)
    assert ops(after) == ["relax.strided_slice", "relax.nn.relu"] and static(after)
    x = np.arange(24, dtype="float32").reshape(4, 6)
    right = x[tuple(slice(*b) for b in zip(begin, end, stride, strict=True))]
    np.testing.assert_array_equal(evaluate(after, [x]), right)
    check_equivalent(before, after, [x])


def test_a_dynamic_slice_with_a_variable_bound_or_a_symbolic_extent_stays() -> None:
    def make(emit: Any, x: relax.Expr, b: relax.Expr) -> relax.Expr:
        return op.dynamic_strided_slice(x, b, ints(4, 6), ints(1, 1))

    declines(FoldShapes(), build(make, "int64", x=(4, 6), b=(2,)))
    bounds = [ints(0, 0), ints(4, 6), ints(1, 1)]
    declines(FoldShapes(), build(lambda emit, x: op.dynamic_strided_slice(x, *bounds), x=("n", 6)))


# -- match-cast-known ------------------------------------------------------------------------------------


@I.ir_module
class Casts:
    @R.function
    def main(x: R.Tensor((2, "n"), "float32")):
        n = T.int64()
        with R.dataflow():
            a = R.match_cast(x, R.Tensor((2, n), "float32"))
            b = R.match_cast(a, R.Tensor(ndim=2, dtype="float32"))
            c = R.add(a, b)
            R.output(c)
        return c


def test_a_cast_to_a_type_that_the_operand_has_goes() -> None:
    after = FoldShapes()(Casts)
    assert [type(b).__name__ for b in after["main"].body.blocks[0].bindings] == ["VarBinding"]
    relax.analysis.well_formed(after)
    x = np.arange(6, dtype="float32").reshape(2, 3)
    np.testing.assert_array_equal(evaluate(after, [x]), x + x)


def test_a_cast_that_checks_or_defines_stays() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(ndim=2, dtype="float32"), y: R.Tensor((2, "n"), "float32")):
            m = T.int64()
            with R.dataflow():
                a = R.match_cast(x, R.Tensor((m, 4), "float32"))
                b = R.match_cast(y, R.Tensor((2, 3), "float32"))
                R.output(a, b)
            return (a, b)

    declines(FoldShapes(), Mod)


def test_a_cast_that_becomes_known_goes() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        y = by_tensor(emit, x, 3, 4)
        return op.nn.relu(emit.__self__.match_cast(y, relax.TensorType((3, 4), "float32")))

    after = FoldShapes()(build(make, x=(12,)))
    assert len(_bindings(after)) == 2 and static(after)


def test_a_symbol_with_two_values_stays() -> None:
    n = tvm.tirx.Var("n", "int64")

    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        shape = emit(op.tensor_to_shape(ints(2, 6)))
        emit.__self__.match_cast(shape, relax.ShapeType([n, n]))
        return op.reshape(x, relax.ShapeExpr([n, n]))

    after = FoldShapes()(build(make, x=(12,)))
    assert any(isinstance(b, relax.MatchCast) for b in _bindings(after)) and not static(after)


def test_a_symbol_of_a_parameter_is_checked_not_bound() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor((3,), "float32")):
            n = T.int64()
            with R.dataflow():
                z = R.match_cast(y, R.Tensor((n,), "float32"))
                w = R.add(x, z)
                R.output(w)
            return w

    declines(FoldShapes(), Mod)


def test_symbols_that_hang_on_each_other_and_leave_their_block() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        y = by_tensor(emit, x, 2, 6)
        size = emit(op.shape_to_tensor(emit(op.shape_of(y))))
        flipped = emit(op.take(size, ints(1, 0), 0))
        return op.reshape(y, known(emit, flipped, 2))

    before = build(make, x=(12,))
    after = FoldShapes()(before)
    assert ops(after) == ["relax.reshape", "relax.reshape"] and static(after)
    x = np.arange(12, dtype="float32")
    np.testing.assert_array_equal(evaluate(after, [x]), x.reshape(6, 2))


# -- refine-type -----------------------------------------------------------------------------------------


def test_known_types_travel_through_every_consumer() -> None:
    def make(emit: Any, x: relax.Expr, w: relax.Expr) -> relax.Expr:
        y = emit(op.nn.relu(by_tensor(emit, x, 1, 1, 4, 4)))
        y = emit(op.nn.conv2d(y, w))
        parts = emit(op.split(y, 2, axis=1))
        y = emit(op.concat([emit(parts[1]), emit(parts[0])], axis=1))
        y = emit(op.nn.max_pool2d(y, (2, 2), (2, 2)))
        y = emit(op.nn.softmax(emit(op.permute_dims(y, [0, 2, 3, 1]))))
        return op.add(y, emit(op.image.resize2d(emit(op.nn.relu(y)), (2, 2), layout="NHWC")))

    before = build(make, x=(16,), w=(4, 1, 1, 1))
    assert not static(before)
    after = FoldShapes()(before)
    shapes = [t.fields[0].shape if isinstance(t, relax.TupleType) else t.shape for t in map(_type, _bindings(after))]
    assert all(isinstance(s, relax.ShapeExpr) for s in shapes)
    relax.analysis.well_formed(after)
    x, w = np.arange(16, dtype="float32"), np.arange(4, dtype="float32").reshape(4, 1, 1, 1)
    assert evaluate(after, [x, w]).shape == (1, 2, 2, 4)


def _bindings(mod: tvm.IRModule) -> list[relax.Binding]:
    return [b for block in mod["main"].body.blocks for b in block.bindings]


def _type(binding: relax.Binding) -> relax.Type:
    return binding.value.ty


def test_symbolic_types_travel_too() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")):
            n = T.int64()
            with R.dataflow():
                t = R.match_cast(x, R.Tensor(ndim=2, dtype="float32"))
                a = R.nn.relu(t)
                b = R.exp(a)
                R.output(b)
            return b

    after = FoldShapes()(Mod)
    assert ops(after) == ["relax.nn.relu", "relax.exp"] and static(after)


def test_the_signature_stays_and_the_region_knows_its_result() -> None:
    before = build(lambda emit, x: op.nn.relu(by_tensor(emit, x, 3, 4)), x=(12,))
    after = relax_glue.optimize(before)
    assert after["main"].ret_ty.ndim == before["main"].ret_ty.ndim and len(after["main"].params) == 1
    (region,) = relax_glue.explain(before).regions
    assert region.outputs == ["float32(3, 4)"]


def test_a_type_that_does_not_follow_stays() -> None:
    mod = build(lambda emit, x: op.nn.relu(emit(op.unique(x))), x=(4,))
    declines(FoldShapes(), mod)


def test_every_consumer_of_a_value_is_refined() -> None:
    def make(emit: Any, x: relax.Expr) -> tuple[relax.Expr, ...]:
        y = by_tensor(emit, x, 2, 3)
        return emit(op.exp(y)), emit(op.negative(y)), y

    before = build(make, x=(6,))
    after = FoldShapes()(before)
    assert static(after)
    check_equivalent(before, after, [np.arange(6, dtype="float32")])


def test_what_a_cast_casts_keeps_a_binding_of_its_own() -> None:
    """TVM's conversion to dataflow nests it, so a second run would write what the first had not."""

    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((3, "n"), "float32")):
            y = R.permute_dims(x, axes=None)
            return R.strided_slice(y, (0,), (0,), (9223372036854775807,), assume_inbound=False)

    once = relax_glue.canonicalize(Mod)
    tvm.ir.assert_structural_equal(relax_glue.canonicalize(once), once)
