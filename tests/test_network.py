"""Region functions in both forms become networks; names, merging, outputs, errors."""

from __future__ import annotations

import gc
import sys
from types import ModuleType

import numpy as np
import pytest
import tvm
from converter_case import layer_types, numbers, run_llvm, serialise
from tvm import relax
from tvm.relax.dpl import is_op, wildcard

from relax_glue.errors import ConversionError, ProviderError
from relax_glue.tensorrt.extents import Extent
from relax_glue.tensorrt.network import Network, Symbol, build_network
from relax_glue.tensorrt.provider import get_provider, installed
from relax_glue.tensorrt.reference import evaluate
from relax_glue.tensorrt.region import Input, Result, flatten
from relax_glue.tensorrt.registry import Registry, converter

op = relax.op


def function_of(build, *types) -> relax.Function:
    """Return a function over tensors of the (shape, dtype) in `types`, with the body `build(bb, *vars)`."""
    params = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, (shape, dtype) in enumerate(types)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(build(builder, *params))
        builder.emit_func_output(result)
    return builder.get()["main"]


def agrees(function: relax.Function, *inputs: np.ndarray) -> Network:
    """Build the network and compare its numbers with LLVM's, bit for bit."""
    network = build_network(function)
    wanted = run_llvm(tvm.IRModule({"main": function}), inputs)
    got = evaluate(network, inputs)
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.shape == other.shape
    return network


F = ((2, 3, 4), "float32")


class TestProvider:
    def test_installed_ones_are_usable(self):
        found = installed()
        assert found, "the test environment has tensorrt_rtx"
        for provider in found:
            assert provider.version >= (1,)
            assert provider.has("add_shuffle") and not provider.has("add_nonsense")
            assert provider.has_flag("TF32") and not provider.has_flag("NONSENSE")
            assert str(provider).startswith(provider.name)

    def test_choice_by_argument_and_environment(self, monkeypatch):
        assert get_provider("tensorrt_rtx").is_rtx
        monkeypatch.setenv("RELAX_GLUE_TENSORRT", "tensorrt_rtx")
        assert get_provider().name == "tensorrt_rtx"
        monkeypatch.setenv("RELAX_GLUE_TENSORRT", "cudnn")
        with pytest.raises(ProviderError, match="'cudnn'.*tensorrt, tensorrt_rtx"):
            get_provider()

    @pytest.mark.parametrize("empty", ["placeholder", "raises", "old"])
    def test_what_is_no_tensorrt_counts_as_absent(self, monkeypatch, empty):
        module = ModuleType("tensorrt")
        module.__version__ = "8.6.1"
        if empty == "old":
            module.INetworkDefinition = object
        monkeypatch.setitem(sys.modules, "tensorrt", None if empty == "raises" else module)
        assert [provider.name for provider in installed()] == ["tensorrt_rtx"]
        with pytest.raises(ProviderError, match=r"tensorrt: .*install the package tensorrt"):
            get_provider("tensorrt")

    def test_tf32_is_off_unless_asked_for(self):
        builder = get_provider().builder()
        flag = builder.provider.trt.BuilderFlag.TF32
        assert not builder.config().get_flag(flag)
        assert builder.config(tf32=True).get_flag(flag)

    def test_networks_are_strongly_typed(self):
        builder = get_provider().builder()
        flag = builder.provider.trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED
        assert builder.network().get_flag(flag)


