"""Instances of rules of shape arithmetic and of constants."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from relax_glue.testing import indexing, operators
from relax_glue.testing.graph import Value, literal

from .moves import RESHAPES, filling, pad
from .pointwise import any_binary, any_unary, is_zero_scalar, partner
from .reshapes import REDUCTIONS, operand_of, reduce
from .scene import DTYPES, FLOATS, NUMBERS, Extent, NoInstance, Scene, forget

# -- shapes ------------------------------------------------------------------------------------------------


def target_of(scene: Scene, value: Value) -> list[Extent]:
    """Draw what a value can be reshaped to."""
    if not value.static or scene.choices.one_in(3):
        return [1, *value.extents]
    return list(scene.step(value, operators.reshape).array.shape)


def inline_shape(scene: Scene) -> Value:
    value = scene.parameter(scene.shape(), scene.dtype())
    maker = scene.choices.item(("reshape", "broadcast_to", "full", "zeros"))
    target = target_of(scene, value) if maker == "reshape" else [2, *value.extents]
    written = relax.ShapeExpr(target)
    shape = written if scene.choices.one_in(6) else scene.bind_outside(written)
    filling = scene.constant([], value.dtype)

    def call(x: relax.Expr, s: relax.Expr) -> relax.Expr:
        if maker in ("reshape", "broadcast_to"):
            return getattr(op, maker)(x, s)
        return op.full(s, filling, value.dtype) if maker == "full" else op.zeros(s, value.dtype)

    scene.reference = lambda module: alone(module, lambda x: call(x, written))
    return scene.unknown(call(value.expr, shape), np.zeros(scene.sizes(target), value.dtype))


def alone(module: tvm.IRModule, make: Callable[[relax.Expr], relax.Expr]) -> tvm.IRModule:
    """Return a function of the same parameters that makes one call of the first, all shapes written out."""
    params = list(module["main"].params)
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(make(params[0]))
        builder.emit_func_output(result)
    return builder.get()


def shape_to_tensor(scene: Scene) -> Value:
    value = scene.tensor(static=not scene.choices.one_in(4))
    shape = scene.bind(relax.ShapeExpr(value.extents))
    return scene.call(op.shape_to_tensor(shape))


def tensor_to_shape(scene: Scene) -> Value:
    """Reshape to a shape that comes as a tensor, as TVM's importers write it; TVM itself cannot compile that."""
    value = scene.parameter(scene.shape(), scene.dtype())
    target = [*value.array.shape[:-1], 1, value.array.shape[-1]]
    if scene.choices.one_in(4):
        target = [math.prod(target)]
    if scene.choices.one_in(5):
        tensor = scene.parameter([len(target)], "int64", np.array(target, "int64")).expr
    else:
        tensor = literal(np.array(target, "int64"))
    scene.reference = lambda module: alone(module, lambda x: op.reshape(x, target))
    symbols = scene.cast_shape(scene.bind(op.tensor_to_shape(tensor)), target)
    return scene.call(op.reshape(value.expr, symbols), moves=True)


def static_slice(scene: Scene) -> Value:
    value = scene.tensor(static=not scene.choices.one_in(5))
    begins, ends, strides = [], [], []
    for size in value.array.shape:
        stride = scene.choices.item((1, 2, -1, 1))
        low = scene.choices.integer(0, size - 1)
        high = scene.choices.integer(low + 1, size)
        begins.append(low if stride > 0 else high - 1)
        ends.append(high if stride > 0 else low - 1 if low else -size - 1)
        strides.append(stride)
    bounds = [literal(np.array(part, "int64")) for part in (begins, ends, strides)]
    if scene.choices.one_in(6):
        bounds[0] = scene.parameter([value.rank], "int64", np.array(begins, "int64")).expr
    call = op.dynamic_strided_slice(value.expr, *bounds)
    shape = [len(range(s)[slice(b, e if e >= -s else None, t)]) for s, b, e, t in zip(
        value.array.shape, begins, ends, strides, strict=True)]  # fmt: skip
    return scene.unknown(call, np.zeros(shape, value.dtype))


def match_cast(scene: Scene) -> Value:
    """Cast to the type that the operand has, to less, or to a new symbol."""
    value = scene.tensor()
    extents = value.extents
    if scene.choices.one_in(5):
        axis = scene.choices.integer(0, value.rank - 1)
        extents[axis] = scene.symbol(value.array.shape[axis])
    cast = scene.graph.emit_cast(value, relax.TensorType(extents, value.dtype))
    return any_unary(scene, cast) if cast.dtype in FLOATS else cast


def stale_types(scene: Scene) -> Value:
    """Draw a chain whose bindings forgot their shapes, as they are after an operand became known."""
    scene.given = forget
    value = scene.tensor(dtypes=NUMBERS)
    for _ in range(scene.choices.integer(1, 3)):
        step = scene.choices.item((any_unary, any_binary, moved))
        value = step(scene, value)
    return value


