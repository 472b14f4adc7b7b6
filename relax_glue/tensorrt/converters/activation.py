"""Activations, softmax, and dropout, which at inference passes its input through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax

from ..registry import Refusal, converter
from ..slices import broadcast
from .arith import activation, axes_mask, binary, reduce, refuse_arithmetic, select, unary
from .limits import FLOATS, NUMBERS, dtype_of, rank_of, shape_of, shown

if TYPE_CHECKING:
    from ..network import Network

_PLAIN = {
    "relax.sigmoid": "SIGMOID",
    "relax.tanh": "TANH",
    "relax.nn.gelu": "GELU_ERF",
    "relax.nn.gelu_tanh": "GELU_TANH",
}
_SELU_ALPHA = 1.6732632423543772
_SELU_SCALE = 1.0507009873554805


def _accepts_float(call: relax.Call) -> Refusal | None:
    return refuse_arithmetic(call, FLOATS)


def _accepts_number(call: relax.Call) -> Refusal | None:
    return refuse_arithmetic(call, NUMBERS)


@converter(*_PLAIN, accepts=_accepts_float)
def plain(network: Network, call: relax.Call) -> Any:
    """One activation layer."""
    return activation(network, _PLAIN[call.op.name], network.tensor(call.args[0]), suffix="")


@converter("relax.nn.relu", accepts=_accepts_number)
def relu(network: Network, call: relax.Call) -> Any:
    """max(x, 0), for integers too."""
    return activation(network, "RELU", network.tensor(call.args[0]), suffix="")


@converter("relax.nn.silu", accepts=_accepts_float)
def silu(network: Network, call: relax.Call) -> Any:
    """x * sigmoid(x), which TensorRT fuses."""
    x = network.tensor(call.args[0])
    return binary(network, "PROD", x, activation(network, "SIGMOID", x), "")


@converter("relax.nn.leakyrelu", accepts=_accepts_float)
def leakyrelu(network: Network, call: relax.Call) -> Any:
    """x where it is positive, else alpha * x."""
    alpha = float(call.attrs.alpha)
    return activation(network, "LEAKY_RELU", network.tensor(call.args[0]), alpha, suffix="")


@converter("relax.nn.selu", accepts=_accepts_float)
def selu(network: Network, call: relax.Call) -> Any:
    """scale * (max(x, 0) + min(alpha * (exp(x) - 1), 0))."""
    return activation(network, "SELU", network.tensor(call.args[0]), _SELU_ALPHA, _SELU_SCALE, "")


def _accepts_softplus(call: relax.Call) -> Refusal | str | None:
    if float(call.attrs.beta) == 0.0:
        return "beta is 0, by which softplus divides"
    return refuse_arithmetic(call, FLOATS)


@converter("relax.nn.softplus", accepts=_accepts_softplus)
def softplus(network: Network, call: relax.Call) -> Any:
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x exceeds the threshold."""
    x = network.tensor(call.args[0])
    beta, threshold = float(call.attrs.beta), float(call.attrs.threshold)
    scaled = x if beta == 1.0 else binary(network, "PROD", x, beta)
    soft = activation(network, "SOFTPLUS", x, 1.0 / beta, beta)
    return select(network, binary(network, "GREATER", scaled, threshold), x, soft, "")


def _accepts_prelu(call: relax.Call) -> Refusal | str | None:
    said = refuse_arithmetic(call, FLOATS)
    if said is not None:
        return said
    if rank_of(call.args[1]) != 1:
        return Refusal(f"the slopes have the shape {shown(shape_of(call.args[1]))}, not one extent", "reshape them")
    slopes, extent = shape_of(call.args[1])[0], shape_of(call.args[0])[int(call.attrs.axis)]
    if isinstance(slopes, int) and isinstance(extent, int) and slopes not in (1, extent):
        return f"{slopes} slopes for axis {int(call.attrs.axis)} of extent {extent}"
    return None


@converter("relax.nn.prelu", accepts=_accepts_prelu)
def prelu(network: Network, call: relax.Call) -> Any:
    """x where it is positive, else slope * x, with one slope for each index of an axis."""
    x = network.tensor(call.args[0])
    shape = [1] * len(x.shape)
    shape[int(call.attrs.axis)] = -1
    slopes = network.array(call.args[1])
    slope = (
        network.reshape(network.tensor(call.args[1]), shape)
        if slopes is None
        else network.constant(slopes.reshape(shape))
    )
    return network.name(network.net.add_parametric_relu(x, slope)).get_output(0)


# Softmax


def _accepts_softmax(call: relax.Call) -> Refusal | str | None:
    return refuse_arithmetic(call, FLOATS)


@converter("relax.nn.softmax", accepts=_accepts_softmax)
def softmax(network: Network, call: relax.Call) -> Any:
    """One softmax layer, which wants two dimensions: a vector becomes a row for it."""
    x = network.tensor(call.args[0])
    rank = len(x.shape)
    (row,) = network.align(x, rank=2)
    layer = network.net.add_softmax(row)
    layer.axes = axes_mask([int(call.attrs.axis) % rank + len(row.shape) - rank])
    out = network.name(layer).get_output(0)
    return network.reshape(out, (-1,)) if rank == 1 else out


@converter("relax.nn.log_softmax", accepts=_accepts_softmax)
def log_softmax(network: Network, call: relax.Call) -> Any:
    """x - max - log(sum(exp(x - max))); not log(softmax), which is -inf where softmax is 0."""
    x = network.tensor(call.args[0])
    axes = [int(call.attrs.axis) % len(x.shape)]
    low = binary(network, "SUB", x, reduce(network, "MAX", x, axes))
    total = reduce(network, "SUM", unary(network, "EXP", low), axes)
    return binary(network, "SUB", low, unary(network, "LOG", total), "")


def _accepts_dropout(call: relax.Call) -> Refusal | None:
    return refuse_arithmetic(call, FLOATS)


@converter("relax.nn.dropout", accepts=_accepts_dropout)
def dropout(network: Network, call: relax.Call) -> list[Any]:
    """The input, and a mask of ones."""
    one = network.constant(np.ones(()).astype(dtype_of(call.args[0])))
    return [network.tensor(call.args[0]), broadcast(network, one, shape_of(call.args[0]))]
