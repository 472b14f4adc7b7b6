"""Layers: convolution, pooling, and what belongs to detectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

from .node import OnnxNode, dtype_of, extents_of, scalar
from .padding import pad_by, same_amounts


def conv_transpose(node: OnnxNode) -> relax.Expr | None:
    """ConvTranspose with a wanted output size, as padding; TVM does not read output_shape.

    4x4 with kernel 3, stride 2 and output_shape [8, 8] comes out as 9x9.
    """
    wanted = node.attrs.pop("output_shape", None)
    if wanted is None:
        return None
    data, weight = extents_of(node.inputs[0]), extents_of(node.inputs[1])
    rank = len(wanted)
    if data is None or weight is None or not all(isinstance(extent, int) for extent in data[2:]):
        raise node.refuse("output_shape needs the extents of its input; fix them through input_shapes")
    strides, dilations = (node.attrs.get(name, [1] * rank) for name in ("strides", "dilations"))
    extra = list(node.attrs.get("output_padding", [0] * rank))
    begin, end = [0] * rank, [0] * rank
    upper = node.text("auto_pad", "NOTSET") == "SAME_UPPER"
    for axis in range(rank):
        reach = (weight[2 + axis] - 1) * dilations[axis] + 1
        total = strides[axis] * (data[2 + axis] - 1) + extra[axis] + reach - wanted[axis]
        if total < 0:
            extra[axis] -= total
            continue
        begin[axis] = total // 2 if upper else total - total // 2
        end[axis] = total - begin[axis]
    node.attrs.update(pads=begin + end, output_padding=extra, auto_pad=b"NOTSET")
    return None


def conv(node: OnnxNode) -> relax.Expr | None:
    """Conv with auto_pad, as explicit padding; TVM fails on a strided one whose input has free extents."""
    kernel = node.attrs.get("kernel_shape") or (extents_of(node.inputs[1]) or [])[2:]
    _pad_same(node, kernel, 0.0)
    return None


def average_pool(node: OnnxNode) -> relax.Expr | None:
    """AveragePool with auto_pad, as explicit padding.

    TVM rounds the output of SAME_LOWER down: 5x5 with kernel 3 and stride 2 comes out as 2x2 instead of 3x3. On a free
    axis its extent in ceil_mode is an if_then_else, which nothing after it can read (MaxPool, kernel 2, stride 3).
    """
    if not _is_fixed(node) and not node.attrs.get("count_include_pad", 0):
        _round_down(node)
    if _pad_same(node, node.attrs["kernel_shape"], None):
        return None
    raise node.refuse(
        "auto_pad on a free axis with a stride pads by another amount for each size; export it with pads, or fix the "
        "axis through input_shapes"
    )


def _is_fixed(node: OnnxNode) -> bool:
    """Return whether all extents over which a pool moves are numbers."""
    extents = extents_of(node.inputs[0])
    return extents is not None and all(isinstance(extent, int) for extent in extents[2:])


def _round_down(node: OnnxNode) -> None:
    """Write ceil_mode as more padding behind, which is as if it were not there unless it is counted.

    There are ceil((e + before + after - kernel) / stride) + 1 places, and none may begin in the padding behind: no more
    than ceil((e + before) / stride). The first is the smaller one for all e where kernel >= stride + after, the second
    for all e where not; padding of after + stride - 1 rounds up to the first, of kernel - 1 to the second.
    """
    if not node.attrs.get("ceil_mode", 0) or node.text("auto_pad", "NOTSET") != "NOTSET":
        return
    kernel = node.attrs["kernel_shape"]
    rank = len(kernel)
    strides, dilations = (node.attrs.get(name, [1] * rank) for name in ("strides", "dilations"))
    pads = node.attrs.get("pads", [0] * (2 * rank))
    behind = [
        min(after + stride - 1, (size - 1) * dilation)
        for after, stride, size, dilation in zip(pads[rank:], strides, kernel, dilations, strict=True)
    ]
    node.attrs.update(pads=[*pads[:rank], *behind], ceil_mode=0)


def _pad_same(node: OnnxNode, kernel: Sequence[int], filler: float | None) -> bool:
    """Replace auto_pad by amounts, or by padding of the input where these follow from free extents.

    Returns False where the input would have to be padded and there is no filler that changes nothing.
    """
    extents = extents_of(node.inputs[0])
    amounts = None if extents is None else same_amounts(node, extents[2:], kernel)
    if extents is None or amounts is None:
        return True
    node.attrs.update(auto_pad=b"NOTSET")
    if "ceil_mode" in node.attrs:
        node.attrs["ceil_mode"] = 0
    if all(isinstance(amount, int) for side in amounts for amount in side):
        node.attrs["pads"] = amounts[0] + amounts[1]
        return True
    if filler is None:
        return False
    node.attrs["pads"] = [0] * (2 * len(kernel))
    wide = pad_by(node, node.inputs[0], ([0, 0, *amounts[0]], [0, 0, *amounts[1]]), "constant", filler)
    node.inputs[0] = node.emit(wide)
    return True


def first_result_only(node: OnnxNode) -> relax.Expr | None:
    """Refuse the results beyond the first of Dropout, LayerNormalization and the like, if something reads them.

    TVM returns a placeholder there: the mask of Dropout has the type of its data, the mean of a layer norm is a 0 of
    rank 0.
    """
    if any(node.outputs[1:]):
        raise node.refuse(f"its result '{next(filter(None, node.outputs[1:]))}' is not computed by TVM's converter")
    return None


def max_pool(node: OnnxNode) -> relax.Expr | None:
    """MaxPool: no indices of the maxima; auto_pad and ceil_mode as in `average_pool`."""
    first_result_only(node)
    if not _is_fixed(node):
        _round_down(node)
    dtype = dtype_of(node.inputs[0])
    _pad_same(node, node.attrs["kernel_shape"], float("-inf") if dtype.kind == "f" else float(np.iinfo(dtype).min))
    return None


def lp_pool(node: OnnxNode) -> relax.Expr | None:
    """LpPool with auto_pad and ceil_mode as explicit padding, whose zeros add nothing to a sum of powers.

    TVM multiplies an average by the size of the kernel, but the average of a window that reaches over the edge in
    ceil_mode is over fewer elements: 7x7 with kernel 3 and stride 2 comes out 1.2 times too large along the edge.
    """
    _round_down(node)
    _pad_same(node, node.attrs["kernel_shape"], 0.0)
    return None


def prelu(node: OnnxNode) -> relax.Expr | None:
    """Refuse slopes that cannot be broadcast to the data, such as 3 for 2x3x4; TVM takes them for those of an axis."""
    data, slopes = extents_of(node.inputs[0]), extents_of(node.inputs[1])
    if data is None or slopes is None:
        return None
    pairs = list(zip(reversed(data), reversed(slopes), strict=False))
    clash = any(slope != 1 and isinstance(slope, int) and isinstance(x, int) and slope != x for x, slope in pairs)
    if clash or len(slopes) > len(data):
        raise node.refuse(f"slopes of shape {tuple(slopes)} cannot be broadcast to data of shape {tuple(data)}")
    return None


def batch_norm(node: OnnxNode) -> None:
    """BatchNormalization in training mode: running statistics keep the share momentum, of which TVM takes 1 - momentum.

    Up to opset 13 the mode is that of a node with more results than one, which TVM does not see.
    """
    if node.opset < 14:
        first_result_only(node)
    elif node.attrs.get("training_mode", 0):
        node.attrs["momentum"] = 1 - node.attrs.get("momentum", 0.9)


def roi_align(node: OnnxNode) -> None:
    """RoiAlign of half pixels, half of one of the map and not of the image; mode max is refused.

    TVM takes half of a pixel off the boxes before it scales them, which is right for the scale 1 only, and gives other
    maxima than ONNX Runtime.
    """
    if node.text("mode", "avg") == "max":
        raise node.refuse("mode 'max' is computed in another way by TVM; export it with mode 'avg'")
    scale = float(node.attrs.get("spatial_scale", 1.0))
    usual = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    if node.text("coordinate_transformation_mode", usual) == "half_pixel" and scale != 1:
        missing = scalar(0.5 - 0.5 / scale, dtype_of(node.inputs[1]))
        node.inputs[1] = node.emit(relax.op.add(node.inputs[1], missing))
