"""The pairs of benchmarks/left_out.py compute the same, and a rule that was built does what was done by hand."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from build_case import ops

import relax_glue

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def left_out() -> Iterator[object]:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import left_out

        yield left_out
    finally:
        sys.path.remove(str(BENCHMARKS))


def test_both_networks_of_each_pair_compute_the_same(left_out):
    for case in left_out.CASES:
        left_out.check_on_llvm(case)  # raises DifferentError


def test_a_pair_that_differs_is_refused(left_out):
    case = left_out.CASES[0]
    right = left_out.inputs(case, case.small)
    with pytest.raises(left_out.DifferentError, match=r"differ by 1 "):
        left_out.check(case, {"stands": right, "rewritten": [2 * right[0]]})
    with pytest.raises(left_out.DifferentError, match="nan"):
        left_out.check(case, {"stands": right, "rewritten": [right[0] * float("nan")]})


def test_a_rule_that_was_built_leaves_no_more_operators_than_the_rewriting_by_hand(left_out):
    built = [case for case in left_out.CASES if case.built and case.options.get("to") != "silu"]
    assert {case.built for case in built} <= set(relax_glue.pipeline.rule_names()) and len(built) >= 5
    for case in built:
        pair = left_out.networks(case, case.small)
        without = relax_glue.canonicalize(pair["stands"], disable=[case.built])
        found, by_hand = (len(ops(relax_glue.canonicalize(pair[name]))) for name in ("stands", "rewritten"))
        assert found <= by_hand, f"{case.rule}, {case.name}"
        assert ops(without) != ops(relax_glue.canonicalize(pair["stands"])), f"{case.built} does nothing to {case.name}"
