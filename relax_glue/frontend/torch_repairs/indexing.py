"""Indexing by tensors and numbers.

PyTorch counts negative indices from the end; relax.take and relax.index_tensor read outside the tensor for them.
Constant indices are operands here, bound only after the import: what is written for them is folded by the passes.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import tvm_ffi
from tvm import relax, tirx

from ..naming import names
from .node import TorchNode, as_tensor

_TO_THE_END = (1 << 63) - 1

# Whose integer results are never negative.
_COUNTS = names("argmax.default argmin.default argsort.default argsort.stable nonzero.default bucketize.Tensor")
_ORDERS = names("topk.default sort.default sort.stable max.dim min.dim")
# Whose results are not negative if no operand is, numbers included.
_KEEPS_SIGN = names(
    "view.default reshape.default unsqueeze.default squeeze.default squeeze.dim squeeze.dims expand.default "
    "permute.default transpose.int _to_copy.default clone.default alias.default slice.Tensor select.int repeat.default "
    "cat.default stack.default flatten.using_ints gather.default index_select.default index.Tensor arange.default "
    "arange.start arange.start_step add.Tensor add.Scalar mul.Tensor mul.Scalar floor_divide.default div.Tensor_mode "
    "maximum.default minimum.default"
)
_READS_FIRST = names("slice.Tensor select.int gather.default index_select.default index.Tensor permute.default")
_READS_FIRST |= names("transpose.int view.default reshape.default unsqueeze.default squeeze.dim squeeze.dims")
_READS_FIRST |= names("expand.default repeat.default flatten.using_ints cat.default stack.default")


def is_never_negative(index: Any) -> bool:
    """Tell whether it follows from the operators that made it that a tensor of integers is never negative.

    Parameters
    ----------
    index : torch.fx.Node
        The tensor. Most indices come of topk, argmax or arange, and need no care.
    """
    waiting, seen = [index], set()
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        needed = _operands_with_its_sign(node)
        if needed is None:
            return False
        waiting.extend(needed)
    return True


def _operands_with_its_sign(node: Any) -> list[Any] | None:
    """Return the nodes that must not be negative for `node` not to be; None if it can be all the same."""
    op = getattr(node.target, "__name__", "")
    if op in _COUNTS or (op == "getitem" and node.args[1] == 1 and node.args[0].target.__name__ in _ORDERS):
        return []
    if op == "getitem" and node.args[0].target.__name__ in _ORDERS:
        return [node.args[0].args[0]]
    if op in ("remainder.Scalar", "remainder.Tensor"):
        return [] if isinstance(node.args[1], int) and node.args[1] > 0 else None
    if op in ("clamp.default", "clamp_min.default") and len(node.args) > 1 and isinstance(node.args[1], (int, float)):
        return [] if node.args[1] >= 0 else None
    if op not in _KEEPS_SIGN:
        return None
    operands = node.args[:1] if op in _READS_FIRST else node.args
    flat = [item for operand in operands for item in (operand if isinstance(operand, (list, tuple)) else [operand])]
    if any(isinstance(item, (int, float)) and item < 0 for item in flat):
        return None
    return [item for item in flat if hasattr(item, "target")]


def select(node: TorchNode) -> relax.Expr | None:
    """`x[:, -1]` as a take of the last; TVM takes index -1, which its kernel reads outside the tensor."""
    x, index = node["self"], node["index"]
    if not isinstance(index, int):
        return None
    axis = node.axis("dim", x)
    extent = x.ty.shape.values[axis]
    if index < 0 and not isinstance(extent, tirx.IntImm):
        end = index + 1 or _TO_THE_END
        return node.emit(relax.op.squeeze(node.emit(relax.op.strided_slice(x, [axis], [index], [end])), [axis]))
    place = index % int(extent) if isinstance(extent, tirx.IntImm) else index
    return node.emit(relax.op.take(x, relax.const(place, "int64"), axis))


def index(node: TorchNode) -> relax.Expr | None:
    """Indexing by tensors: along one axis a take, along several one take of the axes joined.

    TVM indexes one axis after the other, which is an outer product (`x[:, [1, 2], [0, 3]]` gets an axis too many),
    leaves the result's axes in place where `x[:, i, :, j]` moves them to the front, and does not wrap negatives.
    """
    x, places = node["self"], _Places.read(node)
    if places is None:
        return None
    if len(places.axes) == 1:
        return node.emit(relax.op.take(x, places.wrapped(node, x, 0), places.axes[0]))
    outer = places.as_outer_product()
    if outer is not None:
        for item, axis in reversed(list(enumerate(places.axes))):
            line = node.emit(relax.op.reshape(places.wrapped(node, x, item), (outer[item],)))
            x = node.emit(relax.op.take(x, line, axis))
        return x
    joined = places.join(node, x)
    return None if joined is None else places.put_back(node, node.emit(relax.op.take(joined, places.line(node, x), 0)))


def index_put(node: TorchNode) -> relax.Expr | None:
    """Writing at indices as scatter_nd on the axes joined; by a mask, a single value, as where.

    relax.index_put needs an index for every axis, and refuses `x[:, [0, 2]] = y`.
    """
    x, indices, values = node["self"], node["indices"], node["values"]
    if len(indices) == 1 and str(indices[0].ty.dtype) == "bool":
        return _put_where(node, x, indices[0], values)
    places = _Places.read(node)
    joined = None if places is None else places.join(node, x)
    if places is None or joined is None:
        return None
    shape = [int(extent) for extent in x.ty.shape.values]
    rest = [shape[axis] for axis in places.rest(x)]
    count, spread = len(places.common()), places.result_shape(rest)
    values = node.emit(relax.op.broadcast_to(values, spread))
    first = places.first_axis()
    if first:
        order = [*range(first, first + count), *range(first), *range(first + count, len(spread))]
        values = node.emit(relax.op.permute_dims(values, order))
    values = node.emit(relax.op.reshape(values, (prod(places.common()), *rest)))
    line = node.emit(relax.op.reshape(places.line(node, x), (prod(places.common()), 1)))
    written = relax.op.scatter_nd(joined, line, values, "add" if node["accumulate"] else "update")
    front = [*places.axes, *places.rest(x)]
    written = node.emit(relax.op.reshape(node.emit(written), [shape[axis] for axis in front]))
    return node.emit(relax.op.permute_dims(written, [int(axis) for axis in np.argsort(front)]))


def _put_where(node: TorchNode, x: relax.Expr, mask: relax.Expr, values: relax.Expr) -> relax.Expr | None:
    if any(not isinstance(extent, tirx.IntImm) or int(extent) != 1 for extent in values.ty.shape.values):
        return None
    value = node.emit(relax.op.reshape(values, ()))
    if x.ty.ndim > mask.ty.ndim:
        mask = node.emit(relax.op.expand_dims(mask, list(range(mask.ty.ndim, x.ty.ndim))))
    other = node.emit(relax.op.add(x, value)) if node["accumulate"] else value
    return node.emit(relax.op.where(mask, other, x))


class _Places:
    """The indices of an indexing: along which axes, of which shapes."""

    def __init__(self, axes: list[int], tensors: list[relax.Expr], nodes: list[Any]) -> None:
        self.axes = axes
        self.tensors = tensors
        self._nodes = nodes

    @classmethod
    def read(cls, node: TorchNode) -> _Places | None:
        """Return the indices of a node; None where they are masks or of symbolic shape."""
        listed = node.fx.args[1]
        found = [(axis, item, sub) for axis, (item, sub) in enumerate(zip(node["indices"], listed, strict=True))]
        given = [each for each in found if each[1] is not None]
        for _, tensor, _ in given:
            static = all(isinstance(extent, tirx.IntImm) for extent in tensor.ty.shape.values)
            if str(tensor.ty.dtype) == "bool" or (not static and len(given) > 1):
                return None
        return cls(*(list(each) for each in zip(*given, strict=True)))

    def common(self) -> tuple[int, ...]:
        """Return the shape that the indices broadcast to."""
        return np.broadcast_shapes(*map(tuple, self._shapes()))

    def _shapes(self) -> list[list[int]]:
        return [[int(extent) for extent in tensor.ty.shape.values] for tensor in self.tensors]

    def rest(self, x: relax.Expr) -> list[int]:
        """Return the axes that are not indexed."""
        return [axis for axis in range(x.ty.ndim) if axis not in self.axes]

    def first_axis(self) -> int:
        """Return where the indices' axes stand in the result: in place if side by side, else in front."""
        side_by_side = self.axes == list(range(self.axes[0], self.axes[0] + len(self.axes)))
        return self.axes[0] if side_by_side else 0

    def result_shape(self, rest: list[int]) -> list[int]:
        """Return the shape of the indexed tensor, `rest` being the extents of the other axes."""
        first = self.first_axis()
        return [*rest[:first], *self.common(), *rest[first:]]

    def as_outer_product(self) -> list[int] | None:
        """Return the length of each index if each has an axis of its own, in order, as for (H, 1) and (W,)."""
        common = self.common()
        if self.axes != list(range(self.axes[0], self.axes[0] + len(self.axes))) or len(common) != len(self.axes):
            return None
        for item, shape in enumerate(self._shapes()):
            padded = [1] * (len(common) - len(shape)) + shape
            if any(extent != 1 for axis, extent in enumerate(padded) if axis != item):
                return None
        return list(common)

    def wrapped(self, node: TorchNode, x: relax.Expr, item: int) -> relax.Expr:
        """Return an index with the negative ones counted from the end."""
        tensor = self.tensors[item]
        if is_never_negative(self._nodes[item]):
            return tensor
        extent = x.ty.shape.values[self.axes[item]]
        if isinstance(extent, tirx.IntImm):
            length = as_tensor(int(extent), tensor)
        else:
            whole = node.emit(relax.op.shape_to_tensor(relax.ShapeExpr([extent])))
            length = node.emit(relax.op.astype(node.emit(relax.op.reshape(whole, ())), str(tensor.ty.dtype)))
        below = node.emit(relax.op.less(tensor, as_tensor(0, tensor)))
        return node.emit(relax.op.where(below, node.emit(relax.op.add(tensor, length)), tensor))

    def join(self, node: TorchNode, x: relax.Expr) -> relax.Expr | None:
        """Return `x` with the indexed axes joined into the first; None if an extent is symbolic."""
        extents = x.ty.shape.values
        if not all(isinstance(extent, tirx.IntImm) for extent in extents):
            return None
        shape = [int(extent) for extent in extents]
        rest = self.rest(x)
        front = node.emit(relax.op.permute_dims(x, [*self.axes, *rest]))
        joined = (prod(shape[axis] for axis in self.axes), *(shape[axis] for axis in rest))
        return node.emit(relax.op.reshape(front, joined))

    def line(self, node: TorchNode, x: relax.Expr) -> relax.Expr:
        """Return the place of each element along the joined axis."""
        shape = [int(extent) for extent in x.ty.shape.values]
        total: relax.Expr | None = None
        for item, _ in enumerate(self.axes):
            stride = prod(shape[axis] for axis in self.axes[item + 1 :])
            part = node.emit(relax.op.astype(self.wrapped(node, x, item), "int64"))
            part = node.emit(relax.op.multiply(part, relax.const(stride, "int64"))) if stride != 1 else part
            total = part if total is None else node.emit(relax.op.add(total, part))
        return node.emit(relax.op.broadcast_to(total, self.common()))

    def put_back(self, node: TorchNode, taken: relax.Expr) -> relax.Expr:
        """Move the axes of the indices from the front to where PyTorch has them."""
        first, count = self.first_axis(), len(self.common())
        if not first:
            return taken
        order = [*range(count, count + first), *range(count), *range(count + first, taken.ty.ndim)]
        return node.emit(relax.op.permute_dims(taken, order))


