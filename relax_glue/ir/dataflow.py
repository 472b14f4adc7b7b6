"""Dataflow blocks opened around pure code, and joined.

TVM's own pass runs CanonicalizeBindings afterwards. That takes a match_cast to a symbol which is bound already for a
definition of the symbol, drops the check, and leaves what follows without a shape: a sum of two tensors whose extents
were cast to be equal has none then, and type inference of non-maximum suppression crashes.
"""

from __future__ import annotations

from collections.abc import Iterable

from tvm import relax

from .blocks import branches_of, is_closed, map_branches, rebranched, typed
from .rename import rename


def open_dataflow_blocks(func: relax.Function, min_size: int = 1) -> relax.Function:
    """Return `func` with its pure code in dataflow blocks, as few as there can be, in branches and local functions too.

    Parameters
    ----------
    func : relax.Function
        It is not changed. What only a block uses is not given out by it.
    min_size : int
        The fewest bindings that get a block of their own; what stands beside a block joins it.
    """

    def convert(value: relax.If) -> relax.If:
        return rebranched(value, [_opened(branch, min_size) for branch in branches_of(value)])

    def local(function: relax.Function) -> relax.Function:
        return _with_opened_body(function, min_size)

    return _with_opened_body(map_branches(func, convert, local), min_size)


def _with_opened_body(func: relax.Function, min_size: int) -> relax.Function:
    if is_closed(func) or not isinstance(func.body, relax.SeqExpr):
        return func
    body = _opened(func.body, min_size)
    if body.same_as(func.body):
        return func
    return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)


def _opened(seq: relax.SeqExpr, min_size: int) -> relax.SeqExpr:
    blocks = _joined(seq.blocks[:], min_size)
    blocks = [
        _without_outputs(block, relax.SeqExpr(blocks[position + 1 :], seq.body))
        if isinstance(block, relax.DataflowBlock)
        else block
        for position, block in enumerate(blocks)
    ]
    if len(blocks) == len(seq.blocks) and all(map(_same, blocks, seq.blocks)):
        return seq
    return typed(relax.SeqExpr(blocks, seq.body, seq.span), seq.ty)


def _joined(blocks: list[relax.BindingBlock], min_size: int) -> list[relax.BindingBlock]:
    """Return blocks of which each holds the bindings of one run: a model is most often one block as it comes."""
    if len(blocks) == 1 and isinstance(blocks[0], relax.DataflowBlock) and blocks[0].bindings:
        return blocks
    return [
        relax.DataflowBlock(bindings) if is_dataflow else relax.BindingBlock(bindings)
        for bindings, is_dataflow in _runs(blocks, min_size)
    ]


def _same(new: relax.BindingBlock, old: relax.BindingBlock) -> bool:
    if new.same_as(old):
        return True
    if isinstance(new, relax.DataflowBlock) != isinstance(old, relax.DataflowBlock):
        return False
    after, before = new.bindings[:], old.bindings[:]
    return len(after) == len(before) and all(a.same_as(b) for a, b in zip(after, before, strict=True))


def _runs(blocks: Iterable[relax.BindingBlock], min_size: int) -> list[tuple[list[relax.Binding], bool]]:
    """Return the bindings of a sequence in runs, each with whether it is to be a dataflow block."""
    runs: list[tuple[list[relax.Binding], bool]] = []
    pure: list[relax.Binding] = []
    has_block = False

    def close() -> None:
        nonlocal pure, has_block
        _append(runs, pure, has_block or len(pure) >= min_size)
        pure, has_block = [], False

    for block in blocks:
        if isinstance(block, relax.DataflowBlock):
            pure.extend(block.bindings[:])
            has_block = True
            continue
        for binding in block.bindings:
            if _is_dataflow(binding):
                pure.append(binding)
                continue
            close()
            _append(runs, [binding], False)
    close()
    return runs


def _append(runs: list[tuple[list[relax.Binding], bool]], bindings: list[relax.Binding], is_dataflow: bool) -> None:
    if not bindings:
        return
    if not is_dataflow and runs and not runs[-1][1]:
        runs[-1][0].extend(bindings)
    else:
        runs.append((bindings, is_dataflow))


def _is_dataflow(binding: relax.Binding) -> bool:
    value = binding.value
    if isinstance(value, relax.If):
        return False
    return not (isinstance(value, relax.Call) and relax.analysis.contains_impure_call(value))


def _without_outputs(block: relax.DataflowBlock, rest: relax.SeqExpr) -> relax.DataflowBlock:
    """Make variables that nothing after a dataflow block uses its own."""
    used = set(relax.analysis.free_vars(rest))
    given = [b for b in block.bindings[:] if not isinstance(b.var, relax.DataflowVar) and b.var not in used]
    names = {b.var: relax.DataflowVar(b.var.name, b.var.ty) for b in given}
    if not names:
        return block
    bindings = []
    for binding in block.bindings:
        var, value = names.get(binding.var, binding.var), rename(binding.value, names)
        is_cast = isinstance(binding, relax.MatchCast)
        bindings.append(relax.MatchCast(var, value, binding.ty) if is_cast else relax.VarBinding(var, value))
    return relax.DataflowBlock(bindings, block.span)
