"""Non-maximum suppression, which stays with TVM: TensorRT's layer does not mean the same.

TVM's operators return a fixed number of rows and how many of them count. TensorRT's layer returns a number of
rows that is only known at run time, looks at a few thousand boxes for each sample at most, and promises no
order between classes. An engine of ours would have neither the shape nor, on crowded images, the boxes.
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
        "TensorRT's NMS yields a number of rows known only at run time, and limits the boxes it looks at; TVM's "
        "yields a fixed number and looks at all",
        "let the model end before its NMS, or leave that to TVM",
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
