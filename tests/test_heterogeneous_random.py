"""Random modules with random operators on the host and random ones worth a GPU, against LLVM alone, bit for bit."""

from __future__ import annotations

from unittest import mock

import numpy as np
import tvm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from postprocessing_case import GPU, LLVM, leaves
from tvm import relax

from relax_glue.heterogeneous import heterogeneous_pipeline, lowering, place_on_host, placement
from relax_glue.testing import Case, equivalence, fuzz_examples, modules

EXAMPLES = fuzz_examples(20)


def operators(mod: tvm.IRModule) -> list[str]:
    found: set[str] = set()
    for _, function in mod.functions_items():
        relax.analysis.post_order_visit(function, lambda e: found.add(e.name) if isinstance(e, tvm.ir.Op) else None)
    return sorted(found)


@st.composite
def placed(draw: st.DrawFn) -> tuple[Case, tvm.IRModule]:
    """Draw a module, and place it with random operators that only the host has or that are worth the GPU."""
    case = draw(modules(max_operators=12))
    names = operators(case.module) or ["relax.add"]
    only_host = draw(st.sets(st.sampled_from(names), min_size=1, max_size=2))
    worth = tuple(draw(st.sets(st.sampled_from(names), max_size=2)) - only_host)
    with mock.patch.object(placement, "WORTH_A_GPU", worth or ("none",)):
        return case, place_on_host(case.module, GPU, lambda call: "drawn" if call.op.name in only_host else None)


def run(mod: tvm.IRModule, devices: list[tvm.runtime.Device], inputs: list[np.ndarray]) -> list[tvm.runtime.Tensor]:
    # TVM's own pipeline loses results that are empty; see equivalence._lower
    with mock.patch.object(lowering, "_pipeline", lambda _target: equivalence._lower):
        executable = tvm.compile(mod, LLVM, relax_pipeline=heterogeneous_pipeline(LLVM))
    main = relax.VirtualMachine(executable, devices)["main"]
    return leaves(main(*[tvm.runtime.tensor(array, devices[0]) for array in inputs]))


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES <= 250,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(drawn=placed())
def test_every_copy_is_where_it_has_to_be(drawn: tuple[Case, tvm.IRModule]) -> None:
    case, mod = drawn
    assert relax.analysis.well_formed(mod) is None
    for inputs in [case.inputs, *case.other_inputs]:
        got = run(mod, [tvm.cpu(1), tvm.cpu(0)], list(inputs))
        wanted = run(case.module, [tvm.cpu(0)], list(inputs))
        assert {item.device.index for item in got} <= {1}
        for a, b in zip(got, wanted, strict=True):
            assert a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()
