"""What every pass here is made of: rules over the dataflow blocks of a module, as a `tvm.transform.Pass`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import Protocol

import tvm
from tvm import relax

from relax_glue.errors import UnknownNameError
from relax_glue.ir import Graph, Place, map_blocks, map_functions, read_block, write_block
from relax_glue.rewrite import DEFAULT_SOUNDNESS, RewriteStats, RuleSet, check_soundness, rewrite
from relax_glue.validate import as_names

RewriteGraph = Callable[[Graph], bool]


class MakePass(Protocol):
    """What makes a pass of a family of rules."""

    def __call__(
        self,
        *,
        exclude: Iterable[str] = (),
        stats: RewriteStats | None = None,
        soundness: Iterable[str] = DEFAULT_SOUNDNESS,
    ) -> tvm.transform.Pass:
        """Make the pass; see `rule_pass`."""


OPTIONS = """

    Parameters
    ----------
    exclude : iterable of str
        Names of rules to leave out.
    stats : RewriteStats, optional
        Where to count what each rule tried, did and declined.
    soundness : iterable of str
        The soundness classes of the rules to apply.

    Raises
    ------
    UnknownNameError
        `exclude` names a rule that the pass does not have, or `soundness` a class that there is not.
    """


def graph_pass(name: str, change: RewriteGraph) -> tvm.transform.Pass:
    """Make a module pass of a function over graphs.

    Parameters
    ----------
    name : str
        The name that TVM's instruments show, without the prefix "relax_glue.".
    change : Callable[[Graph], bool]
        Changes a graph in place and says whether it did; a block that it leaves alone, and in which nothing is
        dead, stays the same object.

    Returns
    -------
    pass : tvm.transform.Pass
        Works on every dataflow block of every open Relax function: branches of `If` and local functions too,
        functions with the attribute Codegen, Composite or Primitive not. The module given to it never changes.
    """

    def block(old: relax.DataflowBlock, place: Place) -> relax.DataflowBlock:
        graph = read_block(old)
        graph.place = place
        swept = graph.sweep()  # dead users would keep operands from counting as single-use
        return write_block(graph) if change(graph) or swept else old

    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        def function(var: tvm.ir.GlobalVar, func: relax.Function) -> relax.Function:
            numbers = count()
            return map_blocks(func, lambda old: block(old, Place(mod, var.name_hint, next(numbers))))

        return map_functions(mod, function)

    return tvm.transform.module_pass(run, opt_level=0, name=f"relax_glue.{name}")


def rule_pass(
    name: str,
    rules: RuleSet,
    exclude: Iterable[str] = (),
    stats: RewriteStats | None = None,
    soundness: Iterable[str] = DEFAULT_SOUNDNESS,
) -> tvm.transform.Pass:
    """Make a module pass that applies rules until none fires.

    Parameters
    ----------
    name : str
        As in `graph_pass`.
    rules : RuleSet
        The rules, in order.
    exclude : iterable of str
        Names of rules to leave out.
    stats : RewriteStats, optional
        Where to count what each rule tried, did and declined.
    soundness : iterable of str
        The soundness classes of the rules to apply.

    Raises
    ------
    UnknownNameError
        `exclude` names a rule that the pass does not have, or `soundness` a class that there is not.
    """
    left_out = as_names("exclude", exclude)
    for unknown in sorted(set(left_out) - {r.name for r in rules}):
        raise UnknownNameError(f"{name} has no rule {unknown!r} to exclude; it has: {', '.join(r.name for r in rules)}")
    kept = rules.without(left_out).sound(*check_soundness(soundness))
    return graph_pass(name, lambda graph: rewrite(graph, kept, stats) > 0)


def family(name: str, rules: RuleSet, summary: str) -> MakePass:
    """Make the public function, such as `CanonicalizeSplit`, that makes the pass of a family of rules.

    Parameters
    ----------
    name : str
        Its name, and that of the pass.
    rules : RuleSet
        The rules of the family.
    summary : str
        What the pass does: the beginning of its documentation.
    """

    def make(
        *,
        exclude: Iterable[str] = (),
        stats: RewriteStats | None = None,
        soundness: Iterable[str] = DEFAULT_SOUNDNESS,
    ) -> tvm.transform.Pass:
        return rule_pass(name, rules, exclude, stats, soundness)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = summary + OPTIONS
    return make