def cut_and_joined(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    cut = bb.emit(op.split(bb.emit(op.permute_dims(x, (0, 2, 1))), 2, axis=1))
    both = relax.Tuple([bb.emit(relax.TupleGetItem(cut, 1)), bb.emit(relax.TupleGetItem(cut, 0))])
    joined = bb.emit(op.concat(both, axis=1))
    stacked = bb.emit(op.stack([joined, relax.const(numbers(2, 4, 3))], axis=0))
    return relax.Tuple([stacked, joined])


def composite_region(bind_constants: bool = True) -> relax.Function:
    """Return the region function that FuseOpsByPattern and MergeCompositeFunctions make."""
    patterns = [
        ("tensorrt.permute_dims", is_op("relax.permute_dims")(wildcard())),
        ("tensorrt.split", is_op("relax.split")(wildcard())),
        ("tensorrt.concat", is_op("relax.concat")(wildcard())),
        ("tensorrt.stack", is_op("relax.stack")(wildcard())),
    ]
    module = tvm.IRModule({"main": function_of(cut_and_joined, F)})
    passes = [
        relax.transform.FuseOpsByPattern(patterns, bind_constants=bind_constants, annotate_codegen=False),
        relax.transform.MergeCompositeFunctions(),
    ]
    module = tvm.transform.Sequential(passes)(module)
    found = [f for f in module.functions.values() if f.attrs and "Codegen" in f.attrs]
    assert len(found) == 1
    return found[0]


class TestRegions:
    @pytest.mark.parametrize("bind_constants", [True, False])
    def test_composites(self, bind_constants):
        network = build_network(composite_region(bind_constants))
        x = numbers(2, 3, 4)
        inputs = [x if int(given.ty.shape.values[1]) == 3 else numbers(2, 4, 3) for given in network.inputs]
        assert len(inputs) == 1 if bind_constants else 2
        wanted = run_llvm(tvm.IRModule({"main": function_of(cut_and_joined, F)}), [x])
        got = evaluate(network, inputs)
        for one, other in zip(sorted(got, key=np.ndim), sorted(wanted, key=np.ndim), strict=True):
            np.testing.assert_array_equal(one, other)

    def test_composites_carry_the_outer_names(self):
        function = composite_region()
        calls = [
            binding.var.name
            for block in function.body.blocks
            for binding in block.bindings
            if isinstance(binding.value, relax.Call)
        ]
        assert [step.name for step in flatten(function).steps] == calls
        assert {name.split(".")[0] for name in build_network(function).named} == set(calls)

    def test_a_composite_of_two_operators_called_twice(self):
        a = relax.Var("a", relax.TensorType((2, 3), "float32"))
        inner = relax.BlockBuilder()
        with inner.function("inner", [a]):
            with inner.dataflow():
                first = inner.emit(op.permute_dims(a), name_hint="turned")
                last = inner.emit_output(op.expand_dims(first, 0))
            inner.emit_func_output(last)
        body = inner.get()["inner"].without_attr("global_symbol").with_attr("Composite", "tensorrt.pair")
        x, y = (relax.Var(name, relax.TensorType((2, 3), "float32")) for name in "xy")
        local = relax.Var("local", body.ty)
        one, two = relax.Var("one", body.ret_ty), relax.Var("two", body.ret_ty)
        bindings = [
            relax.VarBinding(local, body),
            relax.VarBinding(one, relax.Call(local, [x])),
            relax.VarBinding(two, relax.Call(local, [y])),
        ]
        block = relax.BindingBlock(bindings)
        function = relax.Function(
            [x, y], relax.SeqExpr([block], relax.Tuple([two, one])), relax.TupleType([body.ret_ty] * 2)
        )
        region = flatten(function)
        assert [step.name for step in region.steps] == ["one.turned", "one", "two.turned", "two"]
        assert region.outputs == [Result(3, 0), Result(1, 0)]
        network = build_network(function)
        inputs = numbers(2, 3), numbers(2, 3, seed=1)
        for got, given in zip(evaluate(network, inputs), reversed(inputs), strict=True):
            np.testing.assert_array_equal(got, given.T[None])

    def test_inputs_are_in_parameter_order_even_unread(self):
        function = function_of(lambda bb, x, y: op.permute_dims(y), F, F)
        network = agrees(function, numbers(2, 3, 4), numbers(2, 3, 4, seed=1))
        assert [(given.name, given.param, given.item) for given in network.inputs] == [("x0", 0, None), ("x1", 1, None)]

    def test_a_tuple_parameter_is_flattened(self):
        ty = relax.TensorType((2, 3), "float32")
        pair = relax.Var("pair", relax.TupleType([ty, ty]))
        builder = relax.BlockBuilder()
        with builder.function("main", [pair]):
            with builder.dataflow():
                result = builder.emit_output(op.concat(pair, axis=1))
            builder.emit_func_output(result)
        network = build_network(builder.get()["main"])
        assert network.inputs == [Input("pair.0", 0, 0, ty), Input("pair.1", 0, 1, ty)]
        a, b = numbers(2, 3), numbers(2, 3, seed=1)
        np.testing.assert_array_equal(evaluate(network, [a, b])[0], np.concatenate([a, b], 1))

    def test_a_shape_bound_to_a_variable(self):
        def build(bb, x):
            shape = bb.emit(relax.ShapeExpr([4, 6]))
            return op.reshape(x, shape)

        agrees(function_of(build, F), numbers(2, 3, 4))


class TestOutputs:
    def test_an_input_a_constant_and_the_same_value_twice(self):
        def build(bb, x):
            turned = bb.emit(op.permute_dims(x))
            fixed = relax.const(np.float32(3))
            return relax.Tuple([x, turned, turned, fixed, fixed, x])

        network = agrees(function_of(build, F), numbers(2, 3, 4))
        assert len(set(network.outputs)) == 6
        assert serialise(network) > 0

    def test_nested_tuples_are_flattened_in_order(self):
        def build(bb, x):
            a, b = bb.emit(op.permute_dims(x)), bb.emit(op.flip(x, 0))
            return relax.Tuple([relax.Tuple([a]), relax.Tuple([b, a])])

        network = build_network(function_of(build, F))
        x = numbers(2, 3, 4)
        got = evaluate(network, [x])
        for one, other in zip(got, [x.T, x[::-1], x.T], strict=True):
            np.testing.assert_array_equal(one, other)

    def test_scalars(self):
        network = agrees(function_of(lambda bb, x: op.expand_dims(x, 0), ((), "int64")), np.array(7))
        assert serialise(network) > 0

    @pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "int32", "int64", "bool"])
    def test_every_dtype_goes_through(self, dtype):
        def build(bb, x):
            fixed = relax.const(numbers(1, 3, dtype=dtype, seed=1), dtype)
            return op.concat([op.permute_dims(x), fixed], axis=0)

        network = agrees(function_of(build, ((3, 2), dtype)), numbers(3, 2, dtype=dtype))
        assert serialise(network) > 0


