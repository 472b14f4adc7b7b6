"""Instances of rules of pointwise operators: clips, casts, units, broadcasts beside them, reductions of stacks."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from relax_glue.testing import operators
from relax_glue.testing.graph import Value, literal

from .moves import PERMUTES, broadcast, thin
from .scene import DTYPES, FLOATS, NUMBERS, SIGNED, Extent, Scene

FLOAT_UNARY = (
    "abs", "negative", "sign", "square", "sqrt", "rsqrt", "exp", "log", "erf", "sigmoid", "sin", "cos", "tan", "sinh",
    "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "ceil", "floor", "round", "trunc", "isnan",
    "isinf", "isfinite", "nn.relu", "nn.leakyrelu", "nn.gelu", "nn.gelu_tanh", "nn.silu", "nn.selu", "nn.softplus",
)  # fmt: skip
HALF_UNARY = ("abs", "negative", "square", "sqrt", "ceil", "floor", "nn.relu", "nn.leakyrelu")
INTEGER_UNARY = ("abs", "negative", "bitwise_not", "nn.relu", "square")
FLOAT_BINARY = (
    "add", "subtract", "multiply", "divide", "maximum", "minimum", "equal", "not_equal", "less", "less_equal",
    "greater", "greater_equal", "power",
)  # fmt: skip
INTEGER_BINARY = (
    "add", "subtract", "multiply", "maximum", "minimum", "equal", "not_equal", "less", "less_equal", "greater",
    "greater_equal", "bitwise_and", "bitwise_or", "bitwise_xor",
)  # fmt: skip
BOOL_BINARY = ("logical_and", "logical_or", "logical_xor")


def named(name: str) -> object:
    made: object = op
    for part in name.split("."):
        made = getattr(made, part)
    return made


def any_unary(scene: Scene, value: Value) -> Value:
    """Apply an operator that the dtype has in TVM."""
    if scene.choices.one_in(6) and value.dtype != "bool":
        return clip(scene, value)
    if scene.choices.one_in(8):
        return scene.call(op.astype(value.expr, "float32"))
    names = {"float32": FLOAT_UNARY, "float16": HALF_UNARY, "bool": ("logical_not",)}.get(value.dtype, INTEGER_UNARY)
    unsigned = [name for name in names if value.dtype != "uint8" or name not in ("abs", "negative")]
    return scene.call(named(scene.choices.item(unsigned))(value.expr))  # type: ignore[operator]


def clip(scene: Scene, value: Value) -> Value:
    low = scene.choices.integer(0, 3) - (0 if value.dtype == "uint8" else 2)
    high = low + scene.choices.integer(0, 5)
    return scene.call(op.clip(value.expr, *((low, high) if not scene.choices.one_in(12) else (high, low))))


def any_binary(scene: Scene, value: Value) -> Value:
    return apply_binary(scene, value.expr, partner(scene, value), value.dtype)


def apply_binary(scene: Scene, left: relax.Expr, right: relax.Expr, dtype: str) -> Value:
    names = FLOAT_BINARY if dtype in FLOATS else BOOL_BINARY if dtype == "bool" else INTEGER_BINARY
    pair = (left, right) if scene.choices.one_in(2) else (right, left)
    name = scene.choices.item(names)
    if name == "divide" and is_zero_scalar(pair[1]):  # TVM does not compile x / 0.0
        name = "multiply"
    return scene.call(named(name)(*pair))  # type: ignore[operator]


def is_zero_scalar(expr: relax.Expr) -> bool:
    return isinstance(expr, tvm.ir.GenericConst) and expr.ty.ndim == 0 and not expr.value.numpy().any()


def partner(scene: Scene, value: Value, one_value: bool | None = None) -> relax.Expr:
    """Draw another operand: of the same shape, one that is broadcast, or a constant, of one value or many."""
    shape = [e if scene.choices.one_in(2) else 1 for e in value.extents]
    if scene.choices.one_in(2):
        shape = value.extents
    shape = shape[scene.choices.integer(0, len(shape)) if scene.choices.one_in(4) else 0 :]
    static = all(isinstance(extent, int) for extent in shape)
    if static and (one_value or scene.choices.one_in(2)):
        return scene.constant(shape, value.dtype, scene.choices.one_in(3) if one_value is None else one_value)
    return scene.tensor(shape, value.dtype).expr


# -- clips -------------------------------------------------------------------------------------------------


def scalar(scene: Scene, value: Value, number: float) -> relax.Expr:
    """Draw a constant of one value that leaves the shape alone: of rank 0, with ones, or whole."""
    shape = scene.choices.item([[], [1] * value.rank, [1] * max(value.rank - 1, 0)])
    if value.static and scene.choices.one_in(4):
        shape = list(value.array.shape)
    return literal(np.full(shape, number, value.dtype))


def bound(scene: Scene, value: Value) -> float:
    return scene.choices.item((0, 1, 6, 3, 2) if value.dtype == "uint8" else (0, -1, 6, -2, 1))


def two_bounds(scene: Scene, value: Value, names: tuple[str, str]) -> Value:
    """Apply two of maximum and minimum, mostly with the lower bound below the upper."""
    for name in names:
        low, high = bound(scene, value), bound(scene, value)
        number = (min if name == "maximum" else max)(low, high)
        operand = partner(scene, value) if scene.choices.one_in(12) else scalar(scene, value, number)
        value = scene.call(named(name)(value.expr, operand))  # type: ignore[operator]
    return value


def minimum_maximum(scene: Scene) -> Value:
    return two_bounds(scene, scene.tensor(dtypes=NUMBERS), ("minimum", "maximum"))


def _maximum_minimum(scene: Scene, dtypes: tuple[str, ...]) -> Value:
    value = scene.tensor(dtypes=dtypes)
    if scene.choices.one_in(3):
        return two_bounds(scene, scene.call(op.nn.relu(value.expr)), ("minimum",))  # type: ignore[arg-type]
    return two_bounds(scene, value, ("maximum", "minimum"))


def maximum_minimum_integers(scene: Scene) -> Value:
    return _maximum_minimum(scene, (*SIGNED, "uint8", "float32"))


def maximum_minimum(scene: Scene) -> Value:
    return _maximum_minimum(scene, NUMBERS)


def maximum_zero(scene: Scene) -> Value:
    value = scene.tensor(dtypes=NUMBERS)
    number = scene.choices.item((0.0, 0.0, 0.0, 1.0)) if value.dtype not in FLOATS else scene.choices.item((0.0, -0.0))
    return scene.call(op.maximum(value.expr, scalar(scene, value, number)))


def clip_of_clip(scene: Scene) -> Value:
    value = clip(scene, scene.tensor(dtypes=NUMBERS))
    return clip(scene, value) if not scene.choices.one_in(3) else scene.call(op.nn.relu(value.expr))


def clip_of_relu(scene: Scene) -> Value:
    return clip(scene, scene.call(op.nn.relu(scene.tensor(dtypes=NUMBERS).expr)))


# -- reductions of stacks ----------------------------------------------------------------------------------


def _of_stack(scene: Scene, names: tuple[str, ...], dtypes: tuple[str, ...]) -> Value:
    value = scene.tensor(dtypes=dtypes, ranks=(2, 1, 3, 0))
    count = scene.choices.integer(2, 3) if not scene.choices.one_in(8) else 1
    others = [scene.tensor(value.extents, value.dtype) for _ in range(count - 1)]
    axis = scene.choices.integer(0, value.rank)
    spelled = [scene.choices.spelling(axis, value.rank + 1) for _ in range(2)]
    stacked = scene.call(op.stack([v.expr for v in [value, *others]], spelled[0]), moves=True)
    if scene.choices.one_in(8):
        spelled[1] = scene.choices.integer(0, value.rank)
    return scene.call(getattr(op, scene.choices.item(names))(stacked.expr, [spelled[1]], scene.choices.one_in(8)))


def sum_of_stack(scene: Scene) -> Value:
    return _of_stack(scene, ("sum",), NUMBERS)


def maximum_of_stack_integers(scene: Scene) -> Value:
    return _of_stack(scene, ("max", "min"), (*SIGNED, "uint8", "float32"))


def maximum_of_stack(scene: Scene) -> Value:
    return _of_stack(scene, ("max", "min"), NUMBERS)


# -- broadcasts beside pointwise operators -----------------------------------------------------------------


def broadcast_into_consumer(scene: Scene) -> Value:
    """Combine a broadcast with what has the full extents, or nearly."""
    wide = broadcast(scene, thin(scene))
    shape: list[Extent] = wide.extents
    if scene.choices.one_in(4):
        shape = [1 if scene.choices.one_in(4) else extent for extent in shape]
    other = scene.tensor(shape, wide.dtype)
    if scene.choices.one_in(4):
        return any_where(scene, [wide, other])
    return apply_binary(scene, wide.expr, other.expr, wide.dtype)


def any_where(scene: Scene, values: list[Value]) -> Value:
    shape = [extent if scene.choices.one_in(2) else 1 for extent in values[0].extents]
    condition = scene.tensor(shape, "bool").expr
    branches = [v.expr for v in (values if scene.choices.one_in(2) else values[::-1])]
    return scene.call(op.where(condition, *branches))


def broadcast_after_pointwise(scene: Scene) -> Value:
    small = thin(scene)
    wide = broadcast(scene, small)
    if scene.choices.one_in(2):
        return any_unary(scene, wide)
    if scene.choices.one_in(2):
        ones = [1 if scene.choices.one_in(2) else extent for extent in small.extents]
        number = scene.constant([], wide.dtype) if scene.choices.one_in(2) else scene.tensor(ones, wide.dtype).expr
        return apply_binary(scene, wide.expr, number, wide.dtype)
    other = scene.call(op.broadcast_to(scene.tensor(small.extents, small.dtype).expr, wide.extents), moves=True)
    if scene.choices.one_in(4):
        return any_where(scene, [wide, other])
    return apply_binary(scene, wide.expr, other.expr, wide.dtype)


def splat(scene: Scene) -> Value:
    """Combine with a constant of one value as large as the operand, or with fewer axes."""
    value = scene.tensor(dtypes=DTYPES, static=not scene.choices.one_in(4))
    one = partner(scene, value, one_value=not scene.choices.one_in(6))
    return apply_binary(scene, value.expr, one, value.dtype)


# -- operators that do nothing -----------------------------------------------------------------------------

UNITS = {"add": -0.0, "subtract": 0.0, "multiply": 1.0, "divide": 1.0, "power": 1.0}


def unit_operand(scene: Scene) -> Value:
    value = scene.tensor()
    if value.dtype == "bool":
        name = scene.choices.item(BOOL_BINARY)
        number: float = name == "logical_and"
    else:
        names = [n for n in UNITS if value.dtype in FLOATS or n in ("add", "subtract", "multiply")]
        name = scene.choices.item(names)
        number = UNITS[name]
    if scene.choices.one_in(6):
        number = 0.0
    unit = scalar(scene, value, number)
    if scene.choices.one_in(5):  # the operand is broadcast to a larger constant
        unit = literal(np.full([2, *value.array.shape], number, value.dtype)) if value.static else unit
    swap = name in ("add", "multiply", *BOOL_BINARY) and scene.choices.one_in(2)
    pair = (unit, value.expr) if swap else (value.expr, unit)
    return scene.call(named(name)(*pair))  # type: ignore[operator]


def same_twice(scene: Scene) -> Value:
    value = scene.tensor(dtypes=("float32", "float16", "int32", "int64", "int8"))
    among = ("nn.relu", "abs", "ceil", "floor", "round", "trunc", "sign")
    names = among if value.dtype == "float32" else ("nn.relu", "abs")
    name = scene.choices.item(names)
    once = scene.call(named(name)(value.expr))  # type: ignore[operator]
    again = name if not scene.choices.one_in(5) else scene.choices.item(names)
    return scene.call(named(again)(once.expr))  # type: ignore[operator]


def back_and_forth(scene: Scene) -> Value:
    value = scene.tensor(dtypes=("float32", "bool", "int32", "float16", "int64", "int8"))
    integers = ("negative", "bitwise_not")
    options = ("logical_not",) if value.dtype == "bool" else integers[: 1 if value.dtype in FLOATS else 2]
    name = scene.choices.item(options)
    once = scene.call(named(name)(value.expr))  # type: ignore[operator]
    again = name if not scene.choices.one_in(6) else scene.choices.item(options)
    return scene.call(named(again)(once.expr))  # type: ignore[operator]


KEEPING = (operators.reshape, operators.broadcast_to, operators.flip, operators.concat, operators.stack, operators.tile)
DROPPING = (operators.strided_slice,)
CASTS = ("float32", "int32", "int64", "float16", "int8", "uint8", "float64", "int16")


def nop_astype(scene: Scene) -> Value:
    value = scene.tensor()
    dtype = value.dtype if not scene.choices.one_in(5) or value.dtype in FLOATS else "float32"
    return scene.call(op.astype(value.expr, dtype))


def astype_of_astype(scene: Scene) -> Value:
    """Cast to a wider dtype and on; a float is never cast to an integer, which is undefined for what does not fit."""
    value = scene.tensor()
    wider = {
        "bool": CASTS, "int8": CASTS, "uint8": CASTS, "int32": ("int64", "float64", "int32", "float32"),
        "int64": ("int64", "int32"), "float16": ("float32", "float64"), "float32": ("float64", "float32", "float16"),
    }  # fmt: skip
    first = scene.choices.item(wider[value.dtype])
    once = scene.call(op.astype(value.expr, first))
    back = value.dtype if value.dtype != "bool" else "int32"
    targets = ("float64", "float32", *([back] if first in (*FLOATS, "float64") else CASTS))
    return scene.call(op.astype(once.expr, scene.choices.item(targets)))


def cast_before_movement(scene: Scene) -> Value:
    """Cast an image behind a movement; now and then to what stays, or behind one that drops elements."""
    value = scene.tensor(dtypes=("uint8", "uint8", "uint8", "int8"))
    value = scene.step(value, *PERMUTES, *KEEPING) if not scene.choices.one_in(6) else scene.step(value, *DROPPING)
    return scene.call(op.astype(value.expr, scene.choices.item(["float32", "float32", "float16", "int32"])))


def where_decided(scene: Scene) -> Value:
    value = scene.tensor()
    other = value if scene.choices.one_in(3) else scene.tensor(value.extents, value.dtype)
    shape = scene.choices.item([[], [1] * value.rank])
    if value.static and scene.choices.one_in(2):
        shape = list(value.array.shape)
    decided = np.full(shape, scene.choices.one_in(2))
    condition = scene.constant(shape, "bool") if scene.choices.one_in(5) else literal(decided)
    return scene.call(op.where(condition, value.expr, other.expr))


def where_not(scene: Scene) -> Value:
    value = scene.tensor()
    other = scene.tensor(value.extents, value.dtype)
    shape = [extent if scene.choices.one_in(2) else 1 for extent in value.extents]
    negated = scene.call(op.logical_not(scene.tensor(shape, "bool").expr))
    return scene.call(op.where(negated.expr, value.expr, other.expr))


DRAWERS = {
    "minimum-maximum-to-clip": (minimum_maximum,),
    "maximum-minimum-to-clip-integers": (maximum_minimum_integers,),
    "maximum-minimum-to-clip": (maximum_minimum,),
    "maximum-to-relu": (maximum_zero,),
    "sum-of-stack": (sum_of_stack,),
    "maximum-of-stack-integers": (maximum_of_stack_integers,),
    "maximum-of-stack": (maximum_of_stack,),
    "broadcast-into-consumer": (broadcast_into_consumer,),
    "broadcast-after-pointwise": (broadcast_after_pointwise,),
    "splat-to-element": (splat,),
    "unit-operand": (unit_operand,),
    "same-twice": (same_twice,),
    "back-and-forth": (back_and_forth,),
    "clip-of-clip": (clip_of_clip,),
    "clip-of-relu": (clip_of_relu,),
    "nop-astype": (nop_astype,),
    "astype-of-astype": (astype_of_astype,),
    "cast-before-movement": (cast_before_movement,),
    "where-decided": (where_decided,),
    "where-not": (where_not,),
}
