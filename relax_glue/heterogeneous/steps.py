"""The bindings of a sequence with what each needs from others, so that they can be regrouped.

An `If` is one step, whatever its branches hold. Dataflow blocks play no part: the functions given here have none
(`without_dataflow`), and get new ones afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import networkx as nx
import tvm
from tvm import relax, tirx


@dataclass(eq=False)
class Step:
    """One binding.

    Attributes
    ----------
    binding : relax.Binding
        The binding.
    position : int
        Where it stands in its sequence.
    reads : tuple[relax.Var, ...]
        The variables that it reads, those inside branches included.
    needs : tuple[tirx.Var, ...]
        The symbols that it mentions and does not define.
    defines : tuple[tirx.Var, ...]
        The symbols that it defines: a match_cast.
    ordered : bool
        Whether it has to stay where it is among all others: an impure call.
    """

    binding: relax.Binding
    position: int
    reads: tuple[relax.Var, ...]
    needs: tuple[tirx.Var, ...]
    defines: tuple[tirx.Var, ...]
    ordered: bool

    @property
    def var(self) -> relax.Var:
        """The variable that is bound."""
        return self.binding.var

    @property
    def value(self) -> relax.Expr:
        """What is bound to it, or cast."""
        return self.binding.value


def steps_of(seq: relax.SeqExpr, scope: Collection[tirx.Var]) -> list[Step]:
    """Return the bindings of a sequence in order.

    Parameters
    ----------
    seq : relax.SeqExpr
        The body of a function, or of a branch.
    scope : collection of tirx.Var
        The symbols that are defined before it.
    """
    bindings = [binding for block in seq.blocks for binding in block.bindings]
    known = set(scope)
    steps: list[Step] = []
    for position, binding in enumerate(bindings):
        needs, introduced = _symbols(binding)
        defines = tuple(s for s in introduced if s not in known) if isinstance(binding, relax.MatchCast) else ()
        checked = tuple(s for s in introduced if s in known)
        known.update(defines)
        impure = bool(relax.analysis.contains_impure_call(binding.value))
        steps.append(Step(binding, position, variables(binding.value), (*needs, *checked), defines, impure))
    return steps


def _symbols(binding: relax.Binding) -> tuple[tuple[tirx.Var, ...], tuple[tirx.Var, ...]]:
    """Return the symbols that a binding uses, and those that its match_casts, or those in it, may define."""
    body = relax.SeqExpr([relax.BindingBlock([binding])], binding.var)
    function = relax.Function([], body, relax.AnyType(), False)
    free, own = relax.analysis.free_symbolic_vars(function), relax.analysis.defined_symbolic_vars(function)
    return tuple(free), tuple(own)


def variables(expr: relax.Expr) -> tuple[relax.Var, ...]:
    """Return the Relax variables that an expression reads from outside, in order of their first use."""
    return tuple(v for v in relax.analysis.free_vars(expr) if not isinstance(v.ty, tvm.ir.PrimType))


def dependencies(steps: Sequence[Step]) -> nx.DiGraph:
    """Return the steps with an edge from each to those that have to come after it."""
    dag = nx.DiGraph()
    dag.add_nodes_from(steps)
    by_var = {step.var: step for step in steps}
    by_symbol = {symbol: step for step in steps for symbol in step.defines}
    for step in steps:
        before = {by_var[var] for var in step.reads if var in by_var}
        before |= {by_symbol[symbol] for symbol in step.needs if symbol in by_symbol}
        dag.add_edges_from((producer, step) for producer in before - {step})
    for barrier in (step for step in steps if step.ordered):
        dag.add_edges_from((other, barrier) for other in steps[: barrier.position])
        dag.add_edges_from((barrier, other) for other in steps[barrier.position + 1 :])
    return dag
