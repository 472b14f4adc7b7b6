"""Clusters of operators that follow a permutation together, and what the permutes at their edge cost: for `motion`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import tvm
from tvm import relax

from relax_glue.ir import Extent, Graph, Node, Value
from relax_glue.ir.order import by_dependency
from relax_glue.movement import Permute, compose_permutes, inverse, permute_keeps_order

from .axis_norms import NORMS, may_stand
from .axis_order import Axes, following, kept_order, lifted, may_reduce, rank_of
from .batch_norm import CONVOLUTIONS, TRANSPOSED
from .reduce import REDUCTIONS

LAYERS = frozenset((*CONVOLUTIONS, *TRANSPOSED, "relax.matmul"))  # TensorRT computes what follows along with them
_FEW = 64  # how many users of a value are looked at
_ORDERS = 8  # how many orders of axes are tried for one cluster


@dataclass
class Cost:
    """What permutes move: bytes for each product of symbolic extents (the empty one for static shapes)."""

    bytes: Counter[tuple[str, ...]] = field(default_factory=Counter)
    permutes: int = 0
    after_layers: int = 0  # those right after a layer, which keep its bias and activation from it

    def add(self, shape: Iterable[Extent], dtype: str | None, after_layer: bool = False) -> None:
        """Count one permute of a tensor."""
        size, symbols = tvm.DataType(dtype or "float32").bits / 8, []
        for extent in shape:
            if isinstance(extent, int):
                size *= extent
            else:
                symbols.append(str(extent))
        self.bytes[tuple(sorted(symbols))] += size
        self.permutes += 1
        self.after_layers += after_layer

    def is_less(self, other: Cost) -> bool:
        """Return whether it is less: in bytes, for every value of the symbols; else in permutes, and so on."""
        terms = {*self.bytes, *other.bytes}
        if self.permutes > other.permutes or any(self.bytes[t] > other.bytes[t] for t in terms):
            return False
        if any(self.bytes[t] < other.bytes[t] for t in terms):
            return True
        return (self.permutes, self.after_layers) < (other.permutes, other.after_layers)

    def is_fewer(self, other: Cost) -> bool:
        """Return whether there are fewer permutes, and no more that part a layer from what follows it."""
        return self.permutes < other.permutes and self.after_layers <= other.after_layers

    @property
    def rank(self) -> tuple[float, int, int]:
        """Where it stands among costs that are less than the one at hand."""
        return sum(self.bytes.values()), self.permutes, self.after_layers


@dataclass(frozen=True)
class Edge:
    """A permute by `axes`, perhaps one that moves nothing, of a value at the edge of a cluster."""

    source: Value
    axes: Axes
    from_inside: bool
    to_inside: bool

    def under(self, order: Axes) -> tuple[Value, Axes, bool]:
        """Return what is permuted, and how, once the cluster's axes stand in `order`."""
        axes = compose_permutes(self.axes, order) if self.to_inside else self.axes
        axes = compose_permutes(inverse(order), axes) if self.from_inside else axes
        return self.source, axes, self.from_inside


