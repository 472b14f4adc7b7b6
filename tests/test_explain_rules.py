"""`explain(mod, rules=...)`: which rules fired where, and why a rule that is asked for did not."""

from __future__ import annotations

import json
from typing import Any

import pytest
import tvm
from build_case import build, const
from tvm import relax
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R

import relax_glue
from relax_glue.errors import UnknownNameError
from relax_glue.ir import read_block
from relax_glue.pipeline import FAMILIES, check_rules, rule_names
from relax_glue.rewrite import NAN_SENSITIVE, RewriteStats
from relax_glue.rule_report import RuleReport

SLICE = "slice-of-concat"


@I.ir_module
class Sliced:
    @R.function
    def main(x: R.Tensor((2, 4), "float32"), y: R.Tensor((2, 4), "float32")):
        with R.dataflow():
            both = R.concat((x, y), axis=1)
            left = R.strided_slice(both, axes=[1], begin=[1], end=[3])
            wide = R.strided_slice(both, axes=[1], begin=[2], end=[6])
            R.output(both, left, wide)
        return (both, left, wide)


def report_of(mod: tvm.IRModule, rule: str, **options: Any) -> RuleReport:
    (found,) = relax_glue.explain(mod, rules=rule, **options).rules
    assert found.rule == rule
    return found


def test_a_rewrite_is_told_with_its_place_and_what_became_of_it() -> None:
    found = report_of(Sliced, SLICE)
    (firing,) = found.firings
    assert (firing.rule, firing.op, firing.name, firing.function) == (SLICE, "relax.strided_slice", "left", "main")
    assert firing.became == ("relax.strided_slice(x)",)
    assert (found.part_of, found.soundness) == ("CanonicalizeStridedSlice", "exact")
    assert found.equation == next(r for r in FAMILIES[found.part_of] if r.name == SLICE).equation


def test_a_decline_is_told_with_the_guard() -> None:
    found = report_of(Sliced, SLICE)
    reasons = {entry.name: entry.reason for entry in found.declined}
    assert set(reasons) == {"left", "wide"}  # what the rule made is a slice, and was tried in its turn
    assert reasons["left"] == "operand 0 comes from input, not from concat"
    assert reasons["wide"] == "the concat has other users, so nothing would be saved"
    assert found.verdict == "fired once, declined at 2 nodes"


def test_an_operand_with_other_users_is_told() -> None:
    def make(emit: Any, x: relax.Expr, y: relax.Expr) -> tuple[relax.Expr, ...]:
        low = emit(op.minimum(x, const(6.0)))
        return emit(op.maximum(low, const(0.5))), emit(op.exp(low))

    (entry,) = report_of(build(make, x=(4,), y=(4,)), "minimum-maximum-to-clip").declined
    assert (entry.op, entry.reason) == ("relax.maximum", "operand 0 has other users")


@pytest.mark.parametrize(
    ("rule", "options", "verdict"),
    [
        ("pad-into-conv", {}, "no node of its root operators in the model"),
        (SLICE, {"disable": [SLICE]}, "left out: it is disabled"),
        (SLICE, {"disable": "CanonicalizeStridedSlice"}, "left out: it is disabled"),
        ("clip-of-relu", {}, "left out: nan_sensitive rules are not asked for"),
        ("pool-to-channels-first", {}, "left out: ConvertLayout is off by default and not enabled"),
        ("sink-permute-dims", {}, "left out: SinkPermuteDims is off by default and not enabled"),
        ("call-tir-to-operator", {"disable": "RecognizeCallTir"}, "left out: it is disabled"),
    ],
)
def test_why_a_rule_took_no_part(rule: str, options: dict[str, Any], verdict: str) -> None:
    found = report_of(Sliced, rule, **options)
    assert (found.verdict, found.firings, found.declined) == (verdict, (), ())


def test_what_is_asked_for_is_not_left_out() -> None:
    every = ["exact", "float_reassoc", NAN_SENSITIVE]
    found = relax_glue.explain(Sliced, rules=True, soundness=every, enable=["ConvertLayout", "SinkPermuteDims"]).rules
    assert {r.rule for r in found} == {*rule_names(), "cancel-permute-dims", "move-reshapes", "sink-permute-dims"}
    assert not [r for r in found if "left out" in r.verdict]


def test_options_may_be_iterators() -> None:
    def verdict(rule: str, **options: list[str]) -> str:
        lists = report_of(Sliced, rule, **options)
        assert report_of(Sliced, rule, **{name: iter(given) for name, given in options.items()}) == lists
        return lists.verdict

    assert verdict(SLICE, disable=[SLICE]) == "left out: it is disabled"
    assert "not asked for" in verdict("batch-norm-to-scale", soundness=["exact"])
    assert "left out" not in verdict("sink-permute-dims", enable=["SinkPermuteDims"])


def test_no_rule_runs_on_a_module_that_is_partitioned() -> None:
    found = report_of(relax_glue.optimize(Sliced), SLICE)
    assert found.verdict == "left out: the module is partitioned already"


