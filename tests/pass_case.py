"""What a test of a rule says: it fires and becomes this, or it declines and stays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from relax_glue.ir import map_blocks, map_functions, read_block, write_block
from relax_glue.testing import check_equivalent


def random_inputs(mod: tvm.IRModule, symbol: int = 3, seed: int = 0) -> list[np.ndarray]:
    """Draw inputs for `main`, no two elements equal where the dtype allows it; symbols become `symbol`."""
    rng = np.random.default_rng(seed)
    drawn = []
    for param in mod["main"].params:
        shape = [int(getattr(e, "value", symbol)) for e in param.ty.shape.values]
        dtype = str(param.ty.dtype)
        size = int(np.prod(shape))
        drawn.append((rng.permutation(size) - size // 2).reshape(shape).astype(dtype))
    return drawn


def fires(
    pass_: tvm.transform.Pass,
    before: tvm.IRModule,
    expected: tvm.IRModule,
    inputs: Sequence[np.ndarray] | None = None,
    exact: bool = True,
) -> None:
    """Check that a pass turns `before` into `expected`, once is twice, and the numbers stay."""
    kept = tvm_ffi.structural_hash(before)
    after = pass_(before)
    assert tvm_ffi.structural_hash(before) == kept, "the pass changed its input"
    relax.analysis.well_formed(after)
    tvm.ir.assert_structural_equal(after, as_written(expected))
    tvm.ir.assert_structural_equal(pass_(after), after)
    check_equivalent(before, after, inputs if inputs is not None else random_inputs(before), exact=exact)


def as_written(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module as the passes write it: without renamings, so that `gv = x` is x itself."""
    return map_functions(mod, lambda _, func: map_blocks(func, lambda block: write_block(read_block(block))))


def declines(pass_: tvm.transform.Pass, before: tvm.IRModule) -> None:
    """Check that a pass leaves `before` as it is."""
    tvm.ir.assert_structural_equal(pass_(before), before)
