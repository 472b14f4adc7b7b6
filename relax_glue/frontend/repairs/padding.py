"""Padding: the operator Pad, and auto_pad of convolutions and pools.

relax.nn.pad takes amounts that are numbers and not negative. Amounts that follow from free extents, as in padding to a
multiple of a window, are less than a bound that is known: the tensor is padded by the bound, and a slice takes what is
wanted. That serves negative amounts, which crop, as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from tvm import relax

from relax_glue.frontend.symbolic import Element

from .node import OnnxNode, dtype_of, extents_of

PAD_MODES = MappingProxyType({"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"})
MAX_PADDING = 1 << 12  # what is padded on a guess and cut off again; more would be a waste
Amounts = tuple[list[Element], list[Element]]  # before and after each axis


def pad(node: OnnxNode) -> relax.Expr | None:
    """Pad as relax.nn.pad, and negative or free amounts with a slice.

    TVM builds a call_tir from topi.nn.pad in every mode. Its opset 2 to 10 form raises TypeError (the pads are an
    attribute there), and a negative amount reads outside the tensor in the mirrored modes.
    """
    x = node.inputs[0]
    amounts = _pad_amounts(node, x.ty.ndim)
    if amounts is None:
        raise node.refuse(
            "its amounts are computed from values while the model runs, not from the shapes of the inputs"
        )
    mode = PAD_MODES.get(node.text("mode", "constant"))
    if mode is None:
        raise node.refuse(f"ONNX has no padding mode '{node.text('mode', '')}'")
    value = _pad_value(node, dtype_of(x)) if mode == "constant" else None
    return pad_by(node, x, amounts, mode, value)


def pad_by(node: OnnxNode, x: Any, amounts: Amounts, mode: str = "constant", value: float | None = 0.0) -> relax.Expr:
    """Pad a tensor.

    Parameters
    ----------
    node : OnnxNode
        Whose meaning this is.
    x : relax.Expr
        The tensor, of known rank.
    amounts : (list, list)
        Before and after each axis; negative ones crop.
    mode : str
        As in relax.nn.pad.
    value : float, optional
        What to fill with in mode "constant".
    """
    extents = extents_of(x)
    if all(isinstance(amount, int) for side in amounts for amount in side):
        if any(amount < 0 for side in amounts for amount in side):
            x, amounts = _crop(node, x, extents, amounts)
        return _padded(node, x, amounts, mode, value)
    if extents is None:
        raise node.refuse("its amounts follow from free extents, and the rank of its input is not known")
    bounds = tuple([_bound(node, amount, mode) for amount in side] for side in amounts)
    wide = node.emit(_padded(node, x, (bounds[0], bounds[1]), mode, value))
    return _window(node, wide, extents, amounts, bounds[0])


def _bound(node: OnnxNode, amount: Element, mode: str) -> int:
    """Return the largest value of an amount, at least 0."""
    if isinstance(amount, int):
        return max(amount, 0)
    if mode not in ("constant", "replicate"):
        raise node.refuse(f"mode '{mode}' by {amount}, which follows from a free extent; fix it through input_shapes")
    most = node.facts.arithmetic.largest(amount)
    if most is None or most > MAX_PADDING:
        raise node.refuse(
            f"it pads by {amount}, for which no bound up to {MAX_PADDING} is known; give the range of the free extents "
            "in it through ranges, or fix them through input_shapes"
        )
    return max(most, 0)


def _window(node: OnnxNode, wide: Any, extents: list[Element], amounts: Amounts, front: list[int]) -> relax.Expr:
    """Take out of a tensor that was padded by `front` and enough behind what the amounts ask for."""
    arithmetic = node.facts.arithmetic
    axes, begins, ends = [], [], []
    for axis, extent in enumerate(extents):
        begin = arithmetic.subtract(front[axis], amounts[0][axis])
        end = arithmetic.simplify(front[axis] + extent + amounts[1][axis])
        if isinstance(begin, int) and begin == 0 and arithmetic.same(end, (extents_of(wide) or [])[axis]):
            continue
        axes.append(axis)
        begins.append(begin)
        ends.append(arithmetic.maximum(begin, end))
    return relax.op.strided_slice(wide, axes, begins, ends, assume_inbound=True)


def _pad_amounts(node: OnnxNode, rank: int) -> Amounts | None:
    listed = node.attrs.get("pads", node.attrs.get("paddings")) if node.opset < 11 else node.elements(1)
    if listed is None:
        return None
    given = list(listed)
    half = len(given) // 2
    if node.input(3) is None:
        return given[:half], given[half:]
    axes = node.constant(3)
    if axes is None:
        return None
    amounts: Amounts = ([0] * rank, [0] * rank)
    for place, axis in enumerate(axes):
        amounts[0][int(axis) % rank], amounts[1][int(axis) % rank] = given[place], given[half + place]
    return amounts


def _pad_value(node: OnnxNode, dtype: np.dtype) -> float:
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


def _crop(node: OnnxNode, x: Any, extents: list[Any] | None, amounts: Amounts) -> tuple[Any, Amounts]:
    """Cut off what negative amounts take away; return the rest, and the amounts that are left."""
    axes = [axis for axis in range(x.ty.ndim) if amounts[0][axis] < 0 or amounts[1][axis] < 0]
    if extents is None:
        raise node.refuse("it crops a tensor whose extents are not known; fix the input shapes through input_shapes")
    begins = [max(0, -amounts[0][axis]) for axis in axes]
    ends = [node.facts.arithmetic.simplify(extents[axis] - max(0, -amounts[1][axis])) for axis in axes]
    free = not all(isinstance(extents[axis], int) for axis in axes)
    cut = node.emit(relax.op.strided_slice(x, axes, begins, ends, assume_inbound=free))
    return cut, ([max(amount, 0) for amount in amounts[0]], [max(amount, 0) for amount in amounts[1]])


def _padded(node: OnnxNode, x: Any, amounts: Amounts, mode: str, value: float | None) -> relax.Expr:
    if not any(map(any, amounts)):
        return x
    listed = [amount for pair in zip(*amounts, strict=True) for amount in pair]
    if mode == "constant":
        return relax.op.nn.pad(x, listed, mode, value)
    _check_mirrored(node, mode, extents_of(x), amounts)
    return relax.op.nn.pad(x, listed, mode)


def _check_mirrored(node: OnnxNode, mode: str, extents: list[Any] | None, amounts: Amounts) -> None:
    """Refuse amounts for which topi reads outside the tensor instead of going on mirroring.

    On a free extent the limit is asked for at the entry.
    """
    for axis, pair in enumerate(zip(*amounts, strict=True)):
        largest = max(pair)
        if largest == 0 or mode == "replicate" or extents is None:
            continue
        needed = largest + 1 if mode == "reflect" else largest
        if isinstance(extents[axis], int) and extents[axis] < needed:
            raise node.refuse(
                f"mode '{node.text('mode', '')}' by {largest} on axis {axis} of extent {extents[axis]} goes past one "
                f"repetition; TVM's limit there is {extents[axis] - needed + largest}"
            )
        node.require_least(extents[axis], needed)


def same_amounts(node: OnnxNode, extents: Sequence[Element], kernel: Sequence[int]) -> Amounts | None:
    """Return the amounts that auto_pad stands for, on the axes of the window; None where it pads to no size.

    Along an axis of extent e the result has ceil(e / stride) places, whatever the kernel.
    """
    same = node.text("auto_pad", "NOTSET")
    if not same.startswith("SAME"):
        return None
    rank, arithmetic = len(kernel), node.facts.arithmetic
    strides, dilations = (node.attrs.get(name, [1] * rank) for name in ("strides", "dilations"))
    amounts: Amounts = ([], [])
    for extent, stride, dilation, size in zip(extents, strides, dilations, kernel, strict=True):
        count = arithmetic.floor_divide(arithmetic.simplify(extent + (stride - 1)), stride)
        total = arithmetic.simplify((count - 1) * stride + (size - 1) * dilation + 1 - extent)
        total = arithmetic.maximum(total, 0)
        less = arithmetic.floor_divide(total, 2)
        more = arithmetic.subtract(total, less)
        amounts[0].append(less if same == "SAME_UPPER" else more)
        amounts[1].append(more if same == "SAME_UPPER" else less)
    return amounts
