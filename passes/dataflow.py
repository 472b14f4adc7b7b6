"""Dataflow blocks around pure code that stands in none, but not in functions that belong to a backend.

TVM's own pass opens dataflow blocks in every function. The form of a region function is its backend's, and a
partitioned module that is optimised once more should stay as it is.
"""

from __future__ import annotations

import tvm
from tvm import relax

from relax_glue.ir import map_blocks, map_functions, read_block, write_block
from relax_glue.ir.blocks import is_closed
from relax_glue.rewrite import EXACT
from relax_glue.transform import Transform

OPEN = Transform(
    name="open-dataflow-blocks",
    equation="pure bindings outside a dataflow block -> the same in a dataflow block, branches of If included",
    guards=(
        "an impure call stays where it is, in its order",
        "a function with the attribute Codegen, Composite or Primitive belongs to a backend",
    ),
    purpose="Rules and regions see dataflow blocks alone.",
    soundness=EXACT,
    source="TVM's ConvertToDataflow",
)


def _unnested(block: relax.DataflowBlock) -> relax.DataflowBlock:
    """Give what a match_cast casts a binding of its own: TVM's pass writes match_cast(f(x)) where f(x) has one use."""
    casts = [binding for binding in block.bindings if isinstance(binding, relax.MatchCast)]
    if all(isinstance(cast.value, relax.Var) for cast in casts):
        return block
    return write_block(read_block(block))


def ConvertToDataflow(min_size: int = 1) -> tvm.transform.Pass:
    """Put pure bindings that stand in no dataflow block into blocks, branches of `If` included.

    Parameters
    ----------
    min_size : int
        The fewest bindings that get a block of their own.
    """
    convert = relax.transform.ConvertToDataflow(min_size)

    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        functions = [(var, f) for var, f in mod.functions_items() if isinstance(f, relax.Function)]
        closed = [(var, f) for var, f in functions if is_closed(f)]
        after = map_functions(convert(mod), lambda _, func: map_blocks(func, _unnested))
        if not closed:
            return after
        after = after.clone()
        for var, func in closed:
            after.update_func(var, func)
        return after

    return tvm.transform.module_pass(run, opt_level=0, name="relax_glue.ConvertToDataflow")
