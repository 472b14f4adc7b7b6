"""The converters, one file for each family of layers, and `REGISTRY`, which holds them all.

To support an operator, write a `Converter` into the module of its family: the registry takes what stands
there. A new module has to be added to the list below.
"""

from __future__ import annotations

from ..registry import Registry
from . import (
    activation,
    adaptive,
    attention,
    concat,
    convolution,
    creation,
    elementwise,
    gather,
    logic,
    matmul,
    norm,
    pad,
    pooling,
    quantize,
    reduce,
    resize,
    scatter,
    shuffle,
    slice,
    sort,
    vision,
)

REGISTRY = Registry.collect(
    activation,
    adaptive,
    attention,
    concat,
    convolution,
    creation,
    elementwise,
    gather,
    logic,
    matmul,
    norm,
    pad,
    pooling,
    quantize,
    reduce,
    resize,
    scatter,
    shuffle,
    slice,
    sort,
    vision,
)
