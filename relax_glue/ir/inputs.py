"""What the inputs of a function are called in the model that it was imported from."""

from __future__ import annotations

from collections.abc import Mapping

from tvm import relax

_INPUT_NAMES = "input_names"


def with_input_names(func: relax.Function, names: Mapping[str, str]) -> relax.Function:
    """Return a function that knows by which names its parameters go in the model.

    Parameters
    ----------
    func : relax.Function
        It is not changed.
    names : mapping of str to str
        The names in the model by those of the parameters; a name that a variable can have is the same in both, and is
        not noted.
    """
    other = {param: name for param, name in names.items() if param != name}
    return func.with_attr(_INPUT_NAMES, other) if other else func


def input_names(func: relax.Function) -> dict[str, str]:
    """Return the names in the model of those parameters that go by another name in it."""
    return {str(param): str(name) for param, name in ((func.attrs or {}).get(_INPUT_NAMES) or {}).items()}
