"""Reductions, element-wise operators and norms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, tirx

from .node import TorchNode, as_tensor, is_integer


def _axes(node: TorchNode) -> list[int] | None:
    """Return the reduced axes; None for all, which PyTorch also writes as an empty list."""
    dim = node.arguments.get("dim")
    if isinstance(dim, int):
        return [dim]
    return [int(axis) for axis in dim] if dim else None


def reduce_by(reduction: Callable[..., relax.Expr]) -> Callable[[TorchNode], relax.Expr]:
    """Return the repair of a reduction that TVM's importer does not have for these axes."""

    def convert(node: TorchNode) -> relax.Expr:
        return node.emit(reduction(node["self"], _axes(node), bool(node.arguments.get("keepdim"))))

    return convert


def any_(node: TorchNode) -> relax.Expr:
    """Any as the largest of 0 and 1 in int32; TVM has int8, which TensorRT reduces nowhere, and no any of all axes."""
    x = node["self"]
    if str(x.ty.dtype) != "bool":
        x = node.emit(relax.op.not_equal(x, as_tensor(0, x)))
    ones = node.emit(relax.op.astype(x, "int32"))
    largest = node.emit(relax.op.max(ones, _axes(node), bool(node.arguments.get("keepdim"))))
    return node.emit(relax.op.astype(largest, "bool"))


def min_dim(node: TorchNode) -> relax.Expr:
    """Min along an axis with its place, as topk; TVM has max only."""
    return _smallest(node, 1)


def kthvalue(node: TorchNode) -> relax.Expr:
    """The k-th smallest with its place, which TVM does not have: the last of the k smallest."""
    return _smallest(node, int(node["k"]))


def _smallest(node: TorchNode, k: int) -> relax.Expr:
    x = node["self"]
    axis = node.axis("dim", x)
    found = node.emit(relax.op.topk(x, k, axis, "both", False, "int64"))
    results = [node.emit(relax.TupleGetItem(found, item)) for item in (0, 1)]
    if k > 1:
        results = [node.emit(relax.op.strided_slice(result, [axis], [k - 1], [k])) for result in results]
    if not node["keepdim"]:
        results = [node.emit(relax.op.squeeze(result, [axis])) for result in results]
    return node.emit(relax.Tuple(results))


def var_mean(node: TorchNode) -> relax.Expr | None:
    """Variance and mean at once, which TVM does not have."""
    x, axes, keep = node["self"], _axes(node), bool(node["keepdim"])
    extents = x.ty.shape.values
    reduced = [extents[axis] for axis in (range(x.ty.ndim) if axes is None else axes)]
    correction = 1 if node["correction"] is None else node["correction"]
    if not all(isinstance(extent, tirx.IntImm) for extent in reduced):
        return None
    count = math.prod(int(extent) for extent in reduced)
    variance = node.emit(relax.op.variance(x, axes, keep))
    if correction:
        factor = count / (count - correction) if count > correction else math.nan
        variance = node.emit(relax.op.multiply(variance, as_tensor(factor, x)))
    return node.emit(relax.Tuple([variance, node.emit(relax.op.mean(x, axes, keep))]))


def cumsum(node: TorchNode) -> relax.Expr | None:
    """Cumsum of booleans and narrow integers in int64, as PyTorch counts; TVM keeps the type and cannot compile it."""
    x = node["self"]
    if node["dtype"] is not None or not (is_integer(x) or str(x.ty.dtype) == "bool"):
        return None
    return node.emit(relax.op.cumsum(node.emit(relax.op.astype(x, "int64")), node.axis("dim", x), "int64"))


def clamp(node: TorchNode) -> relax.Expr | None:
    """Clamp of integers on one side as maximum or minimum; TVM clips to infinity, which no integer is."""
    x, low, high = node["self"], node.arguments.get("min"), node.arguments.get("max")
    if not is_integer(x) or not all(limit is None or isinstance(limit, int) for limit in (low, high)):
        return None
    if low is not None:
        x = node.emit(relax.op.maximum(x, as_tensor(low, x)))
    return x if high is None else node.emit(relax.op.minimum(x, as_tensor(high, x)))


def of_booleans(
    logic: Callable[..., relax.Expr], arithmetic: Callable[..., relax.Expr]
) -> Callable[[TorchNode], relax.Expr | None]:
    """Return the repair of arithmetic with booleans: of two it is logic, else they count as 0 and 1 of the result.

    TVM keeps them booleans, which LLVM refuses: `(x > 0) * (x < 1)`, `(x > 0) + 1`.
    """

    def convert(node: TorchNode) -> relax.Expr | None:
        x, other = node["self"], node["other"]
        if str(x.ty.dtype) != "bool" or node.arguments.get("alpha", 1) != 1:
            return None
        result = str(node.fx.meta["val"].dtype).removeprefix("torch.")
        if result == "bool":
            return node.emit(logic(x, as_tensor(other, x)))
        x = node.emit(relax.op.astype(x, result))
        other = node.emit(relax.op.astype(other, result)) if isinstance(other, relax.Expr) else as_tensor(other, x)
        return node.emit(arithmetic(x, other))

    return convert


