"""Extents in words for people."""

from __future__ import annotations

import re

from .shapes import Extent


def written(extent: Extent) -> str:
    """Return an extent as one writes it: min(h - 1, 8) // 2, not T.min(h - T.int64(1), T.int64(8)) // T.int64(2)."""
    text = re.sub(r"T\.int(?:32|64)\((-?\d+)\)", r"\1", str(getattr(extent, "value", extent)))
    return re.sub(r"\bT\.(min|max)\(", r"\1(", text)
