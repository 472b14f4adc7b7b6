"""Instances of rules of permutes, broadcasts, pads and takes."""

from __future__ import annotations

import math

import numpy as np
from tvm.relax import op

from relax_glue.testing import indexing, operators
from relax_glue.testing.graph import MAX_RANK, Value, literal

from .scene import DTYPES, NUMBERS, NoInstance, Scene, Step

RESHAPES: tuple[Step, ...] = (operators.reshape, operators.expand_dims, operators.squeeze, operators.flatten)
PERMUTES: tuple[Step, ...] = (operators.permute_dims, operators.permute_dims, indexing.layout_transform)


def chain(scene: Scene, *links: tuple[Step, ...] | Step, static: bool = False) -> Value:
    """Draw an operand and one step of each link on what came before."""
    value = scene.tensor(static=static)
    for link in links:
        value = scene.step(value, *(link if isinstance(link, tuple) else (link,)))
    return value


# -- permutes ----------------------------------------------------------------------------------------------


def permute(scene: Scene, value: Value, axes: list[int]) -> Value:
    names = [scene.choices.spelling(axis, value.rank) for axis in axes]
    return scene.call(op.permute_dims(value.expr, names), moves=True)


def nop_permute(scene: Scene) -> Value:
    value = scene.tensor()
    return permute(scene, value, list(range(value.rank)))


def permute_of_ones(scene: Scene) -> Value:
    """Move the ones of a shape, and now and then something else."""
    shape = scene.shape((2, 3, 4))
    for _ in range(scene.choices.integer(1, 2)):
        shape.insert(scene.choices.integer(0, len(shape)), 1)
    value = scene.tensor(shape)
    ones = [axis for axis, extent in enumerate(shape) if extent == 1]
    order = [axis for axis in range(len(shape)) if axis not in ones]
    for one in ones:
        order.insert(scene.choices.integer(0, len(order)), one)
    return permute(scene, value, order if not scene.choices.one_in(6) else scene.choices.permutation(len(shape)))


def permute_spelled(scene: Scene) -> Value:
    return chain(scene, PERMUTES)


