"""Which convolutions are computed as matrix products: what an engine is built for, and by what extents it is judged.

`converters.gemm` says why, and does it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import tvm

from ..errors import ConversionError
from .cuda import multiprocessors
from .options import BuildOptions
from .profiles import Profile
from .provider import Provider
from .sizes import evaluate, size_of

_USUAL_MULTIPROCESSORS = 64  # for an engine that is built on a machine without a GPU


@dataclass(frozen=True)
class Products:
    """Which convolutions become products.

    Attributes
    ----------
    tiles : int
        Those whose results have fewer tiles of 128 pixels by 128 channels than that; 0 for none.
    sizes : Mapping[str, int]
        The greatest value of each symbolic variable, by name: a result of free extents counts as large as it can be.
    float32 : bool
        Those of float32; else only those of float16 whose channels do not fit tensor cores.
    """

    tiles: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)
    float32: bool = True

    def numbers(self, extents: Sequence[int | tvm.ir.Expr]) -> tuple[int, ...] | None:
        """Return extents as numbers, symbolic ones at their greatest, or None where that is not known."""
        try:
            return tuple(each if isinstance(each, int) else self._greatest(each) for each in extents)
        except (KeyError, ConversionError):  # a variable of no range, or more than arithmetic
            return None

    def _greatest(self, extent: tvm.ir.Expr) -> int:
        return evaluate(size_of(extent, lambda variable: str(variable.name)), self.sizes)


NO_PRODUCTS = Products()


def products_for(options: BuildOptions, provider: Provider, profiles: Sequence[Profile] = (), gpu: int = 0) -> Products:
    """Return which convolutions of a region become products.

    Parameters
    ----------
    options : BuildOptions
        Its `conv_as_matmul` decides; where that is None, also its `tf32`, and free extents are left alone: of models
        with such only one was measured both ways, which took the same time, and products prepare longer for new sizes.
    provider : Provider
        What builds.
    profiles : Sequence[Profile]
        The ranges of the region's symbolic variables.
    gpu : int
        The GPU that the engine is for: a convolution of as many tiles as it has multiprocessors keeps it busy.
    """
    wanted = provider.is_rtx if options.conv_as_matmul is None else options.conv_as_matmul
    if not wanted:
        return NO_PRODUCTS
    asked = bool(options.conv_as_matmul)
    greatest: dict[str, int] = {}
    for name, found in (each for profile in profiles if asked for each in profile.ranges):
        greatest[name] = max(found.max, greatest.get(name, found.max))
    return Products(multiprocessors(gpu) or _USUAL_MULTIPROCESSORS, greatest, asked or not options.tf32)
