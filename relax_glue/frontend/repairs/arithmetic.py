"""Operators that calculate element by element, or along an axis."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from tvm import relax, tirx

from .node import OnnxNode, dtype_of, scalar

CLIP_LIMIT = 1 << 62  # the bounds of relax.clip are int64, and TVM computes with them


def clip(node: OnnxNode) -> relax.Expr | None:
    """Clip as relax.clip, or as one maximum or minimum.

    TVM writes isnan and where on each bound and two call_tir: a hard-swish network is cut at every block. ONNX lets
    either bound be missing or NaN, which both mean no bound; if min is above max, every result is max, whereas
    relax.clip would give min.
    """
    x = node.inputs[0]
    if node.opset < 11:
        low, high = (np.array(node.attrs[key], "float32") if key in node.attrs else None for key in ("min", "max"))
    else:
        low, high = node.constant(1), node.constant(2)
        if (node.input(1) is not None and low is None) or (node.input(2) is not None and high is None):
            return _clip_computed(node)
    dtype = dtype_of(x)
    bounds = [_bound(value, dtype) for value in (low, high)]
    if bounds[0] is not None and bounds[1] is not None:
        return _clip_between(x, min(bounds[0], bounds[1]), bounds[1], dtype)
    if bounds[0] is not None:
        return relax.op.maximum(x, relax.const(bounds[0], dtype.name))
    if bounds[1] is not None:
        return relax.op.minimum(x, relax.const(bounds[1], dtype.name))
    return x


def _bound(value: np.ndarray | None, dtype: np.dtype) -> Any:
    """Return a bound of Clip as a Python number, None where it bounds nothing."""
    if value is None:
        return None
    number = value.astype(dtype).reshape(-1)[0]
    if dtype.kind == "f" and (np.isnan(number) or np.isinf(number)):
        # An infinite bound on its own side bounds nothing; on the other side it is kept as it is.
        return None if np.isnan(number) else float(number)
    return number.item()


def _clip_between(x: relax.Expr, low: Any, high: Any, dtype: np.dtype) -> relax.Expr:
    if dtype.kind == "f" or -CLIP_LIMIT < low <= high < CLIP_LIMIT:
        return relax.op.clip(x, low, high)
    lower = relax.op.maximum(x, relax.const(low, dtype.name))
    return relax.op.minimum(lower, relax.const(high, dtype.name))


def _clip_computed(node: OnnxNode) -> relax.Expr:
    result = node.inputs[0]
    if node.input(1) is not None:
        result = relax.op.maximum(result, _no_nan(node.inputs[1], -np.inf))
    if node.input(2) is not None:
        result = relax.op.minimum(result, _no_nan(node.inputs[2], np.inf))
    return result


def _no_nan(bound: Any, instead: float) -> relax.Expr:
    if dtype_of(bound).kind != "f":
        return bound
    return relax.op.where(relax.op.isnan(bound), relax.const(instead, str(bound.ty.dtype)), bound)


def chain(operator: Callable[[Any, Any], relax.Expr]) -> Callable[[OnnxNode], relax.Expr | None]:
    """Return the repair of Max, Min or Sum, for the operator of Relax that takes two."""

    def convert(node: OnnxNode) -> relax.Expr | None:
        """Max, Min, Sum as a chain of the two-operand operator, which broadcasts by itself.

        TVM broadcasts each operand to the common shape, stacks them on a new axis and reduces it: for two operands
        that is broadcast_to twice, stack and max instead of maximum.
        """
        return reduce(lambda left, right: node.bb.normalize(operator(left, right)), node.inputs)

    return convert


def mean(node: OnnxNode) -> relax.Expr | None:
    """Mean of several tensors as a chain of add and one divide, for the reason given at Max."""
    total = reduce(lambda left, right: node.bb.normalize(relax.op.add(left, right)), node.inputs)
    return relax.op.divide(total, relax.const(len(node.inputs), str(total.ty.dtype)))


def einsum(node: OnnxNode) -> relax.Expr | None:
    """Einsum as relax.einsum, which TVM builds as a call_tir; topi does not take spaces or upper-case labels."""
    equation = node.text("equation", "").replace(" ", "")
    return relax.op.einsum(tuple(node.inputs), equation)


def power(node: OnnxNode) -> relax.Expr | None:
    """Pow of two element types, and of integers.

    The result has the type of the base. TVM hands both operands to relax.power, which refuses x ** int64(2) of a
    float32 x, and has no code for integers.
    """
    base, exponent = node.inputs
    dtype = dtype_of(base)
    if dtype.kind == "f":
        return None if dtype_of(exponent) == dtype else relax.op.power(base, relax.op.astype(exponent, dtype.name))
    known = node.constant(1)
    if known is not None and known.size == 1 and known.item() in range(1, 9):
        return reduce(lambda left, right: node.emit(relax.op.multiply(left, right)), [base] * int(known.item()))
    wide = relax.op.power(relax.op.astype(base, "float64"), relax.op.astype(exponent, "float64"))
    return relax.op.astype(relax.op.round(wide), dtype.name)


def is_inf(node: OnnxNode) -> relax.Expr | None:
    """IsInf of one sign; TVM does not read detect_positive and detect_negative, and reports both signs."""
    signs = [sign for sign, name in ((1, "positive"), (-1, "negative")) if node.attrs.get(f"detect_{name}", 1)]
    x = node.inputs[0]
    if len(signs) != 1:
        return None if signs else relax.op.not_equal(x, x)
    return relax.op.equal(x, scalar(signs[0] * np.inf, dtype_of(x)))


def cum_sum(node: OnnxNode) -> relax.Expr | None:
    """CumSum of booleans, and one that begins at the end.

    Booleans are counted in int64: ONNX has none, but PyTorch's older exporter writes `mask.cumsum(1)` so. TVM turns the
    axis around by a call_tir before and one behind, which cut the model in three.
    """
    if str(node.inputs[0].ty.dtype) == "bool":
        node.inputs[0] = node.emit(relax.op.astype(node.inputs[0], "int64"))
    known = node.constant(1)
    if known is None or known.size != 1 or not node.attrs.get("reverse", 0):
        return None
    axis = int(known.item())
    turned = node.emit(relax.op.flip(node.inputs[0], axis))
    sums = node.emit(relax.op.cumsum(turned, axis, exclusive=bool(node.attrs.get("exclusive", 0))))
    return relax.op.flip(sums, axis)


def elu(node: OnnxNode) -> relax.Expr | None:
    """Elu in any float type; TVM's constants are float32, so that a float16 model is refused."""
    return _elu(node.inputs[0], node.attrs.get("alpha", 1.0))


