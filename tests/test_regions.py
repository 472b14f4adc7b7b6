"""The partition of random graphs is convex, as small as brute force finds, and independent of the order."""

from __future__ import annotations

from collections.abc import Hashable

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from region_case import can_run_in_order, fewest_by_brute_force, graphs, members

from relax_glue.regions import Costs, earliest_levels, find_regions, is_convex

FREE = Costs(lambda n: 1, lambda n: 0, lambda n: False, lambda n: False)


def regions_of(dag: nx.DiGraph, accepted: frozenset[int], costs: Costs = FREE) -> dict[Hashable, int]:
    return find_regions(dag, accepted.__contains__, lambda nodes: None, costs)[0]


@settings(max_examples=400, deadline=None, derandomize=True)
@given(graphs())
def test_convex_and_in_order(case: tuple[nx.DiGraph, frozenset[int]]) -> None:
    dag, accepted = case
    groups = members(regions_of(dag, accepted))
    assert set().union(*groups) == set(accepted)
    assert all(is_convex(dag, g) for g in groups)
    assert can_run_in_order(dag, groups)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(graphs(most=8))
def test_as_few_as_brute_force_finds(case: tuple[nx.DiGraph, frozenset[int]]) -> None:
    dag, accepted = case
    assert len(members(regions_of(dag, accepted))) == fewest_by_brute_force(dag, accepted)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(graphs(most=10))
def test_as_few_as_brute_force_finds_up_to_ten(case: tuple[nx.DiGraph, frozenset[int]]) -> None:
    dag, accepted = case
    found = len(members(regions_of(dag, accepted)))
    assert found == fewest_by_brute_force(dag, accepted)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(graphs(), st.randoms(use_true_random=False))
def test_the_order_of_nodes_and_edges_does_not_matter(case: tuple[nx.DiGraph, frozenset[int]], random) -> None:
    dag, accepted = case
    nodes, edges = list(dag.nodes), list(dag.edges)
    random.shuffle(nodes)
    random.shuffle(edges)
    other = nx.DiGraph()
    other.add_nodes_from(nodes)
    other.add_edges_from(edges)
    assert regions_of(dag, accepted) == regions_of(other, accepted)


def test_is_convex_sees_a_path_that_comes_back() -> None:
    dag = nx.DiGraph([(0, 1), (1, 2), (0, 2)])
    assert not is_convex(dag, {0, 2})
    assert is_convex(dag, {0, 1, 2})
    assert is_convex(dag, {0})


def test_levels_count_how_often_a_path_leaves() -> None:
    dag = nx.DiGraph([("a", "x"), ("x", "b"), ("b", "y"), ("y", "c")])
    level = earliest_levels(dag, lambda n: n in "abc")
    assert [level[n] for n in "abc"] == [0, 1, 2]


def test_independent_branches_share_a_region() -> None:
    dag = nx.DiGraph()
    dag.add_nodes_from("ab")
    assert regions_of(dag, frozenset("ab")) == {"a": 0, "b": 0}


def test_glue_moves_to_the_layer_that_wants_it() -> None:
    # glue stands before everything and is used only after the refused x: it goes beside c, where no tensor crosses
    dag = nx.DiGraph([("a", "x"), ("x", "c"), ("glue", "c")])
    costs = Costs(lambda n: 8, lambda n: 8 if n == "glue" else 0, lambda n: n == "glue", lambda n: False)
    regions = regions_of(dag, frozenset(["a", "c", "glue"]), costs)
    assert regions["glue"] == regions["c"] == 1


def test_a_result_of_the_block_does_not_move() -> None:
    dag = nx.DiGraph([("a", "x"), ("x", "c"), ("glue", "c")])
    costs = Costs(lambda n: 8, lambda n: 0, lambda n: n == "glue", lambda n: n == "glue")
    assert regions_of(dag, frozenset(["a", "c", "glue"]), costs)["glue"] == 0


@pytest.mark.parametrize("least, regions", [(1, 3), (2, 0)])
def test_a_region_that_is_not_worth_it_stays_outside_with_the_reason(least: int, regions: int) -> None:
    dag = nx.DiGraph([("a", "x"), ("x", "b"), ("b", "y"), ("y", "c")])
    found, dropped = find_regions(
        dag, lambda n: n in "abc", lambda nodes: None if len(nodes) >= least else "too small", FREE
    )
    assert len(set(found.values())) == regions
    assert dropped == ({} if regions else dict.fromkeys("abc", "too small"))
