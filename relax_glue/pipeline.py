"""The ordered list of passes, each with the reason for its place, and what the public functions do with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm import relax

from . import passes
from .errors import InvalidModuleError


@dataclass(frozen=True)
class Phase:
    """One step of the pipeline.

    Attributes
    ----------
    name : str
        The name of the pass.
    make : Callable
        Makes the pass.
    reason : str
        Why it stands where it stands.
    """

    name: str
    make: object
    reason: str


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


def canonical_passes() -> Sequence[tvm.transform.Pass]:
    """Return the passes that bring a module to its canonical form, in order."""
    return [
        # pure code outside dataflow blocks, in branches too, would be seen by no pass
        relax.transform.ConvertToDataflow(1),
        passes.CanonicalizeReshape(),
    ]


def canonicalize(mod: tvm.IRModule) -> tvm.IRModule:
    """Bring the glue of a module to its canonical form."""
    return tvm.transform.Sequential(canonical_passes())(check_module(mod))
