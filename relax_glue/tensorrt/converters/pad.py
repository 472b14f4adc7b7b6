"""nn.pad: a slice layer that begins before its input and ends after it; the pad mode is its sample mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
from tvm import relax

from ..registry import Refusal, converter
from ..slices import add_slice
from .limits import extents, refuse_changed, refuse_tensors, shown, sizes_of

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
    said = refuse_tensors(call, static=False) or refuse_changed(call)
    if said is not None:
        return said
    limit = {"reflect": 1, "circular": 0}.get(mode)
    if limit is None:
        return None
    known = extents(call.args[0].ty) or []
    for axis, (extent, before, after) in enumerate(zip(known, *_widths(call), strict=True)):
        wide = max(before, after)
        if wide > 0 and not (isinstance(extent, tvm.tirx.IntImm) and wide <= int(extent) - limit):
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
    return add_slice(network, x, start, sizes_of(call), mode=mode, fill=fill)
