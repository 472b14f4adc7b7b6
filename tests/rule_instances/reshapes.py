"""Instances of rules of reshapes: chains of them, and reductions, matmuls and pointwise operators between them."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax
from tvm.relax import op

from relax_glue.testing import operators
from relax_glue.testing.graph import Value, literal

from .moves import RESHAPES
from .pointwise import any_binary, any_unary
from .scene import FLOATS, NUMBERS, SIGNED, Extent, NoInstance, Scene

REDUCTIONS = ("max", "min", "sum", "mean", "prod", "variance", "std")
MOMENTS = ("mean", "variance", "std")


def reshape(scene: Scene, value: Value, shape: list[Extent]) -> Value:
    """Reshape, in one of the spellings that give the shape."""
    if scene.choices.one_in(4) and math.prod(value.array.shape) and shape:
        shape = list(shape)
        shape[scene.choices.integer(0, len(shape) - 1)] = -1
    return scene.call(op.reshape(value.expr, shape), moves=True)


def nop_reshape(scene: Scene) -> Value:
    value = scene.tensor()
    if scene.choices.one_in(4):
        return scene.step(value, *RESHAPES)
    return reshape(scene, value, value.extents)


def reshape_of_reshape(scene: Scene) -> Value:
    if scene.choices.one_in(8):  # an axis that is 1, but not for certain, is no reshape's to drop
        value = scene.tensor([scene.symbol(1), 2, 3], dtypes=NUMBERS)
        dropped = scene.call(op.squeeze(value.expr, [0]), moves=True)
        return scene.step(dropped, operators.reshape)
    return scene.step(scene.step(scene.tensor(), *RESHAPES), *RESHAPES)


def reshape_spelled(scene: Scene) -> Value:
    if scene.choices.one_in(12):  # of what may have more elements than the result
        value = scene.tensor([scene.symbol(1), 2, 3], dtypes=NUMBERS)
        return scene.call(op.squeeze(value.expr, [0]), moves=True)
    return scene.step(scene.tensor(), *RESHAPES)


# -- reductions --------------------------------------------------------------------------------------------


def reduce(scene: Scene, value: Value, name: str, axes: list[int], keepdims: bool) -> Value:
    spelled = [scene.choices.spelling(axis, value.rank) for axis in axes]
    given = None if len(axes) == value.rank and scene.choices.one_in(2) else spelled
    return scene.call(getattr(op, name)(value.expr, given, keepdims))


def operand_of(scene: Scene, name: str, **options: object) -> Value:
    """Draw an operand of a reduction; TVM types the mean of integers as int64 and has no moments of them."""
    return scene.tensor(dtypes=FLOATS if name in MOMENTS else NUMBERS, **options)  # type: ignore[arg-type]


def reshape_of_reduction(scene: Scene) -> Value:
    name = scene.choices.item(REDUCTIONS)
    value = operand_of(scene, name)
    axes = scene.choices.subset(range(value.rank))
    keepdims = scene.choices.one_in(2)
    reduced = reduce(scene, value, name, axes, keepdims)
    if scene.choices.one_in(5):
        return scene.step(reduced, *RESHAPES)
    if keepdims:
        if scene.choices.one_in(2):
            return scene.call(op.squeeze(reduced.expr, axes), moves=True)
        return reshape(scene, reduced, [e for axis, e in enumerate(value.extents) if axis not in axes])
    if scene.choices.one_in(2):
        return scene.call(op.expand_dims(reduced.expr, axes), moves=True)
    return reshape(scene, reduced, [1 if axis in axes else e for axis, e in enumerate(value.extents)])


def _of_ones(scene: Scene, name: str, dtypes: tuple[str, ...]) -> Value:
    shape = scene.shape((2, 3))
    axes = sorted({scene.choices.integer(0, len(shape)) for _ in range(2)})
    for axis in axes:
        shape.insert(axis, 2 if scene.choices.one_in(8) else 1)
    value = scene.tensor(shape, dtypes=dtypes)
    return reduce(scene, value, name, axes, scene.choices.one_in(2))


def reduction_of_ones(scene: Scene) -> Value:
    name = scene.choices.item(("max", "min", "sum", "prod"))
    return _of_ones(scene, name, (*SIGNED, "uint8", "float32") if name != "prod" else NUMBERS)


def float_reduction_of_ones(scene: Scene) -> Value:
    return _of_ones(scene, scene.choices.item(("max", "min", "sum", "mean")), FLOATS)


def _of_reshape(scene: Scene, name: str) -> Value:
    """Join axes, or cut one, and reduce what came of it."""
    value = operand_of(scene, name)
    shaped = scene.step(value, *RESHAPES)
    if not shaped.rank:
        raise NoInstance("no axis is left to reduce")
    return reduce(scene, shaped, name, scene.choices.subset(range(shaped.rank)), scene.choices.one_in(2))


def _of_joined_axes(scene: Scene, name: str) -> Value:
    """Reduce all that a reshape joined, as a global pooling is spelled."""
    value = operand_of(scene, name, ranks=(3, 4))
    lead = scene.choices.integer(1, value.rank - 1)
    product: Extent = 1
    for extent in value.extents[lead:]:
        product = product * extent
    flat = reshape(scene, value, [*value.extents[:lead], product])
    return reduce(scene, flat, name, [lead], scene.choices.one_in(2))


def selection_of_reshape(scene: Scene) -> Value:
    name = scene.choices.item(("max", "min"))
    return scene.choices.item((_of_reshape, _of_joined_axes))(scene, name)


def sum_of_reshape(scene: Scene) -> Value:
    name = scene.choices.item(("mean", "sum", "prod", "variance", "std"))
    return scene.choices.item((_of_reshape, _of_joined_axes))(scene, name)


# -- matmuls -----------------------------------------------------------------------------------------------


def matrix(scene: Scene, shape: list[Extent], dtype: str) -> relax.Expr:
    """Draw a weight: a constant or a parameter."""
    if scene.choices.one_in(2) and all(isinstance(extent, int) for extent in shape):
        return scene.constant(shape, dtype)
    return scene.tensor(shape, dtype).expr


def linear(scene: Scene) -> Value:
    """Draw a linear layer over (b, s, d) as torch.export spells it, or one whose rows do not come back."""
    value = scene.tensor(ranks=(3, 2, 4), dtypes=FLOATS)
    rows: Extent = 1
    for extent in value.extents[:-1]:
        rows = rows * extent
    last, width = value.extents[-1], scene.choices.item((4, 2, 6))
    flat = reshape(scene, value, [rows, last])
    product = scene.call(op.matmul(flat.expr, matrix(scene, [last, width], value.dtype)))
    if scene.choices.one_in(2):
        bias = matrix(scene, [width if not scene.choices.one_in(6) else 1], value.dtype)
        pair = [product.expr, bias] if scene.choices.one_in(2) else [bias, product.expr]
        product = scene.call(op.add(*pair))
    if scene.choices.one_in(6):
        return scene.step(product, operators.reshape)
    tail = [width] if not scene.choices.one_in(3) else [2, width // 2]
    return reshape(scene, product, [*value.extents[:-1], *tail])


def attention(scene: Scene) -> Value:
    """Draw a product over one batch axis that was two, with an operand transposed or not."""
    batch: list[Extent] = [scene.choices.integer(1, 3), scene.choices.integer(1, 3)]
    if scene.choices.one_in(4):
        batch[0] = scene.symbol(2)
    m, k, n = (scene.choices.integer(1, 4) for _ in range(3))
    dtype = scene.dtype(FLOATS)
    joint = batch[0] * batch[1]
    left = reshape(scene, scene.tensor([*batch, m, k], dtype), [joint, m, k])
    if scene.choices.one_in(2):
        turned = reshape(scene, scene.tensor([*batch, n, k], dtype), [joint, n, k])
        right = scene.call(op.permute_dims(turned.expr, [0, 2, 1]), moves=True)
    else:
        right = reshape(scene, scene.tensor([*batch, k, n], dtype), [joint, k, n])
    if scene.choices.one_in(8):
        right = scene.tensor([joint, k, n], dtype)
    product = scene.call(op.matmul(left.expr, right.expr))
    shape = [*batch, m, n] if not scene.choices.one_in(6) else [joint, m * n]
    return reshape(scene, product, shape)


# -- pointwise operators, softmax and prelu ----------------------------------------------------------------


def pointwise_between(scene: Scene) -> Value:
    value = scene.tensor(dtypes=NUMBERS)
    shaped = scene.step(value, *RESHAPES)
    computed = any_unary(scene, shaped) if scene.choices.one_in(2) else any_binary(scene, shaped)
    if scene.choices.one_in(6):
        return scene.step(computed, *RESHAPES)
    if math.prod(computed.array.shape) != math.prod(value.array.shape):
        raise NoInstance("the operator broadcast its operand")
    return reshape(scene, computed, value.extents)


def softmax_between(scene: Scene) -> Value:
    value = scene.tensor(dtypes=FLOATS)
    shaped = scene.step(value, *RESHAPES)
    if not shaped.rank:
        raise NoInstance("a scalar has no axis")
    axis = scene.choices.spelling(scene.choices.integer(0, shaped.rank - 1), shaped.rank)
    make = scene.choices.item((op.nn.softmax, op.nn.log_softmax))
    return reshape(scene, scene.call(make(shaped.expr, axis)), value.extents)


def prelu_between(scene: Scene) -> Value:
    """Flatten, and give each element the slope of its channel, as TVM's TFLite importer does."""
    value = scene.tensor(dtypes=FLOATS, ranks=(3, 2, 4), static=scene.choices.one_in(2))
    first = scene.choices.integer(0, value.rank - 1)
    run = value.extents[first:]
    if not all(isinstance(extent, int) for extent in run):
        raise NoInstance("a slope for each of a symbolic number of elements cannot be written")
    flat = reshape(scene, value, [*value.extents[:first], math.prod(run)])
    own = scene.choices.integer(0, len(run) - 1)
    line = scene.data([extent if axis == own else 1 for axis, extent in enumerate(run)], value.dtype)
    repeated = literal(np.ascontiguousarray(np.broadcast_to(line, run)).reshape(-1))
    slope = repeated if not scene.choices.one_in(6) else scene.constant([math.prod(run)], value.dtype)
    axis = scene.choices.spelling(first, first + 1)
    return reshape(scene, scene.call(op.nn.prelu(flat.expr, slope, axis)), value.extents)


DRAWERS = {
    "nop-reshape": (nop_reshape,),
    "reshape-of-reshape": (reshape_of_reshape,),
    "reshape-normal-form": (reshape_spelled,),
    "reshape-of-reduction": (reshape_of_reduction,),
    "reduction-of-ones": (reduction_of_ones,),
    "float-reduction-of-ones": (float_reduction_of_ones,),
    "reduction-of-reshape": (selection_of_reshape,),
    "sum-of-reshape": (sum_of_reshape,),
    "linear-without-reshapes": (linear,),
    "matmul-without-reshapes": (attention,),
    "pointwise-between-reshapes": (pointwise_between,),
    "softmax-between-reshapes": (softmax_between,),
    "prelu-between-reshapes": (prelu_between,),
}
