"""Adaptive average poolings: a mean where one element is left, else an average pooling with fixed windows.

TVM's TensorRT conversion makes a global pooling of every adaptive one, whatever its size. Where the extents are
multiples of the sizes all windows are alike, and the pooling is an `avg_pool` with that window. Other windows
overlap by different amounts and stay. Sums may be made in another order. (rules.md Q06 to Q08.)
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from relax_glue.ir import Graph, Node
from relax_glue.rewrite import FLOAT_REASSOC, Decline, Replacement, RuleSet, rule

from .base import family
from .convolution import spatial_axes

ADAPTIVE = ("relax.nn.adaptive_avg_pool1d", "relax.nn.adaptive_avg_pool2d", "relax.nn.adaptive_avg_pool3d")
NO_AXES = Decline("the shape is unknown, the layout has blocked axes, or the dtype is no float")


def _spatial(node: Node) -> list[int] | None:
    """Return the axes that a pooling averages over, or None where they are unknown or it rounds to integers."""
    x = node.inputs[0]
    if x.shape is None or node.value.shape is None or node.attrs.layout != node.attrs.out_layout:
        return None
    return spatial_axes(str(node.attrs.layout), x.ndim) if "float" in str(x.dtype) else None


@rule(
    "adaptive-pool-to-mean",
    *ADAPTIVE,
    equation="adaptive_avg_pool(x, 1) -> mean(x, spatial axes, keepdims=True)",
    soundness=FLOAT_REASSOC,
    source="Q06",
)
def adaptive_pool_to_mean(node: Node, graph: Graph) -> Replacement | Decline:
    """Spell a global average as the mean that it is; the extents may be symbolic."""
    axes = _spatial(node)
    if axes is None:
        return NO_AXES
    if any((node.value.shape or ())[a] != 1 for a in axes):
        return Decline("more than one element is left")
    return graph.emit(lambda x: relax.op.mean(x, axes, True), node.inputs[0])


def _windows(node: Node, axes: Sequence[int]) -> list[int] | None:
    """Return the extent of each axis' windows where they are all alike, or None."""
    before, after = node.inputs[0].shape or (), node.value.shape or ()
    pairs = [(before[a], after[a]) for a in axes]
    if not all(isinstance(n, int) and isinstance(m, int) and m > 0 and n % m == 0 for n, m in pairs):
        return None
    return [n // m for n, m in pairs]


@rule(
    "adaptive-pool-to-pool",
    *ADAPTIVE,
    equation="adaptive_avg_pool(x, m) -> avg_pool(x, window n / m, stride n / m)",
    soundness=FLOAT_REASSOC,
    source="Q07",
)
def adaptive_pool_to_pool(node: Node, graph: Graph) -> Replacement | Decline:
    """Give equal windows their size."""
    axes = _spatial(node)
    if axes is None:
        return NO_AXES
    window = _windows(node, axes)
    if window is None:
        return Decline("the windows differ, or an extent is symbolic")
    make = getattr(relax.op.nn, node.op.removeprefix("relax.nn.adaptive_"))
    layout = str(node.attrs.layout)
    return graph.emit(lambda x: make(x, window, window, layout=layout), node.inputs[0])


RULES = RuleSet.of(adaptive_pool_to_mean, adaptive_pool_to_pool)


CanonicalizePool = family("CanonicalizePool", RULES, "Spell adaptive average poolings as means and average poolings.")
