"""Nodes of shape arithmetic, evaluated on small tensors whose elements may be expressions of free extents.

What moves elements (Gather, Concat, Slice) is evaluated by the reference semantics of the package `onnx` on the
positions of the elements, so that every operator set and every attribute means what it says. What calculates is a
table of element functions. A node that is in neither, or whose result depends on how free extents compare, gives None
and is converted like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import tirx

from ..naming import names
from ..onnx_fold import evaluate
from .arithmetic import Arithmetic, Element, Quotient, is_expression, is_integer

if TYPE_CHECKING:
    import onnx

MAX_ELEMENTS = 1 << 12  # what is larger is data
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


@dataclass(frozen=True, eq=False)
class SymbolicTensor:
    """A small tensor whose elements are known, or known as expressions. Two of them are equal if they are the same.

    Attributes
    ----------
    elements : numpy.ndarray of object
        See `arithmetic.Element`.
    dtype : numpy.dtype
        The element type of the ONNX value.
    """

    elements: np.ndarray
    dtype: np.dtype

    @staticmethod
    def of(elements: Sequence[Element] | Element, dtype: str | np.dtype = "int64") -> SymbolicTensor:
        """Make a tensor of a list, or of a single element as rank 0."""
        listed = list(elements) if isinstance(elements, Sequence) else None
        array = np.empty(() if listed is None else (len(listed),), object)
        array[...] = elements if listed is None else listed
        return SymbolicTensor(array, np.dtype(dtype))

    @staticmethod
    def known(array: np.ndarray) -> SymbolicTensor:
        """Make a tensor of numbers."""
        return SymbolicTensor(array.astype(object), array.dtype)

    def array(self) -> np.ndarray | None:
        """Return the numbers, None where an element is an expression."""
        if all(isinstance(element, (bool, int, float)) for element in self.elements.flat):
            return self.elements.astype(self.dtype)
        return None


@dataclass(frozen=True)
class ShapeNode:
    """A node to evaluate: the message, its model, and its operands."""

    node: onnx.NodeProto
    model: onnx.ModelProto
    inputs: Sequence[SymbolicTensor | None]
    arithmetic: Arithmetic

    def operand(self, index: int) -> SymbolicTensor | None:
        """Return an operand, None if the node does not have it."""
        return self.inputs[index] if index < len(self.inputs) else None

    def numbers(self, index: int) -> np.ndarray | None:
        """Return an operand as numbers, None if it is not there or not known."""
        operand = self.operand(index)
        return None if operand is None else operand.array()

    def attribute(self, name: str, default: Any) -> Any:
        """Return an attribute."""
        from onnx import helper

        found = next((entry for entry in self.node.attribute if entry.name == name), None)
        return default if found is None else helper.get_attribute_value(found)


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
        result = _elementwise(shape_node, ELEMENTWISE[node.op_type])
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
    results = evaluate(node.node, feeds, node.model)
    first = node.operand(moved[0])
    if results is None or first is None or any(result.size > MAX_ELEMENTS for result in results):
        return None
    return [_picked(result, pool, first.dtype) for result in results]


def _picked(places: np.ndarray, pool: Sequence[Element], dtype: np.dtype) -> SymbolicTensor:
    elements = np.empty(places.shape, object)
    for at, place in np.ndenumerate(places):
        elements[at] = pool[int(place)]
    return SymbolicTensor(elements, dtype)


ElementFunction = Callable[..., "Element | None"]


def _elementwise(node: ShapeNode, function: Callable[[ShapeNode], ElementFunction | None]) -> SymbolicTensor | None:
    operands = [operand for operand in node.inputs if operand is not None]
    calculate = function(node)
    if calculate is None or len(operands) != len(node.inputs):
        return None
    arrays = np.broadcast_arrays(*(operand.elements for operand in operands))
    elements = np.empty(arrays[0].shape, object)
    if elements.size > MAX_ELEMENTS:
        return None
    for at in np.ndindex(elements.shape):
        result = calculate(*(array[at] for array in arrays))
        if result is None:
            return None
        elements[at] = result
    return SymbolicTensor(elements, _result_type(node, operands))


def _result_type(node: ShapeNode, operands: Sequence[SymbolicTensor]) -> np.dtype:
    if node.node.op_type == "Cast":
        from onnx import helper

        return np.dtype(helper.tensor_dtype_to_np_dtype(node.attribute("to", 1)))
    if node.node.op_type in COMPARISONS:
        return np.dtype(bool)
    return operands[1 if node.node.op_type in ("Where", "CastLike") else 0].dtype


def _chain(name: str) -> Callable[[ShapeNode], ElementFunction]:
    """Return the element function of an operator that takes any number of operands."""

    def of(node: ShapeNode) -> ElementFunction:
        two = getattr(node.arithmetic, name)

        def calculate(*elements: Element) -> Element | None:
            return reduce(lambda left, right: None if left is None else two(left, right), elements)

        return calculate

    return of


def _negated(name: str, swapped: bool, negate: bool) -> Callable[[ShapeNode], ElementFunction]:
    """Return the element function of a comparison that is written as another one."""

    def of(node: ShapeNode) -> ElementFunction:
        compare = getattr(node.arithmetic, name)

        def calculate(left: Element, right: Element) -> bool | None:
            found = compare(right, left) if swapped else compare(left, right)
            return None if found is None else found != negate

        return calculate

    return of


def _logical(function: Callable[..., Any]) -> Callable[[ShapeNode], ElementFunction]:
    return lambda _node: lambda *elements: bool(function(*map(bool, elements)))


def _cast(node: ShapeNode) -> ElementFunction | None:
    """Return the element function of Cast and CastLike: to a float type nothing is lost, to an integer the fraction."""
    target = _result_type(node, [operand for operand in node.inputs if operand is not None])
    arithmetic = node.arithmetic

    def calculate(value: Element, _like: Element = None) -> Element | None:
        if target.kind == "f":
            return _as_float(value, target)
        if target.kind in "iu":
            return arithmetic.truncate(value) if not isinstance(value, bool) else int(value)
        zero = arithmetic.equal(value, 0)
        return None if zero is None else not zero

    return calculate if target.kind in "biuf" else None


def _as_float(value: Element, target: np.dtype) -> Element:
    if isinstance(value, (bool, int, float)):
        return float(target.type(value))
    return Quotient(value, 1) if is_expression(value) else value


def _rounding(name: str) -> Callable[[ShapeNode], ElementFunction]:
    def of(node: ShapeNode) -> ElementFunction:
        function = getattr(node.arithmetic, name)

        def calculate(value: Element) -> Element | None:
            whole = function(value)
            return None if whole is None else _as_float(whole, np.dtype("float64"))

        return calculate

    return of


def _modulo(node: ShapeNode) -> ElementFunction | None:
    return None if node.attribute("fmod", 0) else node.arithmetic.modulo


def _power(node: ShapeNode) -> ElementFunction | None:
    exponent = node.numbers(1)
    if exponent is None or exponent.size != 1 or exponent.item() not in (1, 2, 3):
        return None
    times = int(exponent.item())
    return lambda base, _exponent: reduce(
        lambda left, right: None if left is None else node.arithmetic.multiply(left, right), [base] * times
    )


def _absolute(node: ShapeNode) -> ElementFunction:
    def calculate(value: Element) -> Element | None:
        if isinstance(value, (int, float)):
            return abs(value)
        negative = node.arithmetic.less(value, 0)
        return None if negative is None else node.arithmetic.negate(value) if negative else value

    return calculate


def _choose(_node: ShapeNode) -> ElementFunction:
    return lambda condition, yes, no: (yes if condition else no) if isinstance(condition, bool) else None


COMPARISONS = names("And Equal Greater GreaterOrEqual Less LessOrEqual Not Or Xor")
ELEMENTWISE: Mapping[str, Callable[[ShapeNode], ElementFunction | None]] = MappingProxyType(
    {
        "Abs": _absolute,
        "Add": _chain("add"),
        "And": _logical(lambda a, b: a and b),
        "Cast": _cast,
        "CastLike": _cast,
        "Ceil": _rounding("ceil"),
        "Div": lambda node: node.arithmetic.divide,
        "Equal": lambda node: node.arithmetic.equal,
        "Floor": _rounding("floor"),
        "Greater": _negated("less", swapped=True, negate=False),
        "GreaterOrEqual": _negated("less", swapped=False, negate=True),
        "Less": lambda node: node.arithmetic.less,
        "LessOrEqual": _negated("less", swapped=True, negate=True),
        "Max": _chain("maximum"),
        "Min": _chain("minimum"),
        "Mod": _modulo,
        "Mul": _chain("multiply"),
        "Neg": lambda node: node.arithmetic.negate,
        "Not": _logical(lambda a: not a),
        "Or": _logical(lambda a, b: a or b),
        "Pow": _power,
        "Round": _rounding("round"),
        "Sub": lambda node: node.arithmetic.subtract,
        "Sum": _chain("add"),
        "Where": _choose,
        "Xor": _logical(lambda a, b: a != b),
    }
)


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
