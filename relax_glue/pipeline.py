"""The ordered list of passes, each with the reason for its place, and what the public functions do with it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import reduce
from operator import add
from types import MappingProxyType

import tvm

from .errors import RewriteError, UnknownNameError
from .ir import Graph
from .passes import (
    ConvertToDataflow,
    RecognizeCallTir,
    affine,
    batch_norm,
    broadcast,
    call_tir,
    clip,
    concat,
    constants,
    dataflow,
    elementwise,
    layer_norm,
    layout,
    merge,
    motion,
    pad,
    permute_dims,
    pool,
    reshape,
    reshape_motion,
    resize,
    resolve_if,
    shapes,
    split,
    stack_reduce,
    strided_slice,
    symbols,
    take,
)
from .passes.base import graph_pass, rule_pass
from .passes.motion import move_permutes
from .passes.reshape_motion import move_reshapes
from .passes.resolve_if import ResolveIf, until_branches_are_resolved
from .passes.symbols import until_symbols_are_bound
from .rewrite import DEFAULT_SOUNDNESS, FLOAT_REASSOC, RewriteStats, Rule, RuleSet, check_soundness, rewrite
from .rule_report import named
from .transform import Transform
from .validate import as_names

FAMILIES: Mapping[str, RuleSet] = MappingProxyType(
    {
        "RecognizeCallTir": call_tir.RULES,
        "FoldShapes": shapes.RULES,
        "FoldConstants": constants.RULES,
        "FoldBatchNorm": batch_norm.RULES,
        "FoldAffine": affine.RULES,
        "RecognizeIdioms": layer_norm.RULES,
        "RecognizeClip": clip.RULES,
        "RecognizeMaximum": stack_reduce.RULES,
        "CanonicalizeReshape": reshape.RULES,
        "CanonicalizePermuteDims": permute_dims.RULES,
        "CanonicalizeStridedSlice": strided_slice.RULES,
        "CanonicalizeSplit": split.RULES,
        "CanonicalizeConcat": concat.RULES,
        "CanonicalizeTake": take.RULES,
        "CanonicalizeBroadcast": broadcast.RULES,
        "CanonicalizeElementwise": elementwise.RULES,
        "CanonicalizePad": pad.RULES,
        "CanonicalizeResize": resize.RULES,
        "CanonicalizePool": pool.RULES,
        "MergeEqual": merge.RULES,
        "ConvertLayout": layout.RULES,
    }
)
"""The rules of each pass, by the name of the pass, in the order in which they are tried at a node."""


@dataclass(frozen=True)
class Step:
    """One step of the pipeline.

    Attributes
    ----------
    passes : tuple[str, ...]
        The passes whose rules run together, in one worklist; or one pass of TVM.
    reason : str
        Why it stands where it stands.
    """

    passes: tuple[str, ...]
    reason: str


SINK = "SinkPermuteDims"
MOTIONS = MappingProxyType({"CancelPermuteDims": motion.CANCEL, SINK: motion.SINK, "MoveReshapes": reshape_motion.MOVE})
_ROUNDS = 100  # each lowers the bytes that permutes move; two or three are usual

OFF_BY_DEFAULT = frozenset({"ConvertLayout", SINK})
"""Passes of the pipeline that run only when they are enabled.

Measured on an H200 with TensorRT-RTX 1.5 on four TFLite models (benchmarks/results/h200_tflite*.json): with a third of
the layers three models are 1 to 5 % slower, since TensorRT chooses layouts itself, one is 8 % faster, and of that one
TensorRT-RTX builds a wrong engine from a network that is right when evaluated layer by layer.
"""

TRANSFORMS: Mapping[str, tuple[Transform, ...]] = MappingProxyType(
    {
        "ConvertToDataflow": (dataflow.OPEN,),
        "FoldShapes": (symbols.BIND,),
        "ResolveIf": (resolve_if.RESOLVE, resolve_if.DROP_GUARD),
        **{name: (transform,) for name, transform in MOTIONS.items()},
    }
)
"""What passes of the pipeline do that is no rule, by the name of the pass."""

LEGALITY = frozenset(
    {
        "ConvertToDataflow",  # code outside a dataflow block is never offloaded
        "RecognizeCallTir",  # TensorRT has no layer for a kernel
        "FoldShapes",  # nor for shape arithmetic, nor for a tensor of unknown shape
        "FoldConstants",  # nor for an empty tensor; and shape arithmetic is done in constants
        "ResolveIf",  # nor for a branch, which is a region by itself
        "empty-concat-operand",  # nor for a concat with one
        "cast-before-movement",  # nor for a movement of uint8
    }
)
"""The passes and rules that let TensorRT take a model: they replace what the registry refuses by what it accepts.

