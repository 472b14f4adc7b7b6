"""The partition of random graphs is convex, as small as brute force finds, and independent of the order."""

from __future__ import annotations

import itertools
from collections.abc import Hashable

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from region_case import can_run_in_order, fewest_by_brute_force, graphs, members

from relax_glue.regions import Costs, earliest_levels, find_regions, is_convex

FREE = Costs(lambda n: 1, lambda p, n: 1, lambda n: False, lambda n: False)


def regions_of(dag: nx.DiGraph, accepted: frozenset[int], costs: Costs = FREE) -> dict[Hashable, int]:
    return find_regions(dag, accepted.__contains__, lambda nodes: None, costs).of


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


def sized(bytes_of: int | dict[str, int], seen: str = "") -> Costs:
    """Return costs by which a node whose name begins with "glue" is cheap, and `seen` a result of the block."""

    def size(node: str) -> int:
        return bytes_of if isinstance(bytes_of, int) else bytes_of.get(node, 8)

    return Costs(size, lambda p, n: size(p), lambda n: n.startswith("glue"), lambda n: n == seen)


def test_glue_moves_to_the_layer_that_wants_it() -> None:
    # glue stands before everything and is used only after the refused x: it goes beside c, where no tensor crosses
    dag = nx.DiGraph([("a", "x"), ("x", "c"), ("glue", "c")])
    regions = regions_of(dag, frozenset(["a", "c", "glue"]), sized(8))
    assert regions["glue"] == regions["c"] == 1


def test_a_result_of_the_block_does_not_move() -> None:
    dag = nx.DiGraph([("a", "x"), ("x", "c"), ("glue", "c")])
    assert regions_of(dag, frozenset(["a", "c", "glue"]), sized(8, seen="glue"))["glue"] == 0


@pytest.mark.parametrize("least, regions", [(1, 3), (2, 0)])
def test_a_region_that_is_not_worth_it_stays_outside_with_the_reason(least: int, regions: int) -> None:
    dag = nx.DiGraph([("a", "x"), ("x", "b"), ("b", "y"), ("y", "c")])
    found = find_regions(dag, lambda n: n in "abc", lambda nodes: None if len(nodes) >= least else "too small", FREE)
    assert found.count == regions
    assert found.dropped == ({} if regions else dict.fromkeys("abc", "too small"))


def cut(*more: tuple[str, str]) -> nx.DiGraph:
    """Return a -> x -> c, of which x is not accepted, with more edges."""
    return nx.DiGraph([("a", "x"), ("x", "c"), *more])


def test_glue_that_shrinks_stays_and_glue_that_grows_moves() -> None:
    # glue is made of a, which crosses for it alone: the smaller of the two crosses
    dag = cut(("b", "glue"), ("glue", "c"), ("b", "d"))
    accepted = frozenset(["a", "b", "c", "d", "glue"])
    assert regions_of(dag, accepted, sized({"glue": 4, "b": 8}))["glue"] == 0
    assert regions_of(dag, accepted, sized({"glue": 16, "b": 8}))["glue"] == 1
    assert regions_of(dag, accepted, sized({"glue": 8, "b": 8}))["glue"] == 1


def test_what_is_there_in_any_case_costs_nothing() -> None:
    # a crosses because x reads it; glue is smaller, but would cross besides
    dag = cut(("a", "glue"), ("glue", "c"))
    assert regions_of(dag, frozenset(["a", "c", "glue"]), sized({"glue": 4, "a": 8}))["glue"] == 1
    # what x reads crosses wherever it is made, and stays
    dag = cut(("a", "glue"), ("glue", "y"), ("y", "c"), ("x", "y"))
    assert regions_of(dag, frozenset(["a", "c", "glue"]), sized(8))["glue"] == 0


def test_a_chain_of_glue_is_as_small_as_its_smallest_part() -> None:
    # glue1 repeats b, glue2 reshapes it: neither is worth moving alone for glue2 is no larger than glue1
    dag = cut(("b", "glue1"), ("glue1", "glue2"), ("glue2", "c"), ("b", "d"))
    regions = regions_of(dag, frozenset(["a", "b", "c", "d", "glue1", "glue2"]), sized({"glue1": 64, "glue2": 64}))
    assert regions["glue1"] == regions["glue2"] == 1 and regions["b"] == 0


def test_glue_that_two_regions_want_is_made_in_each_where_that_is_less() -> None:
    dag = cut(("b", "glue1"), ("glue1", "glue2"), ("glue2", "c"), ("glue2", "d"), ("d", "x"))
    accepted = frozenset(["a", "b", "c", "d", "glue1", "glue2"])
    grows = find_regions(dag, accepted.__contains__, lambda nodes: None, sized({"glue1": 64, "glue2": 64}))
    assert grows.of["glue1"] == grows.of["glue2"] == 0
    assert grows.copies == {"glue1": frozenset([1]), "glue2": frozenset([1])}
    same = find_regions(dag, accepted.__contains__, lambda nodes: None, sized(8))
    assert same.copies == {}
    work = find_regions(dag, accepted.__contains__, lambda nodes: None, sized({"b": 64, "glue1": 8}))
    assert work.copies == {}