def selu(node: OnnxNode) -> relax.Expr | None:
    """Selu in any float type, for the reason given at Elu."""
    x = node.inputs[0]
    alpha, gamma = node.attrs.get("alpha", 1.6732632423543772), node.attrs.get("gamma", 1.0507009873554805)
    return relax.op.multiply(scalar(gamma, dtype_of(x)), _elu(x, alpha))


def _elu(x: relax.Expr, alpha: float) -> relax.Expr:
    # exp is needed below 0 only; above, 1 - exp(x) is negative and relu drops it, infinities too.
    below = relax.op.nn.relu(relax.op.subtract(scalar(1, dtype_of(x)), relax.op.exp(x)))
    return relax.op.add(relax.op.multiply(scalar(-alpha, dtype_of(x)), below), relax.op.nn.relu(x))


def thresholded_relu(node: OnnxNode) -> relax.Expr | None:
    """ThresholdedRelu as where; TVM multiplies by a float32 mask: refused in float16, and NaN for infinity."""
    x = node.inputs[0]
    limit = scalar(node.attrs.get("alpha", 1.0), dtype_of(x))
    return relax.op.where(relax.op.greater(x, limit), x, scalar(0, dtype_of(x)))


def lp_normalization(node: OnnxNode) -> relax.Expr | None:
    """LpNormalization, which TVM does not have; 0 where the norm is 0."""
    x, axis = node.inputs[0], node.attrs.get("axis", -1)
    if node.attrs.get("p", 2) == 1:
        norm = relax.op.sum(relax.op.abs(x), axis, keepdims=True)
    else:
        norm = relax.op.sqrt(relax.op.sum(relax.op.multiply(x, x), axis, keepdims=True))
    smallest = scalar(np.finfo(dtype_of(x)).tiny, dtype_of(x))
    return relax.op.divide(x, relax.op.maximum(norm, smallest))


def one_hot(node: OnnxNode) -> relax.Expr | None:
    """OneHot in the type of its values; TVM makes float64 of float32 values, and int64 of all integers."""
    depth, values = node.constant(1), node.constant(2)
    if depth is None or values is None:
        raise node.refuse("its depth or its values are computed while the model runs; they have to be constants")
    indices, count = node.inputs[0], int(depth.reshape(-1)[0])
    kind = dtype_of(indices)
    wrapped = relax.op.where(
        relax.op.less(indices, scalar(0, kind)), relax.op.add(indices, scalar(count, kind)), indices
    )
    literal = tirx.FloatImm if values.dtype.kind == "f" else tirx.IntImm
    off, on = (relax.prim_value(literal(values.dtype.name, value.item())) for value in values)
    return relax.op.one_hot(wrapped, on, off, count, node.attrs.get("axis", -1))
