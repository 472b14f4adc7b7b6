"""The pairs of `left_out` that are cut out of transformers: products of one operand, one token of the last block."""

from __future__ import annotations

import numpy as np
from left_out_net import Net, shape_of
from tvm import relax
from tvm.relax import op


def qkv(net: Net, x: relax.Var, new: bool, heads: int, one_permute: bool, blocks: int) -> relax.Expr:
    """Query, key and value are products of one operand: three products, or one that is cut into three.

    It is split, and each part brought into heads; or, `one_permute`, brought into heads as one and cut then.
    """
    for k in range(blocks):
        normal = net.layer_norm(f"n{k}", x)
        if not new:
            parts = [_heads(net, p, heads) for p in _three_products(net, f"b{k}", normal)]
        elif one_permute:
            parts = _cut_heads(net, _one_product(net, f"b{k}", normal), heads)
        else:
            parts = [_heads(net, p, heads) for p in net.split(_one_product(net, f"b{k}", normal), 3, 2)]
        y = net.add(x, net.named_linear(f"o{k}", attention(net, *parts), shape_of(x)[-1]))
        x = net.add(y, net.mlp(f"m{k}", net.layer_norm(f"l{k}", y)))
    return x


def _weights(net: Net, name: str, width: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(net.weight(f"{name}.{p}", width, width), net.weight(f"{name}.{p}.bias", width)) for p in "qkv"]


def _three_products(net: Net, name: str, x: relax.Var) -> list[relax.Var]:
    return [net.linear(x, *weights) for weights in _weights(net, name, shape_of(x)[-1])]


def _one_product(net: Net, name: str, x: relax.Var) -> relax.Var:
    weights, biases = zip(*_weights(net, name, shape_of(x)[-1]), strict=True)
    return net.linear(x, np.concatenate(weights), np.concatenate(biases))


def _heads(net: Net, x: relax.Var, heads: int) -> relax.Var:
    """Bring (batch, tokens, width) into heads: (batch, heads, tokens, width)."""
    batch, tokens, width = shape_of(x)
    return net.permute(net.reshape(x, batch, tokens, heads, width // heads), 0, 2, 1, 3)


def _cut_heads(net: Net, x: relax.Var, heads: int) -> list[relax.Var]:
    """Bring (batch, tokens, 3 * width) into heads, and cut them into three."""
    batch, tokens, width = shape_of(x)
    shape = (batch, heads, tokens, width // 3 // heads)
    whole = net.permute(net.reshape(x, batch, tokens, 3, heads, shape[-1]), 2, 0, 3, 1, 4)
    return [net.reshape(net.cut(whole, 0, k, k + 1), *shape) for k in range(3)]


def attention(net: Net, query: relax.Var, key: relax.Var, value: relax.Var) -> relax.Var:
    """Attend with heads (batch, heads, tokens, width), and bring them back into (batch, tokens, width)."""
    return _flat(net, net.emit(op.matmul(_weighed(net, query, key), value)))


def _flat(net: Net, x: relax.Var) -> relax.Var:
    batch, heads, tokens, width = shape_of(x)
    return net.reshape(net.permute(x, 0, 2, 1, 3), batch, tokens, heads * width)


def _weighed(net: Net, query: relax.Var, key: relax.Var) -> relax.Var:
    """Return the softmax of the scaled products of queries and keys (.., tokens, width)."""
    scores = net.emit(op.matmul(query, net.permute(key, 0, 1, 3, 2)))
    scaled = net.emit(op.multiply(scores, net.const(shape_of(query)[-1] ** -0.5)))
    return net.emit(op.nn.softmax(scaled, axis=-1))


def first_token(net: Net, x: relax.Var, new: bool, heads: int, blocks: int = 4) -> relax.Expr:
    """The classifier reads one token of the last block: the whole block is computed, or what is read of it."""
    for k in range(blocks):
        normal = read = net.layer_norm(f"n{k}", x)
        if new and k == blocks - 1:  # keys and values are those of all tokens
            x, read = net.cut(x, 1, 0, 1), net.cut(normal, 1, 0, 1)
        weights = zip((read, normal, normal), _weights(net, f"b{k}", shape_of(x)[-1]), strict=True)
        parts = [_heads(net, net.linear(y, *w), heads) for y, w in weights]
        y = net.add(x, net.named_linear(f"o{k}", attention(net, *parts), shape_of(x)[-1]))
        x = net.add(y, net.mlp(f"m{k}", net.layer_norm(f"l{k}", y)))
    x = net.layer_norm("last", x)
    token = net.reshape(x if new else net.cut(x, 1, 0, 1), 1, shape_of(x)[-1])
    return net.named_linear("classes", token, 1000)


def axial_attention(net: Net, x: relax.Var, new: bool, heads: int, back: bool = True, blocks: int = 4) -> relax.Expr:
    """The batch axes of the operands are permuted, or those of the product; there and back, they need not be.

    With `back` the two permutes of the batch axes cancel; without, one moves behind the scores.
    """
    for k in range(blocks):
        turned = [net.permute(_normal(net, f"{p}{k}", x, heads), 1, 0, 2, 3) for p in "qkv"]
        straight = [_normal(net, f"{p}{k}", x, heads) for p in "qkv"]
        if not new:
            met = net.emit(op.matmul(_weighed(net, *turned[:2]), turned[2]))
            met = net.permute(met, 1, 0, 2, 3)
        elif back:
            met = net.emit(op.matmul(_weighed(net, *straight[:2]), straight[2]))
        else:
            scores = net.permute(_weighed(net, *straight[:2]), 1, 0, 2, 3)
            met = net.permute(net.emit(op.matmul(scores, turned[2])), 1, 0, 2, 3)
        x = net.add(x, net.named_linear(f"o{k}", _flat(net, met), shape_of(x)[-1]))
    return x


def _normal(net: Net, name: str, x: relax.Var, heads: int) -> relax.Var:
    """Return a normalised linear map (batch, heads, tokens, width), as models normalise queries and keys."""
    made = _heads(net, net.named_linear(name, x, shape_of(x)[-1]), heads)
    return net.layer_norm(f"{name}.norm", made)
