"""Extents that ONNX says are equal, and that no proof makes so.

A detector joins a map of stride 16 with one of stride 32 that was scaled up: `(h - 1) // 16 + 1` against
`(h - 1) // 32 * 2 + 2`. They are equal for the sizes that the model is made for and for no others; ONNX Runtime
raises there. TVM gives up the shape of the result, has no code for what follows, and a cast in the middle would cut the
region. So what the node asks is asked at the entry of the function (`EntryChecks`), and the operand is reshaped to the
extent that it is then known to have. A reshape that changes one extent only keeps every element in its place, and
TensorRT needs no layer for it.

An extent that is 1 for some sizes and stretched by a broadcast then is not meant: it is asked to be equal as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, tirx

from ..naming import names, variable_name
from .arithmetic import Arithmetic, Element
from .checks import EntryChecks
from .operands import Demands, demands

BROADCASTING = names(
    """
    Add And BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or
    PRelu Pow Sub Sum Where Xor
    """
)


class Joins:
    """Makes the operands of a node fit each other."""

    def __init__(self, builder: relax.BlockBuilder, arithmetic: Arithmetic, checks: EntryChecks) -> None:
        self._builder = builder
        self._arithmetic = arithmetic
        self._checks = checks

    def fit(self, op_type: str, name: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> list[Any]:
        """Return the operands of a node with extents that are proved equal where the operator wants that.

        Parameters
        ----------
        op_type, name : str
            The node.
        inputs : sequence of relax.Expr or None
            Its operands.
        attrs : dict
            Its attributes.
        """
        asked = demands(op_type, [_extents(value) for value in inputs], attrs)
        if asked is not None:
            return self._demanded(name, list(inputs), asked)
        shapes = [shape for shape in map(_extents, inputs) if shape is not None]
        if len(shapes) < len(inputs):
            return list(inputs)
        if op_type in BROADCASTING:
            return self._broadcast(name, list(inputs), shapes)
        if op_type == "Concat":
            return self._concat(name, list(inputs), shapes, attrs.get("axis", 0))
        return self._matmul(name, list(inputs), shapes) if op_type == "MatMul" else list(inputs)

    def stretch(self, name: str, value: relax.Expr, target: Sequence[Element]) -> tuple[relax.Expr, list[Element]]:
        """Return a tensor and the shape that it broadcasts to together with a target, proved to fit."""
        given = _extents(value) or []
        rank = max(len(given), len(target))
        rows = [[1] * (rank - len(row)) + list(row) for row in (given, target)]
        wanted = [self._target(column) for column in zip(*rows, strict=True)]
        for row in rows:
            self._require(name, row, wanted)
        return self._to(name, value, wanted[rank - len(given) :]), wanted

    def shaped(self, name: str, value: relax.Expr, wanted: Sequence[Element]) -> relax.Expr:
        """Return a tensor with the extents that a node needs it to have."""
        self._require(name, _extents(value) or [], wanted)
        return self._to(name, value, wanted)

    def _demanded(self, name: str, values: list[Any], asked: Demands) -> list[Any]:
        """Give operands the extents that they are asked to have."""
        given = [_extents(value) or [] for value in values]
        wanted = [list(shape) for shape in given]
        for places, extent in asked.equal:
            there = [(operand, axis) for operand, axis in places if operand < len(given) and axis < len(given[operand])]
            column = [wanted[operand][axis] for operand, axis in there]
            target = self._target([*column, *([] if extent is None else [extent])], stretched=False)
            for operand, axis in there:
                wanted[operand][axis] = target
        for (operand, axis), factor in asked.multiples:
            if axis < len(wanted[operand]) and not isinstance(wanted[operand][axis], int):
                count = self._arithmetic.floor_divide(wanted[operand][axis], factor)
                wanted[operand][axis] = self._arithmetic.multiply(count, factor)
        for operand, value in enumerate(values):
            if given[operand]:
                values[operand] = self.shaped(name, value, wanted[operand])
        return values

    def _broadcast(self, name: str, values: list[Any], shapes: list[list[Element]]) -> list[Any]:
        rank = max(map(len, shapes))
        padded = [[1] * (rank - len(shape)) + shape for shape in shapes]
        wanted = [self._target(column) for column in zip(*padded, strict=True)]
        for index, shape in enumerate(padded):
            self._require(name, shape, wanted)
            values[index] = self._to(name, values[index], wanted[rank - len(shapes[index]) :])
        return values

    def _concat(self, name: str, values: list[Any], shapes: list[list[Element]], axis: int) -> list[Any]:
        rank = len(shapes[0])
        if any(len(shape) != rank for shape in shapes):
            return values
        columns = list(zip(*shapes, strict=True))
        for index, shape in enumerate(shapes):
            wanted = [
                shape[place] if place == axis % rank else self._target(columns[place], stretched=False)
                for place in range(rank)
            ]
            self._require(name, shape, wanted)
            values[index] = self._to(name, values[index], wanted)
        return values

    def _matmul(self, name: str, values: list[Any], shapes: list[list[Element]]) -> list[Any]:
        left, right = shapes
        inner = self._target([left[-1], right[-2 if len(right) > 1 else -1]], stretched=False)
        rank = max(len(left), len(right)) - 2
        batches = [[1] * (rank - max(0, len(shape) - 2)) + shape[:-2] for shape in shapes]
        batch = [self._target(column) for column in zip(*batches, strict=True)]
        tails = [[*left[-2:-1], inner], [inner, *right[-1:]] if len(right) > 1 else [inner]]
        for index, shape in enumerate(shapes):
            wanted = [*batch[rank - max(0, len(shape) - 2) :], *tails[index]]
            self._require(name, shape, wanted)
            values[index] = self._to(name, values[index], wanted)
        return values

    def _target(self, column: Sequence[Element], stretched: bool = True) -> Element:
        """Return the extent that all of a column are to have: a number, else the simplest expression."""
        ones = [isinstance(extent, int) and extent == 1 for extent in column]
        wide = [extent for extent, one in zip(column, ones, strict=True) if not (one and stretched)]
        numbers = [extent for extent in wide if isinstance(extent, int)]
        if numbers or not wide:
            return numbers[0] if numbers else 1
        return min(wide, key=lambda extent: (not isinstance(extent, tirx.Var), len(str(extent))))

    def _is_open(self, extent: Element, wanted: Element) -> bool:
        """Return whether an extent has to become another one and is not seen to be it."""
        if isinstance(extent, int) and (isinstance(wanted, int) or extent == 1):
            return False  # stretched, or an error that the converter names
        return not self._arithmetic.same(extent, wanted)

    def _require(self, name: str, shape: Sequence[Element], wanted: Sequence[Element]) -> None:
        for extent, target in zip(shape, wanted, strict=True):
            if self._is_open(extent, target):
                self._checks.equal(extent, target, variable_name(name))

    def _to(self, name: str, value: relax.Expr, wanted: Sequence[Element]) -> relax.Expr:
        """Give a tensor the extents wanted, one axis at a time, so that each step moves nothing."""
        shape = _extents(value) or []
        for axis, (extent, target) in enumerate(zip(list(shape), wanted, strict=True)):
            if not self._is_open(extent, target):
                continue
            shape[axis] = target
            fitted = relax.op.reshape(value, relax.ShapeExpr(shape))
            value = self._builder.emit(fitted, name_hint=f"{variable_name(name)}_fit")
        return value


def _extents(value: Any) -> list[Element] | None:
    shape = getattr(getattr(value, "ty", None), "shape", None)
    if not isinstance(shape, relax.ShapeExpr):
        return None
    return [int(extent) if isinstance(extent, tirx.IntImm) else extent for extent in shape.values]
