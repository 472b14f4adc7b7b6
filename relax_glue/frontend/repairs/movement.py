"""Operators that move data: TVM's importer writes most of them as call_tir, which no offload can look into."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import accumulate

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
    _require_inside(node, indices, axis, extent)
    if not isinstance(extent, int) and (indices < 0).any():
        return _from_the_end(node, indices, axis, extent)
    if isinstance(extent, int):
        indices = np.where(indices < 0, indices + extent, indices).astype(indices.dtype)
    return relax.op.take(node.inputs[0], relax.const(indices, indices.dtype.name), axis)


def _require_inside(node: OnnxNode, indices: np.ndarray, axis: int, extent: Element) -> None:
    """Ask that known indices are inside an axis: TVM reads and writes outside of it without a word."""
    if not indices.size:
        return
    least = int(max(indices.max() + 1, -indices.min()))
    if isinstance(extent, int) and extent < least:
        raise node.refuse(f"an index is outside axis {axis}, which has extent {extent}")
    node.require_least(extent, least)


def elements_at(node: OnnxNode) -> None:
    """GatherElements and ScatterElements at known indices: asked is that they are inside, the rest is TVM's."""
    indices, extents = node.constant(1), extents_of(node.inputs[0])
    if indices is None or extents is None:
        return
    along = node.attrs.get("axis", 0) % len(extents)
    for axis, extent in enumerate(extents):
        if axis == along:
            _require_inside(node, indices, axis, extent)
        else:
            node.require_least(extent, indices.shape[axis])


def slices_at(node: OnnxNode) -> None:
    """GatherND and ScatterND at known indices: asked is that they are inside, the rest is TVM's."""
    indices, extents = node.constant(1), extents_of(node.inputs[0])
    if indices is None or extents is None or not indices.ndim:
        return
    before = int(node.attrs.get("batch_dims", 0))
    for place in range(indices.shape[-1]):
        _require_inside(node, indices[..., place], before + place, extents[before + place])


def space_to_depth(node: OnnxNode) -> relax.Expr | None:
    """SpaceToDepth in the mode CRD, where the elements of a block follow their channel.

    TVM does not read the mode, and lets the channels follow each element of a block.
    """
    extents, block = extents_of(node.inputs[0]), int(node.attrs["blocksize"])
    if node.text("mode", "DCR") == "DCR" or extents is None:
        return None
    batch, channels, height, width = extents
    rows, columns = height // block, width // block
    cut = node.emit(relax.op.reshape(node.inputs[0], (batch, channels, rows, block, columns, block)))
    moved = node.emit(relax.op.permute_dims(cut, [0, 1, 3, 5, 2, 4]))
    return relax.op.reshape(moved, (batch, channels * block * block, rows, columns))


def squeeze(node: OnnxNode) -> None:
    """Squeeze of a free axis, which TVM refuses: it is asked to be 1."""
    axes = node.attrs.get("axes") if node.opset < 13 else node.constant(1)
    extents = extents_of(node.inputs[0])
    if extents is None or all(isinstance(extent, int) for extent in extents):
        return
    if axes is None:
        raise node.refuse("it names no axes, and whether a free axis is 1 is known only when it runs")
    wanted = list(extents)
    for axis in np.asarray(axes).reshape(-1):
        wanted[int(axis)] = 1
    node.inputs[0] = node.facts.joins.shaped(node.name, node.inputs[0], wanted)


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
    """Split with an empty part as one slice for each part; and a free axis into parts that make it up.

    TVM asks for strictly rising cut positions and ends in a C++ check failure: [0, 2, 4] of an axis of 6. It splits a
    free axis into [2, 3] without asking that there be 5, and refuses parts that are computed.
    """
    axis = node.attrs.get("axis", 0) % node.inputs[0].ty.ndim
    sizes = node.attrs.get("split") if node.opset < 13 else node.elements(1)
    extents = extents_of(node.inputs[0])
    if extents is not None and not isinstance(extents[axis], int):
        sizes = _parts_of_free_axis(node, axis, extents, sizes)
    elif extents is not None and sizes is not None:
        node.require_equal(extents[axis], reduce(node.facts.arithmetic.add, sizes))
    if sizes is None or all(isinstance(size, int) and size for size in sizes):
        return None
    ends = list(accumulate(sizes, node.facts.arithmetic.add))
    begins = [0, *ends[:-1]]
    parts = [
        node.emit(relax.op.strided_slice(node.inputs[0], [axis], [begin], [end], assume_inbound=True))
        for begin, end in zip(begins, ends, strict=True)
    ]
    return relax.Tuple(parts)


def _parts_of_free_axis(
    node: OnnxNode, axis: int, extents: Sequence[Element], sizes: Sequence[Element] | None
) -> Sequence[Element] | None:
    """Ask that the parts make up the axis, and give the operand the extent that they make up.

    Returns None where TVM's converter can go on: for equal parts, of which the last may be smaller since opset 18.
    """
    arithmetic, extent, count = node.facts.arithmetic, extents[axis], len(node.outputs)
    if sizes is None and node.input(1) is None and "num_outputs" in node.attrs:
        part = arithmetic.floor_divide(arithmetic.add(extent, count - 1), count)
        node.require_least(arithmetic.subtract(extent, arithmetic.multiply(part, count - 1)), 0)
        return None
    if sizes is None and node.input(1) is not None:  # values decide
        return None
    if sizes is None:
        whole = arithmetic.multiply(arithmetic.floor_divide(extent, count), count)
    else:
        whole = reduce(arithmetic.add, sizes)
    for size in sizes or ():
        node.require_least(size, 0)
    wanted = [*extents[:axis], whole, *extents[axis + 1 :]]
    node.inputs[0] = node.facts.joins.shaped(node.name, node.inputs[0], wanted)
    return sizes