def test_glue_between_two_that_are_outside_makes_no_region() -> None:
    # x -> glue -> y would be a region between two; c comes after x but is not needed before y
    dag = nx.DiGraph([("a", "x"), ("x", "glue"), ("glue", "y"), ("y", "b"), ("x", "c"), ("c", "b")])
    accepted = frozenset(["a", "b", "c", "glue"])
    found = find_regions(dag, accepted.__contains__, _only_work, sized(8))
    assert found.of == {"a": 0, "b": 1, "c": 1} and list(found.dropped) == ["glue"]
    # one that computes does make a region, and so does glue where that is worth one
    work, both = nx.relabel_nodes(dag, {"glue": "work"}), accepted - {"glue"} | {"work"}
    assert find_regions(work, both.__contains__, _only_work, sized(8)).of["b"] == 2
    assert find_regions(dag, accepted.__contains__, lambda nodes: None, sized(8)).of["b"] == 2
    # and glue that is made of what a region computes stays in that region
    dag.add_edge("c", "glue")
    assert find_regions(dag, accepted.__contains__, _only_work, sized(8)).dropped == {}


def results_seen(dag: nx.DiGraph) -> Costs:
    """Return costs of a block whose results are the nodes that nothing uses."""
    return Costs(lambda n: 8, lambda p, n: 8, lambda n: n.startswith("glue"), lambda n: not dag.succ[n])


def fewest_with_cheap_nodes(dag: nx.DiGraph, accepted: frozenset[str]) -> int:
    """Try every choice of the cheap nodes that stay outside."""
    cheap = sorted(n for n in accepted if n.startswith("glue"))
    choices = itertools.product([True, False], repeat=len(cheap))
    return min(
        find_regions(dag, lambda n, out=out: n in accepted and n not in out, _only_work, results_seen(dag)).count
        for out in (frozenset(n for n, left in zip(cheap, choice, strict=True) if left) for choice in choices)
    )


def _only_work(nodes: list[str]) -> str | None:
    return None if any(not n.startswith("glue") for n in nodes) else "nothing computes"


@settings(max_examples=300, deadline=None, derandomize=True)
@given(graphs(most=9), st.sets(st.integers(0, 8)))
def test_as_few_as_with_any_choice_of_glue_outside(case: tuple[nx.DiGraph, frozenset[int]], cheap: set[int]) -> None:
    names = {n: f"glue{n}" if n in cheap else f"work{n}" for n in case[0]}
    dag, accepted = nx.relabel_nodes(case[0], names), frozenset(names[n] for n in case[1])
    found = find_regions(dag, accepted.__contains__, _only_work, results_seen(dag))
    groups = members(found.of)
    assert all(is_convex(dag, g) for g in groups) and can_run_in_order(dag, groups)
    assert set(found.of) | set(found.dropped) == accepted
    assert found.count == fewest_with_cheap_nodes(dag, accepted)


def crossing(dag: nx.DiGraph, of: dict[str, int], copies: dict[str, frozenset[int]], costs: Costs) -> int:
    """Return what crosses: each value once that a result, something outside or another region reads."""

    def places(node: str) -> set[int | None]:
        return {of.get(node), *copies.get(node, ())}

    total = 0
    for node in of:
        readers = {place for user in dag.succ[node] for place in places(user)}
        if costs.seen(node) or readers - places(node):
            total += costs.output_bytes(node)
    return total


@settings(max_examples=400, deadline=None, derandomize=True)
@given(graphs(most=9), st.sets(st.integers(0, 8)), st.lists(st.sampled_from([1, 2, 4, 9]), min_size=9, max_size=9))
def test_moving_and_copying_never_lets_more_cross(
    case: tuple[nx.DiGraph, frozenset[int]], cheap: set[int], sizes: list[int]
) -> None:
    names = {n: f"glue{n}" if n in cheap else f"work{n}" for n in case[0]}
    dag, accepted = nx.relabel_nodes(case[0], names), frozenset(names[n] for n in case[1])
    size = {names[n]: sizes[n] for n in case[0]}
    costs = Costs(
        size.__getitem__, lambda p, n: size[p], lambda n: n.startswith("glue"), lambda n: not dag.succ[n], 1 << 16
    )
    early = earliest_levels(dag, accepted.__contains__)
    found = find_regions(dag, accepted.__contains__, lambda nodes: None, costs)
    before = crossing(dag, {n: early[n] for n in accepted}, {}, costs)
    assert crossing(dag, found.of, found.copies, costs) <= before
    for node, regions in found.copies.items():
        assert min(regions) > found.of[node]
