"""Strides of a slice before a 1x1 convolution become the strides of the convolution.

    conv(x[::s], W: 1x1, strides c)  ->  conv(x, W, strides s * c)

Shortcuts of residual networks are written so by hand, or where a pooling of one pixel was spelled as a slice.
(rules.md S35.)
"""

from __future__ import annotations

from relax_glue.ir import Graph, Node
from relax_glue.movement import Slice
from relax_glue.rewrite import Decline, Replacement, rule

from .batch_norm import CONVOLUTIONS
from .convolution import emit_convolution, spatial_axes
from .slice_through import NO_VIEW, SLICE


@rule(
    "slice-into-conv",
    *CONVOLUTIONS,
    equation="conv(strided_slice(x, 0::s), w: 1x1, strides=c) -> conv(x, w, strides=s * c)",
    producers=(SLICE,),
    source="S35",
)
def slice_into_conv(node: Node, graph: Graph) -> Replacement | Decline:
    """Let the convolution step over the pixels that the slice leaves out."""
    sliced = node.inputs[0].node
    strides = _strides(node)
    if isinstance(strides, Decline):
        return strides
    if graph.is_output(sliced) or any(user.op not in CONVOLUTIONS for user in sliced.users):
        return STAYS
    if any(isinstance(_strides(user), Decline) for user in sliced.users):
        return STAYS
    return emit_convolution(graph, node, sliced.inputs[0], strides=strides)


STAYS = Decline("the slice has other users than 1x1 convolutions, and would stay")


def _strides(conv: Node) -> list[int] | Decline:
    """Return the strides with which a convolution reads of x what it reads of a slice of x."""
    (data, weight), attrs, view = conv.inputs, conv.attrs, conv.inputs[0].node.view
    if not isinstance(view, Slice) or view.is_empty or weight.shape is None:
        return NO_VIEW
    shape = data.node.inputs[0].shape or ()
    axes = spatial_axes(str(attrs.data_layout), len(shape))
    kernel = spatial_axes(str(attrs.kernel_layout), weight.ndim)
    if axes is None or kernel is None or any(weight.shape[a] != 1 for a in kernel) or any(map(int, attrs.padding)):
        return Decline("the kernel is not 1x1, there is padding, or a layout has blocked axes")
    strides = dict(zip(axes, map(int, attrs.strides), strict=True))
    for axis in view.cuts(shape):
        begin, size, step, extent = view.begin[axis], view.size[axis], view.stride[axis], shape[axis]
        if axis not in strides or begin != 0 or step < 1 or not isinstance(extent, int) or not isinstance(size, int):
            return Decline("the slice cuts another than a spatial axis, or does not begin at 0")
        if (size - 1) // strides[axis] != (extent - 1) // (step * strides[axis]):
            return Decline("it cuts off pixels that the convolution would read then")
        strides[axis] *= step
    return [strides[axis] for axis in axes]