def permute_of_permute(scene: Scene) -> Value:
    if scene.choices.one_in(8):  # a layout that blocks an axis is no permute
        blocked = scene.tensor([2, scene.choices.item((2, 4))], dtypes=NUMBERS)
        moved = scene.call(op.layout_transform(blocked.expr, lambda a, b: (a, b // 2, b % 2)), moves=True)
        return scene.step(moved, operators.permute_dims)
    return chain(scene, PERMUTES, PERMUTES)


def shuffle(scene: Scene) -> Value:
    return chain(scene, *[(*RESHAPES, *PERMUTES)] * scene.choices.integer(2, 5), static=not scene.choices.one_in(3))


def window_round_trip(scene: Scene) -> Value:
    """Cut axes in two, permute, and bring all of it back, or nearly."""
    value = scene.tensor([scene.choices.item((4, 2, 6, 8)) for _ in range(scene.choices.integer(2, 3))])
    cut = scene.step(value, operators.reshape)
    order = scene.choices.permutation(cut.rank)
    moved = permute(scene, cut, order)
    back = permute(scene, moved, [int(a) for a in np.argsort(order)])
    return scene.call(op.reshape(back.expr, list(value.extents)), moves=True)


# -- broadcasts --------------------------------------------------------------------------------------------


def broadcast(scene: Scene, value: Value) -> Value:
    return scene.step(value, operators.broadcast_to)


def thin(scene: Scene, dtypes: tuple[str, ...] = DTYPES) -> Value:
    """Draw an operand with extents of 1."""
    shape = [scene.choices.item((1, 2, 1, 3)) for _ in range(scene.choices.integer(1, 4))]
    if scene.choices.one_in(4) and any(extent > 1 for extent in shape):
        axis = scene.choices.item([a for a, extent in enumerate(shape) if extent > 1])
        shape[axis] = scene.symbol(shape[axis])
    return scene.tensor(shape, dtypes=dtypes)


def nop_broadcast(scene: Scene) -> Value:
    value = thin(scene)
    if scene.choices.one_in(4):
        return broadcast(scene, value)
    return scene.call(op.broadcast_to(value.expr, value.extents), moves=True)


def broadcast_of_broadcast(scene: Scene) -> Value:
    return broadcast(scene, broadcast(scene, thin(scene)))


def leading_ones(scene: Scene, value: Value) -> Value:
    more = scene.choices.integer(1, MAX_RANK - value.rank)
    shape = [*[1] * more, *value.extents]
    return scene.call(op.reshape(value.expr, shape), moves=True)


def broadcast_of_leading_ones(scene: Scene) -> Value:
    value = thin(scene)
    lifted = scene.step(value, operators.expand_dims) if scene.choices.one_in(3) else leading_ones(scene, value)
    return broadcast(scene, lifted)


def broadcast_to_reshape(scene: Scene) -> Value:
    value = thin(scene)
    more = [1] * scene.choices.integer(0, 2) + ([2] if scene.choices.one_in(4) else [1])
    return scene.call(op.broadcast_to(value.expr, [*more, *value.extents]), moves=True)


def repetition(scene: Scene) -> Value:
    return scene.step(thin(scene), operators.tile, operators.repeat)


# -- pads --------------------------------------------------------------------------------------------------


def pad(scene: Scene, value: Value, low: int, high: int, filling: float, mode: str = "constant") -> Value:
    """Pad every axis of a static extent by low to high; negative widths cut less than there is."""
    widths: list[int] = []
    for dim in value.dims:
        bounds = (max(low, -(dim // 2)), high) if isinstance(dim, int) else (0, 0)
        pair = [scene.choices.integer(*bounds), scene.choices.integer(*bounds)]
        widths += pair if not isinstance(dim, int) or dim + sum(pair) > 0 else [0, 0]
    return scene.call(op.nn.pad(value.expr, widths, mode, filling), moves=True)


def nop_pad(scene: Scene) -> Value:
    value = scene.tensor()
    mode = scene.choices.item(("constant", "reflect", "replicate", "circular"))
    return pad(scene, value, 0, 0 if mode != "constant" or not scene.choices.one_in(4) else 1, 0.0, mode)


FILLINGS = (0.0, 1.0, -0.0, 3.0)


def filling(scene: Scene, dtype: str) -> float:
    value = scene.choices.item(FILLINGS)
    return 1.0 if dtype == "bool" and value == 3.0 else value


def pad_of_pad(scene: Scene) -> Value:
    value = scene.tensor(ranks=(2, 3, 1))
    first = filling(scene, value.dtype)
    second = first if not scene.choices.one_in(4) else filling(scene, value.dtype)
    low = -1 if scene.choices.one_in(5) else 0
    return pad(scene, pad(scene, value, low, 2, first), 0, 2, second)


def pad_to_slice(scene: Scene) -> Value:
    return pad(scene, scene.tensor(ranks=(2, 3, 1)), -2, 1 if scene.choices.one_in(4) else 0, 1.0)


# -- takes -------------------------------------------------------------------------------------------------


def take(scene: Scene, value: Value, indices: np.ndarray, axis: int, mode: str = "fast") -> Value:
    name = scene.choices.spelling(axis, value.rank)
    typed = indices.astype(scene.choices.item(("int64", "int32")))
    return scene.call(op.take(value.expr, literal(typed), name, mode), moves=True)


def axis_of(scene: Scene, value: Value, least: int = 1) -> int:
    axes = value.axes(least)
    if not axes:
        raise NoInstance("no static axis is long enough")
    return scene.choices.item(axes)


def random_indices(scene: Scene, size: int, rank_one: bool = False) -> np.ndarray:
    shape = scene.choices.item([(2,), (3,), (1,), (4,)] if rank_one else [(2,), (), (3,), (2, 2), (1, 2)])
    count = math.prod(shape)
    return np.array([scene.choices.integer(0, size - 1) for _ in range(count)], "int64").reshape(shape)


def any_take(scene: Scene) -> Value:
    return scene.step(scene.tensor(), indexing.take)


def take_of_take(scene: Scene) -> Value:
    value = scene.tensor()
    axis = axis_of(scene, value)
    first = take(scene, value, random_indices(scene, value.array.shape[axis], not scene.choices.one_in(4)), axis)
    second = axis if not scene.choices.one_in(4) else axis_of(scene, first)
    if second >= first.rank or not isinstance(first.dims[second], int):
        raise NoInstance("the first take left no such axis")
    return take(scene, first, random_indices(scene, first.array.shape[second]), second)


def take_of_slice(scene: Scene) -> Value:
    value = scene.tensor()
    axis = axis_of(scene, value, 2)
    inner = scene.step(value, operators.strided_slice, operators.split)
    if not inner.array.shape[axis]:
        raise NoInstance("the slice is empty")
    return take(scene, inner, random_indices(scene, inner.array.shape[axis]), axis)


def cut_and_take(scene: Scene) -> Value:
    """Cut one axis, and take along it."""
    value = scene.tensor()
    axis = axis_of(scene, value, 3)
    size = value.array.shape[axis]
    begin = scene.choices.integer(0, size - 2)
    stride = scene.choices.item((1, 2, 1))
    name = scene.choices.spelling(axis, value.rank) if value.static else axis
    inner = scene.call(op.strided_slice(value.expr, [name], [begin], [size], [stride]), moves=True)
    return take(scene, inner, random_indices(scene, inner.array.shape[axis]), axis)


def take_of_concat(scene: Scene) -> Value:
    value = scene.tensor()
    axis = axis_of(scene, value)
    other = scene.tensor(value.extents, value.dtype)
    pieces = [value, other] if scene.choices.one_in(2) else [other, value]
    joined = scene.call(op.concat([v.expr for v in pieces], axis), moves=True)
    size = value.array.shape[axis]
    start = scene.choices.item((0, size))
    indices = random_indices(scene, size) + start
    if scene.choices.one_in(5):
        indices = random_indices(scene, 2 * size)
    return take(scene, joined, indices, axis)


def take_to_slices(scene: Scene) -> Value:
    """Take a progression, one index again and again, two runs, or what only looks like one."""
    value = scene.tensor()
    axis = axis_of(scene, value, 2)
    size = value.array.shape[axis]
    ascending = np.arange(size)
    indices = scene.choices.item(
        (
            ascending[:: scene.choices.item((1, 2, -1, -2))],
            np.roll(ascending, scene.choices.integer(1, size - 1)),
            np.array([*ascending[: size // 2], *ascending]),
            np.full(scene.choices.item([(), (1,), (3,), (2, 2)]), scene.choices.integer(0, size - 1)),
            ascending[: size - size % 2].reshape(-1, 2),
            random_indices(scene, size),
        )
    )
    return take(scene, value, indices, axis)


def rotation(scene: Scene) -> Value:
    """Join the end and the beginning of an operand, or what only looks like it."""
    value = scene.tensor()
    axis = axis_of(scene, value, 2)
    size = value.array.shape[axis]
    k = scene.choices.integer(1, size - 1)
    first, last = (0, size) if not scene.choices.one_in(4) else (scene.choices.integer(0, k - 1), size)
    cuts = [(k, last), (first, k)]
    pieces = [scene.call(op.strided_slice(value.expr, [axis], [b], [e]), moves=True) for b, e in cuts]
    return scene.call(op.concat([p.expr for p in pieces], scene.choices.spelling(axis, value.rank)), moves=True)


DRAWERS = {
    "nop-permute": (nop_permute, permute_spelled),
    "permute-of-permute": (permute_of_permute,),
    "permute-of-ones": (permute_of_ones,),
    "permute-normal-form": (permute_spelled,),
    "shuffle-normal-form": (shuffle, shuffle, window_round_trip),
    "nop-broadcast": (nop_broadcast,),
    "broadcast-of-broadcast": (broadcast_of_broadcast,),
    "broadcast-of-leading-ones": (broadcast_of_leading_ones,),
    "broadcast-to-reshape": (broadcast_to_reshape,),
    "repetition-of-ones": (repetition,),
    "nop-pad": (nop_pad,),
    "pad-of-pad": (pad_of_pad,),
    "pad-to-slice": (pad_to_slice,),
    "take-of-take": (take_of_take,),
    "take-of-slice": (cut_and_take, take_of_slice),
    "take-of-concat": (take_of_concat,),
    "take-to-slices": (take_to_slices,),
    "rotation-to-take": (rotation,),
    "take-normal-form": (any_take,),
}
