"""Operators that give as many rows as values decide: what is not zero, the first k.

The number becomes a symbol, which a match_cast binds; noted with the arithmetic of extents is how large it can be,
since TVM's non-maximum suppression makes room for that many.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax, tirx
from tvm.relax.frontend.onnx import onnx_frontend

from relax_glue.frontend.naming import variable_name
from relax_glue.frontend.symbolic import Element

from .node import OnnxNode, extents_of

_ALL = 2**63 - 1  # the end of a slice that goes to the end


def first(node: OnnxNode, data: relax.Expr, axis: int, count: relax.Expr) -> relax.Expr:
    """Return the first `count` (a tensor of one int64) along an axis; its extent is not known by type."""
    rank = data.ty.ndim
    before, after = ([relax.const([_ALL] * n, "int64")] if n else [] for n in (axis, rank - axis - 1))
    end = node.emit(relax.op.concat([*before, count, *after], axis=0)) if rank > 1 else count
    zeros, ones = (relax.const([k] * rank, "int64") for k in (0, 1))
    return node.emit(relax.op.dynamic_strided_slice(data, zeros, end, ones))


def note_most(node: OnnxNode, symbol: tirx.Var, factors: Sequence[Element]) -> None:
    """Note that a symbol is at most the product of some extents, if each has a bound."""
    most = 1
    for factor in factors:
        bound = node.facts.arithmetic.largest(factor)
        if bound is None:
            return
        most *= bound
    node.facts.arithmetic.bind(symbol, 0, most)


def non_zero(node: OnnxNode) -> relax.Expr:
    """NonZero as TVM converts it; noted is how many there can be.

    Of a vector filled with one number it is a range: how exporters wrote arange before ONNX had Range.
    """
    extents = extents_of(node.inputs[0])
    length = _length_of_filled(node)
    if length is not None:
        steps = node.emit(relax.op.arange(0, length, 1, "int64"))
        return relax.op.reshape(steps, relax.ShapeExpr([1, length]))
    converter = onnx_frontend.NonZero.get_converter(node.opset)
    result = node.emit(converter(node.bb, onnx_frontend.onnx_input(node.inputs), node.attrs, [{}, {}]))
    found = extents_of(result)
    if found is not None and extents is not None:
        note_most(node, found[-1], extents)
    return result


def _length_of_filled(node: OnnxNode) -> Element | None:
    """Return the length of a vector that relax.full filled with a number other than 0; None for any other tensor."""
    extents = extents_of(node.inputs[0])
    if not isinstance(node.inputs[0], relax.Var) or extents is None or len(extents) != 1:
        return None
    made = node.bb.lookup_binding(node.inputs[0])
    if not isinstance(made, relax.Call) or made.op != tvm.ir.Op.get("relax.full"):
        return None
    filler = made.args[1]
    known = isinstance(filler, tvm.ir.GenericConst) and bool(filler.value.numpy().all())
    return extents[0] if known else None


def top_k(node: OnnxNode) -> relax.Expr | None:
    """TopK of opset 10, one whose results need not be sorted, and one whose k is computed.

    TVM reads k as an attribute up to opset 10, where it is an operand already, and so takes 1 without a word. It
    refuses sorted=0, which a sorted result satisfies. And it refuses a k that is no constant, such as min(1000, n):
    here all are sorted, and the first k are taken.
    """
    node.attrs["sorted"] = 1
    axis = int(node.attrs.get("axis", -1))
    largest = bool(node.attrs.get("largest", 1))
    known, extents = node.constant(1), extents_of(node.inputs[0])
    if known is not None and extents is not None:  # TVM reads past the end of a shorter axis
        node.require_least(extents[axis], int(known.reshape(-1)[0]))
    if node.opset < 10 or (known is not None and node.opset > 10):
        return None
    if known is not None:
        return relax.op.topk(node.inputs[0], int(known.reshape(-1)[0]), axis, "both", largest, "int64")
    everything = node.emit(relax.op.topk(node.inputs[0], -1, axis, "both", largest, "int64"))
    items = [node.emit(relax.TupleGetItem(everything, k)) for k in range(2)]
    return relax.Tuple(_cut(node, items, axis % items[0].ty.ndim))


def _cut(node: OnnxNode, items: list[relax.Expr], axis: int) -> list[relax.Expr]:
    """Return the first k of each item along an axis: by a slice if k is known by symbols, else by one that reads it."""
    elements, extents = node.elements(1), extents_of(items[0])
    if extents is None:
        raise node.refuse("the extents of its input are not known, even as symbols")
    if elements is not None:
        ends = [node.facts.arithmetic.simplify(elements[0])]
        cut = [node.emit(relax.op.strided_slice(item, [axis], [0], ends, [1])) for item in items]
        extents[axis] = ends[0]
    else:
        count = node.emit(relax.op.reshape(node.inputs[1], (1,)))
        cut = [first(node, item, axis, count) for item in items]
        symbol = tirx.Var(variable_name(f"{node.name}_k"), "int64")
        note_most(node, symbol, [extents[axis]])
        extents[axis] = symbol
    # a k above the extent, which ONNX does not allow, fails here
    return [node.bb.match_cast(item, relax.TensorType(extents, item.ty.dtype)) for item in cut]
