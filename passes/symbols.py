"""Symbols that a cast defines and whose values have become known.

TVM's importers write a reshape to a computed shape as match_cast(s, shape(a, b)) and reshape(x, shape(a, b)). Once
s is known, a and b are numbers everywhere in the function: in types, in shapes, in later blocks. That is no
rewrite of one node, so it happens to the function between two runs of the rules. (rules.md C06; apache/tvm
issues 20177 and 20192.)
"""

from __future__ import annotations

from collections.abc import Iterator

import tvm
import tvm_ffi
from tvm import relax, tirx

from relax_glue.ir import map_blocks, map_functions, read_block, write_block
from relax_glue.rewrite import EXACT
from relax_glue.transform import Transform

BIND = Transform(
    name="bind-known-symbols",
    equation="match_cast(x: (2, 8), (n, 8)); f(n) -> f(2), in the whole function",
    guards=(
        "a symbol of a parameter stays: a cast of a known extent to it is a check",
        "a symbol that is cast to from two different extents stays: the cast has to fail when it runs",
        "a symbol bound to one that is itself bound waits for the next round",
    ),
    purpose="What shape arithmetic gives becomes a number in types, in shapes and in later blocks.",
    soundness=EXACT,
    source="C06; apache/tvm issues 20177 and 20192",
)


def bind_known_symbols(func: relax.Function) -> relax.Function:
    """Put what is known of the symbols that casts define in their places.

    Parameters
    ----------
    func : relax.Function
        It is not changed. The symbols of its parameters stay: a cast of a known extent to one of them is a check.

    Returns
    -------
    func : relax.Function
        Its result may be known better than before; `func` itself where nothing is known.
    """
    found = _known(func)
    # what is bound to a symbol that is itself bound has to wait for the next round
    ready = {s: e for s, e in found.items() if not any(v in found for v in tirx.analysis.undefined_vars(e))}
    if not ready:
        return func
    # a cast to what is now known checks nothing and is not written again
    return map_blocks(func.bind_symbolic_vars(ready), lambda block: write_block(read_block(block)))


def _known(func: relax.Function) -> dict[tirx.Var, tirx.PrimExpr]:
    given = {s for p in func.params for s in relax.analysis.tir_vars_in_type(p.ty)}
    found: dict[tirx.Var, tirx.PrimExpr] = {}
    refuted: set[tirx.Var] = set()
    for cast in _casts(func.body):
        for formal, actual in zip(_extents(cast.ty), _extents(cast.value.ty), strict=False):
            if not isinstance(formal, tirx.Var) or formal in given or formal.same_as(actual):
                continue
            if not tvm_ffi.structural_equal(found.setdefault(formal, actual), actual):
                refuted.add(formal)  # two values for one symbol: the cast fails when it runs, and has to
    return {s: e for s, e in found.items() if s not in refuted}


def _casts(expr: relax.Expr) -> Iterator[relax.MatchCast]:
    if not isinstance(expr, relax.SeqExpr):
        return
    for binding in (b for block in expr.blocks for b in block.bindings[:]):
        if isinstance(binding, relax.MatchCast):
            yield binding


def _extents(ty: relax.Type) -> list[tirx.PrimExpr]:
    values = getattr(getattr(ty, "shape", ty), "values", None)
    return list(values) if values is not None else []


def until_symbols_are_bound(fold: tvm.transform.Pass) -> tvm.transform.Pass:
    """Make a pass that folds shapes, binds the symbols that became known, and goes on while there are such.

    Parameters
    ----------
    fold : tvm.transform.Pass
        What makes shapes known.
    """

    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        while True:
            mod = fold(mod)
            bound = map_functions(mod, lambda _, func: bind_known_symbols(func))
            if bound.same_as(mod):
                return mod
            mod = bound

    return tvm.transform.module_pass(run, opt_level=0, name=str(fold.info.name))