class TestMerging:
    def test_permute_reshape_permute_is_one_layer(self):
        def build(bb, x):
            a = op.permute_dims(x, (0, 2, 1))
            return op.permute_dims(op.reshape(a, (2, 2, 6)), (2, 0, 1))

        network = agrees(function_of(build, F), numbers(2, 3, 4))
        assert layer_types(network) == ["SHUFFLE"]
        assert serialise(network) > 0

    def test_runs_of_permutes_and_of_reshapes(self):
        def build(bb, x):
            a = op.permute_dims(op.permute_dims(x, (1, 2, 0)), (0, 2, 1))
            b = op.expand_dims(op.reshape(op.reshape(a, (24,)), (2, 3, 4)), 1)
            return op.permute_dims(op.permute_dims(b, (3, 2, 1, 0)), (1, 0, 3, 2))

        assert layer_types(agrees(function_of(build, F), numbers(2, 3, 4))) == ["SHUFFLE"]

    def test_a_reshape_behind_the_second_permute_is_a_new_layer(self):
        def build(bb, x):
            return op.reshape(op.permute_dims(op.reshape(x, (6, 4))), (2, 12))

        assert layer_types(agrees(function_of(build, F), numbers(2, 3, 4))) == ["SHUFFLE", "SHUFFLE"]

    @pytest.mark.parametrize("reader", ["call", "output", "same call"])
    def test_what_is_read_twice_stays(self, reader):
        def build(bb, x):
            turned = bb.emit(op.permute_dims(x))
            reshaped = bb.emit(op.reshape(turned, (4, 6)))
            if reader == "output":
                return relax.Tuple([reshaped, turned])
            if reader == "call":
                return relax.Tuple([reshaped, op.flip(turned, 0)])
            return op.concat([bb.emit(op.reshape(turned, (4, 6))), bb.emit(op.reshape(turned, (4, 6)))], 0)

        network = agrees(function_of(build, F), numbers(2, 3, 4))
        assert layer_types(network).count("SHUFFLE") >= 2

    def test_a_value_that_two_calls_return_is_read_by_both_users(self):
        # the second broadcast_to changes nothing and returns the tensor of the permute itself
        def build(bb, x):
            turned = bb.emit(op.permute_dims(x))
            same = bb.emit(op.broadcast_to(turned, (4, 3, 2)))
            return relax.Tuple([bb.emit(op.reshape(same, (4, 6))), op.flip(turned, 0)])

        agrees(function_of(build, F), numbers(2, 3, 4))


