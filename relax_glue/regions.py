"""Regions of a graph: convex, the fewest there can be, independent of the order of the nodes.

The level of an accepted node is the largest number of times that a path to it has to leave the accepted nodes and
come back. Nodes of one level form one region. No path leaves a region and comes back to it, since coming back
raises the level; edges between regions only go up, so they can run one after the other; and there cannot be fewer
regions, since a path that leaves n times needs n + 1. Branches that do not touch share a region.

Cheap nodes (glue, casts, arithmetic of indices) are not worth a region, so they never make one more: where a cheap
node stands between two that are not accepted, and regions are fewer if it stays with them, it does.

What only those outside read, and is made of much less, stays with them too.

Levels are the earliest choice. A node may be moved to a later region when fewer bytes cross region edges that way;
a cheap one moves also when as many do, so that it stands beside the layer that wants it; and one that several regions
want is made again in each, where what it is made of is smaller than what it makes. A value counts once however many
read it, and not at all if it has to be there anyway: because it is a result, or because something outside reads it.
(rules.md Z02 to Z04 and Z10.)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

import networkx as nx

N = TypeVar("N", bound=Hashable)


@dataclass(frozen=True)
class Costs(Generic[N]):
    """What a node costs.

    Attributes
    ----------
    output_bytes : Callable
        What it costs when all that a node produces crosses the edge of a region.
    read_bytes : Callable
        `read_bytes(producer, user)`: what it costs when only that crosses which a user reads of its producer.
    cheap : Callable
        Whether a node is not worth a region, and may be computed again.
    seen : Callable
        Whether the result of a node is seen outside the block.
    kernel_bytes : int
        How many bytes less have to cross to be worth one kernel more outside: what a GPU copies in a microsecond.
    """

    output_bytes: Callable[[N], int]
    read_bytes: Callable[[N, N], int]
    cheap: Callable[[N], bool]
    seen: Callable[[N], bool]
    kernel_bytes: int = 1 << 16


@dataclass(frozen=True)
class Regions(Generic[N]):
    """Regions of a graph.

    Attributes
    ----------
    of : dict[node, int]
        The region of each accepted node that has one; 0..n-1 is an order in which they can run.
    copies : dict[node, frozenset[int]]
        The later regions in which a cheap node is made again instead of being read.
    dropped : dict[node, str]
        Accepted nodes that stay outside, and why.
    """

    of: dict[N, int]
    copies: dict[N, frozenset[int]] = field(default_factory=dict)
    dropped: dict[N, str] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of regions."""
        return len(set(self.of.values()))


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


def beside_outside(dag: nx.DiGraph, accepted: Callable[[N], bool], costs: Costs[N]) -> set[N]:
    """Return the cheap nodes that can stay with those outside: they are made of what is there before their region.

    Parameters
    ----------
    dag, accepted
        As in `earliest_levels`.
    costs : Costs
        Which nodes are cheap.

    Returns
    -------
    nodes : set
        Cheap nodes whose operands come from outside, earlier regions or such nodes, and whose result goes outside.
    """
    level = earliest_levels(dag, accepted)
    order = list(nx.topological_sort(dag))
    ready: set[N] = set()
    for node in order:
        cheap = accepted(node) and costs.cheap(node)
        if cheap and all(p in ready or not accepted(p) or level[p] < level[node] for p in dag.pred[node]):
            ready.add(node)
    wanted: set[N] = set()
    for node in reversed(order):
        if node in ready and any(u in wanted or not accepted(u) for u in dag.succ[node]):
            wanted.add(node)
    return wanted


def grown_for_outside(dag: nx.DiGraph, accepted: Callable[[N], bool], costs: Costs[N]) -> set[N]:
    """Return the cheap nodes that only nodes outside want, and that are made of much less than they make.

    A broadcast, a pad or a cast to a wider type is better made where it is read: less crosses.
    """
    carrying = _Carrying(dag, accepted, costs)
    found: set[N] = set()
    for node in reversed(list(nx.topological_sort(dag))):
        if not accepted(node) or not all(u in found or not accepted(u) for u in dag.succ[node]):
            continue
        if not costs.cheap(node) or costs.seen(node):
            continue
        if costs.output_bytes(node) - carrying.made[node] >= costs.kernel_bytes:
            found.add(node)
    return found


class _Carrying(Generic[N]):
    """What it costs that a later region reads a value: the value itself, or what it is made of.

    Both tables are made when they are first asked for: where everything is one region, they never are.
    """

    def __init__(self, dag: nx.DiGraph, accepted: Callable[[N], bool], costs: Costs[N]) -> None:
        self.dag = dag
        self.accepted = accepted
        self.costs = costs

    @cached_property
    def there(self) -> set[N]:
        """What is there in any case: made outside, a result, or read by something outside."""
        dag, accepted, seen = self.dag, self.accepted, self.costs.seen
        return {n for n in dag if not accepted(n) or seen(n) or not all(accepted(u) for u in dag.succ[n])}

    @cached_property
    def made(self) -> dict[N, int]:
        """What crosses instead of a value where it is made again: what it is made of."""
        made: dict[N, int] = {}
        for node in nx.topological_sort(self.dag):
            made[node] = sum(self._read(p, node, made) for p in self.dag.pred[node])
        return made

    def again(self, node: N) -> bool:
        """Return whether a node is rather made again than read by a later region."""
        return self._again(node, self.made)

    def _again(self, node: N, made: Mapping[N, int]) -> bool:
        if node in self.there or not self.costs.cheap(node):
            return False
        return made[node] < self.costs.output_bytes(node)

    def _read(self, producer: N, user: N, made: Mapping[N, int]) -> int:
        """Return the cost of what a user in a later region reads of a producer."""
        if producer in self.there:
            return 0
        crossing = self.costs.read_bytes(producer, user)
        return min(made[producer], crossing) if self._again(producer, made) else crossing


