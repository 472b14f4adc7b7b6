"""What is asked of the arguments of public functions: a well-formed module, names where names are wanted."""

from __future__ import annotations

from collections.abc import Iterable

import tvm
from tvm import relax

from .errors import InvalidModuleError, UnknownNameError


def check_module(mod: object) -> tvm.IRModule:
    """Return `mod` if it is a well-formed module with a Relax function.

    Raises
    ------
    InvalidModuleError
        It is something else, holds no Relax function, or is ill-formed.
    """
    if not isinstance(mod, tvm.IRModule):
        hint = "relax_glue.from_onnx, from_torch and from_tflite make one"
        raise InvalidModuleError(f"an IRModule is needed, not {type(mod).__name__}; {hint}")
    if not any(isinstance(f, relax.Function) for _, f in mod.functions_items()):
        names = ", ".join(v.name_hint for v in mod.get_global_vars()) or "nothing"
        raise InvalidModuleError(f"the module has no Relax function (it holds {names}); import a model to Relax first")
    try:
        relax.analysis.well_formed(mod)
    except (ValueError, TypeError, tvm.error.InternalError) as error:
        raise InvalidModuleError(f"the module is not well formed: {error}") from error
    return mod


def as_names(option: str, given: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names that an option holds; a single one may stand by itself.

    Parameters
    ----------
    option : str
        The option, for the message.
    given : str or iterable of str
        Its value.

    Raises
    ------
    UnknownNameError
        It is neither.
    """
    if isinstance(given, str):
        return (given,)
    names = tuple(given) if isinstance(given, Iterable) else (given,)
    for name in names:
        if not isinstance(name, str):
            raise UnknownNameError(f"{option} holds {name!r}, which is no name; give names as strings")
    return names
