"""Slices moved before clusters of operators, where a layer has less to compute then.

    strided_slice(silu(conv(x, W) + b), channels)     ->  silu(conv(x, W[:k]) + b[:k])
    strided_slice(layer_norm(x + mlp(x)), one token)  ->  layer_norm(t + mlp(t)), t = strided_slice(x)

A classifier reads one token of the last block of a transformer, and the block computes all of them. Operators that
work element by element, normalisations of other axes, permutes, reshapes, products and the channels of convolutions are
walked back through, as far as nothing else reads what is cut off: `x` above is read twice, and by the cluster alone.
Without a layer among them nothing is gained, since TensorRT computes what is pointwise with the layer before it: a
crop of pixels after a convolution stays where it is. (rules.md S20, S21, S25.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from relax_glue.ir import Extent, Graph, Node, Value, same
from relax_glue.ir.views import emit_movement, moves_nothing, normal_axis
from relax_glue.movement import Permute, Reshape, Slice
from relax_glue.rewrite import FLOAT_REASSOC, Decline, Replacement, rule

from .axis_norms import OVER_AXES, normalised_axes
from .batch_norm import CONVOLUTIONS
from .between_reshapes import SOFTMAXES
from .convolution import emit_convolution
from .pointwise import BINARY, UNARY, WHERE
from .slice_layers import batches_are_known, operand_slice
from .slice_through import NO_VIEW, SLICE, slice_before_reshape

POINTWISE = (*UNARY, *BINARY, WHERE)
MATMUL = "relax.matmul"
LAYERS = (*CONVOLUTIONS, MATMUL)
LIMIT = 64  # nodes of a cluster

Cuts = list[Slice | None]  # what is read of each operand; None where it is read as a whole


@dataclass
class Cluster:
    """What is computed for one slice alone.

    Attributes
    ----------
    nodes : dict[Node, tuple[Slice, Cuts]]
        For each node what is read of its result, and what of its operands then.
    edge : dict[Value, list[Slice]]
        What else is cut, once for each time that it is read.
    """

    nodes: dict[Node, tuple[Slice, Cuts]] = field(default_factory=dict)
    edge: dict[Value, list[Slice]] = field(default_factory=dict)


@rule(
    "slice-before-layers",
    SLICE,
    equation="strided_slice(f(layer(x, W))) -> f(layer(x, strided_slice(W)) | layer(strided_slice(x), W))",
    producers=(*POINTWISE, *OVER_AXES, *SOFTMAXES, *CONVOLUTIONS),
    single_use=(0,),
    soundness=FLOAT_REASSOC,
    source="S20, S21, S25",
)
def slice_before_layers(node: Node, graph: Graph) -> Replacement | Decline:
    """Compute only what is kept, if that is half or less."""
    view, value = node.view, node.inputs[0]
    if not isinstance(view, Slice) or view.is_empty or value.shape is None:
        return NO_VIEW
    axes = view.cuts(value.shape)
    if 2 * prod(view.size[a] for a in axes) > prod(value.shape[a] for a in axes):
        return Decline("more than half is kept")
    cluster = grow(graph, value, view)
    layers = sum(member.op in LAYERS for member in cluster.nodes)
    if not layers:
        return Decline("no layer before it would have less to compute")
    if sum(len(set(views)) for views in cluster.edge.values()) > layers + 1:
        return Decline("more slices would be made than layers have less to compute")
    return build(graph, cluster, value, view)


def grow(graph: Graph, value: Value, view: Slice) -> Cluster:
    """Return all that is computed for a slice of a value alone, and can be computed for it from slices."""
    cluster = Cluster(edge={value: [view]})
    waiting = [value]
    while waiting and len(cluster.nodes) < LIMIT:
        value = waiting.pop()
        cuts = _member_cuts(graph, value, cluster.edge.get(value, []))
        if cuts is None:
            continue
        cluster.nodes[value.node] = (cluster.edge.pop(value)[0], cuts)
        for operand, cut in zip(value.node.inputs, cuts, strict=True):
            if cut is not None and operand.op != "constant":
                cluster.edge.setdefault(operand, []).append(cut)
                waiting.append(operand)
    return cluster


def _member_cuts(graph: Graph, value: Value, views: Sequence[Slice]) -> Cuts | None:
    """Return what is read of the operands of a value for slices of it, or None where it is needed as it is."""
    if not views or value.index is not None or len(views) != graph.uses(value.node) or len(set(views)) != 1:
        return None
    cuts = operand_cuts(value.node, views[0])
    if cuts is None:
        return None
    pairs = zip(cuts, value.node.inputs, strict=True)
    return [None if cut is None or moves_nothing(cut, v.shape or ()) else cut for cut, v in pairs]


def operand_cuts(node: Node, view: Slice) -> Cuts | None:
    """Return what is read of the operands of a node for a slice of its result; None where that is not known."""
    shape = node.value.shape
    if shape is None or any(v.shape is None for v in node.inputs):
        return None
    if node.op in POINTWISE:
        return _aligned_cuts(node, view, shape)
    if node.op in (*OVER_AXES, *SOFTMAXES):
        over = normalised_axes(node) if node.op in OVER_AXES else (normal_axis(int(node.attrs.axis), len(shape)),)
        return None if {*over} & {*view.cuts(shape)} else [view, *[None] * (len(node.inputs) - 1)]
    if node.op == MATMUL:
        if min(v.ndim for v in node.inputs) < 2 or not batches_are_known(node):
            return None
        return [operand_slice(view, v, k) for k, v in enumerate(node.inputs)]
    if node.op in CONVOLUTIONS:
        return _conv_cuts(node, view, shape)
    return _moved_cuts(node, view, shape)


def _aligned_cuts(node: Node, view: Slice, shape: Sequence[Extent]) -> Cuts | None:
    """Return what a pointwise operator reads of its operands, whose shapes are aligned at the right."""
    found: Cuts = []
    for operand in node.inputs:
        own = operand.shape or ()
        cut, lead = Slice.whole(own), len(shape) - len(own)
        for axis, extent in enumerate(own):
            if same(extent, shape[lead + axis]):
                cut = cut.with_axis(axis, *(w[lead + axis] for w in (view.begin, view.size, view.stride)))
            elif not same(extent, 1):
                return None
        found.append(cut)
    return found


def _conv_cuts(conv: Node, view: Slice, shape: Sequence[Extent]) -> Cuts | None:
    """Return the weights of the channels that are kept, and the channels that a depthwise convolution reads."""
    attrs, (x, weight) = conv.attrs, conv.inputs
    layout, kernel = str(attrs.data_layout), str(attrs.kernel_layout)
    if weight.op != "constant" or len(layout) != len(shape) or str(attrs.out_layout or layout) != layout:
        return None
    if "C" not in layout or "O" not in kernel or view.cuts(shape) != [layout.index("C")]:
        return None
    channel, out = layout.index("C"), kernel.index("O")
    window = (view.begin[channel], view.size[channel], view.stride[channel])
    maps = Slice.whole(weight.shape or ()).with_axis(out, *window)
    if int(attrs.groups) == 1:
        return [None, maps]
    if not int(attrs.groups) == (weight.shape or ())[out] == (x.shape or ())[channel]:
        return None
    return [Slice.whole(x.shape or ()).with_axis(channel, *window), maps]


def _moved_cuts(node: Node, view: Slice, shape: Sequence[Extent]) -> Cuts | None:
    """Return what a permute or a reshape reads of its operand."""
    before = node.inputs[0].shape if node.inputs else None
    if before is None:
        return None
    if isinstance(node.view, Reshape):
        cut = slice_before_reshape(view, before, shape)
        return None if cut is None else [cut]
    if not isinstance(node.view, Permute):
        return None
    moved = Slice.whole(before)
    for axis, source in enumerate(node.view.axes):
        moved = moved.with_axis(source, view.begin[axis], view.size[axis], view.stride[axis])
    return [moved]


def build(graph: Graph, cluster: Cluster, value: Value, view: Slice) -> Value:
    """Add a cluster for what is kept of its result; what it reads from outside is cut."""
    made: dict[Node, Value] = {}
    slices: dict[tuple[Value, Slice], Value] = {}

    def cut(operand: Value, window: Slice | None) -> Value:
        if window is None:
            return operand
        if operand.array is not None:
            return graph.constant(window.apply(operand.array))
        node = operand.node
        if node not in cluster.nodes:
            if (operand, window) not in slices:
                slices[operand, window] = emit_movement(graph, window, operand)
            return slices[operand, window]
        if node not in made:
            kept, windows = cluster.nodes[node]
            made[node] = _rebuilt(graph, node, kept, [cut(*pair) for pair in zip(node.inputs, windows, strict=True)])
        return made[node]

    return cut(value, view)


def _rebuilt(graph: Graph, node: Node, kept: Slice, inputs: Sequence[Value]) -> Value:
    """Add a node of operands that are cut."""
    if isinstance(node.view, Reshape):
        return emit_movement(graph, Reshape(kept.size), inputs[0])
    if node.op in CONVOLUTIONS and int(node.attrs.groups) > 1:
        return emit_convolution(
            graph, node, *inputs, groups=(inputs[1].shape or ())[str(node.attrs.kernel_layout).index("O")]
        )
    return graph.rebuild(node, inputs)
