"""Dataflow blocks around pure code that stands in none, but not in functions that belong to a backend.

TVM's own pass opens dataflow blocks in every function; the form of a region function is its backend's, and a
partitioned module that is optimised once more should stay as it is. And it drops checks (`relax_glue.ir.dataflow`).
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm_ffi import structural_equal

from relax_glue.ir import map_blocks, map_functions, read_block, write_block
from relax_glue.ir.dataflow import open_dataflow_blocks
from relax_glue.ir.names import without_names
from relax_glue.ir.operands import is_value
from relax_glue.rewrite import EXACT
from relax_glue.transform import Transform

OPEN = Transform(
    name="open-dataflow-blocks",
    equation="pure bindings outside a dataflow block -> the same in one, in branches and local functions too",
    guards=(
        "an impure call stays where it is, in its order",
        "a function with the attribute Codegen, Composite or Primitive belongs to a backend",
    ),
    purpose="Rules and regions see dataflow blocks alone.",
    soundness=EXACT,
    source="TVM's ConvertToDataflow",
)


def _plain(block: relax.DataflowBlock) -> relax.DataflowBlock:
    """Give what a match_cast casts a binding of its own, and take out bindings that only rename."""
    return without_names(block) if all(map(_is_plain, block.bindings[:])) else write_block(read_block(block))


def _is_plain(binding: relax.Binding) -> bool:
    """Return whether a value is cast that has a name, or is bound to a variable of its own type."""
    if isinstance(binding, relax.MatchCast):
        return is_value(binding.value)
    own, found = binding.var.ty, binding.value.ty
    return own.same_as(found) or bool(structural_equal(own, found))


def ConvertToDataflow(min_size: int = 1) -> tvm.transform.Pass:
    """Put pure bindings that stand in no dataflow block into blocks, in branches of `If` and local functions too.

    Parameters
    ----------
    min_size : int
        The fewest bindings that get a block of their own.
    """

    def convert(_: tvm.ir.GlobalVar, func: relax.Function) -> relax.Function:
        return map_blocks(open_dataflow_blocks(func, min_size), _plain)

    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        return map_functions(mod, convert)

    return tvm.transform.module_pass(run, opt_level=0, name="relax_glue.ConvertToDataflow")
