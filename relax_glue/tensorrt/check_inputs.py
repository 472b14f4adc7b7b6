"""What a function is called with in a check: the arrays given, if they fit its parameters, or random ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx

from ..errors import InputShapeError
from .plain import static_shape


def arguments_of(function: relax.Function, inputs: Sequence[Any] | None) -> list[Any]:
    """Return the arguments of a call, as the virtual machine takes them.

    Parameters
    ----------
    function : relax.Function
        What is called.
    inputs : Sequence, optional
        An array for each tensor, numbers for each shape, and a sequence of both for each tuple. Random tensors if left
        out.

    Raises
    ------
    InputShapeError
        An input does not fit its parameter: another number of them, another dtype, rank or extent. Or none is given,
        and a parameter is no tensor of static shape.
    """
    params = function.params
    if inputs is None:
        random = np.random.default_rng(0)
        return [tvm.runtime.tensor(_invented(param, random)) for param in params]
    if isinstance(inputs, np.ndarray) or not isinstance(inputs, Sequence):
        raise InputShapeError(f"inputs are a sequence with one entry for each input, not {type(inputs).__name__}")
    if len(inputs) != len(params):
        raise InputShapeError(f"the function takes {len(params)} inputs, not {len(inputs)}")
    fit = _Fit()
    return [fit.argument(param.name, param.ty, given) for param, given in zip(params, inputs, strict=True)]


class _Fit:
    """Compares what is given with the types of parameters; a symbol has one size in all of them."""

    def __init__(self) -> None:
        self.sizes: dict[tirx.Var, int] = {}

    def argument(self, name: str, ty: relax.Type, given: Any) -> Any:
        """Return one argument of the type asked for."""
        if isinstance(ty, relax.TupleType):
            return [self.argument(f"{name}[{k}]", field, given[k]) for k, field in enumerate(ty.fields)]
        if isinstance(ty, relax.ShapeType):
            extents = tuple(int(extent) for extent in given)
            self._compare(name, ty, ty.values, extents)
            return tvm_ffi.Shape(extents)
        array = np.array(given.numpy() if isinstance(given, tvm.runtime.Tensor) else given, order="C")
        if isinstance(ty, relax.TensorType):
            self._compare_tensor(name, ty, array)
        return tvm.runtime.tensor(array)

    def _compare_tensor(self, name: str, ty: relax.TensorType, array: np.ndarray) -> None:
        if ty.dtype is not None and str(array.dtype) != str(ty.dtype):
            raise InputShapeError(f"{name} is {ty}, and was given elements of type {array.dtype}")
        if ty.ndim not in (-1, array.ndim):
            raise InputShapeError(f"{name} is {ty}, and was given an array of rank {array.ndim}")
        self._compare(name, ty, getattr(ty.shape, "values", None), array.shape)

    def _compare(self, name: str, ty: relax.Type, extents: Any, shape: tuple[int, ...]) -> None:
        """Compare extents that are numbers or symbols; TVM asks the rest when it is called."""
        for axis, (extent, size) in enumerate(zip(extents or (), shape, strict=False)):
            wanted = int(extent) if isinstance(extent, tirx.IntImm) else size
            if isinstance(extent, tirx.Var):
                wanted = self.sizes.setdefault(extent, size)
            if wanted != size:
                said = f"axis {axis} has to be {wanted}"
                raise InputShapeError(f"{name} is {ty}, and was given the shape {shape}: {said}")


def _invented(param: relax.Var, random: np.random.Generator) -> np.ndarray:
    shape = static_shape(param.ty) if isinstance(param.ty, relax.TensorType) else None
    if shape is None:
        raise InputShapeError(f"{param.name} is {param.ty}: give inputs, it has no static shape to invent them for")
    dtype = str(param.ty.dtype)
    values = random.integers(0, 2, shape) if dtype.startswith(("int", "uint", "bool")) else random.random(shape)
    return tvm.runtime.tensor(np.asarray(values, "float32")).numpy().astype(dtype)