class TestNames:
    def test_layers_and_tensors_are_called_as_the_variables(self):
        def build(bb, x):
            a = bb.emit(op.flip(x, 0), name_hint="turned")
            return bb.emit(op.split(a, 3, axis=1), name_hint="pieces")

        network = build_network(function_of(build, F))
        names = [network.net.get_layer(i).name for i in range(network.net.num_layers)]
        assert names == ["turned", "pieces.0", "pieces.1", "pieces.2"]
        assert network.named == {"turned": "turned", **{f"pieces.{i}": f"pieces.{i}" for i in range(3)}}

    def test_equal_names_are_told_apart(self):
        def build(bb, x):
            return op.flip(bb.emit(op.flip(x, 0), name_hint="x0"), 1)

        network = build_network(function_of(build, F))
        names = [network.net.get_layer(i).name for i in range(network.net.num_layers)]
        assert len(set(names)) == 2 and "x0" not in names

    def test_a_merged_layer_bears_the_last_name(self):
        def build(bb, x):
            a = bb.emit(op.permute_dims(x), name_hint="first")
            return bb.emit(op.reshape(a, (24,)), name_hint="last")

        network = build_network(function_of(build, F))
        assert network.named == {"last": network.outputs[0]}


class TestSymbols:
    def test_symbolic_extents_are_open_and_listed(self):
        n = tvm.tirx.Var("n", "int64")
        function = function_of(lambda bb, x: op.permute_dims(x), ((n, 3, n * 2), "float32"))
        network = build_network(function)
        assert tuple(network.net.get_input(0).shape) == (-1, 3, -1)
        first, last = network.symbols
        assert first == Symbol("x0", 0, n)
        assert (last.input, last.axis) == ("x0", 2)
        assert evaluate(network, [numbers(2, 3, 4)])[0].shape == (4, 3, 2)


def no_layer(network: Network, call: relax.Call) -> None:
    """Add a layer that TensorRT refuses: the shapes do not broadcast."""
    x = network.tensor(call.args[0])
    y = network.constant(np.zeros((7, 7, 7), np.float32))
    return network.name(network.net.add_elementwise(x, y, network.trt.ElementWiseOperation.SUM)).get_output(0)


