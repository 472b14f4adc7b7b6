"""Layers: convolution, pooling, and what belongs to detectors."""

from __future__ import annotations

import numpy as np
from tvm import relax, tirx
from tvm.relax.frontend.onnx import onnx_frontend

from relax_glue.frontend.naming import variable_name

from .node import OnnxNode, extents_of, scalar


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


def pool(node: OnnxNode) -> relax.Expr | None:
    """MaxPool and AveragePool with auto_pad, as explicit padding.

    TVM rounds the output of SAME_LOWER down: 5x5 with kernel 3 and stride 2 comes out as 2x2 instead of 3x3.
    """
    same = node.text("auto_pad", "NOTSET")
    extents = extents_of(node.inputs[0])
    if not same.startswith("SAME") or extents is None or not all(isinstance(extent, int) for extent in extents[2:]):
        return None
    rank = len(extents) - 2
    kernel = node.attrs["kernel_shape"]
    strides, dilations = (node.attrs.get(name, [1] * rank) for name in ("strides", "dilations"))
    pads: list[list[int]] = [[], []]
    for axis, extent in enumerate(extents[2:]):
        count = -(-extent // strides[axis])
        total = max(0, (count - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1 - extent)
        less, more = total // 2, total - total // 2
        for side, amount in zip(pads, (less, more) if same == "SAME_UPPER" else (more, less), strict=True):
            side.append(amount)
    node.attrs.update(pads=pads[0] + pads[1], auto_pad=b"NOTSET", ceil_mode=0)
    return None


def first_result_only(node: OnnxNode) -> relax.Expr | None:
    """Refuse the results beyond the first of Dropout, LayerNormalization and the like, if something reads them.

    TVM returns a placeholder there: the mask of Dropout has the type of its data, the mean of a layer norm is a 0 of
    rank 0.
    """
    if any(node.outputs[1:]):
        raise node.refuse(f"its result '{next(filter(None, node.outputs[1:]))}' is not computed by TVM's converter")
    return None


def max_pool(node: OnnxNode) -> relax.Expr | None:
    """MaxPool: no indices of the maxima, and padding as in `pool`."""
    first_result_only(node)
    return pool(node)


def roi_align(node: OnnxNode) -> relax.Expr | None:
    """Refuse mode max, for which TVM gives other numbers than ONNX Runtime."""
    if node.text("mode", "avg") == "max":
        raise node.refuse("mode 'max' is computed in another way by TVM; export it with mode 'avg'")
    return None


def non_max_suppression(node: OnnxNode) -> relax.Expr | None:
    """NonMaxSuppression: what TVM's converter gets wrong without a word, or crashes on.

    For a computed limit it takes 0, 0.5 or 0.0 instead. A limit above int32, which exporters write for "all", ends in
    an error of its kernel, since it makes room for that many. Boxes of unknown extents crash the process, since type
    inference reads a shape that is not there.
    """
    boxes, scores = extents_of(node.inputs[0]), extents_of(node.inputs[1])
    if boxes is None or scores is None:
        raise node.refuse("the number of boxes or of scores is not known, even as a symbolic extent")
    for index, meaning in ((2, "the number of boxes"), (3, "the IoU threshold"), (4, "the score threshold")):
        if node.input(index) is not None and node.constant(index) is None:
            raise node.refuse(f"{meaning} is computed while the model runs; it has to be a constant")
    limit = node.constant(2)
    if limit is not None:
        most = boxes[1] if isinstance(boxes[1], int) else node.facts.bounds.get(boxes[1])
        if most is None:
            raise node.refuse(f"no upper bound is known for the number of boxes, {boxes[1]}; fix the input shapes")
        node.inputs[2] = scalar(min(int(limit.reshape(-1)[0]), most), np.dtype("int64"))
    return _chosen_boxes(node)


def _chosen_boxes(node: OnnxNode) -> relax.Expr:
    """Return as many rows as boxes were chosen.

    TVM's converter returns the first result of its operator, whose type promises a row for every box; that many come
    only if none is suppressed, and what follows is compiled for the wrong shape. The second result is the number.
    """
    converter = onnx_frontend.NonMaxSuppression.get_converter(node.opset)
    rows = converter(node.bb, onnx_frontend.onnx_input(node.inputs), node.attrs, [{}, {}])
    both = node.bb.lookup_binding(rows).tuple_value
    count = node.emit(relax.TupleGetItem(both, 1))
    end = node.emit(relax.op.concat([count, relax.const([3], "int64")], axis=0))
    zeros, ones = relax.const([0, 0], "int64"), relax.const([1, 1], "int64")
    chosen = node.emit(relax.op.dynamic_strided_slice(rows, zeros, end, ones))
    number = tirx.Var(variable_name(f"{node.name}_boxes"), "int64")
    return node.bb.match_cast(chosen, relax.TensorType((number, 3), "int64"))


def non_zero(node: OnnxNode) -> relax.Expr | None:
    """NonZero as TVM converts it; noted is how many there can be, which NonMaxSuppression asks for."""
    extents = extents_of(node.inputs[0])
    converter = onnx_frontend.NonZero.get_converter(node.opset)
    result = converter(node.bb, onnx_frontend.onnx_input(node.inputs), node.attrs, [{}, {}])
    found = extents_of(node.emit(result))
    if extents is not None and found is not None and all(isinstance(extent, int) for extent in extents):
        node.facts.bounds[found[-1]] = int(np.prod(extents))
    return result