def unfold(node: TorchNode) -> relax.Expr | None:
    """Tensor.unfold, which TVM does not have: cut into windows side by side, or taken by a constant index."""
    x, size, step = node["self"], int(node["size"]), int(node["step"])
    axis, rank = node.axis("dimension", x), x.ty.ndim
    windows = node.result_shape[axis]
    if not isinstance(windows, int):
        return None
    if size == step:
        x = node.emit(relax.op.strided_slice(x, [axis], [0], [windows * step]))
        shape = list(x.ty.shape.values)
        cut = node.emit(relax.op.reshape(x, [*shape[:axis], windows, size, *shape[axis + 1 :]]))
    else:
        places = np.arange(windows)[:, None] * step + np.arange(size)
        cut = node.emit(relax.op.take(x, relax.const(places, "int64"), axis))
    order = [place for place in range(rank + 1) if place != axis + 1]
    return node.emit(relax.op.permute_dims(cut, [*order, axis + 1]))


def repeat_interleave(node: TorchNode) -> relax.Expr | None:
    """The index that repeats element i so many times, which TVM does not have: how many ends lie at or before it."""
    repeats, count = node["repeats"], node.result_shape[0]
    if not isinstance(count, int):
        return None
    ends = node.emit(relax.op.cumsum(repeats, 0))
    places = relax.const(np.arange(count), str(repeats.ty.dtype))
    passed = node.emit(
        relax.op.less_equal(node.emit(relax.op.expand_dims(ends, [0])), node.emit(relax.op.expand_dims(places, [1])))
    )
    return node.emit(relax.op.sum(node.emit(relax.op.astype(passed, str(repeats.ty.dtype))), [1]))


