"""Operands and names of a block: who uses what, what a call is of with other operands, which names only name."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tvm
from build_case import Make, build, const
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from relax_glue.ir import Value, map_blocks, map_functions, read_block, write_block
from relax_glue.ir.arrays import array_of, tensor_of
from relax_glue.ir.blocks import RewriteBlock
from relax_glue.ir.names import without_names
from relax_glue.ir.operands import is_value, operands_of, same_call_with, substitute
from relax_glue.passes import ConvertToDataflow


def only_block(mod: tvm.IRModule) -> relax.DataflowBlock:
    (block,) = mod["main"].body.blocks
    return block


def test_operands_are_variables_and_constants_but_no_symbols_and_no_operators() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((8, 4), "float32"), s: R.Shape(["h"])) -> R.Tensor(ndim=2, dtype="float32"):
            h = T.int64()
            with R.dataflow():
                y = R.strided_slice(x, axes=[0], begin=[0], end=[h])
                z = R.concat((y, R.const([[1.0, 2.0, 3.0, 4.0]], "float32")), axis=0)
                R.output(z)
            return z

    cut, joined = (binding.value for binding in only_block(Mod).bindings)
    assert [v.name for v in operands_of(cut)] == ["x"], "h is an extent"
    first, second = operands_of(joined)
    assert first.name == "y" and isinstance(second, tvm.ir.GenericConst)
    assert not is_value(joined.op) and not is_value(joined.args[0])


def test_substitution_keeps_what_does_not_change() -> None:
    x, y = (relax.Var(name, relax.TensorType((2, 3), "float32")) for name in "xy")
    pair = relax.op.concat([x, x], axis=0)
    assert substitute(pair, [x, x]).same_as(pair)
    assert [v.name for v in operands_of(substitute(pair, [x, y]))] == ["x", "y"]


def test_a_call_keeps_its_type_with_operands_of_the_same_types() -> None:
    def conv(emit: Make, x: relax.Var) -> relax.Expr:
        return emit(relax.op.nn.conv2d(x, const(np.ones((4, 3, 3, 3)))))

    block = only_block(build(conv, x=(1, 3, 8, 8)))
    call = block.bindings[0].value
    x = call.args[0]
    same = same_call_with(call, [x, const(np.zeros((4, 3, 3, 3)))])
    assert same.ty.same_as(call.ty) and not same.same_as(call)
    other = same_call_with(call, [x, const(np.zeros((5, 3, 3, 3)))])
    assert not isinstance(other.ty, relax.TensorType), "its type is to be inferred"
    graph = read_block(block)
    node = graph.outputs[0][1].node
    wider = graph.rebuild(node, [node.inputs[0], graph.constant(np.zeros((5, 3, 3, 3), "float32"))])
    assert wider.shape == (1, 5, 6, 6)


def test_a_type_that_is_not_static_is_inferred_again() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            with R.dataflow():
                y = R.exp(x)
                R.output(y)
            return y

    call = only_block(Mod).bindings[0].value
    assert not isinstance(same_call_with(call, operands_of(call)).ty, relax.TensorType)


def test_a_local_function_takes_what_replaces_a_value_that_it_captures() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            a = R.exp(x)
            b = R.sin(x)

            @R.function
            def inner(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                return R.add(y, a)

            return inner(b)

    graph = read_block(only_block(ConvertToDataflow()(Mod)))
    by_name = {node.name: node for node in graph}
    graph.replace(by_name["a"].value, by_name["b"].value)
    block = write_block(graph)
    (local,) = [binding.value for binding in block.bindings if isinstance(binding.value, relax.Function)]
    assert [v.name for v in relax.analysis.free_vars(local)] == ["b"]
    assert "a" not in [binding.var.name for binding in block.bindings]


@I.ir_module
class Named:
    """A constant and a name that have names, results that are names of the same, of a constant, and of a parameter."""

    @R.function
    def main(x: R.Tensor((2,), "float32"), p: R.Tensor((2,), "float32")):
        with R.dataflow():
            c = R.const([1.0, 2.0], "float32")
            d = c
            y = R.add(x, d)
            z = y
            w = R.multiply(z, y)
            first = z
            second = y
            third = d
            fourth = p
            R.output(first, second, third, fourth, w)
        return (first, second, third, fourth, w)


def test_names_go_and_a_result_is_bound_to_what_it_names() -> None:
    block = without_names(only_block(Named))
    assert [binding.var.name for binding in block.bindings] == ["first", "w", "second", "third", "fourth"]
    total, product, second, third, fourth = (binding.value for binding in block.bindings)
    assert isinstance(total.args[1], tvm.ir.GenericConst) and isinstance(third, tvm.ir.GenericConst)
    assert [v.name for v in operands_of(product)] == ["first", "first"]
    assert (second.name, fourth.name) == ("first", "p")


def test_taking_names_off_gives_what_reading_and_writing_gives() -> None:
    def mapped(change: RewriteBlock) -> tvm.IRModule:
        return map_functions(Named, lambda _, func: map_blocks(func, change))

    light, full = mapped(without_names), mapped(lambda block: write_block(read_block(block)))
    relax.analysis.well_formed(light)
    tvm.ir.assert_structural_equal(light, full)


def test_a_block_without_names_is_the_same_object() -> None:
    block = only_block(build(lambda emit, x: emit(relax.op.exp(emit(relax.op.sin(x)))), x=(2,)))
    kept = without_names(block)
    assert without_names(kept).same_as(kept)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int8", "bool"])
@pytest.mark.parametrize("axes", [(1, 0, 2), (0, 2, 1), (2, 1, 0)])
def test_a_constant_holds_the_elements_of_a_transposed_array(dtype: str, axes: tuple[int, ...]) -> None:
    array = (np.arange(70 * 90 * 33) % 101).reshape(70, 90, 33).astype(dtype).transpose(axes)
    np.testing.assert_array_equal(tensor_of(array).numpy(), array)


@pytest.mark.parametrize(
    "array",
    [np.float32(2), np.zeros((0, 3)), np.arange(200000)[::-2], np.broadcast_to(np.float32(3), (300, 200))],
    ids=["scalar", "empty", "backwards", "broadcast"],
)
def test_a_constant_holds_the_elements_of_any_array(array: np.ndarray) -> None:
    np.testing.assert_array_equal(tensor_of(array).numpy(), array)


def test_the_array_of_a_constant_is_its_own_memory_and_read_only() -> None:
    graph = read_block(only_block(build(lambda emit, x: emit(relax.op.add(x, const(np.ones((2, 2))))), x=(2, 2))))
    (constant,) = [node for node in graph if node.op == "constant"]
    array = Value(constant).array
    assert array is not None and np.shares_memory(array, array_of(constant.var.value))
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 1


def test_the_array_of_a_type_that_numpy_does_not_share_is_a_copy() -> None:
    tensor = tensor_of(np.array([1.5, 2.5], ml_dtypes.bfloat16))
    assert tensor.dtype == "bfloat16"
    np.testing.assert_array_equal(array_of(tensor).astype("float32"), [1.5, 2.5])