def moved(scene: Scene, value: Value) -> Value:
    return scene.step(value, operators.permute_dims, operators.flip, operators.expand_dims, operators.strided_slice)


# -- kernels -----------------------------------------------------------------------------------------------

KERNELS = ("add", "subtract", "multiply", "maximum", "minimum", "divide", "power")


def kernel(scene: Scene) -> Value:
    """Call the kernel that TVM makes of an operator."""
    scene.given = relax.transform.LegalizeOps()
    value = scene.tensor(dtypes=NUMBERS)
    kind = scene.choices.integer(0, 4)
    if kind == 0:
        return scene.step(value, operators.tile)
    if kind == 1:
        return pad(scene, value, 0, 2, filling(scene, value.dtype), scene.choices.item(("constant", "replicate")))
    if kind == 2:
        return any_binary(scene, value)
    other = partner(scene, value)
    # TVM makes no kernel of x / 0.0
    kernels = KERNELS if value.dtype == "float32" and not is_zero_scalar(other) else KERNELS[:5]
    return scene.call(getattr(op, scene.choices.item(kernels))(value.expr, other))


# -- constants ---------------------------------------------------------------------------------------------

MOVES = (
    *RESHAPES, operators.strided_slice, operators.permute_dims, operators.broadcast_to, operators.flip, operators.tile,
    operators.repeat, operators.concat, indexing.take, indexing.pad, indexing.gather_elements, operators.stack,
)  # fmt: skip


def of_constants(scene: Scene) -> Value:
    """Compute with constants alone, and then with a parameter."""
    dtype = scene.dtype()
    array = scene.data(scene.shape((2, 1, 3, 0)), dtype)
    value = scene.known(literal(array), array)
    for _ in range(scene.choices.integer(1, 2)):
        value = constant_step(scene, value)
    beside = scene.parameter(value.extents, value.dtype)
    return scene.call(op.stack([value.expr, beside.expr], 0), moves=True)


def constant_step(scene: Scene, value: Value) -> Value:
    kind = scene.choices.integer(0, 3)
    if kind == 0:
        return scene.step(value, *MOVES)
    if kind == 1:
        return any_unary(scene, value)
    if kind == 2 and value.rank and value.dtype != "bool":
        name = scene.choices.item([n for n in REDUCTIONS if value.dtype == "float32" or n in ("max", "min", "prod")])
        return reduce(scene, value, name, scene.choices.subset(range(value.rank)), scene.choices.one_in(2))
    other = scene.constant(list(value.array.shape), value.dtype)
    if value.dtype == "bool":
        return scene.call(op.logical_and(value.expr, other))
    return scene.call(scene.choices.item((op.add, op.multiply, op.maximum))(value.expr, other))


def empty(scene: Scene) -> Value:
    """Apply an operator to nothing, or cut all away."""
    shape = scene.shape((2, 1, 3))
    shape[scene.choices.integer(0, len(shape) - 1)] = 0
    value = scene.parameter(shape, scene.dtype(DTYPES))
    step = scene.choices.item((any_unary, any_binary, moved))
    result = step(scene, value)
    if not scene.choices.one_in(4):
        return result
    shape = list(result.array.shape)
    axis = shape.index(0)
    shape[axis] = 1
    beside = scene.parameter(shape, result.dtype)
    return scene.call(op.concat([result.expr, beside.expr], axis), moves=True)


def empty_cut(scene: Scene) -> Value:
    value = scene.tensor(static=True)
    axis = scene.choices.integer(0, value.rank - 1)
    begin = scene.choices.integer(0, value.array.shape[axis] - 1)
    end = begin + scene.choices.one_in(5)
    return scene.call(op.strided_slice(value.expr, [axis], [begin], [end]), moves=True)


def empty_reduction(scene: Scene) -> Value:
    """Reduce an axis beside the empty one."""
    value = operand_of(scene, "sum", shape=[scene.choices.integer(1, 3), 0, 2])
    axes = scene.choices.item(([0], [2], [0, 2]))
    if not value.static:
        raise NoInstance("a symbolic extent is not empty for certain")
    return reduce(scene, value, "sum", axes, scene.choices.one_in(2))


DRAWERS = {
    "inline-shape": (inline_shape,),
    "shape-to-tensor-constant": (shape_to_tensor,),
    "tensor-to-shape-constant": (tensor_to_shape,),
    "static-slice": (static_slice,),
    "match-cast-known": (match_cast,),
    "refine-type": (stale_types,),
    "call-tir-to-operator": (kernel,),
    "fold-constants": (of_constants,),
    "fold-empty": (empty, empty_cut, empty_reduction),
}
