"""One node of an exported program as a repair sees it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from tvm import relax


@dataclass(frozen=True)
class TorchNode:
    """One call of an ATen operator, its operands already Relax expressions.

    Attributes
    ----------
    fx : torch.fx.Node
        The node of the exported program.
    importer : tvm.relax.frontend.torch.exported_program_translator.ExportedProgramImporter
        The importer at work.
    """

    fx: Any
    importer: Any

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """The operands by the names of the operator's schema, defaults filled in."""
        given = dict(self.fx.kwargs)
        found = {}
        for place, parameter in enumerate(self.fx.target._schema.arguments):
            value = self.fx.args[place] if place < len(self.fx.args) else given.get(parameter.name, Ellipsis)
            if value is Ellipsis:
                value = parameter.default_value if parameter.has_default_value() else None
            found[parameter.name] = self.importer._retrieve_args(value)
        return found

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    @property
    def result_shape(self) -> tuple[Any, ...]:
        """The shape PyTorch found for the result."""
        return tuple(self.fx.meta["val"].shape)

    def emit(self, expr: relax.Expr) -> relax.Expr:
        """Bind an intermediate result to a variable."""
        return self.importer.block_builder.emit(expr)

    def axis(self, name: str, x: relax.Expr) -> int:
        """Return an operand that names an axis of `x`, counted from the front; 0 for the axis of a scalar."""
        return int(self[name]) % max(x.ty.ndim, 1)


def as_tensor(value: Any, like: relax.Expr) -> relax.Expr:
    """Return a Python number as a constant of the type of `like`, and a tensor as it is."""
    if isinstance(value, relax.Expr):
        return value
    dtype = str(like.ty.dtype)
    return relax.const(value, dtype) if dtype == "bfloat16" else relax.const(np.array(value, dtype), dtype)


def is_integer(x: relax.Expr) -> bool:
    """Tell whether the elements are integers."""
    return str(x.ty.dtype).startswith(("int", "uint"))
