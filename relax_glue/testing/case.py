"""A module together with inputs for it and what it has to answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import tvm

Array = np.ndarray[Any, Any]
Nested: TypeAlias = "Array | tuple[Nested, ...]"


@dataclass(frozen=True, eq=False)
class Case:
    """One drawn module.

    Attributes
    ----------
    module
        Holds one Relax function, `main`.
    inputs
        One array for each parameter of `main`.
    expected
        What `main` returns for them by numpy: an array, or tuples of them nested as the result is.
    sizes
        The size that the inputs give to each symbolic extent, by its name.
    only_moves
        Whether `main` moves data and computes nothing: then even the payloads of NaNs are the same.
    other_inputs
        Inputs of other sizes, as many arrays each; none where every extent is static.
    """

    module: tvm.IRModule
    inputs: tuple[Array, ...]
    expected: Nested
    sizes: dict[str, int]
    only_moves: bool
    other_inputs: tuple[tuple[Array, ...], ...] = ()

    def __repr__(self) -> str:
        inputs = ", ".join(f"{array.dtype}{list(array.shape)}" for array in self.inputs)
        return f"Case(inputs=[{inputs}], sizes={self.sizes}, module=\n{self.module.script()})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print for hypothesis, which would list the fields of a dataclass."""
        printer.text(repr(self))
