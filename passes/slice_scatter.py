"""`slice_scatter` as a concat of what it leaves and what it writes.

x[:, a:b] = y is a slice_scatter in a torch export. TensorRT and TVM's table for it have none; a concat of
x[:, :a], y and x[:, b:] is the same, and meets the rules of slices and concats on both sides.
"""

from __future__ import annotations

from relax_glue.ir import Graph, Node
from relax_glue.ir.views import emit_movement, join, scatter_window
from relax_glue.movement import Slice
from relax_glue.rewrite import Decline, Replacement, rule


@rule(
    "slice-scatter-to-concat",
    "relax.slice_scatter",
    equation="slice_scatter(x, y, a, b, axis) -> concat(x[:a], y, x[b:], axis)",
    source="torch's spelling of x[a:b] = y",
)
def slice_scatter_to_concat(node: Node, graph: Graph) -> Replacement | Decline:
    """Write y between the two parts of x that stay, of which none, one or both may be empty."""
    window = scatter_window(node)
    if window is None:
        return Decline("the bounds are not literals inside the extent")
    axis, start, step = window
    x, source = node.inputs
    written, extent = (source.shape or ())[axis], (x.shape or ())[axis]
    if step != 1 and written != 1:
        return Decline("the elements that are written do not lie together")
    after = start + written
    whole = Slice.whole(x.shape or ())
    windows = [(0, start), (after, extent - after)]
    left, right = [[emit_movement(graph, whole.with_axis(axis, *window), x)] if window[1] else [] for window in windows]
    return join(graph, axis, [*left, source, *right])
