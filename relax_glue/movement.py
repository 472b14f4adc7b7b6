"""The operators that only move data, with one meaning each.

Every movement is a small frozen object with normal attributes (axes 0..rank-1, full-rank begins, sizes and strides,
no -1, no None) and one method, `apply`, that does it to numpy arrays. That is its definition: `index_map` derives
from it, for each element of the result, the element of the operands that it comes from. Compositions of movements are
compositions of index maps; the closed formulas here and in the passes are optimisations that the tests hold against
them. (One index map per movement, from which the rest follows, is tinygrad's idea.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .ir.shapes import Extent, product, same


class Movement:
    """An operator that only moves data."""

    __slots__ = ()

    def apply(self, *arrays: np.ndarray) -> np.ndarray:
        """Do it to arrays; the result may be a view of an operand."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Reshape(Movement):
    """The elements in the same row-major order under another shape."""

    shape: tuple[Extent, ...]

    def apply(self, *arrays: np.ndarray) -> np.ndarray:
        """Reshape one array."""
        return arrays[0].reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Permute(Movement):
    """Axis i of the result is axis `axes[i]` of the operand."""

    axes: tuple[int, ...]

    def apply(self, *arrays: np.ndarray) -> np.ndarray:
        """Transpose one array."""
        return arrays[0].transpose(self.axes)

    @property
    def is_identity(self) -> bool:
        """Whether nothing moves."""
        return self.axes == tuple(range(len(self.axes)))


@dataclass(frozen=True, slots=True)
class Slice(Movement):
    """Element i of axis a of the result is element `begin[a] + stride[a] * i` of the operand, i < `size[a]`.

    A stride may be negative, never 0. An axis whose extent is symbolic is whole: begin 0, stride 1.
    """

    begin: tuple[int, ...]
    size: tuple[Extent, ...]
    stride: tuple[int, ...]

    def apply(self, *arrays: np.ndarray) -> np.ndarray:
        """Slice one array."""
        index = []
        for begin, size, stride in zip(self.begin, self.size, self.stride, strict=True):
            end = begin + stride * size
            index.append(slice(begin, end if end >= 0 else None, stride) if size else slice(0, 0))
        return arrays[0][tuple(index)]

    @staticmethod
    def whole(shape: Sequence[Extent]) -> Slice:
        """Return the slice that cuts nothing off an operand of shape `shape`."""
        return Slice((0,) * len(shape), tuple(shape), (1,) * len(shape))

    def with_axis(self, axis: int, begin: int, size: Extent, stride: int = 1) -> Slice:
        """Return a slice that differs on one axis; one element has stride 1."""
        found = [list(self.begin), list(self.size), list(self.stride)]
        window = (begin, size, 1 if isinstance(size, int) and size == 1 else stride)
        for values, value in zip(found, window, strict=True):
            values[axis] = value
        return Slice(*map(tuple, found))

    def cuts(self, shape: Sequence[Extent]) -> list[int]:
        """Return the axes on which it is not the whole operand of shape `shape`."""
        windows = enumerate(zip(self.begin, self.size, self.stride, shape, strict=True))
        return [axis for axis, (b, n, s, e) in windows if b or s != 1 or not same(n, e)]

    @property
    def is_empty(self) -> bool:
        """Whether an axis keeps no element."""
        return any(isinstance(n, int) and n == 0 for n in self.size)


@dataclass(frozen=True, slots=True)
class Split(Movement):
    """Parts along `axis`, cut at `bounds`: part k holds bounds[k] .. bounds[k + 1]."""

    axis: int
    bounds: tuple[int, ...]

    def part(self, k: int, shape: Sequence[Extent]) -> Slice:
        """Return part `k` of an operand of shape `shape` as a slice."""
        begin, size = [0] * len(shape), list(shape)
        begin[self.axis], size[self.axis] = self.bounds[k], self.bounds[k + 1] - self.bounds[k]
        return Slice(tuple(begin), tuple(size), (1,) * len(shape))

    def apply(self, *arrays: np.ndarray) -> np.ndarray:
        """Not defined: the result is a tuple; see `part`."""
        raise TypeError("a split has several results: apply part(k, shape)")


@dataclass(frozen=True, slots=True)
class Concat(Movement):
    """The operands one after the other along `axis`."""

    axis: int

    def apply(self, *arrays: np.ndarray) -> np.ndarray:
        """Concatenate arrays."""
        return np.concatenate(arrays, axis=self.axis)


@dataclass(frozen=True, slots=True)
class Stack(Movement):
    """The operands one after the other along a new axis."""

    axis: int

    def apply(self, *arrays: np.ndarray) -> np.ndarray:
        """Stack arrays."""
        return np.stack(arrays, axis=self.axis)


@dataclass(frozen=True, slots=True)
class Broadcast(Movement):
    """Extents of 1, aligned at the right, repeated to `shape`."""

    shape: tuple[Extent, ...]

    def apply(self, *arrays: np.ndarray) -> np.ndarray:
        """Broadcast one array."""
        return np.broadcast_to(arrays[0], self.shape)


