"""Which extents of the operands of a node ONNX says are equal, or multiples of a number, for operators with weights.

A convolution has as many channels as its weight, a matrix product sums over one extent. Where both are numbers the
importer compares them; where one is free nobody does, and a kernel reads past the end of the shorter operand. (For
operators that broadcast, and for Concat and MatMul, see `joins.py`.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from .arithmetic import Element

Shape = Sequence[Element]
Shapes = Sequence["Shape | None"]
Place = tuple[int, int]  # an operand, and one of its axes


@dataclass
class Demands:
    """What a node asks of its operands.

    Attributes
    ----------
    equal : list of (list of (int, int), int or tirx.PrimExpr or None)
        Axes whose extents are equal, and what they are equal to beside, if anything.
    multiples : list of ((int, int), int)
        Axes whose extents are multiples of a number.
    """

    equal: list[tuple[list[Place], Element | None]] = field(default_factory=list)
    multiples: list[tuple[Place, int]] = field(default_factory=list)

    def same(self, *places: Place, to: Element | None = None) -> None:
        """Ask that axes have the same extent."""
        self.equal.append((list(places), to))


def demands(op_type: str, shapes: Shapes, attrs: Mapping[str, Any]) -> Demands | None:
    """Return what a node asks of its operands, None for operators of which nothing is known here.

    Parameters
    ----------
    op_type : str
        The operator.
    shapes : sequence of (sequence of int or tirx.PrimExpr, or None)
        The extents of its operands, None for one that is left out or of which they are not known.
    attrs : dict
        Its attributes.
    """
    if op_type not in _OPERATORS or not shapes or shapes[0] is None:
        return None
    found = Demands()
    _OPERATORS[op_type](found, shapes, attrs)
    return found


def _conv(found: Demands, shapes: Shapes, attrs: Mapping[str, Any]) -> None:
    weight, group = shapes[1], int(attrs.get("group", 1))
    if weight is None:
        return
    if group == 1:
        found.same((0, 1), (1, 1))
    else:
        found.same((0, 1), to=weight[1] * group)
    found.same((1, 0), (2, 0))


def _conv_transpose(found: Demands, _shapes: Shapes, _attrs: Mapping[str, Any]) -> None:
    found.same((0, 1), (1, 0))


def _gemm(found: Demands, shapes: Shapes, attrs: Mapping[str, Any]) -> None:
    first, second = int(attrs.get("transA", 0)), int(attrs.get("transB", 0))
    found.same((0, 1 - first), (1, second))
    bias = shapes[2] if len(shapes) > 2 and shapes[2] is not None else ()
    results = [(1, 1 - second), (0, first)]
    for back, (place, extent) in enumerate(zip(results, reversed(bias), strict=False), start=1):
        if not _is_one(extent):
            found.same(place, (2, len(bias) - back))


def _channels(found: Demands, shapes: Shapes, _attrs: Mapping[str, Any]) -> None:
    found.same((0, 1), *((operand, 0) for operand in range(1, len(shapes))))


def _group_norm(found: Demands, shapes: Shapes, attrs: Mapping[str, Any]) -> None:
    groups = int(attrs.get("num_groups", 1))
    scale = shapes[1]
    if scale is not None and scale[0] != groups:  # until opset 21 there is one for each group
        _channels(found, shapes, attrs)
    found.multiples.append(((0, 1), groups))


def _layer_norm(found: Demands, shapes: Shapes, attrs: Mapping[str, Any]) -> None:
    rank = len(shapes[0] or ())
    for operand, shape in enumerate(shapes[1:], start=1):
        for back, extent in enumerate(reversed(shape or ()), start=1):
            if not _is_one(extent):
                found.same((0, rank - back), (operand, len(shape or ()) - back))


def _recurrent(found: Demands, shapes: Shapes, attrs: Mapping[str, Any]) -> None:
    if int(attrs.get("layout", 0)):
        return
    found.same((0, 2), (1, 2))
    found.same((0, 1), (4, 0), (5, 1), (6, 1))


def _einsum(found: Demands, shapes: Shapes, attrs: Mapping[str, Any]) -> None:
    equation = attrs["equation"]
    text = (equation.decode() if isinstance(equation, bytes) else str(equation)).replace(" ", "")
    terms = text.split("->")[0].split(",")
    if "." in text or len(terms) != len(shapes):
        return
    for label in dict.fromkeys("".join(terms)):
        places = [(k, axis) for k, term in enumerate(terms) for axis, other in enumerate(term) if other == label]
        found.same(*places)


def _depth_to_space(found: Demands, _shapes: Shapes, attrs: Mapping[str, Any]) -> None:
    found.multiples.append(((0, 1), int(attrs["blocksize"]) ** 2))


def _space_to_depth(found: Demands, _shapes: Shapes, attrs: Mapping[str, Any]) -> None:
    found.multiples += [((0, axis), int(attrs["blocksize"])) for axis in (2, 3)]


def _is_one(extent: Element) -> bool:
    return isinstance(extent, int) and extent == 1


_OPERATORS: Mapping[str, Callable[[Demands, Shapes, Mapping[str, Any]], None]] = MappingProxyType(
    {
        "BatchNormalization": _channels,
        "Conv": _conv,
        "ConvTranspose": _conv_transpose,
        "DepthToSpace": _depth_to_space,
        "Einsum": _einsum,
        "GRU": _recurrent,
        "Gemm": _gemm,
        "GroupNormalization": _group_norm,
        "InstanceNormalization": _channels,
        "LSTM": _recurrent,
        "LayerNormalization": _layer_norm,
        "RNN": _recurrent,
        "SpaceToDepth": _space_to_depth,
    }
)
