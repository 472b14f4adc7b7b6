"""ResolveIf: branches whose condition is known, and guards of empty tensors."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import relax_glue
from relax_glue import canonicalize
from relax_glue.errors import UnknownNameError
from relax_glue.inline import inline
from relax_glue.passes import ConvertToDataflow, ResolveIf
from relax_glue.passes.resolve_if import DROP_GUARD, RESOLVE
from relax_glue.testing import Pair, check_equivalent, check_many, evaluate

F2 = relax.TensorType(ndim=2, dtype="float32")


def blocks(mod: tvm.IRModule) -> tvm.IRModule:
    return ConvertToDataflow()(mod)


def ifs(mod: tvm.IRModule) -> int:
    found: list[relax.If] = []
    relax.analysis.post_order_visit(
        mod["main"], lambda expr: found.append(expr) if isinstance(expr, relax.If) else None
    )
    return len(found)


def operators(mod: tvm.IRModule) -> list[str]:
    names: list[str] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
            names.append(expr.op.name.removeprefix("relax."))

    relax.analysis.post_order_visit(mod["main"], visit)
    return names


def resolved(before: tvm.IRModule, *inputs: np.ndarray, left: int = 0) -> tvm.IRModule:
    """Resolve a module; check the hygiene of the pass and the numbers; return what became of it."""
    kept = tvm_ffi.structural_hash(before, map_free_vars=True)
    after = ResolveIf()(before)
    assert tvm_ffi.structural_hash(before, map_free_vars=True) == kept, "the pass changed its input"
    relax.analysis.well_formed(after)
    assert ifs(after) == left
    tvm.ir.assert_structural_equal(ResolveIf()(after), after)
    check_equivalent(before, after, inputs)
    return after


def stays(before: tvm.IRModule) -> None:
    assert ResolveIf()(before).same_as(before)


ONES = np.ones((2, 3), "float32")


# -- known conditions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "operator"), [(True, "sin"), (False, "cos")])
def test_a_constant_condition_takes_its_branch_into_the_block(value: bool, operator: str) -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            a = R.exp(x)
            if R.const(value, "bool"):
                b: R.Tensor((2, 3), "float32") = R.sin(a)
            else:
                b: R.Tensor((2, 3), "float32") = R.cos(a)
            c = R.negative(b)
            d = R.abs(b)
            return R.add(c, d)

    after = resolved(blocks(Mod), ONES)
    assert operators(after) == ["exp", operator, "negative", "abs", "add"]
    (block,) = after["main"].body.blocks
    assert isinstance(block, relax.DataflowBlock)
    outputs = [b.var for b in block.bindings if not isinstance(b.var, relax.DataflowVar)]
    assert len(outputs) == 1, "what only the joined block uses is still given out"


@I.ir_module
class Static:
    """`if x.numel() == 0` of an x that has elements, as TVM's ONNX importer spells it."""

    @R.function
    def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor(dtype="float32", ndim=2):
        k = T.int64()
        n = R.prod(R.shape_to_tensor(R.shape_of(x)))
        empty = R.astype(R.equal(n, R.const(0, "int64")), "bool")
        if empty:
            y: R.Tensor(dtype="float32", ndim=2) = R.const(np.zeros((0, 3), "float32"))
        else:
            y: R.Tensor(dtype="float32", ndim=2) = R.exp(x)
        z = R.match_cast(y, R.Tensor((k, 3), "float32"))
        return R.negative(z)


def test_a_condition_on_static_extents() -> None:
    after = resolved(blocks(Static), ONES)
    assert operators(after) == ["exp", "negative"]


def test_a_condition_on_static_extents_in_the_pipeline() -> None:
    after = relax_glue.canonicalize(Static)
    assert operators(after) == ["exp", "negative"]
    assert [int(e) for e in after["main"].ret_ty.shape.values] == [2, 3], "the extents of the branch are known now"
    check_equivalent(Static, after, [ONES])
    assert len(relax_glue.explain(Static).regions) == 1


