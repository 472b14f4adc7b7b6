"""Instances of rules of arithmetic: idioms, chains of scales and shifts, equal operators, slices of sums."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax
from tvm.relax import op

from relax_glue.testing.graph import Value, literal

from . import layers
from .scene import FLOATS, Scene
from .slices import any_slice, cut

REDUCTIONS = ("sum", "mean", "max", "min", "prod", "variance", "std")


def number(scene: Scene, value: float, dtype: str) -> relax.Expr:
    """Make a constant of one element, as a scalar or with some axes, now and then of another value."""
    shape = scene.choices.item(((), (), (1,), (1, 1)))
    return literal(np.full(shape, value * (2 if scene.choices.one_in(40) else 1), dtype))


def commuted(scene: Scene, make: object, left: relax.Expr, right: relax.Expr) -> Value:
    pair = (left, right) if scene.choices.one_in(2) else (right, left)
    return scene.call(make(*pair))  # type: ignore[operator]


def _times_number(scene: Scene, value: Value, factor: float) -> Value:
    """Multiply by a number, or divide by its reciprocal."""
    if scene.choices.one_in(2):
        return scene.call(op.divide(value.expr, number(scene, 1 / factor, value.dtype)))
    return commuted(scene, op.multiply, value.expr, number(scene, factor, value.dtype))


def _cubed(scene: Scene, x: Value) -> Value:
    if scene.choices.one_in(2):
        return scene.call(op.power(x.expr, number(scene, 3.0, x.dtype)))
    return commuted(scene, op.multiply, scene.call(op.multiply(x.expr, x.expr)).expr, x.expr)


def gelu_by_hand(scene: Scene) -> Value:
    x = scene.tensor(dtypes=("float32", "float32", "float16"), ranks=(3, 2))
    if scene.choices.one_in(2):
        bent = scene.call(op.erf(_times_number(scene, x, math.sqrt(0.5)).expr))
    else:
        cubic = _times_number(scene, _cubed(scene, x), 0.044715)
        inner = commuted(scene, op.add, x.expr, cubic.expr)
        bent = scene.call(op.tanh(_times_number(scene, inner, math.sqrt(2 / math.pi)).expr))
    if scene.choices.one_in(16):
        scene.keep([bent])
    shifted = commuted(scene, op.add, bent.expr, number(scene, 1.0, x.dtype))
    if scene.choices.one_in(3):  # 0.5 * (x * (1 + t))
        return _times_number(scene, commuted(scene, op.multiply, x.expr, shifted.expr), 0.5)
    if scene.choices.one_in(2):  # (0.5 * x) * (1 + t)
        return commuted(scene, op.multiply, _times_number(scene, x, 0.5).expr, shifted.expr)
    return commuted(scene, op.multiply, x.expr, _times_number(scene, shifted, 0.5).expr)


def _square(scene: Scene, d: Value) -> Value:
    way = scene.choices.integer(0, 2)
    if way == 0:
        return scene.call(op.power(d.expr, number(scene, 2.0, d.dtype)))
    return scene.call(op.multiply(d.expr, d.expr) if way == 1 else op.square(d.expr))


def layer_norm_by_hand(scene: Scene) -> Value:
    x = scene.tensor(dtypes=("float32",), ranks=(3, 2))
    count = scene.choices.integer(1, x.rank - 1)
    axes = list(range(x.rank - count, x.rank)) if not scene.choices.one_in(8) else [0]
    d = scene.call(op.subtract(x.expr, scene.call(op.mean(x.expr, axes, keepdims=True)).expr))
    variance = scene.call(op.mean(_square(scene, d).expr, axes, keepdims=True))
    root = commuted(scene, op.add, variance.expr, number(scene, 1e-2, x.dtype))
    if scene.choices.one_in(16):
        scene.keep([d])
    if scene.choices.one_in(3):
        return commuted(scene, op.multiply, d.expr, scene.call(op.rsqrt(root.expr)).expr)
    return scene.call(op.divide(d.expr, scene.call(op.sqrt(root.expr)).expr))


def scale_into_layer_norm(scene: Scene) -> Value:
    x = scene.tensor(dtypes=("float32", "float32", "float16"), ranks=(3, 2), static=True)
    count = scene.choices.integer(1, x.rank - 1)
    extents = x.array.shape[x.rank - count :]
    gamma, beta = (scene.constant(extents, x.dtype) for _ in range(2))
    if scene.choices.one_in(10):
        gamma = scene.parameter(list(extents), x.dtype).expr
    norm = scene.call(op.nn.layer_norm(x.expr, gamma, beta, axes=list(range(-count, 0)), epsilon=1e-2))
    shape = [e if scene.choices.one_in(2) else 1 for e in extents]
    if scene.choices.one_in(8):
        shape = [x.array.shape[0], *[1] * (x.rank - 1)]
    return commuted(scene, scene.choices.item((op.multiply, op.add)), norm.expr, scene.constant(shape, x.dtype))


def affine_chain(scene: Scene) -> Value:
    value = scene.tensor(dtypes=("float32",), ranks=(3, 2))
    axis = scene.choices.item(value.axes())
    for _ in range(scene.choices.integer(2, 4)):
        constant = layers.per_channel(scene, value, axis)
        make = scene.choices.item((op.add, op.subtract, op.multiply, op.divide))
        if make is op.divide:
            value = scene.call(make(value.expr, literal(np.asarray(scene.choices.item((2.0, 3.0, 0.5)), "float32"))))
        else:
            value = commuted(scene, make, value.expr, constant)
        if scene.choices.one_in(12):
            scene.keep([value])
    return value


def scale_before_weight(scene: Scene) -> Value:
    if scene.choices.one_in(2):
        value = scene.tensor(ranks=(2, 3), dtypes=("float32", "float32", "float16"))
        scaled = layers.times(scene, value, layers.per_channel(scene, value, value.rank - 1))
        shape = [value.extents[-1], scene.choices.integer(1, 4)]
        constant = all(isinstance(extent, int) for extent in shape)
        weights = scene.constant(shape, value.dtype) if constant else scene.parameter(shape, value.dtype).expr
        return scene.call(op.matmul(scaled.expr, weights))
    n = scene.choices.item(layers.DIMS)
    layout = scene.choices.item(layers.layouts(n))
    channels = scene.choices.integer(1, 3)
    value = layers.image(scene, layout, channels, "float32")
    scaled = layers.times(scene, value, layers.per_channel(scene, value, layers.channel_axis(scene, value)))
    kernel_layout = scene.choices.item(layers.kernel_layouts(n))
    return layers.conv(scene, scaled, layout, channels, scene.choices.integer(1, 3), kernel_layout)


def _drawn_call(scene: Scene, value: Value) -> Callable[[relax.Expr], relax.Expr]:
    """Draw an operator with its attributes; what is returned makes the same call each time."""
    axis = scene.choices.integer(0, value.rank - 1)
    end = scene.choices.integer(1, value.array.shape[axis])
    shape = [*value.array.shape, 1] if scene.choices.one_in(2) else [1, *value.array.shape]
    axes = scene.choices.permutation(value.rank)
    makes = [
        lambda x: op.permute_dims(x, axes),
        lambda x: op.reshape(x, shape),
        lambda x: op.strided_slice(x, [axis], [0], [end]),
        lambda x: op.take(x, literal(np.zeros(end, "int64")), axis),
    ]
    if value.dtype in FLOATS:
        makes += [op.exp, op.sqrt, lambda x: op.sum(x, [axis], keepdims=True), lambda x: op.nn.softmax(x, axis)]
    return scene.choices.item(makes)


def merge_equal(scene: Scene) -> Value:
    value = scene.tensor(static=True)
    make = _drawn_call(scene, value)
    first, again = scene.call(make(value.expr)), scene.call(make(value.expr))
    if scene.choices.one_in(8):
        other = scene.call(_drawn_call(scene, value)(value.expr))
        again = other if other.extents == first.extents else again
    if scene.choices.one_in(12):
        scene.keep([first, again])
    return scene.call(op.concat([first.expr, again.expr], scene.choices.integer(0, first.rank - 1)))


def slice_of_reduction(scene: Scene) -> Value:
    dtype = scene.dtype(("float32", "int32", "int64"))
    value = scene.tensor(dtypes=(dtype,), ranks=(3, 2, 4))
    axes = scene.choices.subset(range(value.rank))
    names = REDUCTIONS if dtype in FLOATS else ("sum", "max", "min", "prod")
    make = getattr(op, scene.choices.item(names))
    reduced = scene.call(make(value.expr, axes or [0], keepdims=scene.choices.one_in(2)))
    if not reduced.rank:
        return reduced
    return cut(scene, reduced, scene.choices.integer(0, reduced.rank - 1))


def slice_of_matmul(scene: Scene) -> Value:
    inner, dtype = scene.choices.integer(1, 4), scene.dtype(("float32", "float32", "float16"))
    batch = [scene.choices.integer(1, 3) for _ in range(scene.choices.integer(0, 2))]
    shapes = []
    for tail in ([scene.choices.integer(1, 4), inner], [inner, scene.choices.integer(1, 4)]):
        own = [e if not scene.choices.one_in(3) else 1 for e in batch]
        shapes.append([*own[scene.choices.integer(0, len(own)) if scene.choices.one_in(3) else 0 :], *tail])
    if scene.choices.one_in(10):
        shapes[1] = [inner]
    operands = [scene.tensor(shape, dtype, static=True) for shape in shapes]
    product = scene.call(op.matmul(*(v.expr for v in operands)))
    return any_slice(scene, product) if scene.choices.one_in(3) else cut(scene, product, product.rank - 1)


DRAWERS = {
    "affine-chain": (affine_chain,),
    "gelu-by-hand": (gelu_by_hand,),
    "layer-norm-by-hand": (layer_norm_by_hand,),
    "merge-equal": (merge_equal,),
    "scale-before-weight": (scale_before_weight,),
    "scale-into-layer-norm": (scale_into_layer_norm,),
    "slice-of-matmul": (slice_of_matmul,),
    "slice-of-reduction": (slice_of_reduction,),
}
