"""Whether what guards an empty tensor can go: `if numel(x) == 0 then empty else f(x)` is f(x) where f takes no harm.

Where x is empty both branches must give the same: tensors without elements, of one type and of shapes proved equal.
And f must be defined there: each operator of it gives a result and does not fail. So a maximum over no elements is
none, a slice of nothing is nothing, and a sum over nothing is 0. What reads at places that are computed (take, a
padding that mirrors) needs something to read. What is not known to be defined keeps its guard: calls of functions and
kernels, casts that can fail, and operators whose number of rows depends on values, non-maximum suppression with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import tvm
from tvm import relax
from tvm.sym import Analyzer

from relax_glue.evaluate import creation, elementwise
from relax_glue.ir import Extent, dtype_of, extents

Shape = Sequence[Extent]


def is_zero(extent: Extent, facts: Analyzer) -> bool:
    """Return whether an extent is proved to be 0."""
    return extent == 0 if isinstance(extent, int) else bool(facts.can_prove_equal(extent, 0))


def is_positive(extent: Extent, facts: Analyzer) -> bool:
    """Return whether an extent is proved to be at least 1."""
    return extent > 0 if isinstance(extent, int) else bool(facts.can_prove(extent >= 1))


def _equal(left: Extent, right: Extent, facts: Analyzer) -> bool:
    if isinstance(left, int) and isinstance(right, int):
        return left == right
    return bool(facts.can_prove_equal(left, right))


def equally_empty(left: relax.Type, right: relax.Type, facts: Analyzer) -> bool:
    """Return whether values of two types are proved to be the same, having no elements."""
    if isinstance(left, relax.TupleType) and isinstance(right, relax.TupleType):
        if len(left.fields) != len(right.fields):
            return False
        return all(equally_empty(a, b, facts) for a, b in zip(left.fields, right.fields, strict=True))
    shapes = [extents(ty) if isinstance(ty, relax.TensorType) else None for ty in (left, right)]
    one, other = shapes
    if one is None or other is None or len(one) != len(other) or dtype_of(left) != dtype_of(right):
        return False
    if not any(is_zero(extent, facts) for extent in one):
        return False
    return all(_equal(a, b, facts) for a, b in zip(one, other, strict=True))


def is_total(value: relax.Expr, facts: Analyzer) -> bool:
    """Return whether an expression gives a result and cannot fail, under the facts that hold."""
    if isinstance(value, relax.Call):
        name = value.op.name if isinstance(value.op, tvm.ir.Op) else ""
        return name in ALWAYS or (name in UNDER_CONDITIONS and UNDER_CONDITIONS[name](value, facts))
    leaves = (relax.Var, relax.Tuple, relax.TupleGetItem, relax.ShapeExpr, tvm.ir.GenericConst)
    return isinstance(value, leaves)


ALWAYS: frozenset[str] = frozenset(elementwise.EVALUATORS) | frozenset(creation.EVALUATORS) - {"relax.arange"} | {
    f"relax.{name}"
    for name in (
        "broadcast_to", "concat", "cumprod", "cumsum", "expand_dims", "flatten", "flip", "layout_transform",
        "nn.batch_flatten", "nn.gelu", "nn.gelu_tanh", "nn.layer_norm", "nn.log_softmax", "nn.prelu", "nn.selu",
        "nn.silu", "nn.softmax", "nn.softplus", "one_hot", "permute_dims", "repeat", "reshape", "shape_of", "split",
        "squeeze", "stack", "strided_slice", "tile",
    )
}  # fmt: skip
"""Operators that are defined on every operand, empty or not."""


def _shape(value: relax.Expr) -> Shape | None:
    return extents(value.ty) if isinstance(value.ty, relax.TensorType) else None


def _has_elements(shape: Shape | None, facts: Analyzer) -> bool:
    return shape is not None and all(is_positive(extent, facts) for extent in shape)


def _reduces_something(call: relax.Call, facts: Analyzer) -> bool:
    """A reduction of nothing is undefined; along axes that have extents it is defined, however few rows there are."""
    shape = _shape(call.args[0])
    if shape is None:
        return False
    axis = call.attrs.axis
    axes = range(len(shape)) if axis is None else [int(a) for a in (axis if _is_list(axis) else [axis])]
    return all(is_positive(shape[a], facts) for a in axes)


def _multiplies_something(call: relax.Call, facts: Analyzer) -> bool:
    shape = _shape(call.args[0])
    return shape is not None and len(shape) > 0 and is_positive(shape[-1], facts)


def _is_list(axis: Any) -> bool:
    return isinstance(axis, Sequence) or hasattr(axis, "__len__")


def _reads_something(call: relax.Call, facts: Analyzer) -> bool:
    """Indices have something to point at, or there are none."""
    indices = _shape(call.args[1])
    if indices is not None and any(is_zero(extent, facts) for extent in indices):
        return True
    shape = _shape(call.args[0])
    axis = getattr(call.attrs, "axis", None)
    if shape is None or axis is None:
        return _has_elements(shape, facts)
    return is_positive(shape[int(axis)], facts)


def _only_the_batch_is_empty(call: relax.Call, facts: Analyzer) -> bool:
    """Layers of images are defined for no images; of images without pixels they are not."""
    shape = _shape(call.args[0])
    layout = str(getattr(call.attrs, "data_layout", "") or getattr(call.attrs, "layout", ""))
    return shape is not None and layout.startswith("N") and _has_elements(shape[1:], facts)


def _reads_an_image(call: relax.Call, facts: Analyzer) -> bool:
    return _has_elements(_shape(call.args[0]), facts)


def _pads_with_a_constant(call: relax.Call, facts: Analyzer) -> bool:
    return str(call.attrs.pad_mode) == "constant" or _has_elements(_shape(call.args[0]), facts)


Condition = Callable[[relax.Call, Analyzer], bool]

_CONDITIONS: tuple[tuple[Condition, tuple[str, ...]], ...] = (
    (_reduces_something, ("argmax", "argmin", "max", "mean", "min", "prod", "std", "sum", "variance")),
    (_multiplies_something, ("matmul",)),
    (_reads_something, ("gather_elements", "take")),
    (
        _only_the_batch_is_empty,
        (
            *(f"nn.{kind}{rank}d" for kind in ("avg_pool", "conv", "max_pool") for rank in (1, 2, 3)),
            "image.resize2d",
        ),
    ),
    (_reads_an_image, ("vision.roi_align",)),
    (_pads_with_a_constant, ("nn.pad",)),
)

UNDER_CONDITIONS: Mapping[str, Condition] = MappingProxyType(
    {f"relax.{name}": condition for condition, names in _CONDITIONS for name in names}
)
"""Operators that are defined on some empty operands, each with the condition that tells them."""
