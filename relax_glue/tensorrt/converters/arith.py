"""Arithmetic on network tensors: the few layers that the converters of compute operators are made of.

Networks are strongly typed and broadcast only between equal ranks. So every helper here aligns ranks, and a
plain number becomes a constant of the other operand's type.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax

from ...errors import ConversionError
from ..extents import Dim, Extent
from ..network import DTYPES
from ..registry import Refusal
from .limits import extents, refuse_type, tensor_types, type_of

if TYPE_CHECKING:
    from ..network import Network

_NAMES = {member: name for name, member in DTYPES.items()}


def refuse_arithmetic(
    call: relax.Call,
    dtypes: Collection[str],
    *,
    results: Collection[str] | None = None,
    args: Collection[int] | None = None,
) -> Refusal | None:
    """Check the operands of a call, which have to be tensors of one dtype, and its results.

    Parameters
    ----------
    call : relax.Call
        The call.
    dtypes : Collection[str]
        The dtypes that the layer takes.
    results : Collection[str], optional
        The dtypes that it yields; `dtypes` if left out.
    args : Collection[int], optional
        Which arguments are operands; all of them if left out.
    """
    types = [type_of(arg) for index, arg in enumerate(call.args) if args is None or index in args]
    for index, ty in enumerate(types):
        if ty is None:
            return Refusal(f"operand {index} is no tensor", "make it a constant tensor")
        said = refuse_type(ty, f"operand {index}", dtypes)
        if said is not None:
            return said
    if len({str(ty.dtype) for ty in types if ty is not None}) > 1:
        return Refusal("the operands differ in dtype", "cast them to one")
    found = list(tensor_types(call.ty))
    if not found:
        return Refusal("the type of the result is not known", "run a type inference first")
    said_of = (refuse_type(ty, "the result", results or dtypes) for ty in found)
    return next((said for said in said_of if said is not None), None)


def extent_of(expr: relax.Expr, axis: int) -> int | None:
    """Return the extent of an argument, or of a call's result, along an axis; None when it is no number."""
    known = extents(expr.ty)
    extent = known[axis] if known is not None else None
    return extent if isinstance(extent, int) else None


def open_dims(shape: Iterable[int]) -> list[Dim]:
    """Return the shape of a tensor as dims of a layer on it: what is only known at run time is its extent."""
    return [Extent(axis) if extent < 0 else int(extent) for axis, extent in enumerate(shape)]


def dtype_name(tensor: Any) -> str:
    """Return the dtype of an `ITensor` as Relax and numpy spell it."""
    return _NAMES[tensor.dtype.name]


def member(network: Network, enumeration: str, name: str) -> Any:
    """Return a member of an enumeration of the TensorRT package.

    Raises
    ------
    ConversionError
        When this version of TensorRT does not have it.
    """
    found = getattr(network.trt, enumeration).__members__.get(name)
    if found is None:
        raise ConversionError(
            f"{network.provider} has no {enumeration}.{name}: use a newer TensorRT, or keep the operator outside "
            f"the region"
        )
    return found


def scalar(network: Network, value: float, like: Any) -> Any:
    """Return a constant of one element with the dtype and rank of the tensor `like`."""
    return network.constant(np.full((1,) * len(like.shape), value).astype(dtype_name(like)))


def unary(network: Network, op: str, x: Any, suffix: str | None = None) -> Any:
    """Add a unary layer; `op` is a member of `trt.UnaryOperation`."""
    layer = network.net.add_unary(x, member(network, "UnaryOperation", op))
    return _out(network, layer, op, suffix)


def binary(network: Network, op: str, a: Any, b: Any, suffix: str | None = None) -> Any:
    """Add an elementwise layer; `op` is a member of `trt.ElementWiseOperation`.

    `a` and `b` are tensors of one dtype, or one of them is a number.
    """
    if isinstance(a, int | float):
        a = scalar(network, a, b)
    if isinstance(b, int | float):
        b = scalar(network, b, a)
    a, b = network.align(a, b)
    layer = network.net.add_elementwise(a, b, member(network, "ElementWiseOperation", op))
    return _out(network, layer, op, suffix)


def activation(
    network: Network,
    op: str,
    x: Any,
    alpha: float | None = None,
    beta: float | None = None,
    suffix: str | None = None,
) -> Any:
    """Add an activation layer; `op` is a member of `trt.ActivationType`."""
    layer = network.net.add_activation(x, member(network, "ActivationType", op))
    out = _out(network, layer, op, suffix)
    if alpha is not None:
        layer.alpha = alpha
    if beta is not None:
        layer.beta = beta
    return out


def select(network: Network, condition: Any, a: Any, b: Any, suffix: str | None = None) -> Any:
    """Add a select layer: `a` where the boolean `condition` holds, else `b`; one of them may be a number."""
    if isinstance(a, int | float):
        a = scalar(network, a, b)
    if isinstance(b, int | float):
        b = scalar(network, b, a)
    condition, a, b = network.align(condition, a, b)
    return _out(network, network.net.add_select(condition, a, b), "select", suffix)


def reduce(
    network: Network, op: str, x: Any, axes: Iterable[int], keepdims: bool = True, suffix: str | None = None
) -> Any:
    """Add a reduce layer over non-negative `axes`; `op` is a member of `trt.ReduceOperation`."""
    layer = network.net.add_reduce(x, member(network, "ReduceOperation", op), axes_mask(axes), keepdims)
    return _out(network, layer, f"reduce_{op}", suffix)


def axes_mask(axes: Iterable[int]) -> int:
    """Return TensorRT's bit mask of axes."""
    return sum(1 << axis for axis in set(axes))


def trunc(network: Network, x: Any, suffix: str | None = None) -> Any:
    """Round towards zero, as sign(x) * floor(|x|): TensorRT has no layer for it; -0.5 gives -0.0."""
    size = unary(network, "FLOOR", unary(network, "ABS", x))
    return binary(network, "PROD", unary(network, "SIGN", x), size, suffix)


def _out(network: Network, layer: Any, op: str, suffix: str | None) -> Any:
    return network.name(layer, op.lower() if suffix is None else suffix).get_output(0)
