"""One rule alone, on many random instances: where it fires, the module computes what it did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import tvm
import tvm_ffi
from numpy_case import NotInNumpyError, run_in_numpy
from rule_instances import DRAWERS, Instance, NoInstance, Scene

from relax_glue.passes.base import rule_pass
from relax_glue.pipeline import FAMILIES
from relax_glue.rewrite import EXACT, FLOAT_REASSOC, NAN_SENSITIVE, RewriteStats, Rule, RuleSet
from relax_glue.testing import Pair, check_many, check_signature, difference, evaluate

RULES: dict[str, Rule] = {rule.name: rule for rules in FAMILIES.values() for rule in rules}
SOUNDNESS = (EXACT, FLOAT_REASSOC, NAN_SENSITIVE)
DRAWS_PER_FIRING = 20
RTOL = {"float32": 1e-4, "float16": 1e-2}  # of the largest value; half precision rounds each partial sum
SAMPLE = 16  # one instance of so many goes to LLVM whatever numpy says
BATCH = 24  # modules that LLVM compiles at once
CIRCULAR = ("fold-constants",)  # computes with the very functions that numpy's verdict would come from


@dataclass
class Tally:
    """What became of the instances of one rule."""

    fired: int = 0
    declined: int = 0
    on_llvm: int = 0
    reasons: set[str] = field(default_factory=set)


def instances(rule: Rule) -> Iterator[tuple[str, Instance]]:
    """Yield instances of a rule with their seeds, without end."""
    number = 0
    while True:
        seed = f"{rule.name}:{number}"
        number += 1
        scene = Scene(seed, special=rule.soundness == EXACT)
        try:
            drawer = scene.choices.item(DRAWERS[rule.name])
            yield seed, scene.finish(drawer(scene))
        except NoInstance:
            continue


def check_rule(name: str, firings: int) -> Tally:
    """Draw instances of a rule until it fired so often, and check each of those.

    Raises
    ------
    NotEquivalentError
        An instance computes something else after the rule.
    AssertionError
        The rule hardly fires, changes its input, or fires again on its own result.
    """
    rule, tally, pairs = RULES[name], Tally(), []
    for seed, instance in instances(rule):
        if tally.fired == firings:
            break
        assert tally.fired + tally.declined < 50 + DRAWS_PER_FIRING * firings, f"{name} fired {tally.fired} times only"
        after = _fired(rule, seed, instance, tally)
        if after is None:
            continue
        if not instance.typed:
            _check_values(seed, instance, after)
        elif name in CIRCULAR or tally.fired % SAMPLE == 1 or not _agrees_in_numpy(_pair(rule, instance, after)):
            pairs.append(_pair(rule, instance, after))
        if len(pairs) == BATCH:
            tally.on_llvm += len(pairs)
            check_many(pairs)
            pairs.clear()
    tally.on_llvm += len(pairs)
    check_many(pairs)
    return tally


def _pair(rule: Rule, instance: Instance, after: tvm.IRModule) -> Pair:
    exact = rule.soundness == EXACT
    rtol = RTOL["float16" if any(a.dtype == np.float16 for a in instance.inputs) else "float32"]
    # c - x - c cancels: what is left is rounding, and hangs on how large x was
    atol = rtol * 1e-2 * max((float(np.abs(a.astype("float64")).max(initial=0)) for a in instance.inputs), default=0.0)
    payloads = exact and instance.only_moves
    return Pair(instance.reference, after, instance.inputs, exact, payloads, rtol, atol=0.0 if exact else atol)


def _fired(rule: Rule, seed: str, instance: Instance, tally: Tally) -> tvm.IRModule | None:
    """Apply a rule alone; return the module where it fired, and None where it declined."""
    stats = RewriteStats()
    alone = rule_pass(rule.name, RuleSet.of(rule), stats=stats, soundness=SOUNDNESS)
    kept = tvm_ffi.structural_hash(instance.module)
    after = alone(instance.module)
    assert tvm_ffi.structural_hash(instance.module) == kept, f"{seed}: the rule changed its input"
    tally.reasons.update(stats.of(rule.name).declined)
    if not stats.fired:
        tally.declined += 1
        return None
    tally.fired += 1
    again = alone(after)
    assert tvm_ffi.structural_equal(again, after), f"{seed}: a second run gives\n{again.script()}\nof\n{after.script()}"
    return after


def _check_values(seed: str, instance: Instance, after: tvm.IRModule) -> None:
    """Check the values alone, where TVM cannot compile what the rule was given."""
    right, found = (_leaves(_values(module, instance)) for module in (instance.reference, after))
    reasons = [difference(r, f) for r, f in zip(right, found, strict=True)]
    assert not any(reasons), f"{seed}: {reasons}\n{instance.module.script()}\n{after.script()}"


def _values(module: tvm.IRModule, instance: Instance) -> object:
    try:
        return run_in_numpy(module, instance.inputs)
    except NotInNumpyError:
        return evaluate(module, instance.inputs)


def _agrees_in_numpy(pair: Pair) -> bool:
    """Say whether numpy alone shows that a pair agrees; where it does not, LLVM is the judge."""
    try:
        results = [_leaves(run_in_numpy(module, pair.inputs)) for module in (pair.before, pair.after)]
    except NotInNumpyError:
        return False
    check_signature(pair)
    differences = (
        difference(before, after, exact=pair.exact, payloads=pair.payloads, rtol=pair.rtol, atol=pair.atol)
        for before, after in zip(*results, strict=True)
    )
    return not any(differences)


def _leaves(result: object) -> list[np.ndarray]:
    if isinstance(result, tuple):
        return [leaf for item in result for leaf in _leaves(item)]
    return [np.asarray(result)]
