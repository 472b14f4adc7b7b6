"""Batch normalisation at inference: a scale and a shift, and the scale goes into the weights before it.

`nn.batch_norm` returns a tuple and no TensorRT table of TVM takes it: a YOLO from torch.export is cut 81 times.
With constant statistics it is multiply and add by constants, and a multiplication after a convolution or a
matrix product with constant weights belongs into the weights. The factors are computed in float64 and rounded
once. (rules.md C03, B09, B10, B11.)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from tvm import relax

from relax_glue.ir import Graph, Node, Value, same_shape
from relax_glue.ir.views import normal_axis
from relax_glue.rewrite import FLOAT_REASSOC, Decline, Replacement, RuleSet, rule

from .base import family

CONVOLUTIONS = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d")
TRANSPOSED = ("relax.nn.conv1d_transpose", "relax.nn.conv2d_transpose", "relax.nn.conv3d_transpose")
FLOATS = ("float16", "float32", "float64")

TOO_LARGE = Decline("a product leaves the range of the type")


@rule(
    "batch-norm-to-scale",
    "relax.nn.batch_norm",
    equation="batch_norm(x, g, b, m, v)[0] -> x * (g / sqrt(v + eps)) + (b - m * g / sqrt(v + eps))",
    soundness=FLOAT_REASSOC,
    source="C03",
)
def batch_norm_to_scale(node: Node, graph: Graph) -> Replacement | Decline:
    """Inference-time batch normalisation with constant statistics is a scale and a shift."""
    attrs = node.attrs
    if bool(getattr(attrs, "training", False)):
        return Decline("it is in training mode")
    x, *statistics = node.inputs
    if x.dtype not in FLOATS or x.shape is None:
        return Decline("the operand is no float tensor of known rank")
    arrays = [v.array for v in statistics]
    if len(arrays) != 4 or any(a is None for a in arrays):
        return Decline("a statistic is not constant")
    if graph.uses_of(Value(node)):
        return Decline("the whole tuple is used")
    factor, shift = (rounded(a, x.dtype) for a in _scale_and_shift(attrs, [a for a in arrays if a is not None]))
    if factor is None or shift is None:
        return TOO_LARGE
    shape = [1] * len(x.shape)
    shape[normal_axis(int(attrs.axis), len(shape))] = -1
    scaled = graph.emit(relax.op.multiply, x, graph.constant(factor.reshape(shape)))
    # at inference the running statistics come back as they went in
    return [graph.emit(relax.op.add, scaled, graph.constant(shift.reshape(shape))), statistics[2], statistics[3]]


def _scale_and_shift(attrs: Any, statistics: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return what a normalisation multiplies by and what it adds then, in float64."""
    gamma, beta, mean, variance = (a.astype("float64") for a in statistics)
    with np.errstate(all="ignore"):  # a negative variance gives NaN here as it does in the kernel
        factor = (gamma if attrs.scale else 1.0) / np.sqrt(variance + float(attrs.epsilon))
        return factor, (beta if attrs.center else 0.0) - mean * factor


def rounded(exact: np.ndarray, dtype: str) -> np.ndarray | None:
    """Return float64 values in a float type, or None where a finite one has no finite value there."""
    with np.errstate(all="ignore"):
        found = exact.astype(dtype)
    return found if np.array_equal(np.isfinite(found), np.isfinite(exact)) else None


def scaled_weight(weight: np.ndarray, factor: np.ndarray) -> np.ndarray | None:
    """Return a weight times a factor in the weight's type, or None where it leaves the range of the type.

    A factor of 1e-5 on float16 weights leaves subnormals with a few bits: then the result is multiplied instead.
    """
    exact = weight.astype("float64") * factor
    found = rounded(exact, weight.dtype.name)
    if found is None or not exact.size:
        return None
    largest = np.abs(np.where(np.isfinite(exact), exact, 0)).max()
    return found if largest == 0 or largest >= np.finfo(weight.dtype).tiny else None


class _Operands(NamedTuple):
    """The operands of a commutative call of which one is constant."""

    constant: Value
    array: np.ndarray
    other: Value


def _operands(node: Node) -> _Operands | None:
    """Return the operands of a commutative call, or None where none or both are constant."""
    a, b = node.inputs
    if a.array is not None and b.array is None:
        return _Operands(a, a.array, b)
    if b.array is not None and a.array is None:
        return _Operands(b, b.array, a)
    return None


def _per_channel(factor: np.ndarray, shape: tuple[int, ...], axis: int) -> np.ndarray | None:
    """Return a constant that varies along `axis` only as a vector of its extent, or None.

    Shapes align at the right: a vector of length O beside (N, O, H, W) varies along W, not along the channels.
    """
    if factor.ndim > len(shape):
        return None
    full = factor.reshape((1,) * (len(shape) - factor.ndim) + factor.shape)
    if any(n != 1 for k, n in enumerate(full.shape) if k != axis):
        return None
    return np.broadcast_to(full.ravel(), (shape[axis],))