def test_nodes_that_other_rules_rewrote_are_counted() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        return emit(op.reshape(emit(op.reshape(x, (4, 2))), (2, 2, 2)))

    mod = build(make, x=(8,))
    found = report_of(mod, "shape-to-tensor-constant")
    assert (found.verdict, found.rewritten) == ("no node of its root operators in the model", {})
    found = report_of(mod, "nop-reshape")
    assert found.rewritten == {"reshape-of-reshape": 1} and len(found.declined) == 1
    flip = build(lambda emit, x: emit(op.flip(x, 0)), x=(8,))
    found = report_of(flip, "flip-of-flip")
    assert found.verdict == "no node of its root operators is left: other rules rewrote 1"
    assert found.rewritten == {"flip-to-slice": 1}


def test_all_rules_tell_what_the_stats_count() -> None:
    stats = RewriteStats()
    relax_glue.canonicalize(Sliced, stats=stats)
    found = {r.rule: r for r in relax_glue.explain(Sliced, rules=True).rules}
    for rule, report in found.items():
        assert len(report.firings) == stats.of(rule).fired, rule
    assert stats.fired == sum(len(r.firings) for r in found.values()) > 0


def test_the_declines_are_those_of_the_nodes_that_are_left(shared: Any) -> None:
    import graphfile

    mod = graphfile.load(str(shared / "graphs" / "swin_t"))
    reports = {r.rule: r for r in relax_glue.explain(mod, rules=True).rules}
    (block,) = relax_glue.canonicalize(mod)["main"].body.blocks
    left = sorted(n.name for n in read_block(block) if n.op == "relax.reshape")
    assert sorted(entry.name for entry in reports["nop-reshape"].declined) == left
    # a rule of two steps, and one with producers, which the driver itself declines
    assert sorted(e.name for e in reports["fold-constants"].declined if e.op == "relax.reshape") == left
    assert sorted(e.name for e in reports["reshape-of-reshape"].declined) == left


def test_every_function_and_every_block_is_told_of() -> None:
    @I.ir_module
    class Branches:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
            if c:
                with R.dataflow():
                    a = R.reshape(x, (4,))
                    R.output(a)
                r = a
            else:
                with R.dataflow():
                    b = R.reshape(x, (4,))
                    d = R.exp(b)
                    R.output(d)
                r = d
            return r

        @R.function
        def other(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                e = R.reshape(x, (4,))
                f = R.exp(e)
                R.output(f)
            return f

    found = report_of(Branches, "nop-reshape")
    assert sorted((f.function, f.name) for f in found.firings) == [("main", "a"), ("main", "b"), ("other", "e")]


def test_the_motion_of_permutes_is_told_of() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        y = emit(op.exp(emit(op.permute_dims(x, [0, 2, 3, 1]))))
        return emit(op.permute_dims(y, [0, 3, 1, 2]))

    mod = build(make, x=(1, 3, 4, 5))
    found = report_of(mod, "cancel-permute-dims")
    (firing,) = found.firings
    assert (firing.op, firing.function) == ("relax.exp", "main") and "cluster of 1 operators" in firing.became[0]


# -- names -----------------------------------------------------------------------------------------------


def test_a_pass_stands_for_its_rules() -> None:
    found = relax_glue.explain(Sliced, rules=["FoldShapes", SLICE]).rules
    assert [r.rule for r in found] == [*(r.name for r in FAMILIES["FoldShapes"]), SLICE]


@pytest.mark.parametrize("rules", ["slice-of-concta", ["nop-slice", "CanonicalizeSlices"], "ConvertToDataflow"])
def test_unknown_names_are_refused(rules: Any) -> None:
    with pytest.raises(UnknownNameError, match="rules names .*neither a rule nor a pass made of rules; see"):
        relax_glue.explain(Sliced, rules=rules)


def test_a_name_that_is_nearly_right_is_told() -> None:
    with pytest.raises(UnknownNameError, match="see 'slice-of-concat'"):
        check_rules("slice-of-concta")


# -- the report ------------------------------------------------------------------------------------------


def test_nothing_is_told_where_nothing_is_asked() -> None:
    report = relax_glue.explain(Sliced)
    assert report.rules is None and set(json.loads(report.to_json())) == {"regions", "outside"}
    assert "rules:" not in str(report)


def test_the_report_as_json() -> None:
    report = relax_glue.explain(Sliced, rules=SLICE)
    (entry,) = json.loads(report.to_json())["rules"]
    assert entry["verdict"] == "fired once, declined at 2 nodes"
    assert entry["firings"][0]["name"] == "left" and len(entry["declined"]) == 2


def test_the_report_as_text_lists_all_places_of_a_rule_that_is_named_and_some_of_many() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        for _ in range(5):
            x = emit(op.exp(emit(op.reshape(x, (4,)))))
        return x

    mod = build(make, x=(4,))
    text = str(relax_glue.explain(mod, rules="nop-reshape"))
    assert text.count("fired: relax.reshape lv") == 5
    assert "rules: 1 of 1 fired, 5 times in all" in text
    text = str(relax_glue.explain(mod, rules=True))
    assert text.count("fired: relax.reshape lv") == 3 and "fired: 2 more" in text
    assert "unit-operand" in text and "no node of its root operators in the model" in text
