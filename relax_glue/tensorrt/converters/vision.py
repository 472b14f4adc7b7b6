"""Non-maximum suppression, which stays with TVM: TensorRT's layer does not mean the same.

Both providers have the layer (INMSLayer). TVM goes class by class, and within a class by falling score, earlier boxes
first among equal scores. TensorRT orders the boxes of all classes of a sample by score, equal ones in no order that it
promises; it keeps a box whose overlap is exactly the threshold, which TVM drops; and of the scores of a sample, over
all classes, it looks at the best 5000 (2000 on some GPUs). The first could be sorted right behind the layer. The others
could not, and the number of rows would still be known only when the engine has run, where TVM wants to allocate them
before. `relax_glue.compile` runs these operators on the CPU (`relax_glue.heterogeneous`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import relax

from ...errors import ConversionError
from ..registry import Refusal, converter

if TYPE_CHECKING:
    from ..network import Network


def _refuse(call: relax.Call) -> Refusal:
    return Refusal(
        "TensorRT's NMS looks at the best 5000 scores only, in another order, keeps overlaps equal to the threshold, "
        "and yields a number of rows known only at run time",
        "compile runs it on the CPU in the same model; relax_glue.split_postprocessing gives the two halves",
    )


@converter(
    "relax.vision.all_class_non_max_suppression",
    "relax.vision.non_max_suppression",
    "relax.vision.get_valid_counts",
    accepts=_refuse,
)
def non_max_suppression(network: Network, call: relax.Call) -> Any:
    """Refuse, as `accepts` did."""
    raise ConversionError(f"{call.op.name}: {_refuse(call)}")
