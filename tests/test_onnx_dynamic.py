"""Shape arithmetic on free axes: each kind as a small ONNX graph, at several sizes, against ONNX Runtime."""

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


def area(g: Graph) -> str:
    return g("Mul", g.extent("x", 2), g.extent("x", 3))


def reshape_minus_one(g: Graph) -> str:
    return g("Reshape", g("Relu", "x"), g.vector(g.extent("x", 0), -1))


def reshape_to_area(g: Graph) -> str:
    return g("Reshape", "x", g.vector(g.extent("x", 0), 4, area(g)))


def reshape_area_and_rest(g: Graph) -> str:
    return g("Reshape", "x", g.vector(-1, area(g), 2))


def reshape_zero_and_rest(g: Graph) -> str:
    return g("Reshape", "x", np.array([0, 2, -1]))


def reshape_by_reduced_shape(g: Graph) -> str:
    front = g("Slice", g("Shape", "x"), np.array([0]), np.array([2]))
    return g("Reshape", "x", g("Concat", g("ReduceProd", front, keepdims=1), np.array([-1]), axis=0))


def reshape_by_size(g: Graph) -> str:
    return g("Reshape", "x", g.vector(g("Div", g("Size", "x"), np.array(4)), 4))


def reshape_like(g: Graph) -> str:
    flat = g("Reshape", "x", g.vector(g.extent("x", 0), -1))
    return g("Reshape", g("Relu", flat), g("Shape", "x"))


def reshape_scattered_shape(g: Graph) -> str:
    shape = g("ScatterND", g("Shape", "x"), np.array([[1]]), g("Reshape", area(g), np.array([1])))
    return g("Reshape", "x", g("ScatterElements", shape, np.array([2, 3]), np.array([2, 2]), axis=0))


def heads(g: Graph) -> str:
    """Attention over all positions of an image, as a vision transformer has it."""
    n, positions = g.extent("x", 0), area(g)
    tokens = g("Transpose", g("Reshape", "x", g.vector(n, 4, positions)), perm=[0, 2, 1])
    q = g("Transpose", g("Reshape", tokens, g.vector(n, positions, 2, 2)), perm=[0, 2, 1, 3])
    scores = g("Softmax", g("MatMul", q, g("Transpose", q, perm=[0, 1, 3, 2])), axis=-1)
    mixed = g("Transpose", g("MatMul", scores, q), perm=[0, 2, 1, 3])
    return g("Reshape", mixed, g.vector(n, -1, 4))


def windows(g: Graph) -> str:
    """Window partition and its reverse, on sizes that are multiples of the window."""
    n, h, w = (g.extent("x", axis) for axis in (0, 2, 3))
    rows, columns = (g("Div", extent, np.array(4)) for extent in (h, w))
    apart = g("Reshape", "x", g.vector(n, 4, rows, 4, columns, 4))
    parts = g("Reshape", g("Transpose", apart, perm=[0, 2, 4, 1, 3, 5]), np.array([-1, 4, 4, 4]))
    parts = g("Softmax", parts, axis=-1)
    back = g("Reshape", parts, g.vector(n, rows, columns, 4, 4, 4))
    return g("Reshape", g("Transpose", back, perm=[0, 3, 1, 4, 2, 5]), g.vector(n, 4, h, w))


def group_norm(g: Graph) -> str:
    """Group normalisation as torch exports it: instance normalisation between two reshapes."""
    flat = g("Reshape", "x", np.array([0, 2, -1]))
    normal = g("InstanceNormalization", flat, np.ones(2, np.float32), np.zeros(2, np.float32))
    return g("Reshape", normal, g("Shape", "x"))


def flatten(g: Graph) -> str:
    return g("Flatten", "x", axis=2)


def grid_of_floats(g: Graph) -> str:
    """The anchor points of a detector: a meshgrid of Range(0.0, Cast(width), 1.0), moved to the middle of the cells."""
    h, w = g.extent("x", 2), g.extent("x", 3)
    across, down = (
        g("Add", g("Range", np.float32(0), g("Cast", end, to=onnx.TensorProto.FLOAT), np.float32(1)), np.float32(0.5))
        for end in (w, h)
    )
    shape = g.vector(h, w)
    across = g("Expand", g("Reshape", across, np.array([1, -1])), shape)
    down = g("Expand", g("Reshape", down, np.array([-1, 1])), shape)
    grid = g("Concat", *(g("Unsqueeze", part, np.array([-1])) for part in (across, down)), axis=-1)
    return g("Reshape", grid, np.array([-1, 2]))


def range_with_ends(g: Graph) -> str:
    w = g.extent("x", 3)
    return g("Range", w, g("Add", g("Mul", w, np.array(3)), np.array(1)), np.array(2))


def range_downwards(g: Graph) -> str:
    return g("Range", g("Sub", g.extent("x", 3), np.array(1)), np.array(-1), np.array(-1))


def range_of_known_length(g: Graph) -> str:
    n = g.extent("x", 0)
    return g("Range", n, g("Add", n, np.array(3)), np.array(1))


