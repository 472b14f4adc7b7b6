"""Quantize and dequantize.

Signed eight bits with a zero point of 0 are TensorRT's own layers, which it fuses into eight-bit convolutions
and products. A zero point is arithmetic in float32 around them, where eight-bit numbers are exact; unsigned
bytes, which those layers do not have, are cast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax

from ..registry import Refusal, converter
from .arith import binary, refuse_arithmetic, unary
from .limits import constant_of, dtype_of, rank_of

if TYPE_CHECKING:
    from ..network import Network

_WIDE = ("float32", "float16")
_BYTES = ("int8", "uint8")
_HALF_MAX = 65504.0


def _refuse_parameters(call: relax.Call) -> Refusal | str | None:
    scale, zero = (constant_of(arg) for arg in call.args[1:3])
    if scale is None or zero is None:
        return Refusal("the scale or the zero point is computed", "make them constants")
    rank = rank_of(call.args[0])
    if rank == 0:
        return Refusal("it is a scalar, which TensorRT does not quantize", "give it one dimension")
    sizes = {scale.size, zero.size} - {1}
    if sizes and not -rank <= int(call.attrs.axis) < rank:
        return f"the axis is {int(call.attrs.axis)} for a tensor of rank {rank}"
    wide = scale.astype(np.float32)
    if not (np.isfinite(wide) & (wide > 0)).all():
        return f"a scale is not a positive number: {wide.min()} to {wide.max()}"
    return None


def _accepts_quantize(call: relax.Call) -> Refusal | str | None:
    return refuse_arithmetic(call, _WIDE, results=_BYTES, args=(0,)) or _refuse_parameters(call)


def _accepts_dequantize(call: relax.Call) -> Refusal | str | None:
    said = refuse_arithmetic(call, (*_BYTES, "int32"), results=_WIDE, args=(0,))
    return said or _refuse_parameters(call)


def _parameter(network: Network, call: relax.Call, index: int, dtype: str = "float32") -> Any:
    """Return the scale or zero point, ready to broadcast against the data."""
    array = np.asarray(network.array(call.args[index]))
    rank = rank_of(call.args[0])
    shape = [1] * rank
    if array.size > 1:
        shape[int(call.attrs.axis)] = array.size
    return network.constant(array.reshape(shape).astype(dtype))


def _scale(network: Network, call: relax.Call) -> tuple[Any, int | None]:
    """Return the scale as the layers take it, a scalar, or a vector and the axis it goes along."""
    array = np.asarray(network.array(call.args[1]), np.float32)
    if array.size == 1:
        return network.constant(array.reshape(())), None
    return network.constant(array.reshape(-1)), int(call.attrs.axis) % rank_of(call.args[0])


def _has_zero_point(network: Network, call: relax.Call) -> bool:
    return bool(np.any(network.array(call.args[2])))


@converter("relax.quantize", accepts=_accepts_quantize)
def quantize(network: Network, call: relax.Call) -> Any:
    """clip(round(x / scale) + zero point), where ties go to the even neighbour."""
    x = network.cast(network.tensor(call.args[0]), "float32")
    if dtype_of(call) == "int8" and not _has_zero_point(network, call):
        return _quantized(network, x, *_scale(network, call))
    steps = unary(network, "ROUND", binary(network, "DIV", x, _parameter(network, call, 1)))
    steps = binary(network, "SUM", steps, _parameter(network, call, 2))
    if dtype_of(call) == "int8":
        return _quantized(network, steps, network.constant(np.ones((), np.float32)), None)
    steps = binary(network, "MAX", binary(network, "MIN", steps, 255.0), 0.0)
    return network.cast(steps, "uint8")


def _quantized(network: Network, x: Any, scale: Any, axis: int | None) -> Any:
    layer = network.net.add_quantize(x, scale, network.dtype("int8"))
    if axis is not None:
        layer.axis = axis
    return network.name(layer).get_output(0)


@converter("relax.dequantize", accepts=_accepts_dequantize)
def dequantize(network: Network, call: relax.Call) -> Any:
    """(x - zero point) * scale; half precision ends at its largest number, not at infinity."""
    x, source, target = network.tensor(call.args[0]), dtype_of(call.args[0]), dtype_of(call)
    if _has_layer(network, call):
        return _dequantized(network, x, *_scale(network, call), target)
    if source == "int32":
        x = network.cast(binary(network, "SUB", x, _parameter(network, call, 2, "int32")), "float32")
    else:
        x = network.cast(x, "float32")
        x = binary(network, "SUB", x, _parameter(network, call, 2)) if _has_zero_point(network, call) else x
    x = binary(network, "PROD", x, _parameter(network, call, 1))
    if target == "float16":
        x = binary(network, "MAX", binary(network, "MIN", x, _HALF_MAX), -_HALF_MAX)
    return network.cast(x, target)


def _has_layer(network: Network, call: relax.Call) -> bool:
    """Say whether the dequantize layer means the same, and leads to something that builds.

    TensorRT-RTX takes a convolution between dequantize layers for one in eight bits, which it then refuses to
    build (seen with 1.5.0); the same numbers by arithmetic are left alone.
    """
    if network.provider.is_rtx or dtype_of(call.args[0]) != "int8" or _has_zero_point(network, call):
        return False
    largest = 128.0 * float(np.max(np.asarray(network.array(call.args[1]))))
    return largest <= _HALF_MAX or dtype_of(call) == "float32"


def _dequantized(network: Network, x: Any, scale: Any, axis: int | None, dtype: str) -> Any:
    layer = network.net.add_dequantize(x, scale, network.dtype(dtype))
    if axis is not None:
        layer.axis = axis
    return network.name(layer).get_output(0)
