"""A dataflow block read as a graph and written back is the same block; replacing keeps users and outputs right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from build_case import build, const
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import relax_glue
from relax_glue.errors import InvalidModuleError, RewriteError
from relax_glue.ir import Value, map_blocks, map_functions, read_block, same, same_shape, write_block
from relax_glue.passes import ConvertToDataflow
from relax_glue.region_function import region_functions
from relax_glue.testing import check_equivalent


def rewritten(mod: tvm.IRModule) -> tvm.IRModule:
    """Read and write every block."""
    return map_functions(mod, lambda _, f: map_blocks(f, lambda b: write_block(read_block(b))))


@I.ir_module
class Tuples:
    @R.function
    def main(x: R.Tensor((2, 6), "float32"), t: R.Tuple(R.Tensor((2, 2), "float32"), R.Tensor((2, 2), "float32"))):
        with R.dataflow():
            s = R.split(x, 3, axis=1)
            s2 = s[2]
            s0 = s[0]
            t1 = t[1]
            c = R.concat((s2, s0, t1), axis=1)
            whole = (s, c)
            R.output(whole, s0)
        return (whole, s0)


@I.ir_module
class Branches:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool")):
        with R.dataflow():
            y = R.add(x, x)
            R.output(y)
        if c:
            with R.dataflow():
                a = R.multiply(y, y)
                z1 = R.add(a, y)
                R.output(z1)
            z = z1
        else:
            z = R.subtract(y, x)
        return z


@I.ir_module
class Calls:
    @T.prim_func(private=True, s_tir=True)
    def copy(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("copy"):
                v = T.axis.spatial(4, i)
                b[v] = a[v]

    @R.function(private=True)
    def helper(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            y = R.exp(x)
            R.output(y)
        return y

    @R.function
    def other(x: R.Tensor((4,), "float32")):
        cls = Calls
        with R.dataflow():
            a = R.call_tir(cls.copy, (x,), out_ty=R.Tensor((4,), "float32"))
            b = cls.helper(a)
            R.output(b)
        return b


@pytest.mark.parametrize("mod", [Tuples, Branches, Calls], ids=["tuples", "branches", "calls"])
def test_reading_and_writing_changes_nothing(mod: tvm.IRModule) -> None:
    again = rewritten(mod)
    relax.analysis.well_formed(again)
    tvm.ir.assert_structural_equal(rewritten(again), again)
    if mod is not Tuples:  # there the items of the tuple are bound beside it, in the order of their numbers
        tvm.ir.assert_structural_equal(again, mod)


def test_match_cast_stays_before_what_uses_its_symbols() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(ndim=2, dtype="float32")):
            m = T.int64()
            with R.dataflow():
                z = R.match_cast(y, R.Tensor((m, 8), "float32"))
                w = R.zeros(R.shape([m, 8]), "float32")
                v = R.add(z, w)
                R.output(v)
            return v

    tvm.ir.assert_structural_equal(rewritten(Mod), Mod)


@I.ir_module
class Callables:
    """A function that a variable holds: one of the block, one that another variable names, and a parameter."""

    @R.function
    def main(
        x: R.Tensor((4,), "float32"), f: R.Callable((R.Tensor((4,), "float32"),), R.Tensor((4,), "float32"), True)
    ):
        @R.function
        def inner(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            z = R.reshape(R.reshape(y, (2, 2)), (4,))
            return R.exp(z)

        again = inner
        a = again(x)
        b = f(a)
        return inner(b)


def test_what_a_call_calls_is_an_operand_where_a_variable_holds_it() -> None:
    mod = ConvertToDataflow()(Callables)
    after = rewritten(mod)
    relax.analysis.well_formed(after)
    (block,) = after["main"].body.blocks
    assert [type(b.value) for b in block.bindings] == [relax.Function, relax.Call, relax.Call, relax.Call]
    calls = [read_block(block).outputs[0][1]]
    while calls[-1].op == "call":
        calls.append(calls[-1].node.inputs[0])
    assert [[v.node.name for v in call.node.inputs] for call in calls] == [
        ["b", "inner"],
        ["a", "f"],
        ["x", "inner"],
        [],
    ]
    tvm.ir.assert_structural_equal(rewritten(after), after)


def test_a_local_function_is_optimised_and_called() -> None:
    for step in (relax_glue.canonicalize, relax_glue.optimize):
        after = step(Callables)
        relax.analysis.well_formed(after)
        (local,) = [b.value for b in after["main"].body.blocks[0].bindings if isinstance(b.value, relax.Function)]
        assert len(local.body.blocks[0].bindings) == 1  # the reshapes are gone
    reasons = [outside.reason for outside in relax_glue.explain(Callables).outside]
    assert reasons == [f"TensorRT has no layer for a call to a function, {name}" for name in ("inner", "f", "inner")]


def test_a_local_function_gives_the_same_numbers() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((4,), "float32"), w: R.Tensor((2, 2), "float32")):
            @R.function
            def inner(y: R.Tensor((4,), "float32"), v: R.Tensor((2, 2), "float32")) -> R.Tensor((2, 2), "float32"):
                z = R.reshape(y, (2, 2))
                return R.permute_dims(R.exp(R.permute_dims(R.add(z, v))))

            a = R.exp(x)
            return R.negative(inner(a, w))

    lift = relax.transform.LambdaLift()  # without it TVM compiles no local function
    after = relax_glue.optimize(Mod)
    assert len(region_functions(after)) == 3
    x, w = (np.random.default_rng(n).normal(size=shape).astype("float32") for n, shape in enumerate([(4,), (2, 2)]))
    check_equivalent(lift(Mod), lift(relax_glue.inline(after)), [x, w])


def test_what_a_match_cast_casts_is_a_node_of_its_own() -> None:
    @I.ir_module
    class Mod:  # as TVM's importer writes an ONNX NonZero
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            m = T.int64()
            with R.dataflow():
                r = R.nn.relu(x)
                z = R.match_cast(R.nonzero(r), R.Tensor((2, m), "int64"))
                R.output(z)
            return z

    again = rewritten(Mod)
    relax.analysis.well_formed(again)
    bindings = again["main"].body.blocks[0].bindings
    assert [getattr(getattr(b.value, "op", None), "name", "") for b in bindings] == [
        "relax.nn.relu",
        "relax.nonzero",
        "",
    ]
    assert isinstance(bindings[2], relax.MatchCast) and bindings[2].value.same_as(bindings[1].var)


def test_a_call_inside_a_call_is_refused() -> None:
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    inner = relax.op.exp(x)
    relax.expr._update_type(inner, x.ty)
    block = relax.DataflowBlock([relax.VarBinding(relax.DataflowVar("y", x.ty), relax.op.reshape(inner, (4,)))])
    with pytest.raises(InvalidModuleError, match=r"exp is called inside another call; run relax.transform.Normalize"):
        read_block(block)


def test_unused_bindings_go_and_shared_constants_are_one_node() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                dead = R.exp(x)
                a = R.add(x, R.const(1.0, "float32"))
                R.output(a)
            return a

    graph = read_block(Mod["main"].body.blocks[0])
    assert {n.op for n in graph} == {"input", "constant", "relax.add", "relax.exp"}
    assert len(write_block(graph).bindings) == 1


def test_concat_of_a_tuple_variable_is_read_item_by_item() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((2, 6), "float32")):
            with R.dataflow():
                s = R.split(x, 2, axis=1)
                c = R.concat(s, axis=1)
                R.output(c)
            return c

    graph = read_block(Mod["main"].body.blocks[0])
    concat = next(n for n in graph if n.op == "relax.concat")
    assert [v.index for v in concat.inputs] == [0, 1]
    relax.analysis.well_formed(rewritten(Mod))


def test_replace_moves_users_and_outputs() -> None:
    graph = read_block(Branches["main"].body.blocks[0])
    add = next(n for n in graph if n.op == "relax.add")
    x = add.inputs[0]
    assert graph.uses(x.node) == 2 and graph.uses_of(x) == 2 and graph.is_output(add)
    graph.replace(Value(add), x)
    graph.drop_dead(add)
    assert add not in graph
    assert graph.outputs[0][1] == x and graph.uses(x.node) == 1
    block = write_block(graph)
    assert len(block.bindings) == 1 and block.bindings[0].value.same_as(x.expr)


def test_a_value_may_be_two_outputs() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = a
                R.output(a, b)
            return (a, b)

    again = rewritten(Mod)
    relax.analysis.well_formed(again)
    (binding,) = again["main"].body.blocks[0].bindings
    assert [v.name for v in again["main"].body.body.fields] == [binding.var.name] * 2


def test_an_output_that_is_a_parameter_or_a_constant_is_returned_as_such() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
            with R.dataflow():
                a = x
                b = R.const([1.0, 2.0], "float32")
                R.output(a, b)
            with R.dataflow():
                c = R.add(a, y)
                R.output(c)
            return (a, b, c)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
            with R.dataflow():
                c = R.add(x, y)
                R.output(c)
            return (x, R.const([1.0, 2.0], "float32"), c)

    tvm.ir.assert_structural_equal(rewritten(Before), Expected)


def test_an_ill_typed_call_is_an_error_that_says_where() -> None:
    graph = read_block(Branches["main"].body.blocks[0])
    graph.at = next(n for n in graph if n.op == "relax.add")
    with pytest.raises(RewriteError, match="in place of .*relax.add y"):
        graph.emit(lambda e: relax.op.reshape(e, (5, 5)), graph.at.inputs[0])


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3), (1, 2, 0)])
@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_constants_without_elements_compile(shape: tuple[int, ...], dtype: str) -> None:
    """Of those whose first extent is not 0 TVM writes what it cannot read: they are made when the model runs."""

    def make(emit: Any, x: relax.Expr) -> tuple[relax.Expr, ...]:
        nothing = const(np.zeros(shape), dtype)
        twice = emit(relax.op.concat([nothing, nothing], axis=0))
        return nothing, emit(relax.op.exp(x)), emit(relax.Tuple([nothing, twice])), nothing

    mod = build(make, x=(2,))
    after = relax_glue.optimize(mod)
    tvm.ir.assert_structural_equal(relax_glue.optimize(after), after)
    machine = relax.VirtualMachine(relax_glue.compile(mod, "llvm"), tvm.cpu())
    first, _, (second, twice), third = machine["main"](tvm.runtime.tensor(np.ones(2, "float32")))
    assert {tuple(t.shape) for t in (first, second, third)} == {shape}
    assert tuple(twice.shape) == (2 * shape[0], *shape[1:]) and str(twice.dtype) == dtype


def test_equal_small_constants_are_one_node() -> None:
    graph = read_block(Branches["main"].body.blocks[0])
    one = graph.constant(np.float32(1.0))
    assert graph.constant(np.float32(1.0)) == one
    assert graph.constant(np.float32(-0.0)) != graph.constant(np.float32(0.0))
    assert graph.constant(np.float16(1.0)) != one


def test_extents_are_equal_only_by_proof() -> None:
    n, m = tvm.tirx.Var("n", "int64"), tvm.tirx.Var("n", "int64")
    assert same(n, n) and same(n * 2 + 1, 1 + 2 * n)
    assert not same(n, m) and not same(n, 3)
    assert same_shape((n, 4), (n, 4)) and not same_shape((n, 4), (n, 4, 1)) and not same_shape(None, None)