def compare_bool(negated: bool) -> Callable[[TorchNode], relax.Expr | None]:
    """Return the repair of eq or ne between a boolean and a number; LLVM refuses TVM's comparison of the two."""

    def convert(node: TorchNode) -> relax.Expr | None:
        x, other = node["self"], node["other"]
        if str(x.ty.dtype) != "bool" or other not in (0, 1):
            return None
        return x if bool(other) != negated else node.emit(relax.op.logical_not(x))

    return convert


def floor_divide(node: TorchNode) -> relax.Expr:
    """Floor division by a number of the tensor's own type; TVM makes an int32 of it, and refuses `i // 2` of int64."""
    x = node["self"]
    return node.emit(relax.op.floor_divide(x, as_tensor(node["other"], x)))


def divide(node: TorchNode) -> relax.Expr | None:
    """Division by a number rounded to a mode, for the reason given at `floor_divide`."""
    x, other, mode = node["self"], node["other"], node["rounding_mode"]
    if isinstance(other, relax.Expr) or (is_integer(x) and isinstance(other, float)):
        return None
    if mode == "floor":
        return floor_divide(node)
    if mode != "trunc":
        return None
    quotient = node.emit(relax.op.divide(x, as_tensor(other, x)))
    return quotient if is_integer(x) else node.emit(relax.op.trunc(quotient))


def cdist(node: TorchNode) -> relax.Expr | None:
    """Euclidean distances between the rows of two matrices, which TVM does not have."""
    if node["p"] != 2:
        return None
    rows, columns = node["x1"], node["x2"]
    rows = node.emit(relax.op.expand_dims(rows, [rows.ty.ndim - 1]))
    columns = node.emit(relax.op.expand_dims(columns, [columns.ty.ndim - 2]))
    difference = node.emit(relax.op.subtract(rows, columns))
    squares = node.emit(relax.op.multiply(difference, difference))
    return node.emit(relax.op.sqrt(node.emit(relax.op.sum(squares, [-1]))))


def exp2(node: TorchNode) -> relax.Expr:
    """Two to the power of x, which TVM does not have, as exp(x ln 2)."""
    x = node["self"]
    return node.emit(relax.op.exp(node.emit(relax.op.multiply(x, as_tensor(math.log(2), x)))))


def erfc(node: TorchNode) -> relax.Expr:
    """The complement of erf, which TVM does not have."""
    x = node["self"]
    return node.emit(relax.op.subtract(as_tensor(1, x), node.emit(relax.op.erf(x))))


def hypot(node: TorchNode) -> relax.Expr:
    """The length of a vector of two, which TVM does not have."""
    squares = [node.emit(relax.op.multiply(side, side)) for side in (node["self"], node["other"])]
    return node.emit(relax.op.sqrt(node.emit(relax.op.add(*squares))))


def shift(operator: Callable[..., relax.Expr]) -> Callable[[TorchNode], relax.Expr]:
    """Return the repair of a shift of bits, which TVM's importer does not have."""

    def convert(node: TorchNode) -> relax.Expr:
        return node.emit(operator(node["self"], as_tensor(node["other"], node["self"])))

    return convert


def elu(node: TorchNode) -> relax.Expr:
    """Elu with its two scales, which is also what selu and celu become; TVM drops them."""
    x, scale = node["self"], float(node["scale"])
    inner = x if node["input_scale"] == 1 else node.emit(relax.op.multiply(as_tensor(node["input_scale"], x), x))
    # exp is needed below 0 only; above, 1 - exp(x) is negative and relu drops it.
    below = node.emit(relax.op.nn.relu(relax.op.subtract(as_tensor(1, x), relax.op.exp(inner))))
    below = node.emit(relax.op.multiply(as_tensor(-float(node["alpha"]) * scale, x), below))
    above = relax.op.nn.relu(x)
    return node.emit(relax.op.add(below, above if scale == 1 else relax.op.multiply(as_tensor(scale, x), above)))


def group_norm(node: TorchNode) -> Any:
    """Group norm without weights gets the neutral ones; TVM passes null, and builds a broken module."""
    x, dtype = node["input"], str(node["input"].ty.dtype)
    if node["weight"] is not None and node["bias"] is not None:
        return None
    channels = int(node["C"])
    scale = node["weight"] if node["weight"] is not None else relax.const(np.ones(channels), dtype)
    shift_ = node["bias"] if node["bias"] is not None else relax.const(np.zeros(channels), dtype)
    axes = list(range(2, x.ty.ndim))
    normal = relax.op.nn.group_norm(x, scale, shift_, int(node["group"]), 1, axes, float(node["eps"]))
    # PyTorch returns the mean and the deviation too; the importer's getitem reads the first of what it finds.
    return node.emit(normal)
