"""Zeros that are concatenated to an image before a convolution become padding of the convolution.

    conv(concat([x, 0], a spatial axis), W, p)  ->  conv(x, W, p + the extent of the zeros)

An asymmetric padding is written so where a framework's convolution has none of its own. Zeros put after channels stay
a concatenation: a pad would be a layer as well. (rules.md S15, P12.)
"""

from __future__ import annotations

from relax_glue.ir import Graph, Node, Value
from relax_glue.movement import Concat, Pad
from relax_glue.rewrite import Decline, Replacement, rule

from .batch_norm import CONVOLUTIONS
from .convolution import emit_convolution, joint_padding
from .pointwise import is_splat


@rule(
    "zeros-into-conv",
    *CONVOLUTIONS,
    equation="conv(concat([0, x, 0], spatial axis), w, p) -> conv(x, w, p + extents of the zeros)",
    producers=("relax.concat",),
    source="S15, P12",
)
def zeros_into_conv(node: Node, graph: Graph) -> Replacement | Decline:
    """Let the convolution pad, which it does with 0."""
    concat, attrs = node.inputs[0].node, node.attrs
    if not isinstance(concat.view, Concat):
        return Decline("the axis or a shape is not known")
    kept = [k for k, v in enumerate(concat.inputs) if not _is_zero(v)]
    if len(kept) != 1 or len(concat.inputs) == 1:
        return Decline("there is not one operand between constants of zeros")
    axis, rank = concat.view.axis, concat.value.ndim
    extents = [int((v.shape or ())[axis]) if _is_zero(v) else 0 for v in concat.inputs]
    before, after = (
        tuple(sum(some) if a == axis else 0 for a in range(rank)) for some in (extents[: kept[0]], extents[kept[0] :])
    )
    padding = joint_padding(Pad(before, after), str(attrs.data_layout), attrs.padding)
    if padding is None:
        return Decline("what is concatenated is no spatial axis")
    return emit_convolution(graph, node, concat.inputs[kept[0]], padding=padding)


def _is_zero(value: Value) -> bool:
    """Return whether a value is a constant of nothing but 0, without a sign."""
    array = value.array
    return array is not None and is_splat(array) and not array.ravel()[:1].view("uint8").any()
