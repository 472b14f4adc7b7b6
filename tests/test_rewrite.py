"""The driver: it counts, asks for single use, keeps types, and stops rules that undo each other."""

from __future__ import annotations

import dataclasses

import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relax_glue.errors import RewriteError, UnknownNameError
from relax_glue.ir import Graph, Node, read_block
from relax_glue.passes import CanonicalizeReshape, FoldConstants
from relax_glue.passes.base import rule_pass
from relax_glue.rewrite import EXACT, FLOAT_REASSOC, Decline, RewriteStats, RuleSet, rewrite, rule


@I.ir_module
class Chain:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.negative(x)
            b = R.negative(a)
            c = R.exp(b)
            R.output(c)
        return c


def graph_of(mod: tvm.IRModule) -> Graph:
    return read_block(mod["main"].body.blocks[0])


@rule("negative-negative", "relax.negative", equation="-(-x) -> x", producers=("relax.negative",))
def cancel(node: Node, graph: Graph):
    return node.inputs[0].node.inputs[0]


@rule("negative-to-subtract", "relax.negative", equation="-x -> x - 2x")
def grow(node: Node, graph: Graph):
    twice = graph.emit(relax.op.add, node.inputs[0], node.inputs[0])
    return graph.emit(relax.op.subtract, node.inputs[0], twice)


@rule("subtract-to-negative", "relax.subtract", equation="x - 2x -> -x")
def shrink(node: Node, graph: Graph):
    return graph.emit(relax.op.negative, node.inputs[0])


def test_fires_and_counts() -> None:
    graph, stats = graph_of(Chain), RewriteStats()
    assert rewrite(graph, RuleSet.of(cancel), stats) == 1
    assert [n.op for n in graph] == ["input", "relax.exp"]
    assert (stats.of("negative-negative").fired, stats.fired) == (1, 1)


def test_declines_are_counted_by_reason() -> None:
    @rule("never", "relax.exp", equation="-")
    def never(node: Node, graph: Graph):
        return Decline("not today")

    stats = RewriteStats()
    assert rewrite(graph_of(Chain), RuleSet.of(never), stats) == 0
    assert stats.of("never").declined == {"not today": 1}


def test_rules_that_undo_each_other_are_named() -> None:
    with pytest.raises(
        RewriteError, match=r"'(negative-to-subtract|subtract-to-negative)' and '(\w|-)+' undo each other"
    ):
        rewrite(graph_of(Chain), RuleSet.of(grow, shrink))


def test_a_rule_that_goes_on_for_ever_is_stopped() -> None:
    @rule("once-more", "relax.exp", equation="exp(x) -> exp(x + x)")
    def once_more(node: Node, graph: Graph):
        return graph.emit(relax.op.exp, graph.emit(relax.op.add, node.inputs[0], node.inputs[0]))

    with pytest.raises(RewriteError, match="no end.*'once-more'"):
        rewrite(graph_of(Chain), RuleSet.of(once_more))


def test_a_rule_may_not_change_a_type() -> None:
    @rule("wrong", "relax.exp", equation="exp(x) -> x as float16")
    def wrong(node: Node, graph: Graph):
        return graph.emit(lambda e: relax.op.astype(e, "float16"), node.inputs[0])

    with pytest.raises(RewriteError, match="'wrong' at .*change its type"):
        rewrite(graph_of(Chain), RuleSet.of(wrong))


def test_single_use_is_checked_by_the_driver() -> None:
    @I.ir_module
    class Shared:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.negative(x)
                b = R.negative(a)
                c = R.add(a, b)
                R.output(c)
            return c

    only = dataclasses.replace(cancel, single_use=(0,))
    stats = RewriteStats()
    assert rewrite(graph_of(Shared), RuleSet.of(only), stats) == 0
    assert stats.of(only.name).declined == {"operand 0 has other users": 1}


def test_an_error_inside_a_rule_names_the_rule() -> None:
    @rule("ill-typed", "relax.exp", equation="exp(x) -> reshape(x, 5)")
    def ill_typed(node: Node, graph: Graph):
        return graph.emit(lambda e: relax.op.reshape(e, (5,)), node.inputs[0])

    with pytest.raises(RewriteError, match="rule 'ill-typed' at"):
        rewrite(graph_of(Chain), RuleSet.of(ill_typed))


def test_sets_join_and_leave_out_by_name() -> None:
    both = RuleSet.of(cancel) + RuleSet.of(grow) + RuleSet.of(cancel)
    assert [r.name for r in both] == ["negative-negative", "negative-to-subtract"]
    assert [r.name for r in both.without(["negative-negative"])] == ["negative-to-subtract"]
    assert len(both.sound(EXACT)) == 2 and len(both.sound(FLOAT_REASSOC)) == 0
    assert both.named("negative-negative") is cancel
    with pytest.raises(UnknownNameError, match="no rule is called 'x'"):
        both.named("x")
    with pytest.raises(ValueError, match="two rules are called"):
        RuleSet.of(cancel, cancel)


def test_a_pass_refuses_to_exclude_an_unknown_rule() -> None:
    with pytest.raises(UnknownNameError, match="no rule 'nothing' to exclude; it has: nop-reshape"):
        CanonicalizeReshape(exclude=["nothing"])
    with pytest.raises(UnknownNameError, match="no rule 'nothing' to exclude"):
        CanonicalizeReshape(exclude="nothing")


def test_a_pass_refuses_an_unknown_soundness() -> None:
    with pytest.raises(UnknownNameError, match="soundness names 'fast'"):
        CanonicalizeReshape(soundness=["fast"])
    with pytest.raises(UnknownNameError, match="soundness names 'fast'"):
        FoldConstants(soundness="fast")


def test_a_pass_that_does_nothing_returns_the_same_functions() -> None:
    after = rule_pass("Nothing", RuleSet())(Chain)
    assert after["main"].same_as(Chain["main"])


def test_a_tuple_that_is_a_result_is_made_of_what_replaces_its_items() -> None:
    @I.ir_module
    class Split:
        @R.function
        def main(x: R.Tensor((4, 2), "float32")):
            with R.dataflow():
                s = R.split(x, 2, axis=0)
                first = s[0]
                R.output(s, first)
            return (s, first)

    @rule("split-to-slices", "relax.split", equation="split(x)[k] -> strided_slice(x)")
    def to_slices(node: Node, graph: Graph):
        return [
            graph.emit(lambda e, k=k: relax.op.strided_slice(e, [0], [2 * k], [2 * k + 2]), node.inputs[0])
            for k in range(2)
        ]

    graph = graph_of(Split)
    assert rewrite(graph, RuleSet.of(to_slices)) == 1
    assert sorted(n.op for n in graph) == ["input", "relax.strided_slice", "relax.strided_slice", "tuple"]


def test_replacing_what_nothing_uses_is_no_rewrite() -> None:
    @I.ir_module
    class Second:
        @R.function
        def main(x: R.Tensor((4, 2), "float32")):
            with R.dataflow():
                s = R.split(x, 2, axis=0)
                second = s[1]
                R.output(second)
            return second

    @rule("first-only", "relax.split", equation="split(x)[0] -> strided_slice(x)")
    def first_only(node: Node, graph: Graph):
        return [graph.emit(lambda e: relax.op.strided_slice(e, [0], [0], [2]), node.inputs[0]), None]

    stats = RewriteStats()
    assert rewrite(graph_of(Second), RuleSet.of(first_only), stats) == 0
    assert "nothing uses what it replaces" in stats.of("first-only").declined
