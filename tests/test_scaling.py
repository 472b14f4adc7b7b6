"""Work grows with the size of a module and not faster; counted, not timed."""

from __future__ import annotations

import cProfile
import pstats
from functools import lru_cache
from typing import Any

import pytest
import tvm
from tvm import relax
from tvm.relax import op

import relax_glue
from relax_glue.inline import inline
from relax_glue.region_function import composite_ops, region_functions
from relax_glue.rewrite import RewriteStats

BLOCK = 15  # bindings that `block` makes
SIZES = (1_000, 4_000, 16_000)


def block(emit: Any, x: relax.Expr) -> relax.Expr:
    """Add a shuffle of channels, a slice of a concat, permutes there and back, and two layers that stay."""
    halves = emit(op.split(x, 2, axis=1))
    second, first = emit(halves[1]), emit(halves[0])
    y = emit(op.concat([second, first], axis=1))
    y = emit(op.strided_slice(emit(op.concat([y, x], axis=1)), [1], [0], [8]))
    y = emit(op.permute_dims(emit(op.permute_dims(y, [0, 2, 1])), [0, 2, 1]))
    y = emit(op.reshape(emit(op.reshape(emit(op.nn.relu(y)), (1, 4, 2, 4))), (1, 8, 4)))
    y = emit(op.maximum(y, emit(op.squeeze(emit(op.expand_dims(x, 0)), [0]))))
    return emit(op.add(y, x))


@lru_cache(maxsize=1)
def generated(bindings: int, together: bool = False) -> tvm.IRModule:
    """Return a module of about so many bindings: one long chain of blocks, or the blocks side by side."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([1, 8, 4], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y, ends = x, []
            for _ in range(bindings // BLOCK):
                y = block(builder.emit, x if together else y)
                ends.append(y)
            out = builder.emit_output(relax.Tuple(ends) if together else y)
        builder.emit_func_output(out)
    return builder.get()


def tried(mod: tvm.IRModule) -> int:
    stats = RewriteStats()
    relax_glue.canonicalize(mod, stats=stats)
    return sum(count.tried for count in stats.rules.values())


def test_the_generated_module_has_the_size_that_is_said() -> None:
    (only,) = generated(1_000)["main"].body.blocks
    assert abs(len(only.bindings) - 1_000) <= BLOCK + 1


@pytest.mark.parametrize("together", [False, True], ids=["chain", "side by side"])
def test_rules_are_tried_in_proportion_to_the_bindings(together: bool) -> None:
    rates = [tried(generated(size, together)) / size for size in SIZES]
    assert max(rates) <= 1.1 * min(rates), rates


@pytest.mark.parametrize("together", [False, True], ids=["chain", "side by side"])
def test_python_calls_grow_in_proportion_to_the_bindings(together: bool) -> None:
    # this sees what the count of rules does not, such as a worklist that looks at every user of a shared operand
    rates = [calls(generated(size, together)) / size for size in (1_000, 4_000)]
    assert rates[1] <= 1.1 * rates[0], rates


def calls(mod: tvm.IRModule) -> int:
    """Return how many Python functions run while a module is optimised."""
    profile = cProfile.Profile()
    profile.runcall(relax_glue.optimize, mod)
    return int(pstats.Stats(profile).total_calls)


def test_thirty_thousand_bindings_become_one_region() -> None:
    mod = generated(30_000)
    stats = RewriteStats()
    after = relax_glue.optimize(mod, stats=stats)
    (region,) = region_functions(after).values()
    blocks = 30_000 // BLOCK
    assert stats.fired >= 4 * blocks
    found = composite_ops(region)
    assert found.count("relax.nn.relu") == found.count("relax.add") == blocks
    assert "relax.permute_dims" not in found and "relax.squeeze" not in found
    back = inline(after)
    relax.analysis.well_formed(back)
    assert len(back["main"].body.blocks[0].bindings) < 30_000 // 2