def _out_axes(conv: Node) -> tuple[int, int] | None:
    """Return the channel axis of a convolution's result and the axis of its kernel that gives it, or None."""
    attrs = conv.attrs
    layout = str(attrs.out_layout) or str(attrs.data_layout)
    kernel = str(attrs.kernel_layout)
    if len(layout) != conv.value.ndim or "C" not in layout or "O" not in kernel:
        return None
    if conv.op in TRANSPOSED and int(attrs.groups) != 1:
        return None  # the kernel's O counts the channels of one group
    return layout.index("C"), kernel.index("O")


@rule(
    "scale-into-conv",
    "relax.multiply",
    equation="conv(x, W) * c -> conv(x, W * c), c constant per output channel",
    soundness=FLOAT_REASSOC,
    source="B09",
)
def scale_into_conv(node: Node, graph: Graph) -> Replacement | Decline:
    """Multiply the weights, once, instead of the result."""
    found = _operands(node)
    if found is None or found.other.op not in CONVOLUTIONS + TRANSPOSED:
        return Decline("it is no convolution times a constant")
    conv = found.other.node
    weight = conv.inputs[1].array
    if not graph.single_use(found.other) or weight is None:
        return Decline("the convolution has other users or its weight is not constant")
    axes = _out_axes(conv)
    if axes is None or not _keeps_shape(node, conv) or weight.dtype.name not in FLOATS:
        return Decline("its output channels are not one axis of the weight, or the product is larger")
    extent = weight.shape[axes[1]]
    vector = _per_channel(found.array, (*[1] * axes[0], extent, *[1] * (conv.value.ndim - axes[0] - 1)), axes[0])
    if vector is None:
        return Decline("the constant does not vary along the channels alone")
    scaled = scaled_weight(weight, vector.reshape([-1 if k == axes[1] else 1 for k in range(weight.ndim)]))
    return TOO_LARGE if scaled is None else graph.rebuild(conv, [conv.inputs[0], graph.constant(scaled)])


def _keeps_shape(node: Node, inner: Node) -> bool:
    return same_shape(node.shape_of(None), inner.shape_of(None)) and node.value.dtype == inner.value.dtype


@rule(
    "scale-into-matmul",
    "relax.multiply",
    equation="matmul(x, W) * c -> matmul(x, W * c), c constant per column",
    soundness=FLOAT_REASSOC,
    source="B10",
)
def scale_into_matmul(node: Node, graph: Graph) -> Replacement | Decline:
    """Multiply the columns of a constant weight instead of those of the product."""
    found = _operands(node)
    if found is None or found.other.op != "relax.matmul":
        return Decline("it is no matrix product times a constant")
    product = found.other.node
    weight = product.inputs[1].array
    if not graph.single_use(found.other) or weight is None or weight.ndim < 2 or weight.dtype.name not in FLOATS:
        return Decline("the product has other users or its weight is no constant float matrix")
    shape = product.shape_of(None)
    if not shape or not isinstance(shape[-1], int) or not _keeps_shape(node, product):
        return Decline("the columns of the product are not static, or it grows")
    vector = _per_channel(found.array, shape, len(shape) - 1)
    if vector is None:
        return Decline("the constant does not vary along the columns alone")
    scaled = scaled_weight(weight, vector)
    return TOO_LARGE if scaled is None else graph.rebuild(product, [product.inputs[0], graph.constant(scaled)])


@rule(
    "scale-before-shift",
    "relax.multiply",
    equation="(conv(x, W) + b) * c -> conv(x, W) * c + b * c, b and c constant",
    soundness=FLOAT_REASSOC,
    source="B11",
)
def scale_before_shift(node: Node, graph: Graph) -> Replacement | Decline:
    """Bring a scale next to the convolution that it can go into."""
    found = _operands(node)
    if found is None or found.other.op != "relax.add" or not graph.single_use(found.other):
        return Decline("it is no sum of one user times a constant")
    inner = _operands(found.other.node)
    if inner is None or inner.other.op not in (*CONVOLUTIONS, *TRANSPOSED, "relax.matmul"):
        return Decline("the sum is not of a convolution or matrix product and a constant")
    x = inner.other
    if not graph.single_use(x) or x.dtype not in FLOATS or x.node.inputs[1].op != "constant":
        return Decline("the convolution has other users, no constant weight, or is no float")
    if not _keeps_shape(node, x.node):
        return Decline("the result is larger than the convolution's")
    product = rounded(inner.array.astype("float64") * found.array.astype("float64"), x.dtype)
    if product is None:
        return TOO_LARGE
    if product.size > max(inner.array.size, found.array.size):
        return Decline("the constants vary along different axes")
    scaled = graph.emit(relax.op.multiply, x, found.constant)
    return graph.emit(relax.op.add, scaled, graph.constant(product))


RULES = RuleSet.of(batch_norm_to_scale, scale_into_conv, scale_into_matmul, scale_before_shift)


FoldBatchNorm = family(
    "FoldBatchNorm", RULES, "Turn batch normalisation into scale and shift, and scales into the weights before them."
)