All other rules make the network smaller. Some of them legalise in passing (`shuffle-normal-form` brings a chain over
more than eight dimensions down to fewer, `split-to-slices` drops an empty item), so with these alone a model may be
cut once more; `benchmarks/gpu.py --legality` counts the regions of both.
"""

FOLDING = Step(
    ("FoldShapes", "FoldConstants", "ResolveIf"),
    "known extents and values make the patterns of every later rule static, and dead users would keep "
    "operands from counting as single-use; they make conditions known too, and the branch taken joins the block "
    "around it before any rule looks at that, with extents that are then folded in turn",
)

PIPELINE: tuple[Step, ...] = (
    Step(
        ("ConvertToDataflow",),
        "pure code outside dataflow blocks, in branches too, would be seen by no pass",
    ),
    Step(
        ("RecognizeCallTir",),
        "a kernel that is an operator in disguise would be seen by no rule",
    ),
    FOLDING,
    Step(
        (*(name for name in FAMILIES if name != "RecognizeCallTir"), *MOTIONS),
        "all families together: what one makes (a slice of a concat is a slice) another goes on with; only when they "
        "are done are layouts converted, where that is enabled, for a permute would hide a scale from its convolution, "
        "and permutes moved, for each motion is to be worth it by what is left; both again until nothing moves",
    ),
)


def rule_names() -> list[str]:
    """Return the names of all rules, sorted."""
    return sorted(r.name for rules in FAMILIES.values() for r in rules)


def improvements() -> list[str]:
    """Return the rules and motions that legality does not need, sorted: `disable` them to run what it needs alone."""
    rules = (r.name for family, found in FAMILIES.items() if family not in LEGALITY for r in found)
    return sorted({*rules, *MOTIONS} - LEGALITY)


def rules_of_passes() -> dict[str, list[Rule | Transform]]:
    """Return what can be told of by `explain`, by the name of the pass: rules, and the motion of permutes."""
    return {
        **{name: list(rules) for name, rules in FAMILIES.items()},
        **{name: [found] for name, found in MOTIONS.items()},
    }


def check_rules(rules: bool | str | Iterable[str]) -> dict[str, list[Rule | Transform]]:
    """Return the rules asked for, by the name of the pass: all for True, none for False, else those named.

    Raises
    ------
    UnknownNameError
        A name is neither a rule nor a pass made of rules.
    """
    known = rules_of_passes()
    if isinstance(rules, bool):
        return known if rules else {}
    names = as_names("rules", rules)
    there = {*known, *(r.name for family in known.values() for r in family)}
    for unknown in sorted(set(names) - there):
        near = ", ".join(map(repr, get_close_matches(unknown, there))) or "relax_glue.pipeline.rule_names()"
        raise UnknownNameError(f"rules names {unknown!r}, which is neither a rule nor a pass made of rules; see {near}")
    return named(known, names)


def left_out(disable: Collection[str], soundness: Iterable[str], enable: Collection[str]) -> dict[str, str]:
    """Return the rules that `pipeline_passes` leaves out when it is given the same, each with the reason."""
    disabled, enabled, classes = check_disabled(disable), check_enabled(enable), check_soundness(soundness)
    found = {}
    for name, family in rules_of_passes().items():
        kept = {r.name for r in _rules(name, disabled, classes)} if name in FAMILIES else {r.name for r in family}
        for rule in family:
            if name in disabled or rule.name in disabled:
                found[rule.name] = "it is disabled"
            elif name in OFF_BY_DEFAULT - enabled:
                found[rule.name] = f"{name} is off by default and not enabled"
            elif rule.name not in kept:
                found[rule.name] = f"{rule.soundness} rules are not asked for"
    return found


def check_disabled(disable: Iterable[str]) -> frozenset[str]:
    """Return the names of passes and rules to leave out.

    A pass of which nothing is left is among them.

    Raises
    ------
    UnknownNameError
        A name is neither a pass nor a rule, nor what docs/rules.md calls something else that a pass does.
    """
    names = frozenset(as_names("disable", disable))
    parts = {name: _parts(name) for step in PIPELINE for name in step.passes}
    known = frozenset(parts).union(*parts.values())
    for unknown in sorted(names - known):
        near = get_close_matches(unknown, known)
        hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        raise UnknownNameError(
            f"disable names {unknown!r}, which is neither a pass ({', '.join(sorted(parts))}) nor a rule; {hint}"
            "relax_glue.pipeline.rule_names() lists the rules"
        )
    return names | {name for name, found in parts.items() if found <= names}


def _parts(name: str) -> frozenset[str]:
    """Return the names of the rules of a pass, and of what else it does."""
    return frozenset(part.name for part in (*FAMILIES.get(name, ()), *TRANSFORMS.get(name, ())))


def check_enabled(enable: Iterable[str]) -> frozenset[str]:
    """Return the names of passes to run that are off by default.

    Raises
    ------
    UnknownNameError
        A name is none of them.
    """
    names = frozenset(as_names("enable", enable))
    for unknown in sorted(names - OFF_BY_DEFAULT):
        raise UnknownNameError(
            f"enable names {unknown!r}; what is off by default is {', '.join(sorted(OFF_BY_DEFAULT))}"
        )
    return names


def pipeline_passes(
    disable: Collection[str] = (),
    soundness: Iterable[str] = DEFAULT_SOUNDNESS,
    stats: RewriteStats | None = None,
    enable: Collection[str] = (),
) -> list[tvm.transform.Pass]:
    """Return the passes that bring a module to its canonical form, in order.

    Parameters
    ----------
    disable : collection of str
        Passes and rules to leave out, by name.
    soundness : iterable of str
        The soundness classes of the rules to apply.
    stats : RewriteStats, optional
        Where to count what the rules do.
    enable : collection of str
        Passes to run that are off by default: `OFF_BY_DEFAULT`.
    """
    unwanted = check_disabled(disable) | (OFF_BY_DEFAULT - check_enabled(enable))
    classes = check_soundness(soundness)
    steps = [_step_pass(step, unwanted, classes, stats) for step in PIPELINE]
    return [made for made in steps if made is not None]


def _step_pass(
    step: Step, unwanted: Collection[str], soundness: Sequence[str], stats: RewriteStats | None
) -> tvm.transform.Pass | None:
    kept = [name for name in step.passes if name not in unwanted]
    if kept == ["ConvertToDataflow"]:
        return ConvertToDataflow()
    if not kept:
        return None
    if kept == ["RecognizeCallTir"]:
        asked = _rules(kept[0], unwanted, soundness)
        return RecognizeCallTir(stats=stats, soundness=soundness) if asked else None
    if step is FOLDING:
        return _folding_pass(kept, unwanted, soundness, stats)
    return _settling_pass(kept, unwanted, soundness, stats)


def _folding_pass(
    kept: Sequence[str], unwanted: Collection[str], soundness: Sequence[str], stats: RewriteStats | None
) -> tvm.transform.Pass:
    """Make the pass that folds shapes and constants, and resolves branches, until nothing changes."""
    families = [name for name in kept if name in FAMILIES]
    resolve = ResolveIf(exclude=_parts("ResolveIf").intersection(unwanted))
    if not families:
        return resolve
    rules = reduce(add, [_rules(name, unwanted, soundness) for name in families])
    made = rule_pass("+".join(families), rules, stats=stats, soundness=soundness)
    if "FoldShapes" in families and symbols.BIND.name not in unwanted:
        made = until_symbols_are_bound(made)
    return until_branches_are_resolved(made, resolve) if "ResolveIf" in kept else made


def _rules(name: str, unwanted: Collection[str], soundness: Sequence[str]) -> RuleSet:
    """Return the rules of a family that are asked for."""
    # without float_reassoc constants are folded all the same, by the operators that keep every bit
    family = constants.constant_rules(soundness) if name == "FoldConstants" else FAMILIES[name]
    return family.without(unwanted).sound(*soundness)


def _move(graph: Graph, transform: Transform, stats: RewriteStats | None, exact: bool) -> int:
    """Apply one motion to a graph; return how many clusters moved."""
    if transform is reshape_motion.MOVE:
        return move_reshapes(graph, stats)
    return move_permutes(graph, transform, stats, exact)


def _settling_pass(
    kept: Sequence[str], unwanted: Collection[str], soundness: Sequence[str], stats: RewriteStats | None
) -> tvm.transform.Pass:
    """Make the pass that applies the rules, converts layouts and moves permutes and reshapes until nothing changes."""
    families = {name: _rules(name, unwanted, soundness) for name in kept if name in FAMILIES}
    layouts = families.pop("ConvertLayout", RuleSet())
    rules = reduce(add, families.values(), RuleSet())
    motions = [transform for name, transform in MOTIONS.items() if name in kept]
    if motion.SINK in motions:  # it does what the other does, and more
        motions = [transform for transform in motions if transform is not motion.CANCEL]
    if not layouts and not motions:
        return rule_pass("+".join(kept), rules, stats=stats, soundness=soundness)

    def moved(graph: Graph) -> int:
        count = rewrite(graph, layouts, stats)
        return count + sum(_move(graph, transform, stats, FLOAT_REASSOC not in soundness) for transform in motions)

    def settle(graph: Graph) -> bool:
        changed = rewrite(graph, rules, stats) > 0
        for _ in range(_ROUNDS):
            if not moved(graph):
                return changed
            changed = True
            rewrite(graph, rules, stats)
        raise RewriteError(f"operators still move after {_ROUNDS} rounds; leave out one of {', '.join(MOTIONS)}")

    return graph_pass("+".join(kept), settle)
