"""LiftBranches: what branches compute, in functions of their own; whole modules that TVM's planner would break."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import relax_glue
from relax_glue.passes import LiftBranches


@I.ir_module
class Reused:
    """The memory of `h` is free when the branch ends, and `k` after the `If` is of its size."""

    @R.function
    def main(x: R.Tensor((8, 16), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((8, 16), "float32"):
        if c:
            y = R.abs(x)
        else:
            h = R.sin(x)
            g = R.permute_dims(h)
            i = R.nn.softmax(g)
            y = R.permute_dims(i)
        with R.dataflow():
            k = R.permute_dims(y)
            j = R.nn.softmax(k)
            z = R.permute_dims(j)
            R.output(z)
        return z


@I.ir_module
class Symbolic:
    """A branch that needs a symbol of no operand, one that defines a symbol, an `If` in a branch."""

    @R.function
    def main(
        x: R.Tensor(("n + 1", 4), "float32"), s: R.Shape(["n"]), c: R.Tensor((), "bool"), d: R.Tensor((), "bool")
    ) -> R.Tensor(dtype="float32", ndim=2):
        n = T.int64()
        m = T.int64()
        if c:
            o = R.ones(R.shape([n, 4]), "float32")
            y: R.Tensor(dtype="float32", ndim=2) = R.sin(o)
        else:
            g = R.greater(x, R.const(0.0, "float32"))
            f = R.nonzero(g)
            k = R.match_cast(f, R.Tensor((2, m), "int64"))
            a = R.astype(k, "float32")
            if d:
                b = R.negative(a)
                e: R.Tensor((2, m), "float32") = R.exp(b)
            else:
                e: R.Tensor((2, m), "float32") = a
            y: R.Tensor(dtype="float32", ndim=2) = e
        return y


@I.ir_module
class Idle:
    @R.function
    def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((4,), "float32"):
        if c:
            y: R.Tensor((4,), "float32") = x
        else:
            y: R.Tensor((4,), "float32") = R.const(np.ones(4, "float32"))
        return y


def run(mod: tvm.IRModule, *inputs: object) -> np.ndarray:
    machine = relax.VirtualMachine(relax_glue.compile(mod, "llvm"), tvm.cpu())
    given = [i if isinstance(i, tvm.runtime.ShapeTuple) else tvm.runtime.tensor(np.asarray(i)) for i in inputs]
    return machine["main"](*given).numpy()


def functions(mod: tvm.IRModule) -> set[str]:
    return {var.name_hint for var in mod.get_global_vars()}


def softmax(a: np.ndarray) -> np.ndarray:
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("condition", [True, False])
def test_memory_of_a_branch_is_its_own(condition: bool) -> None:
    x = np.random.default_rng(0).normal(size=(8, 16)).astype("float32")
    y = np.abs(x) if condition else softmax(np.sin(x).T).T
    np.testing.assert_allclose(run(Reused, x, condition), softmax(y.T).T, rtol=1e-5)


def test_each_branch_with_work_becomes_a_function() -> None:
    after = LiftBranches()(Reused)
    relax.analysis.well_formed(after)
    assert functions(after) == {"main", "main_then_0", "main_else_0"}
    assert functions(Reused) == {"main"}
    tvm.ir.assert_structural_equal(LiftBranches()(after), after)


@pytest.mark.parametrize(("c", "d"), [(True, False), (False, True), (False, False)])
def test_symbols_go_along_and_inner_branches_are_lifted_too(c: bool, d: bool) -> None:
    after = LiftBranches()(Symbolic)
    relax.analysis.well_formed(after)
    assert functions(after) == {"main", "main_then_0", "main_then_1", "main_else_0"}
    x = np.arange(-8, 8, dtype="float32").reshape(4, 4)
    found = np.stack(np.nonzero(x > 0)).astype("float32")
    expected = np.sin(np.ones((3, 4), "float32")) if c else np.exp(-found) if d else found
    np.testing.assert_allclose(run(Symbolic, x, tvm.runtime.ShapeTuple([3]), c, d), expected, rtol=1e-5)


def test_branches_that_compute_nothing_stay() -> None:
    assert LiftBranches()(Idle).same_as(Idle)