def test_a_condition_computed_from_float_constants_needs_the_pipeline() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            t = R.add(R.const(0.25, "float32"), R.const(0.5, "float32"))
            if R.greater(t, R.const(0.5, "float32")):
                y: R.Tensor((2, 3), "float32") = R.sin(x)
            else:
                y: R.Tensor((2, 3), "float32") = R.cos(x)
            return y

    stays(blocks(Mod))
    assert operators(relax_glue.canonicalize(Mod)) == ["sin"]
    assert ifs(relax_glue.canonicalize(Mod, disable=["ResolveIf"])) == 1
    assert ifs(relax_glue.canonicalize(Mod, disable=["FoldShapes", "FoldConstants"])) == 1


def compares(extent: str, compare: object, constant: int, bounds: dict[str, dict[str, int]] | None = None):
    """A module on x of (n, 3), with `if compare(extent, constant)`."""
    bb = relax.BlockBuilder()
    n = tvm.tirx.Var("n", "int64")
    shapes = {"n": [n, 3], "n + 1": [n + 1, 3], "n * 2": [n * 2, 3]}
    x = relax.Var("x", relax.TensorType(shapes["n"], "float32"))
    w = relax.Var("w", relax.TensorType(shapes[extent], "float32"))
    with bb.function("main", [x, w], attrs=bounds or {}):
        s = bb.emit(relax.op.shape_to_tensor(bb.emit(relax.op.shape_of(w))))
        e = bb.emit(relax.op.take(s, relax.const(0, "int64"), axis=0))
        cond = bb.emit(compare(e, relax.const(constant, "int64")))
        branches = []
        for op in (relax.op.sin, relax.op.cos):
            bb._begin_binding_block()
            y = bb.emit(op(x))
            branches.append(relax.SeqExpr([bb._end_block()], y))
        bb.emit_func_output(bb.emit(relax.If(cond, *branches)))
    return blocks(bb.get())


op = relax.op


@pytest.mark.parametrize(
    ("extent", "compare", "constant", "taken"),
    [
        ("n + 1", op.equal, 0, "cos"),
        ("n + 1", op.greater, 0, "sin"),
        ("n", op.less, 0, "cos"),
        ("n", op.greater_equal, 0, "sin"),
        ("n * 2", op.equal, 7, "cos"),
    ],
)
def test_a_condition_that_holds_for_every_extent(extent: str, compare: object, constant: int, taken: str) -> None:
    mod = compares(extent, compare, constant)
    rows = {"n": 2, "n + 1": 3, "n * 2": 4}[extent]
    assert taken in operators(resolved(mod, ONES, np.ones((rows, 3), "float32")))


@pytest.mark.parametrize(
    ("extent", "compare", "constant"), [("n", op.equal, 3), ("n + 1", op.less, 3), ("n * 2", op.greater, 6)]
)
def test_a_condition_that_depends_on_the_extent_stays(extent: str, compare: object, constant: int) -> None:
    stays(compares(extent, compare, constant))


def test_declared_bounds_are_facts() -> None:
    lower = {"tir_var_lower_bound": {"n": 1}}
    assert operators(resolved(compares("n", op.equal, 0, lower), ONES, ONES)) == ["cos"]
    upper = {"tir_var_upper_bound": {"n": 8}}
    assert operators(resolved(compares("n * 2", op.greater, 16, upper), ONES, np.ones((4, 3), "float32"))) == ["cos"]
    stays(compares("n * 2", op.greater, 15, upper))


def test_a_narrow_integer_that_may_wrap_is_not_followed() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n", 3), "float32")) -> R.Tensor(("n", 3), "float32"):
            n = T.int64()
            e = R.astype(R.shape_to_tensor(R.shape_of(x)), "int32")
            f = R.take(e, R.const(0, "int64"), axis=0)
            if R.greater_equal(f, R.const(0, "int32")):
                y: R.Tensor((n, 3), "float32") = R.sin(x)
            else:
                y: R.Tensor((n, 3), "float32") = R.cos(x)
            return y

    stays(blocks(Mod))


# -- nesting, results, what is around --------------------------------------------------------------------


