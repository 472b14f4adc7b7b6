"""Operators that move data: TVM's importer writes most of them as call_tir, which no offload can look into."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from relax_glue.frontend.symbolic import Element

from .node import OnnxNode, dtype_of, extents_of

MAX_SLICES = 8


def gather(node: OnnxNode) -> relax.Expr | None:
    """Gather by known indices as one take, with the negative ones counted from the end beforehand.

    TVM computes that wrap while the model runs: shape_of, shape_to_tensor, less, take, add, where and take for
    `x[:, 0]`.
    """
    indices, extents = node.constant(1), extents_of(node.inputs[0])
    if indices is None or extents is None:
        return None
    axis = node.attrs.get("axis", 0) % len(extents)
    extent = extents[axis]
    if not isinstance(extent, int) and indices.size:  # TVM reads outside without a word
        node.require_least(extent, int(max(indices.max() + 1, -indices.min())))
    if not isinstance(extent, int) and (indices < 0).any():
        return _from_the_end(node, indices, axis, extent)
    if isinstance(extent, int):
        if ((indices < -extent) | (indices >= extent)).any():
            raise node.refuse(f"an index is outside axis {axis}, which has extent {extent}")
        indices = np.where(indices < 0, indices + extent, indices).astype(indices.dtype)
    return relax.op.take(node.inputs[0], relax.const(indices, indices.dtype.name), axis)


def _from_the_end(node: OnnxNode, indices: np.ndarray, axis: int, extent: Element) -> relax.Expr | None:
    """Gather a few places of a free axis, some of them counted from its end, as slices."""
    if indices.ndim > 1 or indices.size > MAX_SLICES:
        return None
    places = [node.facts.arithmetic.simplify(int(i) + (extent if i < 0 else 0)) for i in indices.reshape(-1)]
    parts = [
        node.emit(relax.op.strided_slice(node.inputs[0], [axis], [place], [place + 1], assume_inbound=True))
        for place in places
    ]
    if indices.ndim == 0:
        return relax.op.squeeze(parts[0], [axis])
    return relax.op.concat(parts, axis) if len(parts) > 1 else parts[0]


def cast(node: OnnxNode) -> relax.Expr | None:
    """Cast from float to integer as one astype.

    TVM writes up to ten operators that wrap what lies outside the integer type, and turn infinities into 0. ONNX
    leaves all of these results undefined, and within the range one astype gives the same ones.
    """
    from onnx import helper

    target = np.dtype(helper.tensor_dtype_to_np_dtype(node.attrs["to"]))
    source = node.inputs[0]
    if isinstance(source, tvm.ir.GenericConst) or dtype_of(source).kind != "f" or target.kind not in "iu":
        return None
    return relax.op.astype(source, target.name)


def split(node: OnnxNode) -> relax.Expr | None:
    """Split with an empty part as one slice for each part.

    TVM asks for strictly rising cut positions and ends in a C++ check failure: [0, 2, 4] of an axis of 6.
    """
    sizes = node.attrs.get("split") if node.opset < 13 else node.constant(1)
    if sizes is None or all(sizes):
        return None
    axis = node.attrs.get("axis", 0) % node.inputs[0].ty.ndim
    ends = np.cumsum(sizes)
    parts = [
        node.emit(relax.op.strided_slice(node.inputs[0], [axis], [int(end - size)], [int(end)]))
        for size, end in zip(sizes, ends, strict=True)
    ]
    return relax.Tuple(parts)
