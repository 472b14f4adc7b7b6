"""Permutes moved to where they cost least: past operators that compute the same with their axes in another order.

The operators that follow a permutation (`axis_order`) are joined to clusters, as large as can be; all tensors of a
cluster have one rank, and their axes one order, which the module chose. Each permute at the edge of a cluster
suggests another order, in which that permute goes. What an order costs is the bytes that the permutes at the edge
then move, each distinct one once; a permute that moves only extents of 1 is a reshape, and free. If an order costs
less, in bytes and without more permutes, the whole cluster is built anew in the best one; else it stays. Where
all cost the same, a permute rather follows a layer's bias and activation than stands between. So permutes sink,
rise, meet and cancel by one rule that does not depend on where one begins, never does half of a motion, and never
makes the module dearer; and since every motion has to pay, none is ever taken back.

The results of a block keep their order of axes: a permute may end there. A reduction that drops its axes ends a
cluster, and a smaller permute may follow it. Symbolic extents are compared as polynomials: an order is cheaper
only if it is so for every value.

(TensorFlow's layout pass and TOSA's reduce-transposes gate whole groups so; rules.md T03 to T16, T33 to T35.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import tvm
from tvm import relax

from relax_glue.ir import Extent, Graph, Node, Value
from relax_glue.ir.views import emit_movement
from relax_glue.movement import Permute, compose_permutes, inverse, permute_keeps_order
from relax_glue.rewrite import DEFAULT_SOUNDNESS, FLOAT_REASSOC, RewriteStats, check_soundness
from relax_glue.transform import Transform

from .axis_order import Axes, build, build_reduction, following, kept_order, lifted, may_reduce, permuted, rank_of
from .base import graph_pass
from .batch_norm import CONVOLUTIONS, TRANSPOSED
from .reduce import REDUCTIONS

NO_GAIN = "no order of the axes moves fewer bytes"

SINK = Transform(
    name="sink-permute-dims",
    equation="f(permute_dims(x, p), permute_dims(y, p)) -> permute_dims(f'(x, y), p), for a whole cluster at once",
    guards=(
        "an operator that does not follow a permutation ends its cluster (passes/axis_order.py lists those that do)",
        "a reduction that drops its axes ends its cluster",
        "the results of a block keep their order of axes",
        f"{NO_GAIN}, for every value of the symbolic extents",
        "without float_reassoc, a float sum over several axes keeps their order",
    ),
    purpose="Permutes sink, rise, meet and cancel where the whole cluster that they touch gets cheaper.",
    soundness=FLOAT_REASSOC,
    source="T03 to T18, T30, T33 to T35",
    roots=("relax.permute_dims",),
)
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

    @property
    def rank(self) -> tuple[float, int, int]:
        """Where it stands among costs that are less than the one at hand."""
        return sum(self.bytes.values()), self.permutes, self.after_layers


@dataclass(frozen=True)
class _Edge:
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


class _Cluster:
    """Nodes that follow a permutation together, in an order that respects their dependencies."""

    def __init__(self, graph: Graph, nodes: list[Node], operands: dict[Node, tuple[int, ...]]) -> None:
        self.graph = graph
        self.nodes = nodes
        self.operands = operands
        self.members = set(nodes)
        self.rank = rank_of(nodes[0])
        self.edges: dict[_Edge, None] = {}
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
        self.edges[_Edge(source, axes, self.holds(source), to_inside)] = None

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
        return sorted(found, key=lambda order: (-found[order], order))[:_ORDERS]

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

    def best(self) -> Axes | None:
        """Return the order that costs least, or None where none costs less than the one at hand."""
        now = self.cost(tuple(range(self.rank)))
        if not now.permutes:
            return None
        costs = {order: self.cost(order) for order in self.orders()}
        cheaper = [order for order, cost in costs.items() if cost.is_less(now)]
        return min(cheaper, key=lambda order: (costs[order].rank, order), default=None)


class _Rebuild:
    """One cluster, built anew with its axes in another order."""

    def __init__(self, cluster: _Cluster, order: Axes) -> None:
        self.cluster = cluster
        self.graph = cluster.graph
        self.order = order
        self.new: dict[Node, Value] = {}
        self.made: dict[tuple[Value, Axes], Value] = {}

    def run(self) -> None:
        """Build the nodes, turn the uses outside to them, and drop the old ones."""
        for node in self.cluster.nodes:
            self.graph.at = node
            inputs = list(node.inputs)
            for k in self.cluster.operands[node]:
                inputs[k] = self._operand(node.inputs[k])
            self.new[node] = build(self.graph, node, self.order, inputs)
        for node in self.cluster.nodes:
            self._leave(node)
        for node in reversed(self.cluster.nodes):
            self.graph.drop_dead(node)
        self.graph.at = None

    def _inside(self, value: Value) -> Value:
        """Return what stands for a member's value, in the new order."""
        new = self.new[value.node]
        return new if value.index is None else Value(new.node, value.index)

    def _permute(self, source: Value, axes: Axes) -> Value:
        """Return the permute of a value outside, or of a member's new value; each is made once."""
        key = (self._inside(source) if self.cluster.holds(source) else source, axes)
        if key not in self.made:
            self.made[key] = permuted(self.graph, *key)
        return self.made[key]

    def _operand(self, value: Value) -> Value:
        if value.array is not None:
            return permuted(self.graph, value, self.order)
        if self.cluster.holds(value):
            return self._inside(value)
        source, axes = self.cluster.permute_before(value) or (value, tuple(range(len(self.order))))
        inside = self.cluster.holds(source)
        return self._permute(*_Edge(source, axes, inside, True).under(self.order)[:2])

    def _leave(self, node: Node) -> None:
        """Let the users outside use the new node."""
        back = inverse(self.order)
        for user in [u for u in node.users if u not in self.cluster.members]:
            self.graph.at = user
            found = self.cluster.permute_before(user.value)
            if found is not None:
                self.graph.replace(user.value, self._permute(found[0], compose_permutes(back, found[1])))
                self.graph.drop_dead(user)
            elif user in self.cluster.reductions:
                reduced = build_reduction(self.graph, user, self.order, self._inside(user.inputs[0]))
                kept = kept_order(user, self.order)
                self.graph.replace(user.value, emit_movement(self.graph, Permute(inverse(kept)), reduced))
                self.graph.drop_dead(user)
        self.graph.at = node
        items = range(len(node.ty.fields)) if self.new[node].shape is None else [None]
        for value in (Value(node, k) for k in items):
            if self._is_used_outside(value):
                self.graph.replace(value, self._permute(value, back))

    def _is_used_outside(self, value: Value) -> bool:
        """Return whether anything but a member that follows uses a value."""
        inside = sum(sum(v == value for v in self.cluster.followers(u)) for u in value.node.users if u in self.new)
        return self.graph.uses_of(value) > inside


