"""Random modules: regions are convex, the fewest, the same for any order of the bindings, and put back exactly."""

from __future__ import annotations

from collections.abc import Hashable
from random import Random

import networkx as nx
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from region_case import can_run_in_order, fewest_by_brute_force, graphs
from tvm import relax
from tvm.relax import op

import relax_glue
from relax_glue.inline import inline
from relax_glue.region_function import region_functions
from relax_glue.regions import is_convex
from relax_glue.testing import Case, check_equivalent, modules

Dag = nx.DiGraph


@st.composite
def dags(draw: st.DrawFn, most: int = 10) -> tuple[Dag, frozenset[int]]:
    """Draw a graph in which no node has more than two producers."""
    dag, accepted = draw(graphs(most))
    for node in dag:
        for producer in sorted(dag.pred[node])[2:]:
            dag.remove_edge(producer, node)
    return dag, accepted


def module_of(dag: Dag, order: list[int]) -> tvm.IRModule:
    """Write a graph as a module: one operator per node, its name the node's, bound in the order given."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([2, 3], "float32"))
    named: dict[Hashable, relax.Var] = {}
    with builder.function("main", [x]):
        with builder.dataflow():
            for node in order:
                operands = [named[p] for p in sorted(dag.pred[node])] or [x]
                call = op.add if len(operands) == 2 else op.exp
                named[node] = builder.emit(call(*operands), name_hint=f"v{node}")
            results = [named[n] for n in sorted(dag) if not dag.succ[n]]
            out = builder.emit_output(relax.Tuple(results), name_hint="out")
        builder.emit_func_output(out)
    return builder.get()


def groups_of(mod: tvm.IRModule, dag: Dag, accepted: frozenset[int]) -> list[set[int]]:
    """Partition, and return the nodes of each region, told by their names."""
    after = relax_glue.partition(mod, exclude_names=[f"v{n}" for n in dag if n not in accepted])
    relax.analysis.well_formed(after)
    names = {f"v{n}": n for n in dag}
    found = []
    for region in region_functions(after).values():
        bound = [b.var.name for block in region.body.blocks for b in block.bindings]
        found.append({names[name] for name in bound if name in names})
    return found


def some_order(dag: Dag, random: Random) -> list[int]:
    rank = {n: random.random() for n in dag}
    return list(nx.lexicographical_topological_sort(dag, key=rank.__getitem__))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(dags(), st.randoms(use_true_random=False))
def test_convex_complete_and_independent_of_the_order(case: tuple[Dag, frozenset[int]], random: Random) -> None:
    dag, accepted = case
    groups = groups_of(module_of(dag, some_order(dag, random)), dag, accepted)
    assert set().union(*groups) == set(accepted)
    assert sum(map(len, groups)) == len(accepted)
    assert all(is_convex(dag, g) for g in groups) and can_run_in_order(dag, groups)
    again = groups_of(module_of(dag, some_order(dag, random)), dag, accepted)
    assert sorted(map(sorted, groups)) == sorted(map(sorted, again))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(dags(most=8))
def test_as_few_as_brute_force_finds(case: tuple[Dag, frozenset[int]]) -> None:
    dag, accepted = case
    groups = groups_of(module_of(dag, sorted(dag)), dag, accepted)
    assert len(groups) == fewest_by_brute_force(dag, accepted)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(dags(most=10))
def test_as_few_as_brute_force_finds_up_to_ten(case: tuple[Dag, frozenset[int]]) -> None:
    dag, accepted = case
    groups = groups_of(module_of(dag, sorted(dag)), dag, accepted)
    assert len(groups) == fewest_by_brute_force(dag, accepted)


def respelled(mod: tvm.IRModule) -> relax.Function:
    """Return `main` in normal form, its extents as TVM spells them where it puts in symbols: 2 * n as n * 2."""
    main = relax_glue.canonicalize(mod)["main"]
    symbols = {symbol for param in main.params for symbol in relax.analysis.tir_vars_in_type(param.ty)}
    return main.bind_symbolic_vars({symbol: tvm.tirx.Var(symbol.name, "int64") for symbol in symbols})


@settings(max_examples=25, deadline=None, derandomize=True)
@given(modules(max_operators=8))
def test_a_glue_module_partitioned_and_put_back_is_the_same_function(case: Case) -> None:
    ready = relax_glue.canonicalize(case.module)
    after = relax_glue.partition(ready)
    relax.analysis.well_formed(after)
    tvm.ir.assert_structural_equal(relax_glue.partition(after), after)
    back = inline(after)
    assert not region_functions(back)
    if len(region_functions(after)) == 1 and not relax_glue.explain(after).outside:
        tvm.ir.assert_structural_equal(respelled(back), respelled(ready))
    check_equivalent(case.module, back, list(case.inputs), other_inputs=case.other_inputs)
