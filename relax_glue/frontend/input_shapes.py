"""The shapes of a model's inputs: what the file says, joined with what the caller names."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from relax_glue.errors import InputShapeError
from relax_glue.ir.checks import MAX_EXTENT

if TYPE_CHECKING:
    import onnx

Shape = Sequence["int | str | None"]
InputShapes = Mapping[str, Shape] | Shape


def named_shapes(given: InputShapes | None, names: Sequence[str]) -> dict[str, tuple[int | str | None, ...]]:
    """Bring the caller's shapes to one form: input name to extents, None for an extent left as it is.

    Parameters
    ----------
    given : mapping of str to sequence of int, str or None, or one such sequence, or None
        A bare sequence is the shape of the model's only input; a string names an extent that stays free.
    names : sequence of str
        The inputs of the model, in order.

    Returns
    -------
    dict of str to tuple of int, str or None

    Raises
    ------
    InputShapeError
        An unknown input name, a bare shape for a model with several inputs, or an extent that is no extent.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        if len(names) != 1:
            raise InputShapeError(
                f"one shape was given, but the model has {len(names)} inputs ({', '.join(names)}); "
                "name the input: {name: shape}"
            )
        given = {names[0]: given}
    unknown = [name for name in given if name not in names]
    if unknown:
        raise InputShapeError(f"the model has no input '{unknown[0]}'; its inputs are {', '.join(names)}")
    return {name: tuple(_extent(name, extent) for extent in _listed(name, shape)) for name, shape in given.items()}


def _listed(name: str, shape: object) -> Sequence[object]:
    if isinstance(shape, (str, bytes)) or not isinstance(shape, Sequence):
        raise InputShapeError(f"the shape of input '{name}' must be a tuple of integers, not {shape!r}")
    return shape


def _extent(name: str, extent: object) -> int | str | None:
    if extent is None:
        return None
    if isinstance(extent, str):
        if not (extent.isidentifier() and extent.isascii()) or keyword.iskeyword(extent):
            raise InputShapeError(
                f"the shape of input '{name}' holds {extent!r}, which is no name for a free extent; names are made of "
                "letters, digits and underscores, and are no words of Python"
            )
        return extent
    # numpy's integers are fine; a bool is an int in Python, yet never an extent.
    if isinstance(extent, bool) or not hasattr(extent, "__index__"):
        raise InputShapeError(f"the shape of input '{name}' holds {extent!r}, which is no integer")
    value = int(extent.__index__())
    if not 1 <= value <= MAX_EXTENT:  # in ONNX files 0 stands for an extent that is free
        raise InputShapeError(
            f"the shape of input '{name}' holds {value}; give the extent itself, which is 1 or more and no larger than "
            f"{MAX_EXTENT}, or None to leave it free"
        )
    return value


def check_shape(name: str, given: Sequence[int | str | None], declared: Sequence[int | str]) -> None:
    """Check the caller's extents of one input against those that the file declares.

    Parameters
    ----------
    name : str
        The input.
    given : sequence of int, str or None
        The caller's extents.
    declared : sequence of int or str
        The file's extents; a string is the name of a free one.

    Raises
    ------
    InputShapeError
        Another rank, or another extent where the file has a fixed one.
    """
    shown = f"({', '.join(str(extent) for extent in declared)})"
    if len(given) != len(declared):
        raise InputShapeError(
            f"input '{name}' has rank {len(declared)}, {shown}; the shape given, {tuple(given)}, has rank {len(given)}"
        )
    for axis, (extent, fixed) in enumerate(zip(given, declared, strict=True)):
        if isinstance(fixed, int) and extent not in (None, fixed):
            raise InputShapeError(
                f"input '{name}' is fixed to {shown} in the file; the shape given, {tuple(given)}, differs on "
                f"axis {axis}. Export the model with that axis free"
            )


def onnx_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs that a caller passes: those that are not weights."""
    weights = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in weights]


def declared_extents(value: onnx.ValueInfoProto) -> list[int | str] | None:
    """Return the extents of an ONNX input, a name for each free one; None where its rank is unknown.

    Some exporters write 0 for "any".
    """
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [
        int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value > 0 else _symbol(value, axis)
        for axis, dim in enumerate(tensor.shape.dim)
    ]


def _symbol(value: onnx.ValueInfoProto, axis: int) -> str:
    # "?" and "" stand for any extent, so two of them are two variables; a real name is one variable.
    name = re.sub(r"\W+", "_", value.type.tensor_type.shape.dim[axis].dim_param).strip("_")
    if name and not name[0].isdigit() and not keyword.iskeyword(name):
        return name
    return f"{re.sub(r'[^A-Za-z0-9]+', '_', value.name)}_dim{axis}"


def bind_onnx_inputs(graph: onnx.GraphProto, given: InputShapes | None) -> None:
    """Write the caller's shapes into the inputs of `graph`, in place.

    An extent that several inputs share by name is fixed, or named anew, in all of them as soon as it is in one.

    Raises
    ------
    InputShapeError
        See `named_shapes` and `check_shape`; also two values or two names for one extent, an input that is no tensor,
        and an input of unknown rank without a shape from the caller.
    """
    inputs = onnx_inputs(graph)
    shapes = named_shapes(given, [value.name for value in inputs])
    extents = {value.name: _joined(value, shapes.get(value.name)) for value in inputs}
    decided: dict[str, int | str] = {}
    for value in inputs:
        listed = declared_extents(value) or []
        for symbol, extent in zip(listed, extents[value.name], strict=False):
            if not isinstance(symbol, str) or extent == symbol:
                continue
            if decided.setdefault(symbol, extent) != extent:
                raise InputShapeError(
                    f"the extent '{symbol}' is shared by several inputs, and was given as {decided[symbol]} and "
                    f"as {extent}"
                )
    for value in inputs:
        _write(value, [decided.get(e, e) if isinstance(e, str) else e for e in extents[value.name]])


def _joined(value: onnx.ValueInfoProto, given: Sequence[int | str | None] | None) -> list[int | str]:
    if not value.type.HasField("tensor_type"):
        kind = value.type.WhichOneof("value") or "value of no type"
        raise InputShapeError(f"input '{value.name}' is a {kind}; only tensors can be passed")
    declared = declared_extents(value)
    if declared is None and given is None:
        raise InputShapeError(f"the file does not tell the rank of input '{value.name}'; give its shape")
    if declared is None:
        return [f"{value.name}_dim{axis}" if extent is None else extent for axis, extent in enumerate(given or ())]
    if given is None:
        return declared
    check_shape(value.name, given, declared)
    return [old if extent is None else extent for extent, old in zip(given, declared, strict=True)]


def _write(value: onnx.ValueInfoProto, extents: Sequence[int | str]) -> None:
    shape = value.type.tensor_type.shape
    shape.SetInParent()
    del shape.dim[:]
    for extent in extents:
        dim = shape.dim.add()
        if isinstance(extent, int):
            dim.dim_value = extent
        else:
            dim.dim_param = extent


def free_extents(graph: onnx.GraphProto) -> list[str]:
    """Return the names of the free extents of the inputs, in order."""
    listed = (extent for shape in free_inputs(graph).values() for extent in shape if isinstance(extent, str))
    return list(dict.fromkeys(listed))


def free_inputs(graph: onnx.GraphProto) -> dict[str, list[int | str]]:
    """Return the inputs that still have a free extent, with their extents."""
    extents = {value.name: declared_extents(value) or [] for value in onnx_inputs(graph)}
    return {name: shape for name, shape in extents.items() if any(isinstance(extent, str) for extent in shape)}
