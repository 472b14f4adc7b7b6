"""Random signatures, ranges and calls: what TVM's own checks take is taken by those in words, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from unittest import mock

import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax, tirx

import relax_glue
from relax_glue.errors import ExecutionError
from relax_glue.frontend.symbolic.ranges import check_bounds
from relax_glue.heterogeneous import lowering
from relax_glue.testing import fuzz_examples

EXAMPLES = fuzz_examples(25)
N, M = tirx.Var("n", "int64"), tirx.Var("m", "int64")
EXTENTS = ["1", "3", "n", "m", "2 * n", "n + m", "(m - 1) // 2 + 1", "n * m", "n // m", "m % n"]


def machine(mod: tvm.IRModule) -> relax.VirtualMachine:
    return relax.VirtualMachine(relax_glue.compile(mod, "llvm"), tvm.cpu())


def symbolic(extents: Sequence[str]) -> list[tirx.PrimExpr | int]:
    """Return extents such as "2", "n" and "m // 2" as expressions of the variables n and m."""
    return [eval(extent, {"n": N, "m": M}) for extent in extents]


@st.composite
def signatures(draw: st.DrawFn) -> tuple[tvm.IRModule, list[tuple[int, ...]]]:
    """Draw a function of tensors with ranges for n and m, and the shapes of a call that mostly fits it."""
    shapes = [["n", "m"], *draw(st.lists(st.lists(st.sampled_from(EXTENTS), min_size=1, max_size=3), max_size=2))]
    order = draw(st.permutations(shapes))
    params = [relax.Var(f"x{k}", relax.TensorType(symbolic(shape), "float32")) for k, shape in enumerate(order)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(params[0])
    mod = builder.get()
    if draw(st.booleans()):
        mod["main"] = mod["main"].with_attrs({"tir_var_lower_bound": {"n": 2}, "tir_var_upper_bound": {"m": 4}})
    mod = check_bounds(mod)
    sizes = {"n": draw(st.integers(1, 5)), "m": draw(st.integers(1, 5))}
    call = [[eval(extent, dict(sizes)) for extent in shape] for shape in order]
    for index in draw(st.lists(st.integers(0, len(call) - 1), max_size=1)):
        axis = draw(st.integers(0, len(call[index]) - 1))
        call[index][axis] = draw(st.integers(1, 6))
    return mod, [tuple(shape) for shape in call]


@settings(
    max_examples=EXAMPLES, deadline=None, derandomize=EXAMPLES <= 250, suppress_health_check=[HealthCheck.too_slow]
)
@given(drawn=signatures())
def test_what_tvm_takes_is_taken_and_nothing_else(drawn: tuple[tvm.IRModule, list[tuple[int, ...]]]) -> None:
    mod, shapes = drawn
    tensors = [tvm.runtime.tensor(np.zeros(shape, "float32")) for shape in shapes]
    with mock.patch.object(lowering, "check_arguments", lambda lowered, _source, _host: lowered):
        plain = machine(mod)["main"]
    try:
        wanted = plain(*tensors).shape
    except RuntimeError:
        with pytest.raises(ExecutionError):
            machine(mod)["main"](*tensors)
    else:
        assert machine(mod)["main"](*tensors).shape == wanted