def clusters(graph: Graph, exact: bool) -> list[_Cluster]:
    """Return the clusters of a graph that a permute touches, each with its edges found."""
    nodes = _by_dependency(graph)
    operands = {node: found for node in nodes if not _is_whole(node, graph) and (found := following(node, exact))}
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
    return [_Cluster(graph, group, operands) for group in groups.values() if any(map(_touches_permute, group))]


def _is_whole(node: Node, graph: Graph) -> bool:
    """Return whether the tuple of a split is used as such: no permute can stand behind it."""
    return isinstance(node.ty, relax.TupleType) and graph.uses_of(node.value) > 0


def _touches_permute(node: Node) -> bool:
    return any(isinstance(n.view, Permute) for n in (*(v.node for v in node.inputs), *node.users))


def _by_dependency(graph: Graph) -> list[Node]:
    """Return the nodes, each after those that it uses."""
    waiting = {node: len({v.node for v in node.inputs}) for node in graph}
    ready = [node for node, count in waiting.items() if not count]
    for node in ready:
        for user in node.users:
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    return ready


def sink_permutes(graph: Graph, stats: RewriteStats | None = None, exact: bool = False) -> int:
    """Move permutes to where they cost least, once for each cluster.

    Parameters
    ----------
    graph : Graph
        It is changed in place.
    stats : RewriteStats, optional
        Where to count the clusters seen, and those built anew.
    exact : bool
        Whether to leave alone the sums whose order would change.

    Returns
    -------
    moved : int
        How many clusters were built anew.
    """
    stats = stats if stats is not None else RewriteStats()
    count, log = stats.of(SINK.name), stats.log
    if log is not None:
        log.begin([SINK.name], graph.place)
    moved = 0
    for cluster in clusters(graph, exact):
        count.tried += 1
        cluster.survey(exact)
        order = cluster.best()
        if order is None:
            count.declined[NO_GAIN] = count.declined.get(NO_GAIN, 0) + 1
            if log is not None:
                log.declined(SINK.name, cluster.nodes[0], NO_GAIN, graph.place)
            continue
        if log is not None:
            became = f"a cluster of {len(cluster.nodes)} operators with its axes in the order {order}"
            log.fired(SINK.name, cluster.nodes[0], [became], graph.place)
        _Rebuild(cluster, order).run()
        count.fired += 1
        moved += 1
    return moved


def SinkPermuteDims(
    *, stats: RewriteStats | None = None, soundness: Iterable[str] = DEFAULT_SOUNDNESS
) -> tvm.transform.Pass:
    """Move permutes past whole clusters of operators to where they move the fewest bytes.

    Parameters
    ----------
    stats : RewriteStats, optional
        Where to count the clusters.
    soundness : iterable of str
        Without "float_reassoc", sums over several axes stay in their order.

    Raises
    ------
    UnknownNameError
        `soundness` names a class that there is not.
    """
    exact = FLOAT_REASSOC not in check_soundness(soundness)

    def settle(graph: Graph) -> bool:
        moved = 0
        while again := sink_permutes(graph, stats, exact):  # ends, for each time they cost less
            moved += again
        return moved > 0

    return graph_pass("SinkPermuteDims", settle)
