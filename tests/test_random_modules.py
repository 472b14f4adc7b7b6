"""Random glue modules against the pipeline: 2,000 in a plain run, more by RELAX_GLUE_FUZZ=<number>.

Every module is run as drawn and as rewritten, on LLVM, and compared bit for bit; the input must be left alone,
the output well formed and of the same signature, and a second run must change nothing. The tests share the
number of examples out among kinds of modules, so that they run in parallel.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
import tvm_ffi
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import relax_glue
from relax_glue.testing import Case, check_pass, fuzz_examples, modules

EXAMPLES = fuzz_examples(2000) // 8


def examples_of(strategy: st.SearchStrategy[Case]) -> Callable[[Callable[[Case], None]], Callable[[], None]]:
    """Run a test on its share of the examples, the same ones in every plain run."""
    checks = settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=EXAMPLES <= 250,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    return lambda test: checks(given(case=strategy)(test))


def optimize_and_inline(module: tvm.IRModule) -> tvm.IRModule:
    return relax_glue.inline(relax_glue.optimize(module))


@examples_of(modules(only_moves=True, symbolic=False, dtypes=["float32"]))
def test_moves_of_float32(case: Case) -> None:
    check_pass(relax_glue.canonicalize, case)


@examples_of(modules(only_moves=True, symbolic=False, dtypes=["float16", "bool", "uint8"]))
def test_moves_of_narrow_dtypes(case: Case) -> None:
    check_pass(relax_glue.canonicalize, case)


@examples_of(modules(only_moves=True, symbolic=False, dtypes=["int64", "int32", "int8"]))
def test_moves_of_integers(case: Case) -> None:
    check_pass(relax_glue.canonicalize, case)


@examples_of(modules(only_moves=True))
def test_moves_with_symbolic_extents(case: Case) -> None:
    check_pass(relax_glue.canonicalize, case)


@examples_of(modules())
def test_moves_among_arithmetic(case: Case) -> None:
    check_pass(relax_glue.canonicalize, case)


@examples_of(modules(max_operators=16, symbolic=False))
def test_long_chains(case: Case) -> None:
    check_pass(relax_glue.canonicalize, case)


@examples_of(modules(symbolic=False))
def test_regions_put_back_are_the_module(case: Case) -> None:
    check_pass(optimize_and_inline, case, idempotent=False)


@examples_of(modules())
def test_optimized_twice_is_optimized_once(case: Case) -> None:
    once = relax_glue.optimize(case.module)
    assert tvm_ffi.structural_equal(relax_glue.optimize(once), once)
    check_pass(optimize_and_inline, case, idempotent=False)