@I.ir_module
class Nested:
    """Inner conditions that follow from outer ones: the same, and one that is implied."""

    @R.function
    def main(x: R.Tensor(("n", 3), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(dtype="float32", ndim=2):
        n = T.int64()
        r = R.take(R.shape_to_tensor(R.shape_of(x)), R.const(0, "int64"), axis=0)
        few = R.less(r, R.const(4, "int64"))
        if c:
            if c:
                y: R.Tensor(dtype="float32", ndim=2) = R.sin(x)
            else:
                y: R.Tensor(dtype="float32", ndim=2) = R.cos(x)
        else:
            if few:
                if R.greater(r, R.const(7, "int64")):
                    z: R.Tensor(dtype="float32", ndim=2) = R.tan(x)
                else:
                    z: R.Tensor(dtype="float32", ndim=2) = R.exp(x)
            else:
                if R.greater(r, R.const(2, "int64")):
                    z: R.Tensor(dtype="float32", ndim=2) = R.negative(x)
                else:
                    z: R.Tensor(dtype="float32", ndim=2) = R.abs(x)
            y: R.Tensor(dtype="float32", ndim=2) = z
        return y


@pytest.mark.parametrize("rows", [2, 5])
@pytest.mark.parametrize("condition", [True, False])
def test_inside_a_branch_its_condition_is_known(rows: int, condition: bool) -> None:
    x = np.linspace(-1, 1, rows * 3, dtype="float32").reshape(rows, 3)
    after = resolved(blocks(Nested), x, np.array(condition), left=2)
    assert not {"cos", "tan", "abs"} & set(operators(after))


def test_tuples_and_values_with_more_users() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            if R.const(True, "bool"):
                a = R.sin(x)
                t: R.Tuple(R.Tensor((2, 3), "float32"), R.Tensor((2, 3), "float32")) = (a, x)
            else:
                b = R.cos(x)
                t: R.Tuple(R.Tensor((2, 3), "float32"), R.Tensor((2, 3), "float32")) = (b, b)
            u = t[0]
            v = t[1]
            return (R.add(u, v), R.multiply(u, u), t)

    after = resolved(blocks(Mod), ONES)
    assert operators(after) == ["sin", "add", "multiply"]


def test_a_branch_that_only_names_a_value() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            if R.const(False, "bool"):
                y: R.Tensor((2, 3), "float32") = R.sin(x)
            else:
                y: R.Tensor((2, 3), "float32") = x
            if R.const(True, "bool"):
                z: R.Tensor((2, 3), "float32") = y
            else:
                z: R.Tensor((2, 3), "float32") = R.cos(y)
            return z

    assert operators(resolved(blocks(Mod), ONES)) == []


def test_impure_code_of_a_branch_keeps_its_order() -> None:
    @I.ir_module
    class Mod:
        @R.function(pure=False)
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            a = R.exp(x)
            _ = R.print(format="first")
            if R.const(True, "bool"):
                _1 = R.print(format="second")
                y: R.Tensor((2, 3), "float32") = R.sin(a)
            else:
                y: R.Tensor((2, 3), "float32") = a
            _2 = R.print(format="third")
            return R.negative(y)

    after = resolved(blocks(Mod), ONES)
    assert operators(after) == ["exp", "print", "print", "sin", "print", "negative"]
    printed = [
        b.value.args[0].value
        for block in after["main"].body.blocks
        for b in block.bindings
        if isinstance(b.value, relax.Call) and b.value.op.name == "relax.print"
    ]
    assert printed == ["first", "second", "third"]


def test_symbols_of_the_branch_taken_go_along() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor(dtype="int64", ndim=2):
            m = T.int64()
            k = T.int64()
            if R.const(True, "bool"):
                f = R.nonzero(x)
                c = R.match_cast(f, R.Tensor((2, m), "int64"))
                y: R.Tensor(dtype="int64", ndim=2) = R.add(c, c)
            else:
                y: R.Tensor(dtype="int64", ndim=2) = R.const(np.zeros((2, 0), "int64"), "int64")
            z = R.match_cast(y, R.Tensor((2, k), "int64"))
            return R.add(z, z)

    resolved(blocks(Mod), np.eye(2, 3, dtype="float32"))


# -- guards of empty tensors -----------------------------------------------------------------------------


def guard(spelling: str, compute: object, shape: tuple[object, ...] = ("n", 4), empty: object = None) -> tvm.IRModule:
    """`if x has no elements then empty else compute(x)`, or the other way round; x is an input's absolute value."""
    bb = relax.BlockBuilder()
    symbols = {name: tvm.tirx.Var(name, "int64") for name in ("n", "m")}
    x = relax.Var("x", relax.TensorType([symbols.get(e, e) for e in shape], "float32"))

    def branch(build: object) -> relax.SeqExpr:
        bb._begin_binding_block()
        result = build()
        return relax.SeqExpr([bb._end_block()], result)

    with bb.function("main", [x]):
        a = bb.emit(op.abs(x))
        sizes = bb.emit(op.shape_to_tensor(bb.emit(op.shape_of(a))))
        zero = relax.const(0, "int64")
        count = {
            "size": lambda: bb.emit(op.size(a)),
            "rows": lambda: bb.emit(op.take(sizes, zero, axis=0)),
        }.get(spelling.split()[0], lambda: bb.emit(op.prod(sizes)))()
        compare = {"==": op.equal, "!=": op.not_equal, ">": op.greater, "<=": op.less_equal}[spelling.split()[1]]
        cond = bb.emit(compare(count, zero))
        given = relax.const(np.zeros((0, 4), "float32")) if empty is None else empty
        sides = [branch(lambda: given), branch(lambda: compute(bb, a))]
        if spelling.split()[1] in ("!=", ">"):
            sides.reverse()
        bb.emit_func_output(bb.emit(relax.If(cond, *sides)))
    return blocks(bb.get())


def scaled(bb: relax.BlockBuilder, a: relax.Var) -> relax.Var:
    """A chain of the operators that a head applies to its boxes."""
    parts = bb.emit(op.split(a, 4, axis=1))
    first, last = bb.emit(relax.TupleGetItem(parts, 0)), bb.emit(relax.TupleGetItem(parts, 3))
    joined = bb.emit(op.concat([last, first, last, first], axis=1))
    bounded = bb.emit(op.clip(bb.emit(op.multiply(joined, relax.const(2.0, "float32"))), 0, 3))
    return bb.emit(op.subtract(bounded, bb.emit(op.mean(bounded, axis=[1], keepdims=True))))


@pytest.mark.parametrize("spelling", ["numel ==", "numel !=", "numel >", "numel <=", "size ==", "rows ==", "rows >"])
@pytest.mark.parametrize("rows", [0, 3])
def test_the_guard_of_what_is_defined_on_nothing_goes(spelling: str, rows: int) -> None:
    x = np.random.default_rng(rows).normal(size=(rows, 4)).astype("float32")
    resolved(guard(spelling, scaled), x)


def test_each_half_of_the_pass_can_be_left_out() -> None:
    known, guarded = guard("numel ==", scaled, shape=(3, 4)), guard("numel ==", scaled)
    for mod, needed, idle in ((known, RESOLVE, DROP_GUARD), (guarded, DROP_GUARD, RESOLVE)):
        for make in (
            lambda name, mod=mod: ResolveIf(exclude=[name])(mod),
            lambda name, mod=mod: canonicalize(mod, disable=[name]),
        ):
            assert ifs(make(needed.name)) == 1
            assert ifs(make(idle.name)) == 0
    with pytest.raises(UnknownNameError, match="ResolveIf does nothing named 'resolve'.*resolve-if, drop-empty-guard"):
        ResolveIf(exclude="resolve")


@pytest.mark.parametrize("reduce", [op.max, op.mean, op.sum, op.prod], ids=["max", "mean", "sum", "prod"])
def test_a_reduction_of_nothing_keeps_its_guard(reduce: object) -> None:
    """TVM's kernels write the first value when they meet the first element."""

    def over(axis: list[int] | None) -> object:
        return lambda bb, a: bb.emit(op.multiply(a, bb.emit(reduce(a, axis=axis, keepdims=True))))

    stays(guard("numel ==", over(None)))
    stays(guard("numel ==", over([0])))
    assert ifs(ResolveIf()(guard("numel ==", over([-1])))) == 0


def test_a_product_along_nothing_keeps_its_guard() -> None:
    def along(bb: relax.BlockBuilder, a: relax.Var) -> relax.Var:
        return bb.emit(op.matmul(a, bb.emit(op.matmul(bb.emit(op.permute_dims(a)), a))))

    def across(bb: relax.BlockBuilder, a: relax.Var) -> relax.Var:
        return bb.emit(op.matmul(a, relax.const(np.ones((4, 4), "float32"))))

    stays(guard("numel ==", along))
    resolved(guard("numel ==", across), np.zeros((0, 4), "float32"))


def test_what_reads_from_nothing_keeps_its_guard() -> None:
    def first(bb: relax.BlockBuilder, a: relax.Var) -> relax.Var:
        row = bb.emit(op.take(a, relax.const([0], "int64"), axis=0))
        return bb.emit(op.add(a, row))

    def columns(bb: relax.BlockBuilder, a: relax.Var) -> relax.Var:
        return bb.emit(op.take(a, relax.const([3, 2, 1, 0], "int64"), axis=1))

    stays(guard("numel ==", first))
    resolved(guard("numel ==", columns), np.zeros((0, 4), "float32"))
    resolved(guard("numel ==", columns), np.arange(8, dtype="float32").reshape(2, 4))


def test_calls_that_nothing_is_known_of_keep_their_guard() -> None:
    def packed(bb: relax.BlockBuilder, a: relax.Var) -> relax.Var:
        return bb.emit(relax.op.call_pure_packed("anything", a, ty_args=a.ty))

    def cast(bb: relax.BlockBuilder, a: relax.Var) -> relax.Var:
        return bb.match_cast(a, relax.TensorType([5, 4], "float32"))

    def found(bb: relax.BlockBuilder, a: relax.Var) -> relax.Var:
        rows = bb.match_cast(bb.emit(op.nonzero(a)), relax.TensorType([2, tvm.tirx.Var("k", "int64")], "int64"))
        return bb.emit(op.astype(bb.emit(op.permute_dims(rows)), "float32"))

    for compute in (packed, cast, found):
        stays(guard("numel ==", compute))


@pytest.mark.parametrize(
    "empty",
    [
        pytest.param(np.zeros((1, 4), "float32"), id="has-elements"),
        pytest.param(np.zeros((0, 5), "float32"), id="another-shape"),
        pytest.param(np.zeros((0, 4), "int32"), id="another-dtype"),
        pytest.param(np.zeros((0,), "float32"), id="another-rank"),
    ],
)
def test_a_guard_that_gives_something_else_stays(empty: np.ndarray) -> None:
    if empty.dtype == "int32" or empty.ndim == 1:  # Relax gives such an If no type to compute with
        mod = guard("numel ==", scaled, empty=relax.const(empty))
        assert ifs(ResolveIf()(mod)) == 1
        return
    stays(guard("numel ==", scaled, empty=relax.const(empty)))


def test_a_condition_about_another_extent_stays() -> None:
    def twice(bb: relax.BlockBuilder, a: relax.Var) -> relax.Var:
        return bb.emit(op.add(a, a))

    # that n * m is 0 does not say which of them is
    stays(guard("numel ==", twice, shape=("n", "m")))
    # and rows that are none say all
    assert ifs(ResolveIf()(guard("rows ==", twice))) == 0


def test_a_branch_that_tells_of_nothing_stays() -> None:
    @I.ir_module
    class Mod:
        @R.function(pure=False)
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(dtype="float32", ndim=2):
            if R.equal(R.prod(R.shape_to_tensor(R.shape_of(x))), R.const(0, "int64")):
                _ = R.print(format="nothing")
                y: R.Tensor(dtype="float32", ndim=2) = R.const(np.zeros((0, 4), "float32"))
            else:
                y: R.Tensor(dtype="float32", ndim=2) = R.exp(x)
            return y

    assert ifs(ResolveIf()(blocks(Mod))) == 1


def test_tuples_of_empty_tensors() -> None:
    def both(bb: relax.BlockBuilder, a: relax.Var) -> relax.Expr:
        return relax.Tuple([bb.emit(op.exp(a)), bb.emit(op.sum(a, axis=[1]))])

    def empties() -> relax.Expr:
        return relax.Tuple([relax.const(np.zeros((0, 4), "float32")), relax.const(np.zeros((0,), "float32"))])

    for rows in (0, 2):
        resolved(guard("numel ==", both, empty=empties()), np.ones((rows, 4), "float32"))


TOTAL = {
    "broadcast_to": lambda a: op.broadcast_to(op.reshape(a, (-1, 1, 4)), [2, a.ty.shape.values[0], 2, 4][1:]),
    "conv2d": lambda a: op.nn.conv2d(op.reshape(a, (-1, 1, 2, 2)), relax.const(np.ones((3, 1, 2, 2), "float32"))),
    "cumsum": lambda a: op.cumsum(a, axis=0),
    "flip": lambda a: op.flip(a, 0),
    "gelu": lambda a: op.nn.gelu(a),
    "layer_norm": lambda a: op.nn.layer_norm(
        a, relax.const(np.ones(4, "float32")), relax.const(np.zeros(4, "float32")), axes=[-1]
    ),
    "matmul": lambda a: op.matmul(a, relax.const(np.ones((4, 2), "float32"))),
    "max_pool2d": lambda a: op.nn.max_pool2d(op.reshape(a, (-1, 1, 2, 2)), (2, 2)),
    "permute_dims": op.permute_dims,
    "pad": lambda a: op.nn.pad(a, [0, 0, 1, 1]),
    "repeat": lambda a: op.repeat(a, 2, axis=0),
    "resize2d": lambda a: op.image.resize2d(op.reshape(a, (-1, 1, 2, 2)), (4, 4), method="linear"),
    "roi_align": lambda a: op.vision.roi_align(
        relax.const(np.ones((1, 2, 8, 8), "float32")), op.concat([a, op.sum(a, 1, True)], 1), (2, 2), 1.0, 2
    ),
    "softmax": lambda a: op.nn.softmax(a, axis=0),
    "strided_slice": lambda a: op.strided_slice(a, [1], [1], [3]),
    "sum": lambda a: op.sum(a, axis=[1], keepdims=True),
    "tile": lambda a: op.tile(a, (2, 1)),
    "where": lambda a: op.where(op.greater(a, relax.const(0.0, "float32")), a, relax.const(1.0, "float32")),
}


@pytest.fixture(scope="module")
def on_nothing() -> dict[str, np.ndarray]:
    """What LLVM computes of no rows by operators that `empty_guard` calls defined there: it does not crash."""
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([tvm.tirx.Var("n", "int64"), 4], "float32"))
    with bb.function("main", [x]):
        bb.emit_func_output(relax.Tuple([bb.emit(bb.normalize(build(x))) for build in TOTAL.values()]))
    return dict(zip(TOTAL, evaluate(bb.get(), [np.zeros((0, 4), "float32")]), strict=True))


@pytest.mark.parametrize("name", TOTAL)
def test_operators_that_are_defined_on_nothing(name: str, on_nothing: dict[str, np.ndarray]) -> None:
    assert on_nothing[name].size == 0
    assert on_nothing[name].ndim >= 2


# -- what remains ----------------------------------------------------------------------------------------


def test_regions_form_in_the_branches_that_remain() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool"), d: R.Tensor((), "bool")) -> R.Tensor(
            (2, 3), "float32"
        ):
            if c:
                y: R.Tensor((2, 3), "float32") = R.sin(x)
            else:
                if d:
                    z: R.Tensor((2, 3), "float32") = R.exp(x)
                else:
                    z: R.Tensor((2, 3), "float32") = R.negative(x)
                y: R.Tensor((2, 3), "float32") = z
            return y

    report = relax_glue.explain(Mod)
    assert [region.ops for region in report.regions] == [{"relax.sin": 1}, {"relax.exp": 1}, {"relax.negative": 1}]
    assert len({region.name for region in report.regions}) == 3
    assert not report.outside
    after = relax_glue.optimize(Mod)
    relax.analysis.well_formed(after)
    for flags in ((True, False), (False, True), (False, False)):
        check_equivalent(Mod, inline(after), [ONES, *map(np.array, flags)])