@dataclass(frozen=True, slots=True)
class Pad(Movement):
    """`before[a]` and `after[a]` more elements on axis a: `value` in mode "constant", else from the operand.

    Modes "reflect" (the edge is not repeated), "replicate" and "circular" as in Relax.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    mode: str = "constant"
    value: float = 0.0

    _NUMPY: ClassVar[dict[str, str]] = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}

    def apply(self, *arrays: np.ndarray) -> np.ndarray:
        """Pad one array; negative widths in mode "constant" cut."""
        widths = list(zip(self.before, self.after, strict=True))
        if self.mode != "constant":
            return np.pad(arrays[0], widths, mode=self._NUMPY[self.mode])  # type: ignore[call-overload]
        fill = np.asarray(self.value).astype(arrays[0].dtype)
        grown = [(max(b, 0), max(a, 0)) for b, a in widths]
        whole = np.pad(arrays[0], grown, constant_values=fill)
        cut = tuple(slice(max(-b, 0), n - max(-a, 0)) for (b, a), n in zip(widths, whole.shape, strict=True))
        return whole[cut]


@dataclass(frozen=True, slots=True)
class Take(Movement):
    """The elements `indices` of `axis`; indices are constant, within 0..extent-1."""

    axis: int
    shape: tuple[int, ...]
    indices: tuple[int, ...]

    def apply(self, *arrays: np.ndarray) -> np.ndarray:
        """Take from one array."""
        return np.take(arrays[0], np.array(self.indices, dtype="int64").reshape(self.shape), axis=self.axis)


@dataclass(frozen=True, slots=True)
class Flip(Movement):
    """`axis` in the opposite order."""

    axis: int

    def apply(self, *arrays: np.ndarray) -> np.ndarray:
        """Flip one array."""
        return np.flip(arrays[0], self.axis)


@dataclass(frozen=True, slots=True)
class Tile(Movement):
    """The operand `repeats[a]` times after itself on axis a; as many repeats as the result has axes."""

    repeats: tuple[int, ...]

    def apply(self, *arrays: np.ndarray) -> np.ndarray:
        """Tile one array."""
        return np.tile(arrays[0], self.repeats)


@dataclass(frozen=True, slots=True)
class Repeat(Movement):
    """Each element of `axis` `count` times in a row."""

    count: int
    axis: int

    def apply(self, *arrays: np.ndarray) -> np.ndarray:
        """Repeat one array's elements."""
        return np.repeat(arrays[0], self.count, axis=self.axis)


FILL = -1


def index_map(movement: Movement, shapes: Sequence[Sequence[int]]) -> np.ndarray:
    """Return where each element of the result comes from.

    Parameters
    ----------
    movement : Movement
        Anything but a `Split`.
    shapes : sequence of shapes
        The static shapes of the operands.

    Returns
    -------
    addresses : np.ndarray
        int64, of the result's shape. The elements of all operands are numbered in row-major order, one
        operand after the other; `FILL` (-1) is padding.
    """
    offsets = np.cumsum([0, *(product(s) for s in shapes)])
    sources = [np.arange(o, o + product(s), dtype="int64").reshape(s) for o, s in zip(offsets, shapes, strict=False)]
    if isinstance(movement, Pad) and movement.mode == "constant":
        movement = Pad(movement.before, movement.after, "constant", FILL)
    return movement.apply(*sources)


def compose_permutes(first: Sequence[int], then: Sequence[int]) -> tuple[int, ...]:
    """Return the axes of permute_dims(permute_dims(x, first), then)."""
    return tuple(first[i] for i in then)


def layout_axes(index_map: Any) -> tuple[int, ...] | None:
    """Return the axes of the permutation that the index map of a layout_transform is, or None.

    One that blocks axes (NCHW to NCHW4c), joins or drops them is none.
    """
    sources = list(index_map.initial_indices)
    axes = tuple(
        next((axis for axis, source in enumerate(sources) if source.same_as(target)), -1)
        for target in index_map.final_indices
    )
    return axes if sorted(axes) == list(range(len(sources))) else None


def inverse(axes: Sequence[int]) -> tuple[int, ...]:
    """Return the axes that undo a permutation."""
    return tuple(int(i) for i in np.argsort(axes))


def compose_slices(first: Slice, then: Slice) -> Slice:
    """Return slice(slice(x, first), then) as one slice."""
    begin = tuple(b1 + s1 * b2 for b1, s1, b2 in zip(first.begin, first.stride, then.begin, strict=True))
    strides = zip(first.stride, then.stride, then.size, strict=True)
    stride = tuple(1 if isinstance(n, int) and n == 1 else s1 * s2 for s1, s2, n in strides)
    return Slice(begin, then.size, stride)


def permute_keeps_order(axes: Sequence[int], shape: Sequence[Extent]) -> bool:
    """Return whether permute_dims only moves extents of 1, so that it is a reshape.

    A symbolic extent counts as not 1. x f32(3, 1, 2) with axes (1, 2, 0) is no reshape: 3 and 2 change places.
    """
    moved = [a for a in axes if not (isinstance(shape[a], int) and shape[a] == 1)]
    return moved == sorted(moved)
