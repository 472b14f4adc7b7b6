"""Regions of a graph: convex, the fewest there can be, independent of the order of the nodes.

The level of an accepted node is the largest number of times that a path to it has to leave the accepted nodes and
come back. Nodes of one level form one region. No path leaves a region and comes back to it, since coming back
raises the level; edges between regions only go up, so they can run one after the other; and there cannot be fewer
regions, since a path that leaves n times needs n + 1. Branches that do not touch share a region.

Levels are the earliest choice. A node may be moved to a later region when fewer bytes cross region edges
that way; glue moves also when as many do, so that it stands beside the layer that wants it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import networkx as nx

N = TypeVar("N", bound=Hashable)


@dataclass(frozen=True)
class Costs(Generic[N]):
    """What a node costs.

    Attributes
    ----------
    output_bytes : Callable
        Bytes of what a node produces.
    outside_bytes : Callable
        Bytes of the operands of a node that are no nodes of the graph and no constants: inputs of the block.
    glue : Callable
        Whether a node only moves data.
    seen : Callable
        Whether the result of a node is seen outside the block.
    """

    output_bytes: Callable[[N], int]
    outside_bytes: Callable[[N], int]
    glue: Callable[[N], bool]
    seen: Callable[[N], bool]


def earliest_levels(dag: nx.DiGraph, accepted: Callable[[N], bool]) -> dict[N, int]:
    """Return the level of every node: of an accepted one its region, of another the first region after it.

    Parameters
    ----------
    dag : nx.DiGraph
        Edges from producers to users.
    accepted : Callable
        Whether a node can go into a region.
    """
    level: dict[N, int] = {}
    for node in nx.topological_sort(dag):
        inside = accepted(node)
        level[node] = max((level[p] + (accepted(p) and not inside) for p in dag.pred[node]), default=0)
    return level


def latest_levels(
    dag: nx.DiGraph, accepted: Callable[[N], bool], level: Mapping[N, int], costs: Costs[N]
) -> dict[N, int]:
    """Return the levels after moving nodes later where that lowers the bytes that cross.

    Users are looked at before their producers, so a chain of glue moves as a whole. Every dependency that held
    holds: a node never passes one of its users.
    """
    top = max((level[n] for n in dag if accepted(n)), default=0)
    new = dict(level)
    limit: dict[N, int] = {}
    for node in reversed(list(nx.topological_sort(dag))):
        inside = accepted(node)
        limits = [(new[u] if inside else new[u] - 1) if accepted(u) else limit[u] for u in dag.succ[node]]
        limit[node] = min(limits, default=top)
        if inside and limit[node] > level[node] and not costs.seen(node):
            new[node] = limit[node] if _pays(dag, node, accepted, new, limit[node], costs) else level[node]
            limit[node] = new[node]
        elif inside:
            limit[node] = new[node]
    return {node: (new[node] if accepted(node) else level[node]) for node in dag}


def _pays(
    dag: nx.DiGraph,
    node: N,
    accepted: Callable[[N], bool],
    level: Mapping[N, int],
    target: int,
    costs: Costs[N],
) -> bool:
    """Compare the bytes that cross when `node` stays with those when it moves to region `target`."""
    users = [u for u in dag.succ[node] if not accepted(u) or level[u] != level[node]]
    stays = costs.output_bytes(node) if users else 0
    moves = costs.outside_bytes(node) + sum(costs.output_bytes(p) for p in dag.pred[node])
    return moves <= stays if costs.glue(node) else moves < stays


def find_regions(
    dag: nx.DiGraph,
    accepted: Callable[[N], bool],
    worth: Callable[[list[N]], str | None],
    costs: Costs[N],
) -> tuple[dict[N, int], dict[N, str]]:
    """Assign the accepted nodes of a graph to the fewest convex regions.

    Parameters
    ----------
    dag : nx.DiGraph
        The operators of a block with edges from producers to users.
    accepted : Callable
        Whether a node can go into a region.
    worth : Callable
        `worth(nodes)` returns None for a region worth an engine, else why it is not.
    costs : Costs
        What moving a node to a later region costs.

    Returns
    -------
    regions : dict[node, int]
        Regions 0..n-1 in an order in which they can run.
    dropped : dict[node, str]
        Accepted nodes that stay outside because their region would not be worth an engine, and why.
    """
    dropped: dict[N, str] = {}

    def inside(node: N) -> bool:
        return node not in dropped and accepted(node)

    while True:
        level = latest_levels(dag, inside, earliest_levels(dag, inside), costs)
        groups: dict[int, list[N]] = {}
        for node in dag:
            if inside(node):
                groups.setdefault(level[node], []).append(node)
        poor = {n: why for nodes in groups.values() if (why := worth(nodes)) for n in nodes}
        if not poor:
            number = {old: new for new, old in enumerate(sorted(groups))}
            return {n: number[old] for old, nodes in groups.items() for n in nodes}, dropped
        dropped.update(poor)


def is_convex(dag: nx.DiGraph, members: set[N]) -> bool:
    """Return whether no path leaves `members` and comes back."""
    below: set[N] = set()
    for node in nx.topological_sort(dag):
        left = any(p in below or (p in members and node not in members) for p in dag.pred[node])
        if left and node in members:
            return False
        if left:
            below.add(node)
    return True
