"""Relax modules kept in files: TVMScript beside the constants, in one archive.

TVM's own `tvm.ir.save_json` ends the process with a segmentation fault on every Relax object in the 0.27 wheel, on a
single variable as well as on a module. What works in every release is the printer and the parser, for all that is no
constant, and numpy's archive for the constants.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  numpy knows the name bfloat16 only from here
import numpy as np
import tvm
from tvm import relax

from relax_glue.errors import InputShapeError, ModelImportError
from relax_glue.validate import check_module

from .input_shapes import InputShapes, check_shape, named_shapes
from .naming import last_line

SCRIPT = "script"  # the entry that holds the text; every other one is a constant


def save(mod: tvm.IRModule, path: str | os.PathLike[str]) -> None:
    """Write a Relax module with its weights to a file that `load` reads.

    Parameters
    ----------
    mod : tvm.IRModule
        The module, which is not changed.
    path : str or os.PathLike
        The file, whose name must end with ``.relax``.

    Raises
    ------
    ModelImportError
        The name has another ending, or the file cannot be written.
    InvalidModuleError
        `mod` is no IRModule, has no Relax function, or is ill-formed.
    """
    if Path(path).suffix.lower() != ".relax":
        raise ModelImportError(f"{path}: a Relax module is kept in a file that ends with .relax")
    lifted, constants = _without_constants(check_module(mod))
    entries: dict[str, Any] = {SCRIPT: np.array(lifted.script()), **constants}
    try:
        with open(path, "wb") as file:
            np.savez(file, **entries)
    except OSError as error:
        raise ModelImportError(f"{path} cannot be written: {error.strerror or error}") from error


def read_saved(path: str | os.PathLike[str]) -> tvm.IRModule:
    """Read what `save` wrote, or a text file of TVMScript.

    A text file is parsed by TVM, which evaluates expressions in it: read only files that you trust.

    Parameters
    ----------
    path : str or os.PathLike
        A ``.relax`` archive, or TVMScript as text.

    Returns
    -------
    tvm.IRModule

    Raises
    ------
    ModelImportError
        The file cannot be read, is damaged, or holds no Relax module.
    """
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == b"PK"
        if not packed:
            return _parse(Path(path).read_text(encoding="utf-8"), path)
        if not zipfile.is_zipfile(path):
            raise zipfile.BadZipFile("its archive is cut short")
        with np.load(path, allow_pickle=False) as archive:
            entries = {name: archive[name] for name in archive.files}
    except OSError as error:
        raise ModelImportError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ModelImportError(f"{path} is no saved Relax module, or it is damaged: {last_line(error)}") from error
    if SCRIPT not in entries:
        raise ModelImportError(f"{path} is an archive, but not one that relax_glue wrote: it has no '{SCRIPT}'")
    return _with_constants(_parse(str(entries.pop(SCRIPT)), path), entries)


def _parse(text: str, path: str | os.PathLike[str]) -> tvm.IRModule:
    try:
        mod = tvm.script.from_source(text)
    except Exception as error:
        raise ModelImportError(f"{path} holds no TVMScript that can be parsed: {last_line(error)}") from error
    if not isinstance(mod, tvm.IRModule):
        raise ModelImportError(f"{path} holds a {type(mod).__name__}, not an IRModule")
    return mod


@relax.expr_functor.mutator
class _Lift(relax.PyExprMutator):
    """Replace each constant of a function by a variable, and remember its value."""

    def __init__(self, mod: tvm.IRModule, function_name: str) -> None:
        super().__init__(mod)
        self.function_name = function_name
        self.lifted: dict[str, tuple[relax.Var, np.ndarray]] = {}

    def visit_generic_const_(self, op: Any) -> relax.Expr:
        name = f"{self.function_name}__constant{len(self.lifted)}"
        variable = relax.Var(name, op.ty)
        self.lifted[name] = (variable, op.value.numpy())
        return variable


def _without_constants(mod: tvm.IRModule) -> tuple[tvm.IRModule, dict[str, np.ndarray]]:
    """Return the module with each constant as a parameter, and the values by name."""
    result = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    constants: dict[str, np.ndarray] = {}
    for name, function in mod.functions_items():
        if not isinstance(function, relax.Function):
            continue
        lift = _Lift(mod, name.name_hint)
        body = lift.visit_expr(function.body)
        params = [*function.params, *(variable for variable, _ in lift.lifted.values())]
        changed = relax.Function(params, body, function.ret_ty, function.is_pure, function.attrs)
        result.update_func(name, changed)
        # numpy's archive has no bfloat16 or float8: such a value is kept as the bytes it is made of.
        for key, (_, value) in lift.lifted.items():
            constants[key] = value.view(f"u{value.itemsize}") if value.dtype.kind == "V" else value
    return result, constants


def _with_constants(mod: tvm.IRModule, constants: dict[str, np.ndarray]) -> tvm.IRModule:
    for name, function in mod.functions_items():
        if not isinstance(function, relax.Function):
            continue
        own = [param for param in function.params if param.name in constants]
        values = {param: tvm.runtime.tensor(constants[param.name].view(np.dtype(str(param.ty.dtype)))) for param in own}
        if values:
            mod = relax.transform.BindParams(name.name_hint, values)(mod)
    return mod


def bind_shapes(mod: tvm.IRModule, shapes: InputShapes | None) -> tvm.IRModule:
    """Fix symbolic extents of the inputs of `main`.

    Parameters
    ----------
    mod : tvm.IRModule
    shapes : mapping of str to tuple of int, or tuple of int, or None
        The names of extents that stay free are those of the module.

    Returns
    -------
    tvm.IRModule

    Raises
    ------
    InputShapeError
        A shape does not fit, or the module has no `main`.
    """
    if shapes is None:
        return mod
    main = next((func for name, func in mod.functions_items() if name.name_hint == "main"), None)
    if not isinstance(main, relax.Function):
        raise InputShapeError("the module has no Relax function main, whose inputs could be fixed")
    params = {param.name: param for param in main.params}
    fixed: dict[Any, int] = {}
    for name, extents in named_shapes(shapes, list(params)).items():
        shape = getattr(params[name].ty, "shape", None)
        if shape is None:
            raise InputShapeError(f"input '{name}' is {params[name].ty}, which has no shape to fix")
        declared = [int(extent) if isinstance(extent, tvm.tirx.IntImm) else extent for extent in shape.values]
        check_shape(name, extents, [extent if isinstance(extent, int) else str(extent) for extent in declared])
        for symbol, extent in zip(declared, extents, strict=True):
            if isinstance(symbol, int) or extent is None or extent == str(symbol):
                continue
            if isinstance(extent, str):
                raise InputShapeError(
                    f"input '{name}' calls its free extent {symbol}; it cannot be named {extent} here"
                )
            if fixed.setdefault(symbol, extent) != extent:
                raise InputShapeError(f"the extent '{symbol}' was given as {fixed[symbol]} and as {extent}")
    return relax.transform.BindSymbolicVars(fixed)(mod) if fixed else mod
