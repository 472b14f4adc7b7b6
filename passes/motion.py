"""Permutes moved to where they cost least: past operators that compute the same with their axes in another order.

The operators that follow a permutation (`axis_order`) are joined to clusters, as large as can be; all tensors of a
cluster have one rank, and their axes one order, which the module chose. Each permute at the edge of a cluster
suggests another order, in which that permute goes. What an order costs is the bytes that the permutes at the edge
then move, each distinct one once; a permute that moves only extents of 1 is a reshape, and free. If an order costs
less, in bytes and without more permutes, the whole cluster is built anew in the best one; else it stays. Where
all cost the same, a permute rather follows a layer's bias and activation than stands between. So permutes sink,
rise, meet and cancel by one rule that does not depend on where one begins, never does half of a motion, and never
makes the module dearer; and since every motion has to pay, none is ever taken back.

Moving them to smaller tensors changes layouts that TensorRT would choose itself, and is off by default. Where fewer
are left, and no more bytes are moved, it only removes copies, and is on.

The results of a block keep their order of axes: a permute may end there. A reduction that drops its axes ends a
cluster, and a smaller permute may follow it. Symbolic extents are compared as polynomials: an order is cheaper
only if it is so for every value.

(TensorFlow's layout pass and TOSA's reduce-transposes gate whole groups so; rules.md T03 to T16, T33 to T35.)
"""

from __future__ import annotations

from collections.abc import Iterable

import tvm

from relax_glue.ir import Graph, Node, Value
from relax_glue.ir.views import emit_movement
from relax_glue.movement import Permute, compose_permutes, inverse
from relax_glue.rewrite import DEFAULT_SOUNDNESS, FLOAT_REASSOC, RewriteStats, check_soundness
from relax_glue.transform import Transform

from .axis_order import Axes, build, build_reduction, kept_order, permuted
from .base import graph_pass
from .permute_clusters import Cluster, Edge, clusters

NO_GAIN = "no order of the axes moves fewer bytes"
NO_FEWER = "no order of the axes leaves fewer permutes"
_GUARDS = (
    "an operator that does not follow a permutation ends its cluster (passes/axis_order.py lists those that do)",
    "a reduction that drops its axes ends its cluster",
    "the results of a block keep their order of axes",
    "a normalisation that is one TensorRT layer stays one",
    "without float_reassoc, a float sum over several axes keeps their order",
)

CANCEL = Transform(
    name="cancel-permute-dims",
    equation="f(permute_dims(x, p), permute_dims(y, p)) -> permute_dims(f'(x, y), p), for a whole cluster at once",
    guards=(*_GUARDS, f"{NO_FEWER} without moving more bytes, or parts a layer from what follows it"),
    purpose="Permutes cancel and meet where fewer are left at the edge of the whole cluster that they touch.",
    soundness=FLOAT_REASSOC,
    source="T03 to T18, T30, T33 to T35; TOSA's reduce-transposes",
    roots=("relax.permute_dims",),
)

SINK = Transform(
    name="sink-permute-dims",
    equation="f(permute_dims(x, p), permute_dims(y, p)) -> permute_dims(f'(x, y), p), for a whole cluster at once",
    guards=(*_GUARDS, f"{NO_GAIN}, for every value of the symbolic extents"),
    purpose="Permutes sink, rise, meet and cancel where the whole cluster that they touch gets cheaper.",
    soundness=FLOAT_REASSOC,
    source="T03 to T18, T30, T33 to T35",
    roots=("relax.permute_dims",),
)


class _Rebuild:
    """One cluster, built anew with its axes in another order."""

    def __init__(self, cluster: Cluster, order: Axes) -> None:
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
        return self._permute(*Edge(source, axes, inside, True).under(self.order)[:2])

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


def move_permutes(graph: Graph, transform: Transform, stats: RewriteStats | None = None, exact: bool = False) -> int:
    """Move permutes to where they cost least, once for each cluster.

    Parameters
    ----------
    graph : Graph
        It is changed in place.
    transform : Transform
        `SINK`, or `CANCEL` to leave alone a cluster at whose edge there would be as many.
    stats : RewriteStats, optional
        Where to count the clusters seen, and those built anew.
    exact : bool
        Whether to leave alone the sums whose order would change.

    Returns
    -------
    moved : int
        How many clusters were built anew.
    """
    stats, fewer = stats if stats is not None else RewriteStats(), transform is CANCEL
    count, log = stats.of(transform.name), stats.log
    reason = NO_FEWER if fewer else NO_GAIN
    if log is not None:
        log.begin([transform.name], graph.place)
    moved = 0
    for cluster in clusters(graph, exact):
        count.tried += 1
        cluster.survey(exact)
        order = cluster.best(fewer)
        if order is None:
            count.declined[reason] = count.declined.get(reason, 0) + 1
            if log is not None:
                log.declined(transform.name, cluster.nodes[0], reason, graph.place)
            continue
        if log is not None:
            became = f"a cluster of {len(cluster.nodes)} operators with its axes in the order {order}"
            log.fired(transform.name, cluster.nodes[0], [became], graph.place)
        _Rebuild(cluster, order).run()
        count.fired += 1
        moved += 1
    return moved


def _motion(
    name: str, transform: Transform, stats: RewriteStats | None, soundness: Iterable[str]
) -> tvm.transform.Pass:
    exact = FLOAT_REASSOC not in check_soundness(soundness)

    def settle(graph: Graph) -> bool:
        moved = 0
        while again := move_permutes(graph, transform, stats, exact):  # ends, for each time they cost less
            moved += again
        return moved > 0

    return graph_pass(name, settle)


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
    return _motion("SinkPermuteDims", SINK, stats, soundness)


def CancelPermuteDims(
    *, stats: RewriteStats | None = None, soundness: Iterable[str] = DEFAULT_SOUNDNESS
) -> tvm.transform.Pass:
    """Move permutes past whole clusters of operators where fewer are left then.

    Parameters
    ----------
    stats, soundness
        As in `SinkPermuteDims`.

    Raises
    ------
    UnknownNameError
        `soundness` names a class that there is not.
    """
    return _motion("CancelPermuteDims", CANCEL, stats, soundness)
