"""nn.pad: a slice layer that begins before its input and ends after it; the pad mode is its sample mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax

from ..registry import Refusal, converter
from ..slices import add_slice
from .limits import dims_of, refuse_tensors, shape_of, shown

if TYPE_CHECKING:
    from ..network import Network

_MODES = {"constant": "FILL", "reflect": "REFLECT", "replicate": "CLAMP", "circular": "WRAP"}


def _widths(call: relax.Call) -> tuple[list[int], list[int]]:
    widths = [int(width) for width in call.attrs.pad_width]
    return widths[::2], widths[1::2]


def _accepts_pad(call: relax.Call) -> Refusal | str | None:
    mode = str(call.attrs.pad_mode)
    if mode not in _MODES:
        return f"pad mode {mode!r}; TensorRT has {', '.join(_MODES)}"
    said = refuse_tensors(call)
    if said is not None:
        return said
    limit = {"reflect": 1, "circular": 0}.get(mode)
    if limit is None:
        return None
    for axis, (extent, before, after) in enumerate(zip(shape_of(call.args[0]), *_widths(call), strict=True)):
        wide = max(before, after)
        # of a symbolic extent the model promises that it is large enough, as of an index that it is within bounds
        if wide > 0 and isinstance(extent, int) and wide > extent - limit:
            return f"{mode} padding of ({before}, {after}) at axis {axis}, whose extent is {shown([extent])}"
    return None


@converter("relax.nn.pad", accepts=_accepts_pad, glue=True)
def pad(network: Network, call: relax.Call) -> Any:
    """Read from `-before` on; a negative width cuts."""
    x = network.tensor(call.args[0])
    before, _ = _widths(call)
    mode = _MODES[str(call.attrs.pad_mode)]
    fill = None
    if mode == "FILL":
        fill = network.constant(np.array(float(call.attrs.pad_value)).astype(str(call.ty.dtype)))
    start = [-width for width in before]
    return add_slice(network, x, start, dims_of(call), mode=mode, fill=fill)
