"""Where the dataflow blocks are: functions of a module, sequences, branches, local functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tvm
from tvm import relax
from tvm.relax.expr import _update_type

from .rename import rename

RewriteBlock = Callable[[relax.DataflowBlock], relax.DataflowBlock]

# A function with one of these belongs to a backend or to the fusion passes; its body is theirs.
_CLOSED = ("Codegen", "Composite", "Primitive")


def is_closed(func: relax.Function) -> bool:
    """Return whether the body of `func` belongs to a backend or is a fused primitive."""
    attrs = func.attrs
    return attrs is not None and any(key in attrs for key in _CLOSED)


def map_functions(
    mod: tvm.IRModule, rewrite: Callable[[tvm.ir.GlobalVar, relax.Function], relax.Function]
) -> tvm.IRModule:
    """Return a module in which each open Relax function went through `rewrite`; `mod` stays as it is."""
    changed = {}
    for var, func in mod.functions_items():
        if not isinstance(func, relax.Function) or is_closed(func):
            continue
        new = rewrite(var, func)
        if not new.same_as(func):
            changed[var] = new
    if not changed:
        return mod
    result = mod.clone()
    for var, func in changed.items():
        result.update_func(var, func)
    return result


def map_blocks(func: relax.Function, rewrite: RewriteBlock) -> relax.Function:
    """Return `func` with every dataflow block rewritten, those in branches and local functions included."""
    if is_closed(func) or not isinstance(func.body, relax.SeqExpr):
        return func
    body = _sequence(func.body, rewrite)
    if body.same_as(func.body):
        return func
    return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)


def _sequence(seq: relax.SeqExpr, rewrite: RewriteBlock) -> relax.SeqExpr:
    blocks: list[relax.BindingBlock] = []
    for position, old in enumerate(seq.blocks):
        block = _block(old, rewrite)
        block, names = _without_renamings(block) if not block.same_as(old) else (block, {})
        if block.bindings:
            blocks.append(block)
        if names:
            # what follows the block sees the value itself
            rest = typed(relax.SeqExpr(list(seq.blocks)[position + 1 :], seq.body, seq.span), seq.ty)
            rest = _sequence(rename(rest, names), rewrite)
            return typed(relax.SeqExpr([*blocks, *rest.blocks], rest.body, seq.span), rest.ty)
    if len(blocks) == len(seq.blocks) and all(new.same_as(old) for new, old in zip(blocks, seq.blocks, strict=True)):
        return seq
    return typed(relax.SeqExpr(blocks, seq.body, seq.span), seq.ty)


def _without_renamings(block: relax.BindingBlock) -> tuple[relax.BindingBlock, dict[relax.Expr, relax.Expr]]:
    """Take the bindings `y = x` out of a dataflow block that was written; return what each y is now.

    TVM's own clean-up takes them out one pass later, so a pass that left them would change its own result.
    """
    if not isinstance(block, relax.DataflowBlock):
        return block, {}
    bindings = block.bindings[:]
    names = {b.var: b.value for b in bindings if _renames(b)}
    if not names:
        return block, {}
    return relax.DataflowBlock([b for b in bindings if b.var not in names], block.span), names


def _renames(binding: relax.Binding) -> bool:
    if not isinstance(binding, relax.VarBinding) or isinstance(binding.value, relax.DataflowVar):
        return False
    return isinstance(binding.value, (relax.Var, tvm.ir.GenericConst))


def _block(block: relax.BindingBlock, rewrite: RewriteBlock) -> relax.BindingBlock:
    inner = _mapped(block, lambda binding: _binding(binding, rewrite))
    return rewrite(inner) if isinstance(inner, relax.DataflowBlock) else inner


def _mapped(block: relax.BindingBlock, rewrite: Callable[[relax.Binding], relax.Binding]) -> relax.BindingBlock:
    """Return a block of the same kind with its bindings rewritten."""
    before = block.bindings[:]
    bindings = [rewrite(binding) for binding in before]
    if all(new is old for new, old in zip(bindings, before, strict=True)):
        return block
    kind = relax.DataflowBlock if isinstance(block, relax.DataflowBlock) else relax.BindingBlock
    return kind(bindings, block.span)


def _binding(binding: relax.Binding, rewrite: RewriteBlock) -> relax.Binding:
    value = getattr(binding, "value", None)
    if not isinstance(binding, relax.VarBinding) or not isinstance(value, (relax.If, relax.Function)):
        return binding
    if isinstance(value, relax.If):
        new = rebranched(value, [_sequence(branch, rewrite) for branch in branches_of(value)])
    else:
        new = map_blocks(value, rewrite)
    return binding if new.same_as(value) else relax.VarBinding(binding.var, new, binding.span)


def map_branches(
    func: relax.Function,
    rewrite: Callable[[relax.If], relax.If],
    local: Callable[[relax.Function], relax.Function] | None = None,
) -> relax.Function:
    """Return `func` with every `If` rewritten, those in branches before the `If` that holds them.

    Those of local functions are, which stand in dataflow blocks too; then `local` rewrites the function itself.
    """
    if is_closed(func) or not isinstance(func.body, relax.SeqExpr):
        return func
    body = _with_branches(func.body, rewrite, local)
    if body.same_as(func.body):
        return func
    return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)


def _with_branches(
    seq: relax.SeqExpr,
    rewrite: Callable[[relax.If], relax.If],
    local: Callable[[relax.Function], relax.Function] | None,
) -> relax.SeqExpr:
    def binding(old: relax.Binding) -> relax.Binding:
        value = getattr(old, "value", None)
        if isinstance(value, relax.Function):
            new = map_branches(value, rewrite, local)
            new = local(new) if local is not None else new
        elif isinstance(value, relax.If):
            new = rewrite(rebranched(value, [_with_branches(b, rewrite, local) for b in branches_of(value)]))
        else:
            return old
        return old if new.same_as(value) else relax.VarBinding(old.var, new, old.span)

    blocks = [_mapped(block, binding) for block in seq.blocks]
    if all(new.same_as(old) for new, old in zip(blocks, seq.blocks, strict=True)):
        return seq
    return typed(relax.SeqExpr(blocks, seq.body, seq.span), seq.ty)


def branches_of(value: relax.If) -> tuple[relax.SeqExpr, relax.SeqExpr]:
    """Return both branches, the one taken where the condition holds first."""
    return value.true_branch, value.false_branch


def rebranched(value: relax.If, branches: Sequence[relax.SeqExpr]) -> relax.If:
    """Return an `If` with other branches of the same types; `value` itself where they are its own."""
    if all(new.same_as(old) for new, old in zip(branches, branches_of(value), strict=True)):
        return value
    return typed(relax.If(value.cond, *branches, value.span), value.ty)


def typed(expr: relax.Expr, ty: relax.Type) -> relax.Expr:
    """Give a fresh expression the type of the one that it replaces: inferring it anew is six times slower."""
    _update_type(expr, ty)
    return expr
