"""Operators that move data: TVM's importer writes most of them as call_tir, which no offload can look into."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import tvm
from tvm import relax

from .node import OnnxNode, dtype_of, extents_of

PAD_MODES = MappingProxyType({"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"})


def pad(node: OnnxNode) -> relax.Expr | None:
    """Pad as relax.nn.pad, and negative amounts as a slice before it.

    TVM builds a call_tir from topi.nn.pad in every mode. Its opset 2 to 10 form raises TypeError (the pads are an
    attribute there), and a negative amount reads outside the tensor in the mirrored modes.
    """
    x, extents = node.inputs[0], extents_of(node.inputs[0])
    amounts = _pad_amounts(node, x.ty.ndim)
    if amounts is None:
        raise node.refuse("its amounts are computed while the model runs; relax.nn.pad takes constants only")
    mode = PAD_MODES.get(node.text("mode", "constant"))
    if mode is None:
        raise node.refuse(f"ONNX has no padding mode '{node.text('mode', '')}'")
    cropped = _crop(node, x, extents, amounts)
    if cropped is not x:
        x, extents = cropped, extents_of(cropped)
        amounts = np.maximum(amounts, 0)
    if not amounts.any():
        return x
    if mode == "constant":
        return relax.op.nn.pad(x, _interleaved(amounts), mode, _pad_value(node, dtype_of(x)))
    _check_mirrored(node, mode, extents, amounts)
    return relax.op.nn.pad(x, _interleaved(amounts), mode)


def _pad_amounts(node: OnnxNode, rank: int) -> np.ndarray | None:
    """Return the amounts as an array of shape (2, rank): before and after each axis."""
    listed = node.attrs.get("pads", node.attrs.get("paddings")) if node.opset < 11 else node.constant(1)
    if listed is None:
        return None
    given = np.asarray(listed, np.int64).reshape(2, -1)
    if node.input(3) is None:
        return given
    axes = node.constant(3)
    if axes is None:
        return None
    amounts = np.zeros((2, rank), np.int64)
    amounts[:, np.where(axes < 0, axes + rank, axes)] = given
    return amounts


def _pad_value(node: OnnxNode, dtype: np.dtype) -> Any:
    if node.opset < 11:
        return float(node.attrs.get("value", 0.0))
    if node.input(2) is None:
        return 0.0
    value = node.constant(2)
    if value is None:
        raise node.refuse("its fill value is computed while the model runs; relax.nn.pad takes a constant")
    number = value.reshape(-1)[0].item()
    if dtype.kind in "iu" and float(number) != number:
        raise node.refuse(f"its fill value {number} does not fit the float64 attribute of relax.nn.pad")
    return float(number)


def _crop(node: OnnxNode, x: Any, extents: list[Any] | None, amounts: np.ndarray) -> Any:
    axes = [axis for axis in range(amounts.shape[1]) if (amounts[:, axis] < 0).any()]
    if not axes:
        return x
    if extents is None or not all(isinstance(extents[axis], int) for axis in axes):
        raise node.refuse("it crops an axis whose extent is free; fix that extent through input_shapes")
    begin = [max(0, -int(amounts[0, axis])) for axis in axes]
    end = [extents[axis] - max(0, -int(amounts[1, axis])) for axis in axes]
    return node.bb.normalize(relax.op.strided_slice(x, axes, begin, end))


def _interleaved(amounts: np.ndarray) -> list[int]:
    return [int(amount) for amount in amounts.T.reshape(-1)]


def _check_mirrored(node: OnnxNode, mode: str, extents: list[Any] | None, amounts: np.ndarray) -> None:
    """Refuse amounts for which topi reads outside the tensor instead of going on mirroring."""
    for axis in range(amounts.shape[1]):
        extent = extents[axis] if extents is not None else None
        largest = int(amounts[:, axis].max())
        if largest == 0 or mode == "replicate" or not isinstance(extent, int):
            continue
        limit = extent - 1 if mode == "reflect" else extent
        if largest > limit:
            raise node.refuse(
                f"mode '{node.text('mode', '')}' by {largest} on axis {axis} of extent {extent} goes past one "
                f"repetition; TVM's limit there is {limit}"
            )


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
    if not isinstance(extent, int) and (indices < 0).any():
        return None
    if isinstance(extent, int):
        if ((indices < -extent) | (indices >= extent)).any():
            raise node.refuse(f"an index is outside axis {axis}, which has extent {extent}")
        indices = np.where(indices < 0, indices + extent, indices).astype(indices.dtype)
    return relax.op.take(node.inputs[0], relax.const(indices, indices.dtype.name), axis)


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
