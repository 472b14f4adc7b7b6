"""What values decide the extents of stays with TVM, and nothing else does for that reason."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import relax_glue
from relax_glue.errors import OffloadError
from relax_glue.inline import inline
from relax_glue.testing import check_equivalent


@I.ir_module
class Found:
    """A head, the rows that it finds, and what is computed of them."""

    @R.function
    def main(x: R.Tensor((4, 6), "float32"), w: R.Tensor((6, 6), "float32")) -> R.Tensor(dtype="float32", ndim=2):
        k = T.int64()
        with R.dataflow():
            h = R.matmul(x, w)
            a = R.nn.relu(h)
            s = R.max(a, axis=[1])
            b = R.greater(s, R.const(1.0, "float32"))
            f = R.nonzero(b)
            g = R.match_cast(f, R.Tensor((1, k), "int64"))
            i = R.reshape(g, R.shape([k]))
            t = R.take(a, i, axis=0)
            e = R.exp(t)
            R.output(e)
        return e


def test_what_follows_from_the_values_found_stays_with_its_reason() -> None:
    report = relax_glue.explain(Found)
    assert [list(region.ops) for region in report.regions] == [
        ["relax.greater", "relax.matmul", "relax.max", "relax.nn.relu"]
    ]
    reasons = {item.op: item.reason for item in report.outside}
    assert list(reasons) == ["relax.nonzero", "relax.reshape", "relax.take", "relax.exp"]
    assert "no layer for relax.nonzero" in reasons["relax.nonzero"]
    for op in ("relax.reshape", "relax.take", "relax.exp"):
        assert "values decide its extent k (of g)" in reasons[op]


def test_the_numbers_stay() -> None:
    w = np.eye(6, dtype="float32")
    for scale in (0.0, 1.0):
        x = np.random.default_rng(0).normal(size=(4, 6)).astype("float32") * np.float32(scale)
        check_equivalent(Found, inline(relax_glue.optimize(Found)), [x, w])


def test_extents_of_what_is_passed_are_the_callers() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(
            x: R.Tensor(ndim=2, dtype="float32"),
            t: R.Tuple(R.Tensor(ndim=1, dtype="float32"), R.Tensor(("n",), "float32")),
        ):
            m = T.int64()
            k = T.int64()
            n = T.int64()
            with R.dataflow():
                a = R.match_cast(x, R.Tensor((m, 4), "float32"))
                t0 = t[0]
                b = R.match_cast(t0, R.Tensor((k,), "float32"))
                t1 = t[1]
                c = R.exp(a)
                d = R.sin(b)
                e = R.negative(t1)
                R.output(c, d, e)
            return (c, d, e)

    assert not relax_glue.explain(Mod).outside


def test_a_branch_keeps_what_was_found_before_it() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((4, 6), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(dtype="float32", ndim=2):
            k = T.int64()
            f = R.nonzero(x)
            g = R.match_cast(f, R.Tensor((2, k), "int64"))
            if c:
                y: R.Tensor(dtype="float32", ndim=2) = R.astype(g, "float32")
            else:
                y: R.Tensor(dtype="float32", ndim=2) = R.exp(x)
            return y

    report = relax_glue.explain(Mod)
    assert [list(region.ops) for region in report.regions] == [["relax.exp"]]
    assert {item.op for item in report.outside} == {"relax.nonzero", "relax.astype"}


def test_full_offload_is_refused_with_the_extent() -> None:
    with pytest.raises(OffloadError, match="values decide its extent k"):
        relax_glue.optimize(Found, require_full_offload=True)


def test_no_engine_is_built_for_one_number() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((4, 6), "float32")):
            with R.dataflow():
                a = R.nn.relu(x)
                f = R.nonzero(a)
                g = R.astype(f, "float32")
                m = R.max(g)
                n = R.add(m, R.const(1.0, "float32"))
                R.output(a, n)
            return (a, n)

    report = relax_glue.explain(Mod)
    assert [list(region.ops) for region in report.regions] == [["relax.nn.relu"]]
    assert "one number" in next(item.reason for item in report.outside if item.op == "relax.add")
