"""The pair of `left_out` that Relax cannot spell: a hard swish with TensorRT's layer for the hard sigmoid."""

from __future__ import annotations

from typing import Any

from left_out_net import Net, shape_of
from tvm import relax
from tvm.relax import op

from relax_glue.tensorrt.converters import REGISTRY
from relax_glue.tensorrt.network import Network
from relax_glue.tensorrt.registry import Converter, Registry

SLOPE, OFFSET = 1 / 6, 0.5


def hard_swish(net: Net, x: relax.Var, new: bool, blocks: int = 8) -> relax.Expr:
    """x * clip(x + 3, 0, 6) / 6, as importers write it; or x * clip(x / 6 + 0.5, 0, 1), which `WITH_LAYER` takes."""
    for k in range(blocks):
        y = net.named_conv(f"c{k}", x, shape_of(x)[1])
        if new:
            shifted = net.add(net.emit(op.multiply(y, net.const(SLOPE))), net.const(OFFSET))
            x = net.emit(op.multiply(y, net.emit(op.clip(shifted, 0, 1))))
        else:
            gate = net.emit(op.clip(net.add(y, net.const(3)), 0, 6))
            x = net.emit(op.divide(net.emit(op.multiply(y, gate)), net.const(6)))
    return x


def _convert(network: Network, call: relax.Call) -> Any:
    """Make a hard sigmoid of a clip to [0, 1]; the product and the sum before it are read by nothing, and dropped."""
    total = network.layer_of(network.tensor(call.args[0]))
    product = network.layer_of(total.get_input(0))
    layer = network.net.add_activation(product.get_input(0), network.trt.ActivationType.HARD_SIGMOID)
    layer.alpha, layer.beta = SLOPE, OFFSET
    return network.name(layer).get_output(0)


_CLIP = REGISTRY.converters["relax.clip"]
WITH_LAYER = Registry({**REGISTRY.converters, "relax.clip": Converter(_CLIP.ops, _CLIP.accepts, _convert)})
