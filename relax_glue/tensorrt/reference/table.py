"""How the numpy definition of a layer type is written down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

# numpy arrays, or None for an optional input that is not set
Arrays: TypeAlias = Sequence[Any]


@dataclass(frozen=True)
class Layer:
    """The definition of a layer type.

    Attributes
    ----------
    reader : str
        The class in the TensorRT package that gives access to the layer's attributes, such as "ISliceLayer".
    run : Callable
        `run(layer, inputs)` returns the outputs; an optional input that is not set is None.
    """

    reader: str
    run: Callable[[Any, Arrays], Sequence[np.ndarray]]


def merged(*tables: Mapping[str, Layer]) -> Mapping[str, Layer]:
    """Return one table of several; no layer type may stand in two."""
    found: dict[str, Layer] = {}
    for table in tables:
        twice = found.keys() & table.keys()
        if twice:
            raise ValueError(f"two definitions of {', '.join(sorted(twice))}")
        found.update(table)
    return found
