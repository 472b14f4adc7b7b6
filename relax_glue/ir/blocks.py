"""Where the dataflow blocks are: functions of a module, sequences, branches, local functions."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax
from tvm.relax.expr import _update_type

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
    blocks = [_block(block, rewrite) for block in seq.blocks]
    if all(new.same_as(old) for new, old in zip(blocks, seq.blocks, strict=True)):
        return seq
    return _typed(relax.SeqExpr(blocks, seq.body, seq.span), seq.ty)


def _block(block: relax.BindingBlock, rewrite: RewriteBlock) -> relax.BindingBlock:
    if isinstance(block, relax.DataflowBlock):
        return rewrite(block)
    bindings = [_binding(binding, rewrite) for binding in block.bindings]
    if all(new.same_as(old) for new, old in zip(bindings, block.bindings, strict=True)):
        return block
    return relax.BindingBlock(bindings, block.span)


def _binding(binding: relax.Binding, rewrite: RewriteBlock) -> relax.Binding:
    value = getattr(binding, "value", None)
    if not isinstance(binding, relax.VarBinding) or not isinstance(value, (relax.If, relax.Function)):
        return binding
    new = _branches(value, rewrite) if isinstance(value, relax.If) else map_blocks(value, rewrite)
    return binding if new.same_as(value) else relax.VarBinding(binding.var, new, binding.span)


def _branches(value: relax.If, rewrite: RewriteBlock) -> relax.If:
    branches = [value.true_branch, value.false_branch]
    new = [_sequence(b, rewrite) if isinstance(b, relax.SeqExpr) else b for b in branches]
    if all(a.same_as(b) for a, b in zip(new, branches, strict=True)):
        return value
    return _typed(relax.If(value.cond, *new, value.span), value.ty)


def _typed(expr: relax.Expr, ty: relax.Type) -> relax.Expr:
    """Give a fresh expression the type of the one that it replaces: inferring it anew is six times slower."""
    _update_type(expr, ty)
    return expr
