"""Attention as two matrix products around a softmax, which TensorRT recognises and fuses."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
from tvm import relax, tirx

from ..registry import Refusal, converter
from .arith import axes_mask, binary, dtype_name, extent_of, refuse_arithmetic, select, unary
from .counting import counted, extent_as
from .limits import FLOATS, shape_of
from .matmul import product

if TYPE_CHECKING:
    from ..network import Network

_MASKS = (None, "TopLeft", "BottomRight")


def _accepts(call: relax.Call) -> Refusal | str | None:
    said = refuse_arithmetic(call, FLOATS)
    if said is not None:
        return said
    attrs = call.attrs
    if attrs.window_size is not None:
        return f"a window of {attrs.window_size}: TVM does not define which keys it leaves"
    if attrs.causal_mask not in _MASKS:
        return f"the causal mask {attrs.causal_mask!r} is none of TopLeft and BottomRight"
    if attrs.scale is None and extent_of(call.args[0], 3) is None:
        return Refusal("the size of a head is symbolic, and so is the scale", "give attention a scale")
    return None


@converter("relax.nn.attention", "relax.nn.attention_bias", accepts=_accepts)
def attention(network: Network, call: relax.Call) -> Any:
    """softmax(scale * Q K^T + bias) V for operands (batch, length, heads, size)."""
    query, key, value = (network.transpose(network.tensor(arg), (0, 2, 1, 3)) for arg in call.args[:3])
    scores = product(network, query, key, "scores", transpose_b=True)
    if call.attrs.scale is None:
        scores = binary(network, "DIV", scores, math.sqrt(int(query.shape[3])))
    else:
        scores = binary(network, "PROD", scores, float(call.attrs.scale.value))
    if len(call.args) > 3:
        scores = binary(network, "SUM", scores, network.tensor(call.args[3]))
    if call.attrs.causal_mask is not None:
        scores = _masked(network, scores, call)
    layer = network.net.add_softmax(scores)
    layer.axes = axes_mask([3])
    weights = network.name(layer, "softmax").get_output(0)
    return network.transpose(product(network, weights, value), (0, 2, 1, 3))


def _masked(network: Network, scores: Any, call: relax.Call) -> Any:
    """Leave key j to query i where j <= i, or j <= i + |queries - keys|, which is what TVM computes."""
    queries, keys = (shape_of(arg)[1] for arg in call.args[:2])
    shift = queries - keys if call.attrs.causal_mask == "BottomRight" else 0
    if isinstance(queries, int) and isinstance(keys, int):
        seen = network.constant(np.tri(queries, keys, abs(shift), dtype=bool)[None, None])
    else:
        row, column = counted(network, queries, "int32", 2, 4), counted(network, keys, "int32", 3, 4)
        furthest = row if isinstance(shift, int) else binary(network, "SUM", row, extent_as(network, _size(shift), row))
        seen = unary(network, "NOT", binary(network, "GREATER", column, furthest))
    lowest = np.full((1, 1, 1, 1), -math.inf).astype(dtype_name(scores))
    return select(network, seen, scores, network.constant(lowest))


def _size(number: tvm.ir.Expr) -> tvm.ir.Expr:
    return tirx.max(number, -number)
