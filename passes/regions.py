"""Regions of a module that is partitioned already, merged into the fewest there can be.

TVM's partition grows a region from each operator of its pattern table: what the table lacks (a take, a flip, a
resize by another rule) cuts it, and a region that would close a cycle is left in pieces. Put back and
partitioned by levels, the same operators need fewer engines. (bugs.md B88, B89.)
"""

from __future__ import annotations

import tvm

from relax_glue.inline import inline
from relax_glue.partition import PartitionOptions, partition_with_report
from relax_glue.region_function import region_functions


def MergeRegions(options: PartitionOptions | None = None) -> tvm.transform.Pass:
    """Merge the TensorRT regions of a module, with the operators between them that TensorRT takes.

    Parameters
    ----------
    options : PartitionOptions, optional
        What to keep outside, and what a region must be worth; by default nothing and one operator.

    Returns
    -------
    pass : tvm.transform.Pass
        A module without regions comes back as it is: what nobody offloaded stays with TVM.
    """

    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        return partition_with_report(inline(mod), options)[0] if region_functions(mod) else mod

    return tvm.transform.module_pass(run, opt_level=0, name="relax_glue.MergeRegions")
