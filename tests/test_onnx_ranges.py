"""Shapes and ranges that a caller gives, and that cannot be meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from dynamic_case import Graph

import relax_glue
from relax_glue.errors import InputShapeError


def one_input() -> onnx.ModelProto:
    g = Graph(x=("n", 3))
    return g.model(g("Relu", "x"))


NEVER: dict[str, tuple[Callable[[Graph], str], dict[str, tuple[int, int | None]], str]] = {
    "a sum": (lambda g: g("Add", "x", "y"), {"k": (1, 2), "m": (5, 6)}, "'Add_0' needs m and k to be equal"),
    "an index": (lambda g: g("Gather", "x", np.array(5), axis=1), {"k": (1, 3)}, "'Gather_0' needs k to be at least 6"),
    "a product": (lambda g: g("MatMul", "x", np.ones((4, 5))), {"k": (5, None)}, "'MatMul_0' needs k and 4 to be"),
    "a window": (
        lambda g: g("MaxPool", g("Unsqueeze", "x", np.array([1])), kernel_shape=[5]),
        {"k": (1, 3)},
        "'MaxPool_1' needs k - 4 to be at least 0",
    ),
}


@pytest.mark.parametrize("name", NEVER)
def test_ranges_in_which_no_call_is_right_are_refused(name: str) -> None:
    build, ranges, told = NEVER[name]
    g = Graph(x=("n", "k"), y=("n", "m"))
    with pytest.raises(InputShapeError, match=f"node {told}.*within their ranges: give other ranges"):
        relax_glue.from_onnx(g.model(build(g)), ranges=ranges)


@pytest.mark.parametrize("value", [2**40 + 1, 2**63, 2**70])
def test_what_is_longer_than_any_axis_is_refused(value: int) -> None:
    model = one_input()
    with pytest.raises(InputShapeError, match="range of 'n' holds .*no axis is that long, and None leaves an end open"):
        relax_glue.from_onnx(model, ranges={"n": (1, value)})
    with pytest.raises(InputShapeError, match="input 'x' holds .*None to leave it free"):
        relax_glue.from_onnx(model, (value, 3))


@pytest.mark.parametrize("value", [0, -1])
def test_a_shape_without_elements_is_refused(value: int) -> None:
    with pytest.raises(InputShapeError, match=f"input 'x' holds {value}; give the extent itself, which is 1 or more"):
        relax_glue.from_onnx(one_input(), (value, 3))


def test_an_extent_of_0_in_the_file_is_free_and_has_a_name() -> None:
    model = one_input()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 0
    assert str(relax_glue.from_onnx(model, ranges={"x_dim0": (1, 4)})["main"].params[0].ty.shape.values[0]) == "x_dim0"
    assert relax_glue.from_onnx(model, (5, 3))["main"].params[0].ty.shape.values[0] == 5


def test_a_word_of_python_is_no_name(tmp_path: Path) -> None:
    """TVMScript could be printed with it and not be read again."""
    with pytest.raises(InputShapeError, match="holds 'if', which is no name for a free extent.*no words of Python"):
        relax_glue.from_onnx(one_input(), ("if", 3))
    model = one_input()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "lambda"
    relax_glue.save(relax_glue.from_onnx(model, ranges={"x_dim0": (1, 4)}), tmp_path / "model.relax")
    assert str(relax_glue.load(tmp_path / "model.relax")["main"].params[0].ty.shape.values[0]) == "x_dim0"