def expand_where(g: Graph) -> str:
    """What torch writes for expand(-1, h, w): a -1 in the shape stands for the extent that is there."""
    shape = g.vector(-1, 4, g.extent("x", 2), g.extent("x", 3))
    ones = g("ConstantOfShape", np.array([4]), value=onnx.numpy_helper.from_array(np.array([1])))
    chosen = g("Where", g("Equal", shape, np.array(-1)), ones, shape)
    return g("Expand", g("GlobalAveragePool", "x"), chosen)


def expand_rank(g: Graph) -> str:
    return g("Expand", np.ones((1, 1, 4), np.float32), g.vector(g.extent("x", 0), 3, 1))


def class_token(g: Graph) -> str:
    n = g.extent("x", 0)
    token = g("Expand", np.arange(4, dtype=np.float32).reshape(1, 1, 4), g.vector(n, 1, 1))
    tokens = g("Transpose", g("Reshape", "x", np.array([0, 4, -1])), perm=[0, 2, 1])
    return g("Concat", token, tokens, axis=1)


def tiled_token(g: Graph) -> str:
    return g("Tile", np.arange(8, dtype=np.float32).reshape(1, 2, 4), g.vector(g.extent("x", 0), 1, 1))


def tiled_twice(g: Graph) -> str:
    return g("Tile", "x", g.vector(1, 2, 1, g.extent("x", 0)))


def filled(g: Graph) -> str:
    value = onnx.numpy_helper.from_array(np.array([2.5], np.float32))
    zeros = g("ConstantOfShape", g.vector(g.extent("x", 0), 1, g.extent("x", 2), g.extent("x", 3)), value=value)
    return g("Concat", "x", zeros, axis=1)


def numbers_of_extents(g: Graph) -> str:
    """Extents that become data: positions scaled by the height, the square root of the area."""
    h = g("Cast", g.extent("x", 2), to=onnx.TensorProto.FLOAT)
    scaled = g("Div", g("Mul", "x", np.float32(2)), g("Sub", h, np.float32(0.5)))
    return g("Mul", scaled, g("Sqrt", g("Cast", area(g), to=onnx.TensorProto.FLOAT)))


def half_rounded(g: Graph) -> str:
    """floor(h * 0.5) and ceil(w / 3) in float32, as the old exporters calculate sizes."""
    h, w = (g("Cast", g.extent("x", axis), to=onnx.TensorProto.FLOAT) for axis in (2, 3))
    half = g("Cast", g("Floor", g("Mul", h, np.float32(0.5))), to=onnx.TensorProto.INT64)
    third = g("Cast", g("Ceil", g("Div", w, np.float32(3))), to=onnx.TensorProto.INT64)
    return g("Expand", np.ones((1, 1), np.float32), g.vector(half, third))


def smaller_side(g: Graph) -> str:
    least = g("Min", g.extent("x", 2), g.extent("x", 3))
    end = g.vector(least, g("Max", least, np.array(2)))
    return g("Slice", "x", np.array([0, 0]), end, np.array([2, 3]))


def modulo(g: Graph) -> str:
    rest = g("Mod", g.extent("x", 2), np.array(4))
    return g("Expand", np.ones((1,), np.float32), g.vector(g("Add", rest, np.array(1))))


def comparisons(g: Graph) -> str:
    n = g.extent("x", 0)
    true = g("And", g("Greater", n, np.array(-1)), g("Not", g("LessOrEqual", n, np.array(-1))))
    true = g("Or", true, g("Xor", g("GreaterOrEqual", n, np.array(0)), g("Less", n, np.array(0))))
    return g("Expand", np.ones((1, 1), np.float32), g.vector(g("Where", true, n, np.array(7)), 2))


def shape_of_part(g: Graph) -> str:
    """Shape with start and end, summed and accumulated."""
    tail = g("Shape", "x", start=-2)
    total = g("ReduceSum", tail, np.array([0]), keepdims=0)
    running = g("Gather", g("CumSum", tail, np.array(0)), np.array(1))
    return g(
        "Expand", np.ones((1, 1), np.float32), g.vector(total, g("Sub", running, g("ReduceMax", tail, keepdims=0)))
    )


CASES: dict[str, tuple[Build, Sizes]] = {
    build.__name__: (build, EVEN if build is windows else SIZES)
    for build in (
        reshape_minus_one,
        reshape_to_area,
        reshape_area_and_rest,
        reshape_zero_and_rest,
        reshape_by_reduced_shape,
        reshape_by_size,
        reshape_like,
        reshape_scattered_shape,
        heads,
        windows,
        group_norm,
        flatten,
        grid_of_floats,
        range_with_ends,
        range_downwards,
        range_of_known_length,
        expand_where,
        expand_rank,
        class_token,
        tiled_token,
        tiled_twice,
        filled,
        numbers_of_extents,
        half_rounded,
        smaller_side,
        modulo,
        comparisons,
        shape_of_part,
    )
}


@pytest.mark.parametrize("name", CASES)
def test_shape_arithmetic(name: str) -> None:
    build, sizes = CASES[name]
    g = Graph(x=IMAGE)
    check_sizes(g.model(build(g)), sizes)
