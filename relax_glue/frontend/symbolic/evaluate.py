"""Nodes of shape arithmetic, evaluated on small tensors whose elements may be expressions of free extents.

What moves elements (Gather, Concat, Slice) is evaluated by the reference semantics of the package `onnx` on the
positions of the elements, so that every operator set and every attribute means what it says. What calculates is a
table of element functions. A node that is in neither, or whose result depends on how free extents compare, gives None
and is converted like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import tirx

from ..naming import names
from ..onnx_fold import evaluate
from .arithmetic import Arithmetic, Element, Quotient, is_integer
from .elementwise import ELEMENTWISE, elementwise
from .values import MAX_ELEMENTS, ShapeNode, SymbolicTensor

if TYPE_CHECKING:
    import onnx

# The operand whose elements are moved; the others say where to.
MOVEMENTS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        **dict.fromkeys(
            names(
                "Expand Flatten Gather GatherElements GatherND Identity Reshape Slice Split Squeeze Tile Transpose "
                "Unsqueeze"
            ),
            (0,),
        ),
        "ScatterElements": (0, 2),
        "ScatterND": (0, 2),
    }
)


def evaluate_symbolic(
    node: onnx.NodeProto,
    inputs: Sequence[SymbolicTensor | None],
    arithmetic: Arithmetic,
    model: onnx.ModelProto,
) -> list[SymbolicTensor] | None:
    """Evaluate a node on operands that are known as expressions.

    Parameters
    ----------
    node : onnx.NodeProto
        A node of the default domain.
    inputs : sequence of SymbolicTensor or None
        The operands, None for one left out.
    arithmetic : Arithmetic
        What is known of the free extents.
    model : onnx.ModelProto
        The model, for the operator set.

    Returns
    -------
    list of SymbolicTensor or None
        The results; None if the node is none of shape arithmetic or its result cannot be written so.
    """
    shape_node = ShapeNode(node, model, inputs, arithmetic)
    if node.op_type in MOVEMENTS or node.op_type == "Concat":
        return _moved(shape_node)
    if node.op_type in ELEMENTWISE:
        result = elementwise(shape_node)
    elif node.op_type in SPECIAL:
        result = SPECIAL[node.op_type](shape_node)
    else:
        return None
    return None if result is None else [result]


def _moved(node: ShapeNode) -> list[SymbolicTensor] | None:
    """Evaluate an operator that only moves elements on their positions, and put the elements there."""
    moved = range(len(node.inputs)) if node.node.op_type == "Concat" else MOVEMENTS[node.node.op_type]
    if node.attribute("reduction", b"none") != b"none":
        return None
    feeds: list[np.ndarray | None] = []
    pool: list[Element] = []
    for index, operand in enumerate(node.inputs):
        if index not in moved:
            numbers = node.numbers(index)
            if operand is not None and numbers is None:
                return None
            feeds.append(numbers)
        elif operand is None:
            return None
        else:
            places = np.arange(len(pool), len(pool) + operand.elements.size)
            feeds.append(places.reshape(operand.elements.shape))
            pool += list(operand.elements.flat)
    if _copies(node.node.op_type, feeds) > MAX_ELEMENTS:
        return None
    results = evaluate(node.node, feeds, node.model)
    first = node.operand(moved[0])
    if results is None or first is None or any(result.size > MAX_ELEMENTS for result in results):
        return None
    return [_picked(result, pool, first.dtype) for result in results]


def _copies(op: str, feeds: Sequence[np.ndarray | None]) -> float:
    """Return how many elements an operator that repeats its operand yields at least; asked before they are made."""
    data, counts = (feeds[0], feeds[1]) if op in ("Expand", "Tile") else (None, None)
    if data is None or counts is None:
        return 0
    return float(np.prod(counts, dtype=np.float64)) * (data.size if op == "Tile" else 1)


def _picked(places: np.ndarray, pool: Sequence[Element], dtype: np.dtype) -> SymbolicTensor:
    elements = np.empty(places.shape, object)
    for at, place in np.ndenumerate(places):
        elements[at] = pool[int(place)]
    return SymbolicTensor(elements, dtype)


def _constant_of_shape(node: ShapeNode) -> SymbolicTensor | None:
    from onnx import numpy_helper

    shape = node.numbers(0)
    if shape is None or np.prod(shape, dtype=np.float64) > MAX_ELEMENTS:
        return None
    value = node.attribute("value", None)
    filler = np.zeros(1, np.float32) if value is None else numpy_helper.to_array(value)
    if filler.dtype.kind not in "biuf":
        return None
    return SymbolicTensor.known(np.full(tuple(shape), filler.reshape(-1)[0]))


def _range(node: ShapeNode) -> SymbolicTensor | None:
    """Range of a known number of integers, whose first may be free: arange(n, n + 3)."""
    ends = [node.operand(index) for index in range(3)]
    if any(end is None or end.elements.size != 1 for end in ends):
        return None
    start, limit, step = (end.elements.reshape(-1)[0] for end in ends if end is not None)
    count = _steps(node.arithmetic, start, limit, step)
    if not isinstance(count, int) or not 0 <= count <= MAX_ELEMENTS or ends[0] is None:
        return None
    return SymbolicTensor.of([node.arithmetic.add(start, k * step) for k in range(count)], ends[0].dtype)


def _steps(arithmetic: Arithmetic, start: Element, limit: Element, step: Element) -> Element | None:
    if not all(is_integer(end) for end in (start, limit, step)) or not isinstance(step, int) or step == 0:
        return None
    length = arithmetic.subtract(limit, start)
    return arithmetic.ceil(Quotient(length if step > 0 else arithmetic.negate(length), abs(step)))


def _reduce(name: str) -> Callable[[ShapeNode], SymbolicTensor | None]:
    def calculate(node: ShapeNode) -> SymbolicTensor | None:
        data = node.operand(0)
        listed = node.attribute("axes", None) if node.operand(1) is None else node.numbers(1)
        if data is None or (node.operand(1) is not None and listed is None):
            return None
        if listed is None and node.attribute("noop_with_empty_axes", 0):
            return data
        rank = data.elements.ndim
        axes = tuple(range(rank)) if listed is None else tuple(int(axis) % rank for axis in listed)
        kept = [axis for axis in range(rank) if axis not in axes]
        rows = data.elements.transpose([*kept, *axes]).reshape(*(data.elements.shape[axis] for axis in kept), -1)
        if rows.shape[-1] == 0:
            return None
        two = getattr(node.arithmetic, name)
        elements = np.empty(rows.shape[:-1], object)
        for at in np.ndindex(elements.shape):
            elements[at] = reduce(lambda left, right: None if left is None else two(left, right), rows[at])
        if any(element is None for element in elements.flat):
            return None
        kept_shape = [1 if axis in axes else extent for axis, extent in enumerate(data.elements.shape)]
        shape = kept_shape if node.attribute("keepdims", 1) else elements.shape
        return SymbolicTensor(elements.reshape(shape), data.dtype)

    return calculate


def _running_sum(node: ShapeNode) -> SymbolicTensor | None:
    """CumSum of a vector."""
    data = node.operand(0)
    if data is None or data.elements.ndim != 1 or node.attribute("exclusive", 0) or node.attribute("reverse", 0):
        return None
    sums = [reduce(node.arithmetic.add, data.elements[: end + 1]) for end in range(data.elements.size)]
    return None if any(total is None for total in sums) else SymbolicTensor.of(sums, data.dtype)


def _size_one(node: ShapeNode) -> SymbolicTensor | None:
    """Size of a tensor that is known as expressions."""
    data = node.operand(0)
    return None if data is None else SymbolicTensor.of(math.prod(data.elements.shape))


def _shape_of_known(node: ShapeNode) -> SymbolicTensor | None:
    data = node.operand(0)
    if data is None:
        return None
    extents = data.elements.shape[node.attribute("start", 0) : node.attribute("end", None)]
    return SymbolicTensor.of([int(extent) for extent in extents])


SPECIAL: Mapping[str, Callable[[ShapeNode], SymbolicTensor | None]] = MappingProxyType(
    {
        "ConstantOfShape": _constant_of_shape,
        "CumSum": _running_sum,
        "Range": _range,
        "ReduceMax": _reduce("maximum"),
        "ReduceMin": _reduce("minimum"),
        "ReduceProd": _reduce("multiply"),
        "ReduceSum": _reduce("add"),
        "Shape": _shape_of_known,
        "Size": _size_one,
    }
)


def shape_of(node: onnx.NodeProto, extents: Sequence[Any], arithmetic: Arithmetic) -> SymbolicTensor:
    """Return the value of a Shape or Size node, of the extents of its operand."""
    simple = [arithmetic.simplify(int(e) if isinstance(e, tirx.IntImm) else e) for e in extents]
    if node.op_type == "Size":
        total: Element = 1
        for extent in simple:
            total = arithmetic.multiply(total, extent)
        return SymbolicTensor.of(total)
    bounds = {entry.name: entry.i for entry in node.attribute}
    return SymbolicTensor.of(simple[bounds.get("start", 0) : bounds.get("end")])
