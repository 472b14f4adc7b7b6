"""Convolutions: which of their axes are spatial, which are summed, what they pad, and one with other attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from relax_glue.ir import Graph, Node, Value
from relax_glue.movement import Pad


def spatial_axes(layout: str, rank: int) -> list[int] | None:
    """Return the axes of a layout's D, H and W in this order, or None for one with blocked axes."""
    if len(layout) != rank or not layout.isalpha():
        return None
    return [layout.index(letter) for letter in "DHW" if letter in layout]


def joint_padding(pad: Pad, layout: str, padding: Sequence[int]) -> list[int] | None:
    """Return a layer's padding and the pad before it as one, or None where the pad is not spatial.

    Paddings of layers are all the widths before, then all the widths after, by spatial axis.
    """
    axes = spatial_axes(layout, len(pad.before))
    others = set(range(len(pad.before))) - set(axes or ())
    if axes is None or any(pad.before[a] or pad.after[a] for a in others) or len(padding) != 2 * len(axes):
        return None
    widths = [*(pad.before[a] for a in axes), *(pad.after[a] for a in axes)]
    if min(widths) < 0 or pad.mode != "constant":
        return None
    return [w + int(p) for w, p in zip(widths, padding, strict=True)]


def summed_axes(node: Node) -> tuple[int, int] | None:
    """Return the axis of the operand, and of the weight, over which a convolution or `matmul` sums.

    None where a convolution has groups of channels or a layout that does not name them, or the weight is a vector.
    """
    if node.op == "relax.matmul":
        rank = node.inputs[1].ndim
        return (node.inputs[0].ndim - 1, rank - 2) if rank >= 2 else None
    attrs = node.attrs
    layout, kernel = str(attrs.data_layout), str(attrs.kernel_layout)
    if int(attrs.groups) != 1 or len(layout) != node.inputs[0].ndim or "C" not in layout or "I" not in kernel:
        return None
    return layout.index("C"), kernel.index("I")


def plain(attr: Any) -> Any:
    """Return an attribute as the Python value that `relax.op` takes."""
    if isinstance(attr, (int, str)) or attr is None:
        return attr
    return [int(e) for e in attr] if hasattr(attr, "__len__") else attr


_ATTRIBUTES = (
    "strides", "padding", "dilation", "groups", "data_layout", "kernel_layout", "out_layout", "out_dtype",
)  # fmt: skip


def emit_convolution(graph: Graph, like: Node, x: Value, weight: Value | None = None, **changed: Any) -> Value:
    """Add the convolution `like` of another operand, with its weights or others, and some attributes changed."""
    make = getattr(relax.op.nn, like.op.removeprefix("relax.nn."))
    given = {name: plain(getattr(like.attrs, name)) for name in _ATTRIBUTES}
    return graph.emit(lambda e, w: make(e, w, **{**given, **changed}), x, weight or like.inputs[1])