def test_nothing_crosses_a_branch() -> None:
    """What stands before, in and after an `If` is three regions, though TensorRT takes all of it."""

    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((2, 3), "float32"):
            a = R.exp(x)
            if c:
                b = R.sin(a)
                y: R.Tensor((2, 3), "float32") = R.negative(b)
            else:
                y: R.Tensor((2, 3), "float32") = a
            return R.cos(y)

    report = relax_glue.explain(Mod)
    assert [list(region.ops) for region in report.regions] == [
        ["relax.exp"],
        ["relax.negative", "relax.sin"],
        ["relax.cos"],
    ]
    assert not report.outside


# -- random modules --------------------------------------------------------------------------------------


class Drawn:
    """A module of nested branches: conditions are constants, data, or extents; results one tensor or two."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.bb = relax.BlockBuilder()
        n = tvm.tirx.Var("n", "int64")
        self.x = relax.Var("x", relax.TensorType([n, 3], "float32"))
        self.flags = relax.Var("flags", relax.TensorType([4], "bool"))
        with self.bb.function("main", [self.x, self.flags]):
            seen = [self.x]
            for _ in range(3):
                self.step(seen, 2)
            self.bb.emit_func_output(relax.Tuple([seen[-1], seen[int(self.rng.integers(len(seen)))]]))
        self.module = blocks(self.bb.get())

    def step(self, seen: list[relax.Var], depth: int) -> None:
        one, other = (seen[int(self.rng.integers(len(seen)))] for _ in range(2))
        kind = int(self.rng.integers(4))
        if kind == 0 and depth:
            seen.append(self.bb.emit(relax.If(self.condition(), *(self.branch(seen, depth - 1, 1) for _ in range(2)))))
        elif kind == 1 and depth:
            both = self.bb.emit(relax.If(self.condition(), *(self.branch(seen, depth - 1, 2) for _ in range(2))))
            seen += [self.bb.emit(relax.TupleGetItem(both, k)) for k in range(2)]
        else:
            unary = (op.exp, op.negative, op.abs)[int(self.rng.integers(3))]
            seen.append(self.bb.emit(op.minimum(self.bb.emit(unary(one)), other)))

    def condition(self) -> relax.Expr:
        kind, number = int(self.rng.integers(3)), int(self.rng.integers(4))
        if kind == 0:
            return relax.const(number < 2, "bool")
        if kind == 1:
            return self.bb.emit(op.take(self.flags, relax.const(number, "int64"), axis=0))
        sizes = self.bb.emit(op.shape_to_tensor(self.bb.emit(op.shape_of(self.x))))
        compare = (op.equal, op.less, op.greater_equal, op.not_equal)[int(self.rng.integers(4))]
        return self.bb.emit(compare(self.bb.emit(op.prod(sizes)), relax.const(3 * number, "int64")))

    def branch(self, seen: list[relax.Var], depth: int, results: int) -> relax.SeqExpr:
        self.bb._begin_binding_block()
        inside = list(seen)
        for _ in range(int(self.rng.integers(1, 3))):
            self.step(inside, depth)
        result = inside[-1] if results == 1 else relax.Tuple([inside[-1], inside[0]])
        return relax.SeqExpr([self.bb._end_block()], result)


def test_random_branches() -> None:
    pairs, resolved_ifs = [], 0
    for seed in range(24):
        before = Drawn(seed).module
        after = ResolveIf()(before)
        resolved_ifs += ifs(before) - ifs(after)
        tvm.ir.assert_structural_equal(ResolveIf()(after), after)
        rng = np.random.default_rng(seed)
        for rows in (0, 2):
            flags = rng.integers(0, 2, 4).astype("bool")
            pairs.append(Pair(before, after, [rng.normal(size=(rows, 3)).astype("float32"), flags]))
    assert resolved_ifs > 24
    check_many(pairs)
