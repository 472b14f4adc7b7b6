"""Relax modules kept in files: TVMScript beside the constants, in one archive.

TVM's own `tvm.ir.save_json` ends the process with a segmentation fault on every Relax object in the 0.27 wheel, on a
single variable as well as on a module. What works in every release is the printer and the parser, for all that is no
constant, and numpy's archive for the constants: in the text they are free variables, whose values the parser is told.
(As parameters they would be missing where another function calls theirs, as a region is called.)
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  numpy knows the name bfloat16 only from here
import numpy as np
import tvm
from tvm import relax
from tvm.script.parser.core.entry import _default_globals

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
    text, constants = _without_constants(check_module(mod))
    entries: dict[str, Any] = {SCRIPT: np.array(text), **constants}
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
    text = str(entries.pop(SCRIPT))
    return _parse(text, path, dict(_constant(*entry) for entry in entries.items()))


def _parse(text: str, path: str | os.PathLike[str], constants: Mapping[str, relax.Expr] | None = None) -> tvm.IRModule:
    """Read TVMScript in which names may stand for constants."""
    try:
        mod = tvm.script.from_source(text, extra_vars={**_default_globals(), **(constants or {})})
    except Exception as error:
        raise ModelImportError(f"{path} holds no TVMScript that can be parsed: {last_line(error)}") from error
    if not isinstance(mod, tvm.IRModule):
        raise ModelImportError(f"{path} holds a {type(mod).__name__}, not an IRModule")
    return mod


@relax.expr_functor.mutator
class _Lift(relax.PyExprMutator):
    """Replace each constant of a function by a free variable, and remember its value."""

    def __init__(self, mod: tvm.IRModule, function_name: str) -> None:
        super().__init__(mod)
        self.function_name = function_name
        self.values: dict[str, np.ndarray] = {}

    def visit_generic_const_(self, op: Any) -> relax.Expr:
        name = f"{self.function_name}__constant{len(self.values)}"
        self.values[name] = op.value.numpy()
        return relax.Var(name, op.ty)


def _without_constants(mod: tvm.IRModule) -> tuple[str, dict[str, np.ndarray]]:
    """Return the module as text in which each constant is a name, and the entries that hold the values."""
    result = mod.clone()
    values: dict[str, np.ndarray] = {}
    for name, function in mod.functions_items():
        if not isinstance(function, relax.Function):
            continue
        lift = _Lift(mod, name.name_hint)
        body = lift.visit_expr(function.body)
        result.update_func(
            name, relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)
        )
        values.update(lift.values)
    lines = [line for line in result.script().split("\n") if not _declares(line, values)]
    return "\n".join(lines), dict(_entry(*item) for item in values.items())


def _declares(line: str, names: Container[str]) -> bool:
    """Return whether a line is `name: R.Tensor(...)`, which the printer writes before a free variable is used."""
    name, colon, ty = line.strip().partition(": ")
    return bool(colon) and name in names and " = " not in ty


def _entry(name: str, value: np.ndarray) -> tuple[str, np.ndarray]:
    """Return the entry that holds a constant: as bytes where numpy's archive lacks the dtype, bfloat16 or float8."""
    return (f"{name}.{value.dtype}", value.view(f"u{value.itemsize}")) if value.dtype.kind == "V" else (name, value)


def _constant(entry: str, value: np.ndarray) -> tuple[str, relax.Expr]:
    """Return the name and the constant that an entry holds."""
    name, _, dtype = entry.partition(".")
    return name, relax.const(tvm.runtime.tensor(value.view(np.dtype(dtype)) if dtype else value))


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
