"""Ranges of symbolic extents: what the option takes, what functions carry, and what profiles engines get."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import tvm
from engine_case import partitioned
from hypothesis import given
from hypothesis import strategies as st
from symbolic_case import conv_of_free_size, halving, of_flat_rows, region, symbolic
from tvm import relax, tirx

from relax_glue.errors import BuildError, ConversionError
from relax_glue.tensorrt import BuildOptions, engine
from relax_glue.tensorrt.artifact import Artifact, SavedRegion, from_text, load_region, save_region, to_text
from relax_glue.tensorrt.cache import engine_key
from relax_glue.tensorrt.engine import obtain_plan
from relax_glue.tensorrt.network import build_network
from relax_glue.tensorrt.profiles import Profile, Range, read_profiles, with_bounds
from relax_glue.tensorrt.sizes import Size, bounds, evaluate, from_json, size_of, text, variables

UPPER = {"n": 4, "h": 32, "w": 32}


def saved(profiles: Any = None, mod: tvm.IRModule | None = None) -> SavedRegion:
    mod = mod or conv_of_free_size()
    return save_region(region(mod), read_profiles(profiles))


# the option


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ((1, 4, 16), (1, 4, 16)),
        ([2, 8], (2, 8, 8)),
        (3, (3, 3, 3)),
        ((5,), (5, 5, 5)),
        (Range(1, 2, 3), (1, 2, 3)),
        (np.int32(7), (7, 7, 7)),
    ],
)
def test_a_range_has_three_spellings(written: Any, wanted: tuple[int, int, int]) -> None:
    (profile,) = BuildOptions(profiles={"n": written}).profiles
    assert profile.by_name == {"n": Range(*wanted)}


@pytest.mark.parametrize(("ends", "opt"), [((1, 16), 16), ((320, 1000), 992), ((33, 63), 63), ((32, 63), 32)])
def test_without_a_middle_value_it_is_a_great_one_that_models_take(ends: tuple[int, int], opt: int) -> None:
    assert Range.of("h", ends).opt == opt


@pytest.mark.parametrize(
    "wrong",
    [(4, 1), (1, 20, 16), (0, 4), (), (1, 2, 3, 4), "8", 1.5, True, (1, None), None, {"min": 1}],
)
def test_a_wrong_range_is_named(wrong: Any) -> None:
    with pytest.raises(ValueError, match="batch"):
        BuildOptions(profiles={"batch": wrong})


@pytest.mark.parametrize("wrong", ["n", 3, ["n"], [[("n", 1)]]])
def test_profiles_are_mappings(wrong: Any) -> None:
    with pytest.raises(ValueError, match="by variable"):
        BuildOptions(profiles=wrong)


def test_runcodegen_hands_over_tvms_own_containers() -> None:
    several = tvm.runtime.convert({"profiles": [{"n": (1, 4, 16)}, {"n": 32}]})
    assert BuildOptions.of(several) == BuildOptions(profiles=[{"n": (1, 4, 16)}, {"n": 32}])


def test_options_with_profiles_can_be_replaced_and_compared() -> None:
    options = BuildOptions(profiles={"n": (1, 4), "h": 8})
    assert dataclasses.replace(options, cache=False).profiles == options.profiles
    assert options == BuildOptions(profiles={"h": 8, "n": (1, 4)})
    assert hash(options) == hash(BuildOptions(profiles={"h": 8, "n": (1, 4)}))


# where ranges come from


def test_the_functions_own_bounds_are_the_default() -> None:
    mod = conv_of_free_size(upper=UPPER, lower={"n": 0, "h": 16})
    (profile,) = saved(mod=mod).profiles
    assert profile.by_name == {"n": Range(1, 4, 4), "h": Range(16, 32, 32), "w": Range(1, 32, 32)}


def test_the_option_goes_before_the_bounds_variable_by_variable() -> None:
    first, second = saved([{"n": 1}, {"n": (2, 8), "h": (8, 64)}], conv_of_free_size(upper=UPPER)).profiles
    assert first.by_name == {"n": Range(1, 1, 1), "h": Range(1, 32, 32), "w": Range(1, 32, 32)}
    assert second.by_name == {"n": Range(2, 8, 8), "h": Range(8, 64, 64), "w": Range(1, 32, 32)}


def test_nothing_is_invented() -> None:
    with pytest.raises(BuildError, match=r"the range of h, n in main_tensorrt_0 is not known.*profiles=\{'h': "):
        saved({"w": 8})


def test_profiles_that_differ_elsewhere_are_one() -> None:
    mod = symbolic(lambda emit, x: emit(relax.op.nn.relu(x)), ("n", 4))
    several = [{"n": (1, 8), "other": 1}, {"n": (1, 8), "other": 2}]
    assert len(saved(several, mod).profiles) == 1


def test_a_static_region_has_no_profiles() -> None:
    mod = symbolic(lambda emit, x: emit(relax.op.nn.relu(x)), (2, 4))
    assert saved({"n": 1}, mod).profiles == ()


def test_two_symbols_of_one_name_are_told_apart_and_share_its_range() -> None:
    one, other = tirx.Var("n", "int64"), tirx.Var("n", "int64")
    params = [relax.Var(name, relax.TensorType([n, 4], "float32")) for name, n in (("x", one), ("y", other))]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            made = builder.emit_output(relax.op.concat(params, 0))
        builder.emit_func_output(made)
    found = saved({"n": (1, 2, 3)}, builder.get())
    assert [spec.shape for spec in found.inputs] == [("n", 4), ("n_2", 4)]
    assert found.outputs[0].shape == (("+", "n", "n_2"), 4)
    assert found.profiles[0].by_name == {"n": Range(1, 2, 3), "n_2": Range(1, 2, 3)}
    assert load_region(found.data).params[1].ty.shape.values[0].name != "n"


# sizes

n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
EXPRESSIONS = {
    "n * 2": n * 2,
    "(n - 1) // 2 + 1": (n - 1) // 2 + 1,
    "n - m % 3": n - tirx.floormod(m, 3),
    "min(n, 4) * m": tirx.Min(n, tirx.IntImm("int64", 4)) * m,
    "max(n, m + 1)": tirx.Max(n, m + 1),
    "7": tirx.IntImm("int64", 7),
}


@pytest.mark.parametrize("wanted", EXPRESSIONS)
def test_an_extent_is_carried_as_arithmetic(wanted: str) -> None:
    size = size_of(EXPRESSIONS[wanted], lambda variable: str(variable.name))
    assert text(size) == wanted
    assert from_json(json.loads(json.dumps(size))) == size
    for values in ({"n": 5, "m": 9}, {"n": 1, "m": 1}):
        # the text is Python, so Python is the second opinion
        assert evaluate(size, values) == eval(wanted, {"min": min, "max": max}, values)


def test_what_is_no_arithmetic_is_refused() -> None:
    with pytest.raises(ConversionError, match="n"):
        size_of((n << 1) + m, lambda variable: str(variable.name))


SIZES: st.SearchStrategy[Size] = st.recursive(
    st.integers(1, 9) | st.sampled_from(["n", "m"]),
    lambda inner: st.tuples(st.sampled_from(["+", "-", "*", "//", "%", "min", "max"]), inner, inner),
    max_leaves=5,
)
SPANS = st.tuples(st.integers(1, 6), st.integers(0, 5)).map(lambda pair: (pair[0], sum(pair)))


@given(SIZES, SPANS, SPANS)
def test_bounds_hold_every_value(size: Size, of_n: tuple[int, int], of_m: tuple[int, int]) -> None:
    try:
        low, high = bounds(size, {"n": of_n, "m": of_m})
    except ZeroDivisionError:
        return
    every = [evaluate(size, {"n": a, "m": b}) for a in range(of_n[0], of_n[1] + 1) for b in range(of_m[0], of_m[1] + 1)]
    assert low <= min(every)
    assert max(every) <= high
    names = list(variables(size))
    if len(names) == len(set(names)) and "%" not in str(size):
        assert (low, high) == (min(every), max(every))


# engines


def profile_shapes(found: SavedRegion, mod: tvm.IRModule, index: int) -> list[list[tuple[int, ...]]]:
    """Return the extents of an input in each profile, as TensorRT reads them back; the engine is built too."""
    assert obtain_plan(found, BuildOptions(cache=False), region(mod)).data
    network = build_network(region(mod))
    profiles = [engine._optimization_profile(network, found, profile) for profile in found.profiles]
    return [[tuple(shape) for shape in profile.get_shape(network.inputs[index].name)] for profile in profiles]


def test_an_engine_is_built_for_each_profile() -> None:
    mod = conv_of_free_size()
    found = saved([{"n": 1, "h": (16, 32), "w": (16, 32)}, {"n": (2, 4, 8), "h": 16, "w": 16}], mod)
    assert profile_shapes(found, mod, 0) == [
        [(1, 8, 16, 16), (1, 8, 32, 32), (1, 8, 32, 32)],
        [(2, 8, 16, 16), (4, 8, 16, 16), (8, 8, 16, 16)],
    ]


def test_extents_that_are_expressions_follow_their_variables() -> None:
    def body(emit: Any, x: relax.Var, y: relax.Var) -> relax.Expr:
        return emit(relax.op.add(emit(relax.op.exp(x)), emit(relax.op.concat([y, y], 0))))

    mod = symbolic(body, ("2*n", 4), ("n", 4))
    found = saved({"n": (1, 3, 5)}, mod)
    doubled = [spec.shape for spec in found.inputs].index((("*", "n", 2), 4))
    assert profile_shapes(found, mod, doubled) == [[(2, 4), (6, 4), (10, 4)]]
    assert profile_shapes(found, mod, 1 - doubled) == [[(1, 4), (3, 4), (5, 4)]]


def test_what_no_input_gives_is_a_shape_tensor_with_ranges_of_its_own() -> None:
    mod = of_flat_rows()
    found = saved({"n": (2, 3, 4)}, mod)
    (shape,) = found.shapes
    network = build_network(region(mod))
    made = engine._optimization_profile(network, found, found.profiles[0])
    wanted = {"n": (2, 3, 4), "m": (1, 6, 6)}
    assert [list(values) for values in made.get_shape_input(network.shapes[0].name)] == [
        [wanted[name][place] for name in shape.shape] for place in range(3)
    ]
    plan = obtain_plan(found, BuildOptions(cache=False), region(mod))
    assert plan.shapes == (network.shapes[0].name,)
    assert obtain_plan(found, BuildOptions(cache=False)).shapes == plan.shapes


def test_a_divisor_that_can_be_zero_is_refused_with_the_range() -> None:
    found = saved({"n": (1, 4)}, symbolic(lambda emit, x: emit(relax.op.nn.relu(x)), ("n", 4)))
    divided = dataclasses.replace(found.inputs[0], shape=(("//", 8, ("-", "n", 1)), 4))
    network = build_network(region(symbolic(lambda emit, x: emit(relax.op.nn.relu(x)), ("n", 4))))
    with pytest.raises(BuildError, match=r"n - 1 can be 0 for n 1 to 4"):
        engine.build_plan(network, BuildOptions(cache=False), dataclasses.replace(found, inputs=(divided,)))


def test_a_middle_value_that_the_model_does_not_take_is_explained() -> None:
    def body(emit: Any, x: relax.Var) -> relax.Expr:
        height = x.ty.shape.values[2]
        return emit(relax.op.reshape(emit(relax.op.exp(x)), [1, 8, height // 4, 64]))

    mod = symbolic(body, (1, 8, "h", 16))
    assert obtain_plan(saved({"h": (16, 20, 40)}, mod), BuildOptions(cache=False), region(mod)).data
    with pytest.raises(BuildError, match="middle values"):
        obtain_plan(saved({"h": (16, 22, 40)}, mod), BuildOptions(cache=False), region(mod))


def test_the_key_holds_the_ranges() -> None:
    ranges = [{"n": (1, 4), "h": 8, "w": 8}, {"n": (1, 2, 4), "h": 8, "w": 8}, {"n": (1, 4), "h": 8, "w": (8, 16)}]
    keys = {engine_key(saved(each), BuildOptions(), "p 1", "g") for each in [*ranges, ranges[:2]]}
    assert len(keys) == 4
    other = engine_key(saved(ranges[0]), BuildOptions(profiles={"unused": 3}), "p 1", "g")
    assert other in keys, "ranges of variables that the region does not have make no other engine"


def test_an_engine_of_symbolic_extents_is_built_from_the_saved_region_alone() -> None:
    found = saved({"n": (1, 4), "h": (8, 32), "w": (8, 32)})
    plan = obtain_plan(found, BuildOptions(cache=False))
    assert plan.outputs
    assert plan.inputs == ("x0",)


# what is carried


def test_an_artifact_of_symbolic_shapes_comes_back() -> None:
    found = saved([{"n": 1, "h": (8, 32), "w": 8}, {"n": (2, 4), "h": 8, "w": 8}])
    options = BuildOptions(profiles={"n": (1, 4)})
    made = Artifact(found.symbol, found.inputs, found.outputs, options, found.data, None, found.shapes, found.profiles)
    back = Artifact.unpack(from_text(to_text(made.pack())))
    assert back == dataclasses.replace(made, options=BuildOptions())
    assert back.outputs[0].extents({"n": 2, "h": 9, "w": 12}) == (2, 8, 4, 6)
    assert str(back.inputs[0]) == "(n, 8, h, w) float32"


def test_a_saved_region_comes_back_with_its_symbols() -> None:
    found = saved({"n": 1, "h": 8, "w": 8})
    back = load_region(found.data)
    assert [str(extent) for extent in back.params[0].ty.shape.values] == ["n", "T.int64(8)", "h", "w"]
    mod = tvm.IRModule({"main": back.with_attr("global_symbol", "main")})
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    x = np.ones((2, 8, 6, 4), "float32")
    wanted = relax.VirtualMachine(tvm.compile(conv_of_free_size(), "llvm"), tvm.cpu())["main"](tvm.runtime.tensor(x))
    np.testing.assert_array_equal(machine["main"](tvm.runtime.tensor(x)).numpy(), wanted.numpy())


UPPER_AND_LOWER = {"tir_var_upper_bound": {"n": 4}, "tir_var_lower_bound": {"h": 2}}


def bounds_of(function: relax.Function) -> dict[str, dict[str, int]]:
    return {name: dict(bound) for name, bound in function.attrs.items() if name.startswith("tir_var")}


def test_regions_carry_the_bounds_of_their_variables() -> None:
    mod = symbolic(halving(), ("n", 8, "h", 16), upper={"n": 4, "elsewhere": 9}, lower={"h": 2})
    assert bounds_of(region(mod)) == UPPER_AND_LOWER


def test_regions_of_others_get_them_from_their_callers() -> None:
    mod = partitioned(symbolic(halving(), ("n", 8, "h", 16), upper={"n": 4, "elsewhere": 9}, lower={"h": 2}))
    found = next(f for f in mod.functions.values() if f.attrs and "Codegen" in f.attrs)
    assert not bounds_of(found)
    assert bounds_of(with_bounds(found, [mod["main"]])) == UPPER_AND_LOWER
    kept = found.with_attr("tir_var_upper_bound", {"n": 2})
    assert bounds_of(with_bounds(kept, [mod["main"]]))["tir_var_upper_bound"] == {"n": 2}


def test_profiles_read_as_text() -> None:
    assert str(Profile.of({"n": 4, "h": (1, 8)})) == "h 1 to 8, n 4"