class Cluster:
    """Nodes that follow a permutation together, in an order that respects their dependencies."""

    def __init__(self, graph: Graph, nodes: list[Node], operands: dict[Node, tuple[int, ...]]) -> None:
        self.graph = graph
        self.nodes = nodes
        self.operands = operands
        self.members = set(nodes)
        self.rank = rank_of(nodes[0])
        self.edges: dict[Edge, None] = {}
        self.reductions: dict[Node, None] = {}

    def holds(self, value: Value) -> bool:
        """Return whether a value is made inside."""
        return value.node in self.members

    def followers(self, node: Node) -> Iterator[Value]:
        """Yield the operands of a member that are permuted with it."""
        return (node.inputs[k] for k in self.operands[node])

    def permute_before(self, value: Value) -> tuple[Value, Axes] | None:
        """Return the operand and the axes of the permute that a value is, or None."""
        view = value.node.view
        if not isinstance(view, Permute) or len(view.axes) != self.rank:
            return None
        return value.node.inputs[0], view.axes

    # -- the edge ----------------------------------------------------------------------------------------

    def survey(self, exact: bool) -> None:
        """Find the edges: what comes in, and what is used outside."""
        for value in dict.fromkeys(v for node in self.nodes for v in self.followers(node)):
            self._enter(value)
        for node in self.nodes:
            for user, count in node.users.items():
                self._leave(node, user, count, exact)
        self._leave_plain(v for _, v in self.graph.outputs if self.holds(v))

    def _add(self, source: Value, axes: Axes, to_inside: bool) -> None:
        self.edges[Edge(source, axes, self.holds(source), to_inside)] = None

    def _enter(self, value: Value) -> None:
        if self.holds(value) or value.array is not None:
            return
        source, axes = self.permute_before(value) or (value, tuple(range(self.rank)))
        self._add(source, axes, True)
        for user in source.node.users if len(source.node.users) <= _FEW else ():
            there = self.permute_before(user.value)
            if there is not None and there[0] == source and self._is_used_outside(user):
                self._add(*there, False)  # it stays, so that one like it is free

    def _is_used_outside(self, node: Node) -> bool:
        inside = sum(sum(v.node is node for v in self.followers(u)) for u in node.users if u in self.members)
        return self.graph.uses(node) > inside

    def _leave(self, node: Node, user: Node, count: int, exact: bool) -> None:
        if user in self.members and sum(v.node is node for v in self.followers(user)) == count:
            return
        found = self.permute_before(user.value) if user not in self.members else None
        if found is not None:
            if self._is_used_outside(user):
                self._add(*found, False)
        elif user.op in REDUCTIONS and user not in self.members and may_reduce(user, exact):
            self.reductions[user] = None
        else:
            self._leave_plain(v for v in user.inputs if v.node is node)

    def _leave_plain(self, values: Iterable[Value]) -> None:
        for value in values:
            self._add(value, tuple(range(self.rank)), False)

    # -- the choice --------------------------------------------------------------------------------------

    def orders(self) -> list[Axes]:
        """Return the orders of axes in which a permute at the edge goes, most frequent first."""
        found: Counter[Axes] = Counter()
        for edge in self.edges:
            if edge.from_inside != edge.to_inside:
                found[edge.axes if edge.from_inside else inverse(edge.axes)] += 1
        found.pop(tuple(range(self.rank)), None)
        norms = [node for node in self.nodes if node.op in NORMS]
        kept = [order for order in found if all(may_stand(node, order) for node in norms)]
        return sorted(kept, key=lambda order: (-found[order], order))[:_ORDERS]

    def cost(self, order: Axes) -> Cost:
        """Return what the permutes at the edge move when the axes stand in `order`."""
        cost = Cost()
        for source, axes, inside in dict.fromkeys(edge.under(order) for edge in self.edges):
            shape = lifted(source.shape or (), self.rank)
            shape = tuple(shape[a] for a in order) if inside else shape
            if not permute_keeps_order(axes, shape):
                cost.add(shape, source.dtype, source.op in LAYERS)
        for node in self.reductions:
            kept = kept_order(node, order)
            if not permute_keeps_order(inverse(kept), [(node.value.shape or ())[a] for a in kept]):
                cost.add(node.value.shape or (), node.value.dtype)
        return cost

    def best(self, fewer: bool) -> Axes | None:
        """Return the order that costs least, or None where none costs less than the one at hand.

        With `fewer` an order counts only if fewer permutes are left, and no more of them right after layers.
        """
        now = self.cost(tuple(range(self.rank)))
        if not now.permutes:
            return None
        costs = {order: self.cost(order) for order in self.orders()}
        cheaper = [order for order, cost in costs.items() if cost.is_less(now) and (cost.is_fewer(now) or not fewer)]
        return min(cheaper, key=lambda order: (costs[order].rank, order), default=None)


def clusters(graph: Graph, exact: bool) -> list[Cluster]:
    """Return the clusters of a graph that a permute touches, each with its edges found."""
    if not any(isinstance(node.view, Permute) for node in graph):
        return []
    nodes = by_dependency(list(graph))
    several = (node for node in nodes if rank_of(node) > 1 and not _is_whole(node, graph))
    operands = {node: found for node in several if (found := following(node, exact))}
    root: dict[Node, Node] = {node: node for node in operands}

    def find(node: Node) -> Node:
        while root[node] is not node:
            root[node] = node = root[root[node]]
        return node

    for node, positions in operands.items():
        for value in (node.inputs[k] for k in positions):
            if value.node in operands and rank_of(value.node) == rank_of(node):
                root[find(value.node)] = find(node)
    groups: dict[Node, list[Node]] = {}
    for node in operands:
        groups.setdefault(find(node), []).append(node)
    return [Cluster(graph, group, operands) for group in groups.values() if any(map(_touches_permute, group))]


def _is_whole(node: Node, graph: Graph) -> bool:
    """Return whether the tuple of a split is used as such: no permute can stand behind it."""
    return isinstance(node.ty, relax.TupleType) and graph.uses_of(node.value) > 0


def _touches_permute(node: Node) -> bool:
    return any(isinstance(n.view, Permute) for n in (*(v.node for v in node.inputs), *node.users))
