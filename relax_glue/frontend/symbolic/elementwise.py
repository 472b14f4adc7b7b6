"""Operators of shape arithmetic that calculate element by element."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import Any

import numpy as np

from ..naming import names
from .arithmetic import Element, Quotient, is_expression
from .values import MAX_ELEMENTS, ShapeNode, SymbolicTensor

ElementFunction = Callable[..., "Element | None"]


def elementwise(node: ShapeNode) -> SymbolicTensor | None:
    """Evaluate an operator of `ELEMENTWISE`; None where the result of an element depends on the free extents."""
    operands = [operand for operand in node.inputs if operand is not None]
    calculate = ELEMENTWISE[node.node.op_type](node)
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
