"""A dataflow block as the graph that `regions` works on: what is work, what depends on what, what crossing costs."""

from __future__ import annotations

from functools import cache

import networkx as nx
import tvm
from tvm import relax

from .ir import Graph, Node, Value, is_static, product
from .ir.order import symbol_dependencies
from .ir.views import moves_nothing
from .movement import Movement
from .regions import Costs, Regions
from .tensorrt.registry import Registry

# What carries values but is no work: it neither needs an engine nor cuts one by itself.
_PLUMBING = ("input", "constant", "tuple", "opaque", "match_cast")
_SHAPE_OPS = ("relax.shape_of", "relax.shape_to_tensor", "relax.tensor_to_shape")

# What the edge of a region costs for one tensor more, in bytes: it is allocated (in such pieces) and bound.
_TENSOR = 256

_INDEX_TYPES = frozenset({"int32", "int64", "uint32", "bool"})


def is_operator(node: Node) -> bool:
    """Return whether a node is work that can be offloaded or refused."""
    return node.op not in _PLUMBING and node.op not in _SHAPE_OPS


def is_cheap(node: Node, registry: Registry) -> bool:
    """Return whether no engine is worth a node: it moves data, casts it, or computes indices, masks or one number."""
    found = registry.of(node.op)
    if found is None:
        return False
    return found.glue or node.op == "relax.astype" or _computes_indices(node) or _computes_a_number(node)


def _computes_indices(node: Node) -> bool:
    return all(value.dtype in _INDEX_TYPES for value in (node.value, *node.inputs))


def _computes_a_number(node: Node) -> bool:
    """The largest coordinate plus 1, say: a region of its own would be an engine for one addition."""
    return all(value.shape == () for value in (node.value, *node.inputs))


def dependency_graph(graph: Graph) -> nx.DiGraph:
    """Return the nodes of a block, but for inputs and constants, with edges from producers to users."""
    dag = nx.DiGraph()
    after = symbol_dependencies(graph)
    for node in graph:
        if node.op in ("input", "constant"):
            continue
        dag.add_node(node)
        producers = [v.node for v in node.inputs if v.node.op not in ("input", "constant")]
        dag.add_edges_from((p, node) for p in [*producers, *after.get(node, ())])
    return dag


def _crossing(value: Value) -> int:
    """Return what it costs that a value crosses the edge of a region; one without a shape counts as empty."""
    shape = value.shape or (0,)
    # a symbolic extent counts as 1: it is the same on both sides of what is compared
    size = product([e for e in shape if is_static((e,))]) if value.shape != () else 1
    return _TENSOR + size * (tvm.DataType(value.dtype or "int8").bits + 7) // 8


def block_costs(graph: Graph, registry: Registry) -> Costs[Node]:
    """Return what the nodes of a block cost the partition; each is computed once, since the block stays as it is."""

    @cache
    def output_bytes(node: Node) -> int:
        if isinstance(node.ty, relax.TupleType):
            used = {v for user in node.users for v in user.inputs if v.node is node}
            return sum(map(_crossing, used))
        return _crossing(Value(node))

    def read_bytes(producer: Node, user: Node) -> int:
        return sum(_crossing(v) for v in {v for v in user.inputs if v.node is producer})

    @cache
    def cheap(node: Node) -> bool:
        return is_cheap(node, registry)

    return Costs(output_bytes, read_bytes, cheap, graph.is_output)


def make_copies(graph: Graph, found: Regions[Node]) -> dict[Node, int]:
    """Make cheap nodes again in the later regions that want them, and let their users there use the copies.

    Parameters
    ----------
    graph : Graph
        A block as it was read; it is changed in place.
    found : Regions
        Its regions.

    Returns
    -------
    regions : dict[node, int]
        The region of each node that has one, copies included.
    """
    regions = dict(found.of)
    # users first, so that a copy finds those of its users
    for node in sorted(found.copies, key=lambda n: n.order, reverse=True):
        for region in sorted(found.copies[node]):
            users = [u for u in node.users if regions.get(u) == region]
            graph.at = node
            made = graph.rebuild(node, node.inputs)
            regions[made.node] = region
            for user in users:
                graph.rewire(user, node, made.node)
    graph.at = None
    return regions


def route_inputs(graph: Graph, regions: dict[Node, int]) -> dict[Node, int]:
    """Drop what does nothing to the input of a region, so that no region returns what came in.

    Parameters
    ----------
    graph : Graph
        It is changed in place: a reshape to the operand's own shape, or a cast to its own type, goes.
    regions : dict[node, int]
        The region of each node that has one.

    Returns
    -------
    regions : dict[node, int]
        Those of the nodes that are left.
    """
    left = dict(regions)
    for node in sorted(regions, key=lambda n: n.order):
        # inside a region it is a layer that TensorRT takes out; at its edge it would be an input returned as a result
        if _does_nothing(node) and left.get(node.inputs[0].node) != left[node]:
            graph.replace(node.value, node.inputs[0])
            graph.drop_dead(node)
            del left[node]
    return left


def _does_nothing(node: Node) -> bool:
    if node.op == "relax.astype":
        return node.value.dtype == node.inputs[0].dtype
    view = node.view
    return isinstance(view, Movement) and len(node.inputs) == 1 and moves_nothing(view, node.inputs[0].shape or ())
