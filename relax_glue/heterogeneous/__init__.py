"""Models for a GPU of which a part runs on the CPU, because TVM has no GPU code for it.

`place_on_host` finds that part and makes functions of the host of it; `heterogeneous_pipeline` compiles both kinds into
one executable. `relax_glue.compile` does both.
"""

from __future__ import annotations

from .host import HOST, host_functions, place_on_host
from .lowering import heterogeneous_pipeline

__all__ = ["HOST", "heterogeneous_pipeline", "host_functions", "place_on_host"]
