"""`If` whose condition is known becomes the branch that is taken; an `If` that only guards an empty tensor goes.

A condition is known where it is constant, where it follows from static extents, where TVM's analyser proves it of
symbolic ones (`n + 1 == 0` is false, for no extent is negative), and inside a branch of an `If` on the same condition.
Bounds that a function declares (tir_var_lower_bound, tir_var_upper_bound) are facts as well. A branch may then join the
dataflow around it, and its operators the region there.

For the guard of an empty tensor see `empty_guard`. (Issue: a YOLOv5 that was traced with its post-processing carries
`if numel == 0`.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.analysis import BaseCheckResult, definable_tir_vars_in_type, type_base_check
from tvm.sym import Analyzer, ConstIntBound

from relax_glue.errors import UnknownNameError
from relax_glue.evaluate.extents import ExtentArithmetic
from relax_glue.ir import map_blocks, map_functions, read_block, write_block
from relax_glue.ir.blocks import branches_of, is_closed, rebranched
from relax_glue.ir.bounds import LOWER_BOUND, UPPER_BOUND, attribute_bounds
from relax_glue.ir.dataflow import open_dataflow_blocks
from relax_glue.ir.rename import rename
from relax_glue.rewrite import EXACT
from relax_glue.transform import Transform
from relax_glue.validate import as_names

from .empty_guard import equally_empty, is_total

RESOLVE = Transform(
    name="resolve-if",
    equation="if known then f(x) else g(x) -> f(x)",
    guards=(
        "the condition is not constant, and neither it nor its opposite is proved of the extents",
        "a cast in the branch that can fail, or that defines a symbol, stays",
    ),
    purpose="The branch that is taken joins the dataflow around it, and its operators the region there.",
    soundness=EXACT,
    source="a YOLOv5 traced with its post-processing",
)
DROP_GUARD = Transform(
    name="drop-empty-guard",
    equation="if numel(x) == 0 then empty else f(x) -> f(x)",
    guards=(
        "where the guard holds, both branches are not proved to give tensors without elements of one type and shape",
        "an operator of f is not known to be defined on empty tensors (passes/empty_guard.py)",
        "f calls a function or a kernel, or holds a cast that can fail",
    ),
    purpose="A guard that guards nothing cuts the model in two.",
    soundness=EXACT,
    source="a YOLOv5 traced with its post-processing",
)

Condition = Any  # a bool where it is known, what it is of the symbols, or None where it is not known


class _Resolver:
    """Resolves the branches of one function.

    Attributes
    ----------
    bound : dict
        What the variables seen so far are bound to; for a match_cast what it casts.
    names : dict
        What the variables of resolved branches are now.
    assumed : dict
        The truth of the conditions of the branches around, by their variables.
    left_out : frozenset of str
        What is not to be done: the names of transforms.
    """

    def __init__(self, func: relax.Function, left_out: frozenset[str] = frozenset()) -> None:
        self.bound: dict[relax.Var, relax.Expr] = {}
        self.names: dict[relax.Expr, relax.Expr] = {}
        self.assumed: dict[relax.Expr, bool] = {}
        self.left_out = left_out
        self.arithmetic = ExtentArithmetic(self.bound)
        self.facts = Analyzer()
        bounds = attribute_bounds(func)
        for param in func.params:
            for symbol in definable_tir_vars_in_type(param.ty):
                least = max(0, bounds[LOWER_BOUND].get(symbol.name, 0))
                most = bounds[UPPER_BOUND].get(symbol.name, ConstIntBound.POS_INF)
                self.facts.update(symbol, ConstIntBound(least, most), override=True)

    # -- walking -----------------------------------------------------------------------------------------

    def sequence(self, seq: relax.SeqExpr) -> relax.SeqExpr:
        """Return a sequence with its branches resolved; `seq` itself where nothing changes."""
        blocks = [part for block in seq.blocks for part in self._block(block)]
        if len(blocks) == len(seq.blocks) and all(a.same_as(b) for a, b in zip(blocks, seq.blocks, strict=True)):
            return seq
        return relax.SeqExpr(blocks, seq.body, seq.span)

    def _block(self, block: relax.BindingBlock) -> list[relax.BindingBlock]:
        if isinstance(block, relax.DataflowBlock):
            for binding in block.bindings:
                self._note(binding)
            return [block]
        blocks: list[relax.BindingBlock] = []
        kept: list[relax.Binding] = []
        for binding in block.bindings:
            self._note(binding)
            new = self._binding(binding)
            if isinstance(new, relax.Binding):
                kept.append(new)
                continue
            blocks += [relax.BindingBlock(kept), *new] if kept else new
            kept = []
        if not blocks and len(kept) == len(block.bindings) and all(map(relax.Binding.same_as, kept, block.bindings)):
            return [block]
        return [*blocks, relax.BindingBlock(kept)] if kept else blocks

    def _note(self, binding: relax.Binding) -> None:
        self.bound[binding.var] = binding.value
        if isinstance(binding, relax.MatchCast):
            for symbol in definable_tir_vars_in_type(binding.ty):
                if self.facts.const_int_bound(symbol).min_value < 0:
                    self.facts.update(symbol, ConstIntBound(0, ConstIntBound.POS_INF), override=True)

    def _binding(self, binding: relax.Binding) -> relax.Binding | list[relax.BindingBlock]:
        """Return a binding, or the blocks of the branch that is taken."""
        value = binding.value
        if isinstance(binding, relax.MatchCast) or not isinstance(value, (relax.If, relax.Function)):
            return binding
        if isinstance(value, relax.Function):
            new: relax.Expr = resolve(value, self.left_out)
            return binding if new.same_as(value) else relax.VarBinding(binding.var, new, binding.span)
        condition = self._condition(value.cond)
        taken = self._taken(value, condition)
        if taken is not None:
            return self._spliced(binding.var, self.sequence(taken))
        return self._kept(binding, condition)

    def _kept(self, binding: relax.VarBinding, condition: Condition) -> relax.Binding | list[relax.BindingBlock]:
        """Resolve the branches of an `If` whose condition is not known."""
        value = binding.value
        branches = []
        for branch, holds in zip(branches_of(value), (True, False), strict=True):
            with self._assuming(value.cond, condition, holds):
                branches.append(self.sequence(branch))
        guarded = self._guarded(condition, branches)
        if guarded is not None:
            return self._spliced(binding.var, guarded)
        new = rebranched(value, branches)
        return binding if new.same_as(value) else relax.VarBinding(binding.var, new, binding.span)

    def _spliced(self, var: relax.Var, branch: relax.SeqExpr) -> list[relax.BindingBlock]:
        """Return the blocks of a branch, and let its result stand for the variable of the `If`."""
        blocks = [part for block in branch.blocks for part in self._without_idle_casts(block)]
        named = self._name(var, branch.body)
        return [*blocks, relax.BindingBlock(named)] if named else blocks

    def _without_idle_casts(self, block: relax.BindingBlock) -> list[relax.BindingBlock]:
        """Drop the casts by which TVM gives both branches one type, `match_cast(x, Tensor(ndim=1))`."""
        if isinstance(block, relax.DataflowBlock):
            return [block]
        kept: list[relax.Binding] = []
        for binding in block.bindings:
            is_idle = isinstance(binding, relax.MatchCast) and _checks_nothing(binding)
            kept += self._name(binding.var, binding.value) if is_idle else [binding]
        return [relax.BindingBlock(kept)] if kept else []

    def _name(self, var: relax.Var, value: relax.Expr) -> list[relax.Binding]:
        """Let a value stand for a variable; return the binding of one that has no name itself."""
        if isinstance(value, (relax.Var, tvm.ir.GenericConst)):
            self.names[var] = self.bound[var] = value
            return []
        named = relax.Var(var.name, value.ty)
        self.names[var] = self.bound[var] = named
        self.bound[named] = value
        return [relax.VarBinding(named, value)]

    # -- deciding ----------------------------------------------------------------------------------------

    def _condition(self, cond: relax.Expr) -> Condition:
        assumed = self.assumed.get(self._root(cond))
        if assumed is not None:
            return assumed
        found = self.arithmetic.scalar(cond)
        if found is None or not isinstance(found, tvm.ir.Expr):
            return None if found is None else bool(found)
        simple = self.facts.simplify(found)
        if isinstance(simple, tirx.IntImm):
            return bool(simple.value)
        if self.facts.can_prove(simple):
            return True
        return False if self.facts.can_prove(tirx.Not(simple)) else simple

    def _root(self, cond: relax.Expr) -> relax.Expr:
        """Return the variable that a condition is another name of."""
        while isinstance(self.bound.get(cond), relax.Var):
            cond = self.bound[cond]
        return cond

    def _taken(self, value: relax.If, condition: Condition) -> relax.SeqExpr | None:
        if not isinstance(condition, bool) or RESOLVE.name in self.left_out:
            return None
        return value.true_branch if condition else value.false_branch

    @contextmanager
    def _assuming(self, cond: relax.Expr, condition: Condition, holds: bool) -> Iterator[None]:
        """Let a condition hold, or not, while a branch is looked at."""
        root = self._root(cond)
        self.assumed[root] = holds
        try:
            with self.facts.constraint_scope(self._fact(condition, holds)):
                yield
        finally:
            del self.assumed[root]

    def _fact(self, condition: Condition, holds: bool) -> tvm.ir.Expr:
        if not isinstance(condition, tvm.ir.Expr):
            return tirx.IntImm("bool", 1)
        return condition if holds else self.facts.simplify(tirx.Not(condition))

    def _guarded(self, condition: Condition, branches: Sequence[relax.SeqExpr]) -> relax.SeqExpr | None:
        """Return the branch that does for both where the other is for empty tensors only."""
        if not isinstance(condition, tvm.ir.Expr) or DROP_GUARD.name in self.left_out:
            return None
        for for_empty, other, holds in ((branches[0], branches[1], True), (branches[1], branches[0], False)):
            with self.facts.constraint_scope(self._fact(condition, holds)):
                if self._does_for(other, for_empty):
                    return other
        return None

    def _does_for(self, branch: relax.SeqExpr, for_empty: relax.SeqExpr) -> bool:
        """Return whether `branch` gives what `for_empty` gives, under the facts that hold."""
        if not equally_empty(self._type(branch.body), self._type(for_empty.body), self.facts):
            return False
        if relax.analysis.contains_impure_call(for_empty):  # it may tell somebody that there is nothing
            return False
        bindings = [binding for block in branch.blocks for binding in block.bindings]
        return all(self._never_fails(binding) for binding in bindings)

    def _never_fails(self, binding: relax.Binding) -> bool:
        if isinstance(binding, relax.MatchCast):
            return _checks_nothing(binding) and not isinstance(binding.value, relax.Call)
        return is_total(binding.value, self.facts)

    def _type(self, result: relax.Expr) -> relax.Type:
        """Return the type of a result, as it was before TVM gave both branches one."""
        if isinstance(result, relax.Tuple):
            return relax.TupleType([self._type(field) for field in result.fields])
        source = self.bound.get(result)
        if isinstance(source, (relax.Var, tvm.ir.GenericConst, relax.Tuple)):
            return self._type(source)
        is_vague = isinstance(result.ty, relax.TensorType) and result.ty.shape is None
        return source.ty if is_vague and source is not None else result.ty

    def new_name(self, old: relax.Expr) -> relax.Expr:
        """Return what a variable is in the end: the result of a branch may be that of another."""
        while old in self.names:
            old = self.names[old]
        return old


def _checks_nothing(cast: relax.MatchCast) -> bool:
    return bool(type_base_check(cast.ty, cast.value.ty) == BaseCheckResult.PASS)


def resolve(func: relax.Function, left_out: frozenset[str] = frozenset()) -> relax.Function:
    """Return a function with every `If` resolved that can be; `func` itself where there is none.

    `left_out` names what is not to be done: RESOLVE, DROP_GUARD.
    """
    if is_closed(func) or not isinstance(func.body, relax.SeqExpr):
        return func
    if all(isinstance(block, relax.DataflowBlock) for block in func.body.blocks):
        return func  # a dataflow block holds no branches
    resolver = _Resolver(func, left_out)
    body = resolver.sequence(func.body)
    if body.same_as(func.body):
        return func
    body = rename(body, {old: resolver.new_name(old) for old in resolver.names})
    new = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)
    return map_blocks(open_dataflow_blocks(new), lambda block: write_block(read_block(block)))


def ResolveIf(*, exclude: Iterable[str] = ()) -> tvm.transform.Pass:
    """Take the branch of every `If` whose condition is known, and drop guards of empty tensors that guard nothing.

    Parameters
    ----------
    exclude : iterable of str
        What to leave out: "resolve-if" or "drop-empty-guard".

    Returns
    -------
    pass : tvm.transform.Pass
        Works on every open Relax function; the module given to it never changes. It reads conditions through shape
        arithmetic, so it does not need to run after `FoldShapes`; a condition computed from constants of other kinds
        is known once `FoldConstants` has run.

    Raises
    ------
    UnknownNameError
        `exclude` names something else.
    """
    left_out = frozenset(as_names("exclude", exclude))
    for unknown in sorted(left_out - {RESOLVE.name, DROP_GUARD.name}):
        raise UnknownNameError(
            f"ResolveIf does nothing named {unknown!r} to exclude; it has: {RESOLVE.name}, {DROP_GUARD.name}"
        )

    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        return map_functions(mod, lambda _, func: resolve(func, left_out))

    return tvm.transform.module_pass(run, opt_level=0, name="relax_glue.ResolveIf")


def until_branches_are_resolved(fold: tvm.transform.Pass, resolver: tvm.transform.Pass) -> tvm.transform.Pass:
    """Make a pass that folds, resolves branches, and goes on while there are such.

    Parameters
    ----------
    fold : tvm.transform.Pass
        What makes conditions known, and the extents of what a branch gives.
    resolver : tvm.transform.Pass
        A `ResolveIf`.
    """

    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        while True:
            mod = fold(mod)
            resolved = resolver(mod)
            if resolved.same_as(mod):
                return mod
            mod = resolved

    return tvm.transform.module_pass(run, opt_level=0, name=f"{fold.info.name}+ResolveIf")
