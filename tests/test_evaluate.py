"""What `relax_glue.evaluate` promises its callers; each operator has its test in test_evaluate_*.py."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from llvm_cases import (
    Case,
    Operand,
    emit,
    named,
)
from tvm import relax
from tvm.relax import op

from relax_glue.evaluate import EVALUATORS, byte_size, evaluate


def test_every_operator_stands_here() -> None:
    """Each operator of the table is spelled in one of the files that test them."""
    spelled = "".join(file.read_text() for file in Path(__file__).parent.glob("test_evaluate_*.py"))
    spelled = spelled.replace('f"logical_{name}"', '"logical_and" "logical_or" "logical_xor"')
    names = {name.removeprefix("relax.") for name in EVALUATORS}
    absent = {name for name in names if not re.search(rf'(op\.|"){re.escape(name)}\b', spelled)}
    assert not absent


def _evaluated(build: Callable[..., relax.Expr], *args: Operand, result_type: Any = None) -> Any:
    call = emit(relax.BlockBuilder(), "case", Case("", build, args))
    return evaluate(call, args, result_type or call.ty)


def test_unknown_operators_and_types_give_none() -> None:
    data = np.arange(6, dtype="f4").reshape(2, 3)
    assert _evaluated(lambda x: op.nn.softmax(x), data) is None
    assert _evaluated(op.exp, data) is None
    n = tvm.tirx.Var("n", "int64")
    assert _evaluated(op.abs, data, result_type=relax.TensorType([n, 3], "float32")) is None
    assert _evaluated(op.abs, data, result_type=relax.TensorType([3, 2], "float32")) is None
    assert _evaluated(op.abs, data, result_type=relax.TensorType([2, 3], "float16")) is None
    assert _evaluated(op.abs, data, result_type=relax.TensorType(None, "float32", ndim=2)) is not None


def test_shape_only_operators_need_no_value() -> None:
    data = np.zeros([2, 3], "f4")
    call = emit(relax.BlockBuilder(), "case", named("ones_like", data))
    ones = evaluate(call, [None], call.ty)
    assert isinstance(ones, np.ndarray)
    assert ones.shape == (2, 3)
    assert ones.min() == ones.max() == 1
    call = emit(relax.BlockBuilder(), "case", named("abs", data))
    assert evaluate(call, [None], call.ty) is None


def test_the_number_of_values_must_be_that_of_the_operands() -> None:
    data = np.zeros([2, 3], "f4")
    call = emit(relax.BlockBuilder(), "case", named("add", data, data))
    for args in ([data], [data, data, data]):
        with pytest.raises(ValueError, match=r"relax\.add"):
            evaluate(call, args, call.ty)


def test_byte_size() -> None:
    assert byte_size(relax.TensorType([2, 3], "float16")) == 12
    assert byte_size(relax.TensorType([], "int64")) == 8
    assert byte_size(relax.TensorType([0, 5], "int64")) == 0
    pair = relax.TupleType([relax.TensorType([2], "bool"), relax.TensorType([3], "float32")])
    assert byte_size(pair) == 14
    assert byte_size(relax.TensorType([tvm.tirx.Var("n", "int64")], "int64")) is None
    assert byte_size(relax.TensorType(None, "int64", ndim=1)) is None
    assert byte_size(relax.ShapeType([2, 3])) is None


def test_a_value_must_have_the_dtype_of_its_operand() -> None:
    data = np.zeros([2, 3], "f4")
    call = emit(relax.BlockBuilder(), "case", named("abs", data))
    with pytest.raises(ValueError, match="float64"):
        evaluate(call, [data.astype("f8")], call.ty)
