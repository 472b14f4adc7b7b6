"""Random instances for every rule of the pipeline: for each rule, the functions that draw what it looks for.

What they draw lines up with the rule most of the time; the rest, which looks alike and is something else, is what
the rule has to decline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from relax_glue.testing.graph import Value

from . import idioms, joins, layers, moves, pointwise, reshapes, shapes, slices
from .scene import Instance, NoInstance, Scene

__all__ = ["DRAWERS", "Instance", "NoInstance", "Scene"]

Drawer = Callable[[Scene], Value]

DRAWERS: Mapping[str, Sequence[Drawer]] = MappingProxyType(
    {
        **shapes.DRAWERS,
        **layers.DRAWERS,
        **pointwise.DRAWERS,
        **reshapes.DRAWERS,
        **moves.DRAWERS,
        **slices.DRAWERS,
        **joins.DRAWERS,
        **idioms.DRAWERS,
    }
)
"""By the name of the rule; one of its drawers is drawn for each instance."""
