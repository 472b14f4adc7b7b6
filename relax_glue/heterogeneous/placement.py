"""Which steps of a function run on the host although the model is for a GPU.

Those that TVM has no GPU code for (`kernels`) have to. What follows from them and leads to no layer that is worth a
GPU goes with them, so that the tail of a detector (non-maximum suppression and the gathers behind it) is copied out
once and runs in one piece; so does what lies between two of them. Regions for TensorRT in that tail are put back.
What leads on to convolutions or matmuls (the second stage of a detector of regions) goes back to the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum, auto

import networkx as nx
import tvm
from tvm import relax

from ..region_function import composite_ops, is_region
from ..regions import earliest_levels
from .steps import Step, dependencies

WORTH_A_GPU = ("relax.nn.conv", "relax.nn.attention", "relax.nn.batch_matmul", "relax.matmul", "relax.einsum")
"""What the names of operators begin with whose work grows faster than the bytes that they touch."""

_OF_THE_VM = ("relax.builtin.", "relax.vm.", "relax.memory.", "relax.call_", "relax.to_vdevice", "relax.hint_on_device")
_SHAPES = ("relax.shape_of", "relax.tensor_to_shape")
_SHAPE_TO_TENSOR = "relax.shape_to_tensor"


class Kind(Enum):
    """Where a step can run, and whether it is a reason to run others beside it."""

    PLUMBING = auto()  # moves nothing: runs where what it reads is
    LIGHT = auto()  # either place
    HEAVY = auto()  # the GPU, since it is worth it
    FIXED = auto()  # the GPU, since nobody knows what it does
    SHAPE = auto()  # the host, a few numbers; no reason to move anything else
    HOST = auto()  # the host, since there is no GPU code


_ON_GPU = (Kind.HEAVY, Kind.FIXED)

Missing = Callable[[relax.Call], "str | None"]


@dataclass(frozen=True)
class Judge:
    """Tells the kind of each step.

    Attributes
    ----------
    mod : tvm.IRModule
        Where called functions are found.
    missing : Callable
        Why there is no GPU code for a call of an operator, or None.
    """

    mod: tvm.IRModule
    missing: Missing

    def kind(self, value: relax.Expr) -> Kind:
        """Return the kind of what a step computes."""
        if isinstance(value, relax.If):
            return self._branches(value)
        if isinstance(value, relax.Function):
            return Kind.FIXED
        if not isinstance(value, relax.Call):
            return Kind.PLUMBING
        return self._call(value)

    def contents(self, seq: relax.SeqExpr) -> set[Kind]:
        """Return the kinds of all steps of a sequence."""
        return {self.kind(binding.value) for block in seq.blocks for binding in block.bindings}

    def _branches(self, value: relax.If) -> Kind:
        kinds = self.contents(value.true_branch) | self.contents(value.false_branch)
        if kinds & {Kind.HEAVY, Kind.FIXED}:
            return Kind.FIXED
        return Kind.HOST if Kind.HOST in kinds else Kind.LIGHT

    def _call(self, call: relax.Call) -> Kind:
        if isinstance(call.op, tvm.ir.GlobalVar):
            return self._region(self.mod.functions.get(call.op))
        if not isinstance(call.op, tvm.ir.Op) or relax.analysis.contains_impure_call(call):
            return Kind.FIXED
        name = call.op.name
        if name in _SHAPES:
            return Kind.PLUMBING
        if name == _SHAPE_TO_TENSOR:
            return Kind.SHAPE
        kernel = name == "relax.call_tir"
        if name.startswith(_OF_THE_VM) and not kernel:
            return Kind.FIXED
        if self.missing(call) is not None:
            return Kind.HOST
        if kernel:
            return Kind.FIXED  # it may be scheduled for the GPU already
        return Kind.HEAVY if name.startswith(WORTH_A_GPU) else Kind.LIGHT

    @staticmethod
    def _region(function: object) -> Kind:
        if not is_region(function):
            return Kind.FIXED
        return Kind.HEAVY if any(op.startswith(WORTH_A_GPU) for op in composite_ops(function)) else Kind.LIGHT


def host_groups(steps: Sequence[Step], judge: Judge) -> list[list[Step]]:
    """Return the groups of steps that run on the host.

    Parameters
    ----------
    steps : sequence of Step
        All steps of a sequence, in order.
    judge : Judge
        Tells their kinds.

    Returns
    -------
    groups : list of list of Step
        Each is convex: no path leaves it and comes back. In an order in which they can run.
    """
    kinds = {step: judge.kind(step.value) for step in steps}
    on_host = {step for step, kind in kinds.items() if kind in (Kind.HOST, Kind.SHAPE)}
    if not on_host:
        return []
    dag = dependencies(steps)
    after = _reachable(dag, [step for step in steps if kinds[step] is Kind.HOST], kinds)
    on_host |= _tail(dag, kinds, after)
    _follow(dag, kinds, on_host, after)
    level = earliest_levels(dag, on_host.__contains__)
    groups: dict[int, list[Step]] = {}
    for step in steps:
        if step in on_host:
            groups.setdefault(level[step], []).append(step)
    return [groups[number] for number in sorted(groups)]


def _tail(dag: nx.DiGraph, kinds: Mapping[Step, Kind], after: Set[Step]) -> set[Step]:
    """Return what follows from steps of the host and leads to nothing worth a GPU, or back to such a step."""
    back = dag.reverse(copy=False)
    before = _reachable(back, [step for step in dag if kinds[step] is Kind.HOST], kinds)
    toward_gpu = _reachable(back, [step for step in dag if kinds[step] in _ON_GPU], kinds)
    return {s for s in after if kinds[s] is Kind.LIGHT and (s in before or s not in toward_gpu)}


def _reachable(dag: nx.DiGraph, sources: Iterable[Step], kinds: Mapping[Step, Kind]) -> set[Step]:
    """Return what the edges lead to from `sources`, without going through steps of the GPU."""
    found: set[Step] = set()
    waiting = list(sources)
    while waiting:
        new = [s for s in dag.succ[waiting.pop()] if s not in found and kinds[s] not in _ON_GPU]
        found.update(new)
        waiting += new
    return found


def _follow(dag: nx.DiGraph, kinds: Mapping[Step, Kind], on_host: set[Step], after: Set[Step]) -> None:
    """Let steps that move nothing run where their operands are, or where they are used."""
    order = [step for step in nx.topological_sort(dag) if kinds[step] is Kind.PLUMBING]
    for step in order:
        if dag.pred[step] and on_host.issuperset(dag.pred[step]):
            on_host.add(step)
    for step in reversed(order):
        used = not on_host.isdisjoint(dag.succ[step])
        constant = not step.reads and on_host.issuperset(dag.succ[step])
        if used and (constant or step in after):  # a tuple of values from both sides, which the host reads
            on_host.add(step)
