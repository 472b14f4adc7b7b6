"""One network for all sizes: converters of compute operators whose input has symbolic extents, against LLVM."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from converter_case import calls_of, numbers, run
from tvm import relax

from relax_glue.tensorrt.converters import REGISTRY
from relax_glue.tensorrt.network import Network, build_network
from relax_glue.tensorrt.reference import evaluate

op = relax.op
nn = relax.op.nn
SIZES = {"n": (1, 3), "h": (8, 5), "w": (6, 9)}
Shape = tuple["int | str", ...]


def const(*shape: int) -> relax.Expr:
    return relax.const(numbers(*shape, seed=sum(shape)))


CASES: dict[str, tuple[Callable[..., relax.Expr], Shape]] = {
    "conv2d": (lambda x: nn.conv2d(x, const(4, 3, 3, 3), padding=1), ("n", 3, "h", "w")),
    "conv2d nhwc": (
        lambda x: nn.conv2d(x, const(3, 3, 3, 4), data_layout="NHWC", kernel_layout="HWIO"),
        ("n", "h", "w", 3),
    ),
    "conv2d and bias": (lambda x: op.add(nn.conv2d(x, const(4, 3, 3, 3)), const(4, 1, 1)), ("n", 3, "h", "w")),
    "conv1d": (lambda x: nn.conv1d(x, const(4, 3, 3), padding=(1, 0)), ("n", 3, "w")),
    "conv1d nwc": (
        lambda x: nn.conv1d(x, const(3, 3, 4), data_layout="NWC", kernel_layout="WIO"),
        ("n", "w", 3),
    ),
    "conv2d_transpose": (lambda x: nn.conv2d_transpose(x, const(3, 4, 3, 3), strides=2, padding=1), ("n", 3, "h", "w")),
    "max_pool2d": (lambda x: nn.max_pool2d(x, 3, 2, 1), ("n", 3, "h", "w")),
    "max_pool2d nhwc": (lambda x: nn.max_pool2d(x, 2, 2, layout="NHWC"), ("n", "h", "w", 3)),
    "avg_pool1d": (lambda x: nn.avg_pool1d(x, 3, 2, 1), ("n", 3, "w")),
    "avg_pool2d counting": (
        lambda x: nn.avg_pool2d(x, 3, 1, 1, count_include_pad=True),
        ("n", 3, "h", "w"),
    ),
    "adaptive_avg_pool2d": (lambda x: nn.adaptive_avg_pool2d(x, 1), ("n", 3, "h", "w")),
    "max_pool2d in ceil mode": (lambda x: nn.max_pool2d(x, 3, 2, 1, 1, True), ("n", 3, 8, 7)),
    "avg_pool2d in ceil mode": (
        lambda x: nn.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=True),
        ("n", 3, 8, 7),
    ),
    "dilated pool": (lambda x: nn.avg_pool2d(x, 2, 1, 0, 2), ("n", 3, 8, 7)),
    "ragged cells": (lambda x: nn.adaptive_avg_pool2d(x, (3, 4)), ("n", 3, 8, 7)),
    "output_padding": (
        lambda x: nn.conv2d_transpose(x, const(3, 4, 3, 3), strides=(2, 1), output_padding=(1, 0)),
        ("n", 3, 5, "w"),
    ),
    "argmax": (lambda x: op.argmax(x, 1), ("n", 5, "w")),
    "topk": (lambda x: op.topk(x, 3, 1), ("n", 5, "w")),
    "sort": (lambda x: op.sort(x, -1), ("n", 5)),
    "cumprod": (lambda x: op.cumprod(x, 1), ("n", 5, "w")),
    "causal attention": (
        lambda x: nn.attention(x, x, x, None, None, "TopLeft"),
        ("n", 5, 2, 4),
    ),
    "softmax": (lambda x: nn.softmax(x, 1), ("n", "w")),
    "softmax of a vector": (lambda x: nn.softmax(x, 0), ("w",)),
    "log_softmax": (lambda x: nn.log_softmax(x, -1), ("n", "w")),
    "prelu": (lambda x: nn.prelu(x, const(3), 1), ("n", 3, "w")),
    "broadcast": (lambda x: op.multiply(op.add(x, const(4)), const(3, 1)), ("n", 3, 4)),
    "matmul of more ranks": (lambda x: op.matmul(x, const(4, 5)), ("n", "h", 4)),
    "matmul of fewer ranks": (lambda x: op.matmul(x, const(2, 4, 5)), ("n", 4)),
    "matmul with a vector": (lambda x: op.matmul(x, const(4)), ("n", "h", 4)),
    "einsum": (lambda x: op.einsum([x, const(4, 5)], "...i,ij->...j"), ("n", "h", 4)),
    "mean": (lambda x: op.mean(x, [0, 2]), ("n", 3, "w")),
    "variance": (lambda x: op.variance(x, [1], True), ("n", "w")),
    "cumsum": (lambda x: op.cumsum(x, 1), ("n", "w")),
    "layer_norm": (lambda x: nn.layer_norm(x, const(4), const(4), [-1]), ("n", "h", 4)),
    "instance_norm": (lambda x: nn.instance_norm(x, const(3), const(3), 1, [2, 3]), ("n", 3, "h", "w")),
    "group_norm": (lambda x: nn.group_norm(x, const(4), const(4), 2, 1, [2, 3]), ("n", 4, "h", "w")),
    "group_norm nhwc": (lambda x: nn.group_norm(x, const(4), const(4), 2, 3, [1, 2]), ("n", "h", "w", 4)),
    "rms_norm": (lambda x: nn.rms_norm(x, const(4), [-1]), ("n", "h", 4)),
    "batch_norm": (
        lambda x: nn.batch_norm(
            x, const(3), const(3), const(3), relax.const(np.ones(3, np.float32)), axis=1, training=False
        ),
        ("n", 3, "w"),
    ),
    "attention": (
        lambda x: nn.attention(x, x, x, None, tvm.tirx.FloatImm("float32", 0.5)),
        ("n", "h", 2, 4),
    ),
}


def network_of(build: Callable[..., relax.Expr], shape: Shape) -> Network:
    """Return the network of an accepted call on one input whose named extents are symbolic."""
    extents = [tvm.tirx.Var(extent, "int64") if isinstance(extent, str) else extent for extent in shape]
    param = relax.Var("x", relax.TensorType(extents, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [param]):
        with builder.dataflow():
            result = builder.emit_output(build(param))
        builder.emit_func_output(result)
    module = builder.get()
    assert [REGISTRY.accepts(call) for call in calls_of(module)] == [None] * len(calls_of(module))
    return build_network(module["main"])


def plan_of(network: Network) -> object:
    """Build the plan for a range of sizes."""
    config = network.builder.config()
    profile = network.builder.builder.create_optimization_profile()
    given = network.net.get_input(0)
    least, usual, most = ([size if extent < 0 else extent for extent in given.shape] for size in (3, 6, 12))
    profile.set_shape(given.name, least, usual, most)
    config.add_optimization_profile(profile)
    return network.builder.builder.build_serialized_network(network.net, config)


@pytest.mark.parametrize("name", CASES)
def test_one_network_for_all_sizes(name: str) -> None:
    build, shape = CASES[name]
    network = network_of(build, shape)
    for which in (0, 1):
        sizes = [SIZES[extent][which] if isinstance(extent, str) else extent for extent in shape]
        x = numbers(*sizes)
        got = evaluate(network, [x])
        wanted = run(build, [x]).wanted
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    assert plan_of(network) is not None
