"""Layers on free axes: each kind as a small ONNX graph, at several sizes, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from dynamic_case import Graph, Sizes, check_sizes

SIZES: Sizes = ({"n": 1, "h": 8, "w": 12}, {"n": 3, "h": 16, "w": 4}, {"n": 2, "h": 9, "w": 7})
EVEN: Sizes = ({"n": 1, "h": 8, "w": 12}, {"n": 3, "h": 16, "w": 4})
IMAGE = ("n", 4, "h", "w")
Build = Callable[[Graph], str]


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def end_of_axis(g: Graph) -> str:
    return g("Gather", "x", np.array(-1), axis=2)


def ends_of_axis(g: Graph) -> str:
    return g("Gather", "x", np.array([0, -1, -2]), axis=3)


def sliced(*bounds: object) -> Build:
    return lambda g: g("Slice", "x", *(np.array(bound) for bound in bounds))


def halves(g: Graph) -> str:
    middle = g("Unsqueeze", g("Div", g.extent("x", 2), np.array(2)), np.array([0]))
    front = g("Slice", "x", np.array([0]), middle, np.array([2]))
    back = g("Slice", "x", middle, np.array([np.iinfo(np.int64).max]), np.array([2]))
    return g("Concat", back, front, axis=2)


def rolled(g: Graph) -> str:
    """A cyclic shift, as a shifted window has it."""
    front = g("Slice", "x", np.array([2]), np.array([np.iinfo(np.int64).max]), np.array([3]))
    return g("Concat", front, g("Slice", "x", np.array([0]), np.array([2]), np.array([3])), axis=3)


def padded_to_multiple(g: Graph) -> str:
    """Padding to a multiple of the window, as vision transformers have it."""
    rests = [g("Mod", g("Sub", np.array(4), g("Mod", g.extent("x", a), np.array(4))), np.array(4)) for a in (2, 3)]
    return g("Pad", "x", g.vector(0, 0, 0, 0, 0, 0, *rests))


def cropped(g: Graph) -> str:
    return g("Pad", "x", np.array([0, 0, -1, 0, 0, 0, 0, -2]))


def padded_in_mode(mode: str) -> Build:
    return lambda g: g("Pad", "x", np.array([0, 0, 1, 2, 0, 0, 2, 1]), mode=mode)


def resized(mode: str, coordinates: str, *factor: float, **attrs: object) -> Build:
    def build(g: Graph) -> str:
        scales = np.array([1, 1, *factor], np.float32)
        return g("Resize", "x", "", scales, mode=mode, coordinate_transformation_mode=coordinates, **attrs)

    return build


def of_tensorflow(g: Graph) -> str:
    """The coordinates that ONNX had in operator sets 11 and 12 only; written so by older converters of TensorFlow."""
    how = {"mode": "nearest", "coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}
    return g("Resize", "x", np.zeros(0, np.float32), np.array([1, 1, 2, 3], np.float32), **how)


def resized_like(mode: str, coordinates: str) -> Build:
    """A deep map scaled up to the size of a shallow one, as segmentation heads do."""

    def build(g: Graph) -> str:
        deep = g("MaxPool", "x", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        size = g("Slice", g("Shape", "x"), np.array([2]), np.array([4]))
        whole = g("Concat", g("Slice", g("Shape", deep), np.array([0]), np.array([2])), size, axis=0)
        up = g("Resize", deep, "", "", whole, mode=mode, coordinate_transformation_mode=coordinates)
        return g("Concat", up, "x", axis=1)

    return build


def resized_by_quotient(g: Graph) -> str:
    """Scales that an old exporter divides out of two sizes."""
    h, w = (g("Cast", g.extent("x", axis), to=onnx.TensorProto.FLOAT) for axis in (2, 3))
    rows = [g("Unsqueeze", g("Div", g("Mul", e, np.float32(3)), e), np.array([0])) for e in (h, w)]
    scales = g("Concat", np.ones(2, np.float32), *rows, axis=0)
    return g(
        "Resize", "x", "", scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )


def pooled(op: str, **attrs: object) -> Build:
    return lambda g: g(op, "x", **attrs)


def convolved(**attrs: object) -> Build:
    return lambda g: g("Conv", "x", weights(6, 4, 3, 3), weights(6), **attrs)


def transposed_convolution(g: Graph) -> str:
    return g("ConvTranspose", "x", weights(4, 3, 2, 2), strides=[2, 2])


def squeeze_and_excite(g: Graph) -> str:
    gate = g("Conv", g("GlobalAveragePool", "x"), weights(4, 4, 1, 1))
    return g("Mul", "x", g("HardSigmoid", gate))


def channel_shuffle(g: Graph) -> str:
    n, h, w = (g.extent("x", axis) for axis in (0, 2, 3))
    apart = g("Transpose", g("Reshape", "x", g.vector(n, 2, 2, h, w)), perm=[0, 2, 1, 3, 4])
    return g("Reshape", apart, g.vector(n, 4, h, w))


def space_to_depth(g: Graph) -> str:
    return g("DepthToSpace", g("SpaceToDepth", "x", blocksize=2), blocksize=2, mode="CRD")


def focus(g: Graph) -> str:
    far = np.iinfo(np.int64).max
    parts = [
        g("Slice", g("Slice", "x", np.array([a]), np.array([far]), np.array([2]), np.array([2])),
          np.array([b]), np.array([far]), np.array([3]), np.array([2]))
        for b in (0, 1) for a in (0, 1)
    ]  # fmt: skip
    return g("Concat", *parts, axis=1)


def split_channels(g: Graph) -> str:
    first, second = g("Split", "x", np.array([1, 3]), outputs=2, axis=1)
    return g("Concat", second, first, axis=1)


def normalised(g: Graph) -> str:
    last = g("Transpose", "x", perm=[0, 2, 3, 1])
    return g("LayerNormalization", last, weights(4), weights(4), axis=-1)


def projected(g: Graph) -> str:
    tokens = g("Transpose", g("Reshape", "x", np.array([0, 4, -1])), perm=[0, 2, 1])
    return g("Gemm", g("Reshape", tokens, np.array([-1, 4])), weights(4, 5), weights(5))


def summed(g: Graph) -> str:
    return g("Einsum", "x", "x", equation="nchw,nchw->nhw")


def accumulated(g: Graph) -> str:
    return g("CumSum", "x", np.array(2))


def best(g: Graph) -> str:
    rows = g("Reshape", "x", g.vector(g.extent("x", 0), -1))
    return g("TopK", rows, np.array([5]), outputs=2, axis=1)[0]


def causal_mask(g: Graph) -> str:
    """A triangular mask on scores of free size."""
    positions = g("Range", np.array(0), g.extent("x", 3), np.array(1))
    mask = g("GreaterOrEqual", g("Unsqueeze", positions, np.array([1])), g("Unsqueeze", positions, np.array([0])))
    scores = g("MatMul", g("Transpose", "x", perm=[0, 1, 3, 2]), "x")
    return g("Softmax", g("Where", mask, scores, np.float32(-1e9)), axis=-1)


def sampled(g: Graph) -> str:
    n = g.extent("x", 0)
    grid = g("Expand", weights(1, 3, 5, 2) / 2, g.vector(n, 3, 5, 2))
    return g("GridSample", "x", grid, mode="bilinear", padding_mode="zeros", align_corners=0)


LONG = np.iinfo(np.int64).max
CASES: dict[str, tuple[Build, Sizes]] = {
    "gather the end": (end_of_axis, SIZES),
    "gather both ends": (ends_of_axis, SIZES),
    "slice a known part": (sliced([0], [4], [3]), SIZES),
    "slice up to what there is": (sliced([1], [10], [3]), SIZES),
    "slice up to the end": (sliced([1], [10**9], [3]), SIZES),
    "slice without the ends": (sliced([1], [-1], [2]), SIZES),
    "slice the end": (sliced([-3], [LONG], [2]), SIZES),
    "slice every other": (sliced([1, 0], [LONG, LONG], [2, 3], [2, 3]), SIZES),
    "slice backwards": (sliced([-1], [-LONG], [2], [-1]), SIZES),
    "slice every other backwards": (sliced([-2], [0], [2], [-2]), SIZES),
    "slice channels and rows": (sliced([1, 1], [3, -1], [1, 2]), SIZES),
    "halves": (halves, SIZES),
    "roll": (rolled, SIZES),
    "pad to a multiple": (padded_to_multiple, SIZES),
    "crop": (cropped, SIZES),
    "pad reflect": (padded_in_mode("reflect"), SIZES),
    "pad edge": (padded_in_mode("edge"), SIZES),
    "resize nearest": (resized("nearest", "asymmetric", 2, 2, nearest_mode="floor"), SIZES),
    "resize linear": (resized("linear", "half_pixel", 2, 3), SIZES),
    "resize nearest, of TensorFlow": (of_tensorflow, SIZES),
    "resize aligned": (resized("linear", "align_corners", 2, 2), SIZES),
    "resize cubic": (resized("cubic", "half_pixel", 2, 2), SIZES),
    "resize to a half": (resized("linear", "half_pixel", 0.5, 0.5), EVEN),
    "resize by a fraction": (resized("nearest", "asymmetric", 1.5, 0.5, nearest_mode="floor"), EVEN),
    "resize like another": (resized_like("linear", "half_pixel"), SIZES),
    "resize like another, aligned": (resized_like("linear", "align_corners"), SIZES),
    "resize like another, nearest": (resized_like("nearest", "asymmetric"), SIZES),
    "resize by a quotient": (resized_by_quotient, SIZES),
    "max pool": (pooled("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), SIZES),
    "max pool, ceil": (pooled("MaxPool", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1), SIZES),
    "average pool, ceil": (pooled("AveragePool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1), SIZES),
    "average pool, ceil, padded": (
        pooled("AveragePool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1, count_include_pad=1),
        SIZES,
    ),
    "max pool, same": (pooled("MaxPool", kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"), SIZES),
    "average pool, same": (pooled("AveragePool", kernel_shape=[2, 3], auto_pad="SAME_LOWER"), SIZES),
    "max pool, ceil, wide steps": (pooled("MaxPool", kernel_shape=[2, 1], strides=[3, 3], ceil_mode=1), SIZES),
    "max pool, ceil, padded": (
        pooled("MaxPool", kernel_shape=[2, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1),
        SIZES,
    ),
    "average pool, ceil, padded, not counted": (
        pooled("AveragePool", kernel_shape=[2, 3], strides=[2, 3], pads=[1, 1, 0, 1], ceil_mode=1),
        SIZES,
    ),
    "lp pool, same": (pooled("LpPool", kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_LOWER"), SIZES),
    "global max pool": (pooled("GlobalMaxPool"), SIZES),
    "convolution": (convolved(strides=[2, 2], pads=[1, 1, 1, 1]), SIZES),
    "convolution, same": (convolved(auto_pad="SAME_UPPER"), SIZES),
    "convolution, same, strided": (convolved(strides=[2, 2], auto_pad="SAME_UPPER"), SIZES),
    "convolution, same lower": (convolved(auto_pad="SAME_LOWER", strides=[1, 3]), SIZES),
    "transposed convolution": (transposed_convolution, SIZES),
    "squeeze and excite": (squeeze_and_excite, SIZES),
    "channel shuffle": (channel_shuffle, SIZES),
    "space to depth": (space_to_depth, EVEN),
    "focus": (focus, EVEN),
    "split": (split_channels, SIZES),
    "layer norm": (normalised, SIZES),
    "gemm": (projected, SIZES),
    "einsum": (summed, SIZES),
    "cumsum": (accumulated, SIZES),
    "topk": (best, SIZES),
    "causal mask": (causal_mask, SIZES),
    "grid sample": (sampled, SIZES),
}


@pytest.mark.parametrize("name", CASES)
def test_layers(name: str) -> None:
    build, sizes = CASES[name]
    g = Graph(x=IMAGE)
    check_sizes(g.model(build(g), opset=11 if build is of_tensorflow else 17), sizes)
