"""Reshapes moved past clusters of operators, where fewer are left then.

Each reshape next to an operator that can follow it (`regroup`) suggests other axes for that operator. The cluster grows
from there over all that can follow as well; where it ends, a reshape may be needed, may go, or may be taken in by one
that is there. If fewer reshapes are left, or as many of fewer bytes, the cluster is built anew; else it stays. So a
reshape passes an activation to meet the next reshape, and goes where both sides of a sum, or of y * sigmoid(y), are
reshaped, by one rule; and since each motion has to pay, none is taken back. A reshape beside a permute costs nothing,
for one TensorRT layer does both.

A cluster is bounded, so the whole is linear in the size of the module. (XLA's reshape mover gates such groups;
rules.md R08 to R12, R15, R17, R22.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tvm

from relax_glue.ir import Extent, Graph, Node, Value, same, same_shape
from relax_glue.ir.order import by_dependency
from relax_glue.ir.views import emit_movement
from relax_glue.movement import Permute, Reshape
from relax_glue.rewrite import EXACT, RewriteStats
from relax_glue.transform import Transform

from .axis_order import following, lifted, rank_of
from .base import graph_pass
from .permute_clusters import Cost
from .regroup import Regroup, build, follows

MOST = 64  # operators of a cluster
NO_GAIN = "as many reshapes would be left"

MOVE = Transform(
    name="move-reshapes",
    equation="reshape(f(reshape(x), reshape(y))) -> reshape(f'(x, y)), for a whole cluster at once",
    guards=(
        "an operator that knows an axis follows where that axis stays one by itself (passes/regroup.py)",
        "a normalisation of the last axes stays one",
        f"a cluster has at most {MOST} operators",
        f"{NO_GAIN}, or fewer that move more bytes",
    ),
    purpose="Reshapes go past the whole cluster of operators that they touch where fewer are left then.",
    soundness=EXACT,
    source="R08 to R12, R15, R17, R22; XLA's reshape mover",
    roots=("relax.reshape",),
)


class _Cluster:
    """Operators that follow one regrouping of their axes, each after those that it uses."""

    def __init__(self, graph: Graph, regroup: Regroup, nodes: dict[Node, tuple[int, ...]]) -> None:
        self.graph = graph
        self.regroup = regroup
        self.operands = nodes
        self.nodes = by_dependency(nodes)

    def holds(self, value: Value) -> bool:
        """Return whether a value is made inside and has its axes regrouped with it."""
        return value.node in self.operands

    def followers(self, node: Node) -> Iterator[Value]:
        """Yield the operands of a member that are reshaped with it."""
        return (node.inputs[k] for k in self.operands[node])

    def target(self, value: Value) -> tuple[Extent, ...]:
        """Return the shape that a value gets."""
        return self.regroup.shape(lifted(value.shape or (), len(_axes(self.regroup)))) or ()

    def needs_reshape(self, value: Value) -> bool:
        """Return whether an operand has to be reshaped to its target; one of a lower rank may lack leading ones."""
        target, own = self.target(value), value.shape or ()
        if len(own) == len(_axes(self.regroup)):
            return not same_shape(target, own)
        more = len(target) - len(own)
        return more < 0 or not same_shape(target[more:], own) or not all(same(e, 1) for e in target[:more])

    def leaving(self) -> Iterator[tuple[Value, list[Node], bool]]:
        """Yield the values used outside, with the reshapes of them there and whether anything else uses them."""
        for node in self.nodes:
            for value in _values(node):
                users = [u for u in node.users if value in u.inputs]
                reshapes = [u for u in users if isinstance(u.view, Reshape)]
                inside = sum(sum(v == value for v in self.followers(u)) for u in users if u in self.operands)
                others = self.graph.uses_of(value) > inside + len(reshapes)
                if reshapes or others:
                    yield value, reshapes, others

    def dies(self, reshape: Node) -> bool:
        """Return whether a reshape in front goes when the members no longer read it."""
        inside = sum(sum(v.node is reshape for v in self.followers(u)) for u in reshape.users if u in self.operands)
        return self.graph.uses(reshape) == inside

    def costs(self) -> tuple[Cost, Cost]:
        """Return what the reshapes at the edge cost as they are, and once the cluster is built anew."""
        now, then = Cost(), Cost()
        for value in dict.fromkeys(v for node in self.nodes for v in self.followers(node)):
            if self.holds(value) or value.array is not None:
                continue
            reshaped = isinstance(value.node.view, Reshape)
            source = value.node.inputs[0] if reshaped else value
            if isinstance(source.node.view, Permute) and self.graph.single_use(source):
                continue  # one TensorRT layer permutes and reshapes
            dies = reshaped and self.dies(value.node)
            if dies:
                now.add(value.shape or (), value.dtype)
            if not same_shape(source.shape, self.target(value)) and (dies or self.needs_reshape(value)):
                then.add(value.shape or (), value.dtype)
        for value, reshapes, others in self.leaving():
            for user in reshapes:
                if any(isinstance(u.view, Permute) for u in user.users) and self.graph.uses(user) == 1:
                    continue
                now.add(value.shape or (), value.dtype)
                if not same_shape(user.view.shape, self.target(value)):
                    then.add(value.shape or (), value.dtype)
            if others:
                then.add(value.shape or (), value.dtype)
        return now, then

    def rebuild(self) -> None:
        """Build the members anew, turn the uses outside to them, and drop the old ones."""
        graph = self.graph
        new: dict[Node, Value] = {}
        made: dict[Value, Value] = {}
        for node in self.nodes:
            graph.at = node
            inputs = list(node.inputs)
            for k in self.operands[node]:
                inputs[k] = self._operand(node.inputs[k], new, made)
            new[node] = build(graph, node, self.regroup, inputs)
        for value, reshapes, others in list(self.leaving()):
            after = new[value.node] if value.index is None else Value(new[value.node].node, value.index)
            for user in reshapes:
                graph.at = user
                graph.replace(user.value, emit_movement(graph, user.view, after))
                graph.drop_dead(user)
            if others:
                graph.at = value.node
                graph.replace(value, emit_movement(graph, Reshape(tuple(value.shape or ())), after))
        for node in reversed(self.nodes):
            graph.drop_dead(node)
        graph.at = None

    def _operand(self, value: Value, new: dict[Node, Value], made: dict[Value, Value]) -> Value:
        if self.holds(value):
            found = new[value.node]
            return found if value.index is None else Value(found.node, value.index)
        if value in made:
            return made[value]
        made[value] = self._entering(value)
        return made[value]

    def _entering(self, value: Value) -> Value:
        target = self.target(value)
        source = value.node.inputs[0] if isinstance(value.node.view, Reshape) else value
        if same_shape(source.shape, target):
            return source
        if not self.needs_reshape(value):
            return value
        if value.array is not None:
            return self.graph.constant(value.array.reshape([int(e) for e in target]))
        return emit_movement(self.graph, Reshape(target), source)


def _axes(regroup: Regroup) -> list[int]:
    return [axis for run in regroup.runs for axis in run.old]


def _values(node: Node) -> Sequence[Value]:
    shape = node.shape_of(None)
    return [node.value] if shape is not None else [Value(node, k) for k in range(len(node.ty.fields))]


def _followers_of(node: Node) -> list[Node]:
    return [u for u in node.users if any(u.inputs[k].node is node for k in following(u, True))]


def _grown(
    seed: Node, regroup: Regroup, graph: Graph, crowded: set[tuple[Node, Regroup]]
) -> dict[Node, tuple[int, ...]]:
    """Return the nodes around one that follow with it, with the operands by which they do; none if there are many.

    The nodes of a cluster that is too large are added to `crowded`: from each of them it would grow to be the same.
    """
    if (seed, regroup) in crowded:
        return {}
    found: dict[Node, tuple[int, ...]] = {}
    waiting = [seed]
    while waiting:
        node = waiting.pop()
        operands = following(node, True) if node not in found else ()
        if not operands or rank_of(node) != len(_axes(regroup)) or not follows(node, operands, regroup):
            continue
        if len(node.users) > MOST or len(found) == MOST or (graph.uses_of(node.value) and len(_values(node)) > 1):
            crowded.update((member, regroup) for member in (*found, node))
            return {}
        found[node] = operands
        waiting += [node.inputs[k].node for k in operands]
        waiting += _followers_of(node)
    return found


def _suggestions(reshape: Node) -> Iterator[tuple[Node, Regroup]]:
    """Yield the operators beside a reshape, each with what would become of its axes if the reshape went."""
    source, shape = reshape.inputs[0], reshape.view.shape
    if source.shape is None or same_shape(source.shape, shape):
        return
    backward, forward = Regroup.between(shape, source.shape), Regroup.between(source.shape, shape)
    if backward is None or forward is None:
        return
    yield source.node, forward
    for user in list(reshape.users)[:MOST]:
        yield user, backward


def move_reshapes(graph: Graph, stats: RewriteStats | None = None) -> int:
    """Move reshapes to where fewer are needed, once for each cluster.

    Parameters
    ----------
    graph : Graph
        It is changed in place.
    stats : RewriteStats, optional
        Where to count the clusters seen, and those built anew.

    Returns
    -------
    moved : int
        How many clusters were built anew.
    """
    stats = stats if stats is not None else RewriteStats()
    if stats.log is not None:
        stats.log.begin([MOVE.name], graph.place)
    crowded: set[tuple[Node, Regroup]] = set()
    reshapes = (node for node in graph if node in graph and isinstance(node.view, Reshape))
    return sum(_moved(node, graph, stats, crowded) for node in reshapes)


def _moved(reshape: Node, graph: Graph, stats: RewriteStats, crowded: set[tuple[Node, Regroup]]) -> bool:
    """Build anew the first cluster beside a reshape for which that pays; return whether there was one."""
    count, log = stats.of(MOVE.name), stats.log
    for seed, regroup in _suggestions(reshape):
        nodes = _grown(seed, regroup, graph, crowded)
        if not nodes:
            continue
        count.tried += 1
        cluster = _Cluster(graph, regroup, nodes)
        now, then = cluster.costs()
        if then.is_less(now):
            if log is not None:
                log.fired(MOVE.name, reshape, [f"a cluster of {len(nodes)} operators without it"], graph.place)
            cluster.rebuild()
            count.fired += 1
            return True
        count.declined[NO_GAIN] = count.declined.get(NO_GAIN, 0) + 1
        if log is not None:
            log.declined(MOVE.name, reshape, NO_GAIN, graph.place)
    return False


def MoveReshapes(*, stats: RewriteStats | None = None) -> tvm.transform.Pass:
    """Move reshapes past whole clusters of operators where fewer are left then.

    Parameters
    ----------
    stats : RewriteStats, optional
        Where to count the clusters.
    """

    def settle(graph: Graph) -> bool:
        moved = 0
        while again := move_reshapes(graph, stats):  # ends, for each time there are fewer, or they are smaller
            moved += again
        return moved > 0

    return graph_pass("MoveReshapes", settle)