def latest_levels(
    dag: nx.DiGraph,
    accepted: Callable[[N], bool],
    level: Mapping[N, int],
    costs: Costs[N],
    may_move: Callable[[N], bool] | None = None,
) -> dict[N, int]:
    """Return the levels after moving nodes later where that lowers the bytes that cross.

    Users are looked at before their producers, so a chain of glue moves as a whole. Every dependency that held
    holds: a node never passes one of its users. `may_move` says which nodes are looked at; by default all.
    """
    top = max((level[n] for n in dag if accepted(n)), default=0)
    if not top:
        return dict(level)  # one region, and none that is later
    carrying = _Carrying(dag, accepted, costs)
    new = dict(level)
    limit: dict[N, int] = {}
    for node in reversed(list(nx.topological_sort(dag))):
        inside = accepted(node)
        limits = [(new[u] if inside else new[u] - 1) if accepted(u) else limit[u] for u in dag.succ[node]]
        limit[node] = min(limits, default=top)
        later = inside and limit[node] > level[node] and (may_move is None or may_move(node))
        beyond = later and any(new[u] > limit[node] for u in dag.succ[node])
        if later and _pays(node, carrying, beyond):
            new[node] = limit[node]
        if inside:
            limit[node] = new[node]
    return {node: (new[node] if accepted(node) else level[node]) for node in dag}


def _pays(node: N, carrying: _Carrying[N], beyond: bool) -> bool:
    """Compare what crosses when `node` stays with what does when it moves to the region of its first users.

    Where it has users `beyond` that region, it still crosses, unless it is made again there.
    """
    if node in carrying.there:
        return False
    costs = carrying.costs
    stays, moves = costs.output_bytes(node), carrying.made[node]
    if beyond and not carrying.again(node):
        moves += stays
    return moves <= stays if costs.cheap(node) else moves < stays


def copies(
    dag: nx.DiGraph, accepted: Callable[[N], bool], level: Mapping[N, int], costs: Costs[N]
) -> dict[N, frozenset[int]]:
    """Return the nodes that later regions make again instead of reading them, with the levels of these."""
    if len({level[n] for n in dag if accepted(n)}) < 2:
        return {}
    carrying = _Carrying(dag, accepted, costs)
    found: dict[N, frozenset[int]] = {}
    for node in reversed(list(nx.topological_sort(dag))):
        if not carrying.again(node):
            continue
        wanted = {level[u] for u in dag.succ[node]}.union(*(found.get(u, ()) for u in dag.succ[node]))
        if later := wanted - {level[node]}:
            found[node] = frozenset(later)
    return found


def find_regions(
    dag: nx.DiGraph,
    accepted: Callable[[N], bool],
    worth: Callable[[list[N]], str | None],
    costs: Costs[N],
) -> Regions[N]:
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
        What it costs that nodes are in one region or another.
    """
    grown = grown_for_outside(dag, accepted, costs)
    if grown and worth([n for n in dag if n in grown]) is None:
        grown = set()

    def wanted(node: N) -> bool:
        return node not in grown and accepted(node)

    found = _without_bridges(dag, wanted, worth, costs)
    why = "only operators outside read it, and what it is made of is smaller"
    return Regions(found.of, found.copies, {**dict.fromkeys(grown, why), **found.dropped})


def _without_bridges(
    dag: nx.DiGraph,
    accepted: Callable[[N], bool],
    worth: Callable[[list[N]], str | None],
    costs: Costs[N],
) -> Regions[N]:
    """Assign the accepted nodes to regions, but for cheap ones between nodes outside where regions are fewer so."""
    found = _worthy_regions(dag, accepted, worth, costs)
    beside = beside_outside(dag, accepted, costs) if found.count > 1 else set()
    if not beside or worth([n for n in dag if n in beside]) is None:
        return found
    fewer = _worthy_regions(dag, lambda n: n not in beside and accepted(n), worth, costs)
    if fewer.count >= found.count:
        return found
    why = "it only moves data or computes indices between operators outside, and would make one region more"
    return Regions(fewer.of, fewer.copies, {**dict.fromkeys(beside, why), **fewer.dropped})


def _worthy_regions(
    dag: nx.DiGraph,
    accepted: Callable[[N], bool],
    worth: Callable[[list[N]], str | None],
    costs: Costs[N],
) -> Regions[N]:
    """Assign the accepted nodes to regions, but for those whose region would not be worth an engine."""
    dropped: dict[N, str] = {}

    def inside(node: N) -> bool:
        return node not in dropped and accepted(node)

    def poor(level: Mapping[N, int]) -> dict[N, str]:
        groups: dict[int, list[N]] = {}
        for node in filter(inside, dag):
            groups.setdefault(level[node], []).append(node)
        return {n: why for nodes in groups.values() if (why := worth(nodes)) for n in nodes}

    while True:
        early = earliest_levels(dag, inside)
        # glue first: work that moved to a region of glue alone would be the only reason to have that
        found = poor(latest_levels(dag, inside, early, costs, costs.cheap))
        if not found:
            level = latest_levels(dag, inside, early, costs)
            found = poor(level)
        if not found:
            break
        dropped.update(found)
    number = {old: new for new, old in enumerate(sorted({level[n] for n in filter(inside, dag)}))}
    again = copies(dag, inside, level, costs)
    return Regions(
        {n: number[level[n]] for n in filter(inside, dag)},
        {n: frozenset(number[k] for k in levels) for n, levels in again.items()},
        dropped,
    )


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
