"""Extents as shape tensors: all operations, variables solved from inputs, and those only a shape parameter has."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tvm
from converter_case import extent_at, layer_types, profile_of, serialise, shape_at
from tvm import relax, tirx

from relax_glue.errors import ConversionError
from relax_glue.tensorrt.expressions import inexpressible, simplified
from relax_glue.tensorrt.network import Network, build_network
from relax_glue.tensorrt.provider import get_provider
from relax_glue.tensorrt.reference import evaluate
from relax_glue.tensorrt.sizes import bounds, size_of
from relax_glue.tensorrt.sizes import evaluate as evaluate_size

N, M, K = (tirx.Var(name, "int64") for name in "nmk")
SIZES = [{"n": 1, "m": 1, "k": 3}, {"n": 5, "m": 8, "k": 1}, {"n": 12, "m": 7, "k": 4}]


def region(inputs: Sequence[Sequence[object]], result: Callable[[], relax.Expr], *symbols: tirx.Var) -> relax.Function:
    """Return a function that takes float32 tensors and a shape of symbols, and returns `result()`."""
    params = [relax.Var(f"x{place}", relax.TensorType(list(shape), "float32")) for place, shape in enumerate(inputs)]
    if symbols:
        params.append(relax.Var("symbols", relax.ShapeType(list(symbols))))
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            made = builder.emit_output(result())
        builder.emit_func_output(made)
    return builder.get()["main"]


def zeros(*extents: object) -> Callable[[], relax.Expr]:
    return lambda: relax.op.zeros(tuple(extents), "float32")


def check(function: relax.Function, symbols: Sequence[tirx.Var] = ()) -> Network:
    """Compare the shapes of the results with what the types say, at several sizes; the engine has to build."""
    network = build_network(function)
    for sizes in SIZES:
        inputs = [np.zeros(shape_at(given.ty, sizes), np.float32) for given in network.inputs]
        shapes = [np.array([sizes[symbol.name] for symbol in symbols], np.int64)] if symbols else []
        (got,) = evaluate(network, inputs, shapes=shapes)
        assert got.shape == shape_at(function.ret_ty, sizes)
    assert serialise(network, SIZES) > 0
    return network


OPERATIONS = {
    "sum": N + M,
    "difference": N + 3 - tirx.min(N, 2),
    "product": N * M * 2,
    "floordiv": (N - 1) // 2 + 1,
    "truncdiv": tirx.truncdiv(N + 7, 3),
    "floormod": N % 3 + 1,
    "truncmod": tirx.truncmod(N, 4) + 1,
    "min": tirx.min(N, M),
    "max": tirx.max(N - M, 1),
    "nested": tirx.max(tirx.min(N * 2 // 3, M + 1), (M + N % 2) // 4) + 1,
    "a bound that is none": tirx.min(tirx.IntImm("int64", 2**63 - 1), N),
    "a cast": tirx.Cast("int64", N) + 1,
    "a choice": tirx.if_then_else(N % 3 == 0, N, M + 1),
    "a choice by order": tirx.if_then_else(N * 2 <= M, M, N) + tirx.Select(N > M, N, M) * 2,
    "a choice by two conditions": tirx.if_then_else(tirx.all(N >= 5, tirx.Not(M < 8)), 3, N),
    "a choice in a choice": tirx.if_then_else(tirx.any(N != 1, M == 9), tirx.if_then_else(M > 7, N + 2, 5), 4 * N),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name: str) -> None:
    check(region([(N, 2), (M,)], zeros(OPERATIONS[name], 2)))


def test_an_expression_is_computed_once() -> None:
    half = (N - 1) // 2 + 1
    network = check(region([(N, 2)], zeros(half, half, half + 1)))
    assert layer_types(network).count("SHAPE") == 1
    assert layer_types(network).count("ELEMENTWISE") == 4


SOLVED = {
    "2 * n": (N * 2,),
    "n + 1": (N + 1,),
    "7 - n, of two terms": (tirx.IntImm("int64", 20) - N,),
    "2 * (n + 3) - 1": ((N + 3) * 2 - 1,),
    "n + m, m known": (N + M, M),
    "n * 2 + m, m known": (M, N * 2 + M),
}


@pytest.mark.parametrize("name", SOLVED)
def test_variables_are_solved_from_extents(name: str) -> None:
    extents = SOLVED[name]
    network = check(region([extents], zeros(N, 2), N, M), (N, M))
    assert network.shapes == []


def test_a_term_of_an_extent_is_solved_too() -> None:
    """(n // 2 + 1) * 3 needs no n where an input has the extent n // 2 + 1."""
    network = check(region([(N // 2 + 1, 2)], zeros((N // 2 + 1) * 3, 2), N), (N,))
    assert network.shapes == []


@pytest.mark.parametrize("extents", [(N // 2 + 1,), (N * M,), (N + M,), (tirx.max(N, 2),)], ids=str)
def test_what_no_extent_gives_comes_from_the_shape_parameter(extents: tuple[object, ...]) -> None:
    network = check(region([extents], zeros(N, 2), M, N), (M, N))
    (shape,) = network.shapes
    assert (shape.name, shape.param, shape.place) == ("symbols", 1, 0)
    engine = network.builder.config()
    engine.add_optimization_profile(profile_of(network, SIZES))
    assert network.net.get_input(1).is_shape_tensor


def test_a_shape_parameter_is_a_shape_tensor_where_its_values_are_data() -> None:
    """TensorRT has the values of shape tensors on the host, and those of other inputs on the GPU."""
    function = region([(M,)], lambda: relax.op.shape_to_tensor(relax.ShapeExpr([N * 2, N])), N)
    network = build_network(function)
    (got,) = evaluate(network, [np.zeros((2,), np.float32)], shapes=[np.array([7], np.int64)])
    np.testing.assert_array_equal(got, [14, 7])
    assert network.net.get_input(1).is_shape_tensor
    assert serialise(network, SIZES) > 0


def test_a_shape_that_is_missing_is_an_error() -> None:
    network = build_network(region([(N // 2 + 1,)], zeros(N, 2), N))
    with pytest.raises(ConversionError, match="reads symbols; got 0 shapes"):
        evaluate(network, [np.zeros((2,), np.float32)])


def test_two_variables_of_one_name_are_two() -> None:
    other = tirx.Var("n", "int64")
    function = region([(N, 2), (other,)], zeros(N, other))
    (got,) = evaluate(build_network(function), [np.zeros((3, 2), np.float32), np.zeros((5,), np.float32)])
    assert got.shape == (3, 5)


def test_a_variable_of_nothing_is_an_error() -> None:
    network = Network(get_provider().builder())
    with pytest.raises(ConversionError, match="the extent n cannot be computed"):
        network.extents.value(N + 1)


@pytest.mark.parametrize("extent", [tirx.if_then_else((N << 1) > 2, N, 1), (N << 1) + 1], ids=str)
def test_other_operations_are_found(extent: tvm.ir.Expr) -> None:
    assert inexpressible(extent) is not None


def test_a_choice_is_carried_as_numbers_too() -> None:
    size = size_of(tirx.if_then_else(N % 2 == 0, N // 2, M), lambda variable: variable.name)
    assert [evaluate_size(size, {"n": n, "m": 7}) for n in (1, 2, 3, 4)] == [7, 1, 7, 2]


def test_the_range_of_a_choice_between_neighbours_is_theirs() -> None:
    half = tirx.if_then_else(N % 2 == 0, N // 2, N // 2 + 1)
    assert bounds(size_of(half, lambda variable: variable.name), {"n": (8, 64)}) == (4, 33)


def test_normal_form() -> None:
    assert simplified(tirx.IntImm("int64", 4)) == 4
    assert simplified((N + 1) // 2 * 0 + 3) == 3
    assert extent_at(simplified(tirx.min(tirx.IntImm("int64", 2**31), N - 1)), {"n": 9}) == 8
