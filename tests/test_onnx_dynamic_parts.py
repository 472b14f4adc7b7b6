"""Parts of models with free sizes, as their exporters write them, at several sizes, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from dynamic_case import Graph, Sizes, check_sizes

import relax_glue

SIZES: Sizes = ({"n": 1, "h": 8, "w": 12}, {"n": 3, "h": 16, "w": 4}, {"n": 2, "h": 9, "w": 7})
IMAGE = ("n", 4, "h", "w")
INT64 = onnx.TensorProto.INT64
LONG = np.iinfo(np.int64).max
Build = Callable[[Graph], str]


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def part(g: Graph, x: str, axis: int, begin: int, end: int) -> str:
    return g("Slice", x, np.array([begin]), np.array([end]), np.array([axis]))


def unet_with_padding(g: Graph) -> str:
    """The way up of a U-Net: what was scaled up is padded by what halving lost on odd sizes."""
    deep = g("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2])
    up = g("ConvTranspose", deep, weights(4, 4, 2, 2), strides=[2, 2])
    lost = [g("Sub", g.extent("x", axis), g.extent(up, axis)) for axis in (2, 3)]
    before = [g("Div", amount, np.array(2)) for amount in lost]
    after = [g("Sub", amount, first) for amount, first in zip(lost, before, strict=True)]
    padded = g("Pad", up, g.vector(0, 0, *before, 0, 0, *after))
    return g("Conv", g("Concat", "x", padded, axis=1), weights(4, 8, 3, 3), pads=[1, 1, 1, 1])


def best_rows(g: Graph) -> str:
    """The end of a detector without suppression: the best rows by score, gathered, and index arithmetic on classes."""
    rows = g("Transpose", g("Reshape", "x", np.array([0, 4, -1])), perm=[0, 2, 1])
    boxes, scores = part(g, rows, 2, 0, 2), part(g, rows, 2, 2, LONG)
    _, index = g("TopK", g("ReduceMax", scores, axes=[2], keepdims=0), np.array([6]), outputs=2, axis=1)
    column = g("Unsqueeze", index, np.array([-1]))
    boxes = g("GatherElements", boxes, g("Tile", column, np.array([1, 1, 2])), axis=1)
    scores = g("GatherElements", scores, g("Expand", column, np.array([1, 1, 2])), axis=1)
    best, at = g("TopK", g("Flatten", scores), np.array([6]), outputs=2, axis=1)
    row = g("Unsqueeze", g("Div", at, np.array(2)), np.array([-1]))
    kind = g("Cast", g("Mod", at, np.array(2)), to=onnx.TensorProto.FLOAT)
    boxes = g("GatherElements", boxes, g("Expand", row, np.array([1, 1, 2])), axis=1)
    columns = [g("Unsqueeze", value, np.array([-1])) for value in (best, kind)]
    return g("Concat", boxes, *columns, axis=-1)


def token_at_the_maximum(g: Graph) -> str:
    """x[arange(n), argmax]: how a text encoder picks the end of each text."""
    rows = g("Transpose", g("Reshape", "x", np.array([0, 4, -1])), perm=[0, 2, 1])
    at = g("ArgMax", g("ReduceSum", rows, np.array([2]), keepdims=0), axis=1, keepdims=0)
    batch = g("Range", np.array(0), g.extent("x", 0), np.array(1))
    index = g("Concat", *(g("Unsqueeze", value, np.array([-1])) for value in (batch, at)), axis=-1)
    return g("GatherND", rows, index)


def sine_positions(g: Graph) -> str:
    """Positions counted over a mask, scaled by the last one, and turned into sines (DETR)."""
    mask = g("Expand", np.ones((1, 1, 1), np.float32), g.vector(g.extent("x", 0), g.extent("x", 2), g.extent("x", 3)))
    down = g("CumSum", mask, np.array(1))
    last = part(g, down, 1, -1, LONG)
    scaled = g("Mul", g("Div", down, g("Add", last, np.float32(1e-6))), np.float32(2 * np.pi))
    angles = g("Div", g("Unsqueeze", scaled, np.array([-1])), np.array([1, 10, 100, 1000], np.float32))
    sines = [g(op, g("Slice", angles, *(np.array([v]) for v in (a, LONG, 3, 2)))) for op, a in (("Sin", 0), ("Cos", 1))]
    stacked = g("Concat", *(g("Unsqueeze", s, np.array([4])) for s in sines), axis=4)
    flat = g("Reshape", stacked, g.vector(*(g.extent("x", axis) for axis in (0, 2, 3)), -1))
    return g("Add", "x", g("Transpose", flat, perm=[0, 3, 1, 2]))


def interpolated_positions(g: Graph) -> str:
    """A learned grid of positions, scaled to the grid of the image (vision transformers at any size)."""
    size = g.vector(1, 4, g.extent("x", 2), g.extent("x", 3))
    grid = g("Resize", weights(1, 4, 5, 5), "", "", size, mode="cubic", coordinate_transformation_mode="half_pixel")
    tokens = [g("Transpose", g("Reshape", value, np.array([0, 4, -1])), perm=[0, 2, 1]) for value in ("x", grid)]
    return g("Add", *tokens)


def pooled_context(g: Graph) -> str:
    """One value of the whole image, stretched over it and joined (atrous pyramid)."""
    size = g.vector(g.extent("x", 0), 4, g.extent("x", 2), g.extent("x", 3))
    wide = g("Resize", g("GlobalAveragePool", "x"), "", "", size, mode="linear")
    return g("Concat", "x", wide, axis=1)


def deformable_attention(g: Graph) -> str:
    """Heads folded into the batch, and sampled at computed places."""
    n = g.extent("x", 0)
    heads = g("Reshape", "x", g.vector(g("Mul", n, np.array(2)), 2, g.extent("x", 2), g.extent("x", 3)))
    places = g("Tanh", g("Reshape", part(g, g("Reshape", "x", np.array([0, -1])), 1, 0, 24), np.array([-1, 3, 2, 2])))
    sampled = g("GridSample", heads, places, mode="bilinear", padding_mode="zeros", align_corners=0)
    return g("Reshape", sampled, g.vector(n, 4, 3, 2))


def chunks(g: Graph) -> str:
    first, second = g("Split", "x", np.array([2, 2]), outputs=2, axis=1)
    left = g("Split", g("Concat", first, first, axis=0), outputs=2, axis=0)
    return g("Mul", g("Mul", *left), g("Sigmoid", second))


def triangle(g: Graph) -> str:
    w = g.extent("x", 3)
    ones = g("ConstantOfShape", g.vector(w, w), value=onnx.numpy_helper.from_array(np.ones(1, np.float32)))
    scores = g("MatMul", g("Transpose", "x", perm=[0, 1, 3, 2]), "x")
    return g("Mul", scores, g("Trilu", ones, upper=0))


def one_hot(g: Graph) -> str:
    labels = g("ArgMax", "x", axis=1, keepdims=0)
    return g("OneHot", labels, np.array(4), np.array([0, 1], np.float32), axis=1)


def reduced(g: Graph) -> str:
    norm = g("ReduceL2", "x", axes=[1], keepdims=1)
    return g("Div", "x", g("Clip", norm, np.array(1e-6, np.float32)))


def pixel_shuffle(g: Graph) -> str:
    n, h, w = (g.extent("x", axis) for axis in (0, 2, 3))
    apart = g("Transpose", g("Reshape", "x", g.vector(n, 1, 2, 2, h, w)), perm=[0, 1, 4, 2, 5, 3])
    return g("Reshape", apart, g.vector(n, 1, g("Mul", h, np.array(2)), g("Mul", w, np.array(2))))


def signal(g: Graph) -> str:
    """Layers of one axis: audio of any length."""
    flat = g("Reshape", "x", np.array([0, 4, -1]))
    deep = g("Conv", flat, weights(6, 4, 3), strides=[2], pads=[1, 1])
    return g("ConvTranspose", g("MaxPool", deep, kernel_shape=[2], strides=[1]), weights(6, 2, 3), strides=[2])


def patches_with_conv(g: Graph) -> str:
    """Patch embedding, class token, positions, and one block of attention."""
    patches = g("Conv", "x", weights(6, 4, 4, 4), strides=[4, 4])
    tokens = g("Transpose", g("Reshape", patches, np.array([0, 6, -1])), perm=[0, 2, 1])
    token = g("Expand", weights(1, 1, 6), g.vector(g.extent("x", 0), 1, 6))
    tokens = g("Concat", token, tokens, axis=1)
    n, t = g.extent(tokens, 0), g.extent(tokens, 1)
    qkv = g("Reshape", g("MatMul", tokens, weights(6, 18)), g.vector(n, t, 3, 2, 3))
    q, k, v = (g("Gather", g("Transpose", qkv, perm=[2, 0, 3, 1, 4]), np.array(i), axis=0) for i in range(3))
    scores = g("Softmax", g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2])), axis=-1)
    mixed = g("Reshape", g("Transpose", g("MatMul", scores, v), perm=[0, 2, 1, 3]), g.vector(n, t, 6))
    return g("Gather", mixed, np.array(0), axis=1)


def embedded_text(g: Graph) -> str:
    """Embeddings of words and of as many positions as there are, and attention under a mask (texts of any length)."""
    ids = g("Cast", g("Abs", g("Gather", g("Gather", "x", np.array(0), axis=1), np.array(0), axis=1)), to=INT64)
    length = g("Unsqueeze", g.extent(ids, 1), np.array([0]))
    places = g("Slice", np.arange(16)[None], np.array([0]), length, np.array([1]))
    tokens = g("Add", g("Gather", weights(9, 6), ids), g("Gather", weights(16, 6), places))
    mask = g("Cast", g("Greater", ids, np.array(0)), to=onnx.TensorProto.FLOAT)
    wide = g("Expand", g("Unsqueeze", mask, np.array([1, 2])), g.vector(g.extent(ids, 0), 1, g.extent(ids, 1), 1))
    penalty = g("Mul", g("Sub", np.float32(1), wide), np.float32(-1e4))
    scores = g("MatMul", tokens, g("Transpose", tokens, perm=[0, 2, 1]))
    return g("MatMul", g("Softmax", g("Add", scores, g("Squeeze", penalty, np.array([1]))), axis=-1), tokens)


def causal_bias(g: Graph) -> str:
    """A stored triangle, cut to the lengths of queries and keys: bias[:, :, k - q : k, :k]."""
    triangle = np.tril(np.ones((1, 1, 16, 16), bool))
    q, k = g.extent("x", 3), g.extent("x", 3)
    begin, end = (g("Unsqueeze", value, np.array([0])) for value in (g("Sub", k, q), k))
    rows = g("Slice", g("Slice", triangle, begin, end, np.array([2])), np.array([0]), end, np.array([3]))
    scores = g("MatMul", g("Transpose", "x", perm=[0, 1, 3, 2]), "x")
    return g("Softmax", g("Where", rows, scores, np.float32(-1e4)), axis=-1)


def old_arange(g: Graph) -> str:
    """arange before there was Range: the places of what is not zero in a tensor of ones."""
    length = g("Unsqueeze", g.extent("x", 3), np.array([0]))
    ones = g("ConstantOfShape", length, value=onnx.numpy_helper.from_array(np.ones(1, np.int64)))
    places = g("Squeeze", g("Transpose", g("NonZero", ones), perm=[1, 0]), np.array([1]))
    return g("Add", "x", g("Mul", g("Cast", places, to=onnx.TensorProto.FLOAT), np.float32(0.5)))


PARTS: dict[str, Build] = {
    build.__name__: build
    for build in (
        unet_with_padding,
        best_rows,
        token_at_the_maximum,
        sine_positions,
        interpolated_positions,
        pooled_context,
        deformable_attention,
        chunks,
        triangle,
        one_hot,
        reduced,
        pixel_shuffle,
        signal,
        patches_with_conv,
        embedded_text,
        causal_bias,
        old_arange,
    )
}


@pytest.mark.parametrize("name", PARTS)
def test_parts(name: str) -> None:
    g = Graph(x=IMAGE)
    machines = check_sizes(g.model(PARTS[name](g)), SIZES)
    report = relax_glue.explain(machines.mod)
    assert not report.outside, str(report)
    assert len(report.regions) == 1, str(report)
