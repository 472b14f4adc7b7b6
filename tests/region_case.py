"""Random directed acyclic graphs, and the fewest regions of one by trying them all."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Sequence

import networkx as nx
from hypothesis import strategies as st

from relax_glue.regions import is_convex


@st.composite
def graphs(draw: st.DrawFn, most: int = 10) -> tuple[nx.DiGraph, frozenset[int]]:
    """Draw a directed acyclic graph of up to `most` nodes and the set of its accepted nodes."""
    size = draw(st.integers(1, most))
    pairs = list(itertools.combinations(range(size), 2))
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=2 * size)) if pairs else []
    dag = nx.DiGraph()
    dag.add_nodes_from(range(size))
    dag.add_edges_from(edges)
    return dag, frozenset(draw(st.sets(st.integers(0, size - 1))))


def members(regions: dict[Hashable, int]) -> list[set[Hashable]]:
    return [{n for n, r in regions.items() if r == k} for k in sorted(set(regions.values()))]


def can_run_in_order(dag: nx.DiGraph, groups: list[set[Hashable]]) -> bool:
    """Whether the graph stays acyclic when each group is one node."""
    of = {n: k for k, group in enumerate(groups) for n in group}
    merged = nx.DiGraph()
    merged.add_nodes_from(of.get(n, ("outside", n)) for n in dag)
    merged.add_edges_from(
        (a, b) for u, v in dag.edges if (a := of.get(u, ("outside", u))) != (b := of.get(v, ("outside", v)))
    )
    return nx.is_directed_acyclic_graph(merged)


def fewest_by_brute_force(dag: nx.DiGraph, accepted: frozenset[Hashable]) -> int:
    """Try every partition of the accepted nodes into 1, 2, ... groups."""
    nodes = sorted(accepted, key=str)
    for count in range(len(nodes) + 1):
        for groups in partitions_into(nodes, count):
            if all(is_convex(dag, g) for g in groups) and can_run_in_order(dag, groups):
                return count
    raise AssertionError("single nodes are always a partition")


def partitions_into(nodes: Sequence[Hashable], count: int) -> Iterator[list[set[Hashable]]]:
    """Yield the partitions of `nodes` into `count` groups."""
    if not nodes:
        if count == 0:
            yield []
        return
    first, rest = nodes[0], nodes[1:]
    for groups in partitions_into(rest, count - 1) if count else ():
        yield [{first}, *groups]
    for groups in partitions_into(rest, count):
        for k in range(len(groups)):
            yield [*groups[:k], groups[k] | {first}, *groups[k + 1 :]]
