"""Random glue modules with symbolic extents: the network of each region, evaluated at several sizes, against LLVM.

Modules are partitioned as drawn, which reaches the converters of all operators, and after the rules.
"""

from __future__ import annotations

import pytest
import tvm
from hypothesis import HealthCheck, assume, given, settings

import relax_glue
import relax_glue.tensorrt as trt
from relax_glue.region_function import region_functions
from relax_glue.testing import Case, fuzz_examples, modules

DTYPES = ("float32", "int64", "int32", "float16", "bool")
EXAMPLES = fuzz_examples(2000) // 80


def check_networks(module: tvm.IRModule, case: Case) -> None:
    """Compare each region that the inputs reach, at every size of the case."""
    partitioned = relax_glue.partition(module)
    assume(region_functions(partitioned))
    for inputs in (case.inputs, *case.other_inputs):
        report = trt.check(partitioned, inputs)
        assert report.ok, f"{report}\n{partitioned.script()}"


@pytest.mark.parametrize("optimized", [False, True], ids=["as drawn", "after the rules"])
def test_networks(optimized: bool) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=EXAMPLES <= 25,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
    @given(case=modules(dtypes=DTYPES, special=False).filter(lambda case: case.sizes))
    def run(case: Case) -> None:
        check_networks(relax_glue.canonicalize(case.module) if optimized else case.module, case)

    run()