def scatter(node: TorchNode) -> relax.Expr:
    """scatter, whose source may be larger than the index, cut to it; TVM hands it on as it is, and Relax refuses."""
    return _scatter(node, "update")


def scatter_add(node: TorchNode) -> relax.Expr:
    """scatter_add as scatter_elements with that reduction; TVM does not have it."""
    return _scatter(node, "add")


def scatter_reduce(node: TorchNode) -> relax.Expr | None:
    """scatter_reduce as scatter_elements, where the tensor's own value counts too; TVM does not have it."""
    reductions = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}
    reduction = reductions.get(node["reduce"])
    return _scatter(node, reduction) if reduction is not None and node["include_self"] else None


def _scatter(node: TorchNode, reduction: str) -> relax.Expr:
    x, index, source = node["self"], node["index"], node["src"]
    source = _cut(node, source, _differing(source, index), index)
    axis = node.axis("dim", x)
    return _scatter_within(node, x, index, source, axis, reduction, [a for a in _differing(x, index) if a != axis])


def _scatter_within(
    node: TorchNode, x: relax.Expr, index: relax.Expr, source: relax.Expr, axis: int, reduction: str, smaller: list[int]
) -> relax.Expr:
    """Scatter into the part of `x` that the index reaches: TVM's kernel takes the other axes to be as long as x's."""
    if not smaller:
        return node.emit(relax.op.scatter_elements(x, index, source, axis, reduction))
    cut, end = smaller[0], index.ty.shape.values[smaller[0]]
    reached = node.emit(relax.op.strided_slice(x, [cut], [0], [end]))
    beyond = node.emit(relax.op.strided_slice(x, [cut], [end], [x.ty.shape.values[cut]]))
    inner = _scatter_within(node, reached, index, source, axis, reduction, smaller[1:])
    return node.emit(relax.op.concat([inner, beyond], cut))


def _cut(node: TorchNode, x: relax.Expr, axes: list[int], like: relax.Expr) -> relax.Expr:
    if not axes:
        return x
    ends = [like.ty.shape.values[axis] for axis in axes]
    return node.emit(relax.op.strided_slice(x, axes, [0] * len(axes), ends))


def _differing(x: relax.Expr, other: relax.Expr) -> list[int]:
    pairs = zip(x.ty.shape.values, other.ty.shape.values, strict=True)
    return [axis for axis, (one, two) in enumerate(pairs) if not tvm_ffi.structural_equal(one, two)]


def fixed(node: TorchNode) -> relax.Expr:
    """An operator without tensors, such as triu_indices, which TVM does not have, as the constant it makes."""
    value = node.fx.target(*node.fx.args, **node.fx.kwargs).numpy()
    return relax.const(value, value.dtype.name)