class TestErrors:
    def test_an_operator_without_a_converter_is_named(self):
        function = function_of(lambda bb, x: bb.emit(op.flip(x, 0), name_hint="turned"), F)
        with pytest.raises(ConversionError, match=r"relax\.flip \(turned\): there is no converter"):
            build_network(function, registry=Registry({}))

    def test_a_refused_layer_says_what_tensorrt_said(self):
        refused = converter("relax.flip", accepts=lambda call: None)(no_layer)
        function = function_of(lambda bb, x: bb.emit(op.flip(x, 0), name_hint="turned"), F)
        with pytest.raises(ConversionError, match=r"relax\.flip \(turned\).*broadcast"):
            build_network(function, registry=Registry({"relax.flip": refused}))

    def test_a_wrong_shape_is_found_where_it_is_made(self):
        wrong = converter("relax.flip", accepts=lambda call: None)(
            lambda network, call: network.transpose(network.tensor(call.args[0]), [2, 1, 0])
        )
        function = function_of(lambda bb, x: bb.emit(op.flip(x, 0), name_hint="turned"), F)
        with pytest.raises(ConversionError, match=r"\(turned\).*\(4, 3, 2\) where Relax has \[2, 3, 4\]"):
            build_network(function, registry=Registry({"relax.flip": wrong}))

    def test_a_wrong_dtype_too(self):
        wrong = converter("relax.flip", accepts=lambda call: None)(
            lambda network, call: network.cast(network.tensor(call.args[0]), "float16")
        )
        function = function_of(lambda bb, x: op.flip(x, 0), F)
        with pytest.raises(ConversionError, match=r"HALF where Relax has float32"):
            build_network(function, registry=Registry({"relax.flip": wrong}))

    def test_match_cast(self):
        n = tvm.tirx.Var("n", "int64")
        function = function_of(lambda bb, x: bb.match_cast(x, relax.TensorType((n, 3, 4), "float32")), F)
        with pytest.raises(ConversionError, match="match_cast"):
            build_network(function)

    def test_a_type_tensorrt_has_not(self):
        with pytest.raises(ConversionError, match="no float64 tensors"):
            build_network(function_of(lambda bb, x: op.flip(x, 0), ((2, 3), "float64")))

    def test_a_parameter_without_a_shape(self):
        x = relax.Var("x", relax.TensorType(dtype="float32", ndim=2))
        function = relax.Function([x], x, x.ty)
        with pytest.raises(ConversionError, match="input x has no known rank"):
            build_network(relax.BlockBuilder().normalize(function))


class TestTensors:
    def network(self) -> Network:
        return Network(get_provider().builder())

    def test_constants_are_made_once(self):
        fixed = relax.const(numbers(3))
        network = self.network()
        assert network.tensor(fixed).name == network.tensor(fixed).name
        assert network.net.num_layers == 1
        np.testing.assert_array_equal(network.array(fixed), numbers(3))

    def test_weights_outlive_their_array(self):
        network = self.network()
        x = network.net.add_input("x", network.dtype("float32"), (64, 64))
        total = network.net.add_concatenation([x, network.constant(np.arange(4096, dtype=np.float32).reshape(64, 64))])
        network.net.mark_output(total.get_output(0))
        gc.collect()
        got = evaluate(network, [numbers(64, 64)])[0]
        np.testing.assert_array_equal(got[64:], np.arange(4096, dtype=np.float32).reshape(64, 64))

    def test_align_folds_constants_and_shuffles_the_rest(self):
        network = self.network()
        x = network.net.add_input("x", network.dtype("float32"), (3, 4))
        fixed = network.constant(numbers(4))
        a, b, c = network.align(x, fixed, x, rank=4)
        assert [tuple(t.shape) for t in (a, b, c)] == [(1, 1, 3, 4), (1, 1, 1, 4), (1, 1, 3, 4)]
        assert network.array_of(b).shape == (1, 1, 1, 4)
        assert layer_types(network).count("SHUFFLE") == 2

    def test_cast_to_the_same_type_adds_nothing(self):
        network = self.network()
        x = network.net.add_input("x", network.dtype("int32"), (3,))
        assert network.cast(x, "int32") is x
        assert network.cast(x, "float32").dtype == network.trt.float32

    def test_reshape_to_extents_known_at_run_time(self):
        network = self.network()
        x = network.net.add_input("x", network.dtype("float32"), (-1, 3, -1))
        network.net.mark_output(network.reshape(x, [Extent(2), 1, 3, Extent(0)]))
        given = numbers(2, 3, 5)
        np.testing.assert_array_equal(evaluate(network, [given])[0], given.reshape(5, 1, 3, 2))


class TestWholeModels:
    @pytest.mark.parametrize("name", ["shufflenet_v2_x1_0"])
    def test_a_model_agrees_with_llvm_layer_by_layer(self, shared, name):
        import graphfile

        module = graphfile.load(str(shared / "graphs" / f"{name}.relax"))
        network = build_network(module["main"])
        shape = [int(extent) for extent in network.inputs[0].ty.shape.values]
        image = np.random.default_rng(0).random(shape, dtype=np.float32)
        (got,), (wanted,) = evaluate(network, [image]), run_llvm(module, [image])
        assert np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max()
