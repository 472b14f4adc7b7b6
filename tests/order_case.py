"""The pipeline with its rules in another order, and what two modules have in common but for names and order."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from unittest.mock import patch

import tvm
from tvm import relax

import relax_glue
from relax_glue import pipeline
from relax_glue.ir import Graph, Node, Value, read_block
from relax_glue.movement import Permute, Reshape
from relax_glue.passes import base
from relax_glue.rewrite import RewriteStats, Rule, RuleSet, rewrite
from relax_glue.shuffle import shortest

Arrange = Callable[[Sequence[Rule]], Sequence[Rule]]


def by_seed(seed: int) -> Arrange:
    """Return what puts rules into a random order."""
    return lambda rules: Random(seed).sample(list(rules), len(rules))


def arranged(mod: tvm.IRModule, arrange: Arrange) -> tvm.IRModule:
    """Bring a module to its canonical form, with the rules of each step of the pipeline arranged anew."""

    def rewrite_arranged(graph: Graph, rules: RuleSet, stats: RewriteStats | None = None) -> int:
        return rewrite(graph, RuleSet.of(*arrange(rules.rules)), stats)

    with patch.object(pipeline, "rewrite", rewrite_arranged), patch.object(base, "rewrite", rewrite_arranged):
        return relax_glue.canonicalize(mod)


def calls(mod: tvm.IRModule) -> Counter[str]:
    """Return how often `main` calls each operator, those in branches included."""
    found: Counter[str] = Counter()
    relax.analysis.post_order_visit(
        mod["main"], lambda e: found.update([str(getattr(e.op, "name", "call"))]) if isinstance(e, relax.Call) else None
    )
    return found


def normal_form(mod: tvm.IRModule) -> str:
    """Return a digest of what `main` computes, by which operators from which operands.

    Names and the order of bindings do not count, nor how a chain of reshapes and permutes is spelled: one index map has
    several chains of one length, (n, 6, 4) -> (n, 2, 12) -> ... with other extents in between.
    """
    function = mod["main"]
    known: dict[relax.Expr, str] = {param: f"param {index}" for index, param in enumerate(function.params)}
    return _sequence(function.body, known)


def _sequence(body: relax.SeqExpr, known: dict[relax.Expr, str]) -> str:
    for block in body.blocks:
        if isinstance(block, relax.DataflowBlock):
            graph = read_block(block)
            known.update({var: _value(value, known) for var, value in graph.outputs})
            continue
        for binding in block.bindings:
            cast = f"cast {binding.ty}" if isinstance(binding, relax.MatchCast) else ""
            known[binding.var] = _hash(cast, _expr(binding.value, known))
    return _expr(body.body, known)


def _value(value: Value, known: dict[relax.Expr, str]) -> str:
    """Return the digest of a value of a block; `known` remembers the nodes by their variables."""
    node = value.node
    if node.var not in known or node.op == "constant":
        known[node.var] = _node(node, known)
    return known[node.var] if value.index is None else _hash("item", str(value.index), known[node.var])


def _node(node: Node, known: dict[relax.Expr, str]) -> str:
    if node.op == "input":
        return node.name
    if node.op == "constant":
        return _expr(node.var, known)
    if isinstance(node.view, (Reshape, Permute)):
        source, chain = _chain(node)
        return _hash("shuffle", _value(source, known), _map(source, chain), str(node.value.shape))
    operands = [_value(operand, known) for operand in node.inputs]
    args = [str(arg) for arg in getattr(node.expr, "args", ()) if not _holds_values(arg)]
    return _hash(node.op, str(node.attrs), str(node.cast_to or ""), *args, *operands)


def _chain(node: Node) -> tuple[Value, list[Reshape | Permute]]:
    chain: list[Reshape | Permute] = []
    while isinstance(node.view, (Reshape, Permute)):
        chain.insert(0, node.view)
        source, node = node.inputs[0], node.inputs[0].node
    return source, chain


def _map(source: Value, chain: Sequence[Reshape | Permute]) -> str:
    """Return the shortest chain of the same map, or the chain where it cannot be followed."""
    return str(shortest(source.shape or (), chain) or chain)


def _holds_values(arg: relax.Expr) -> bool:
    if isinstance(arg, relax.Tuple):
        return any(_holds_values(field) for field in arg.fields)
    return isinstance(arg, (relax.Var, relax.TupleGetItem, tvm.ir.GenericConst))


def _expr(expr: relax.Expr, known: dict[relax.Expr, str]) -> str:
    """Return the digest of an expression outside dataflow blocks."""
    if isinstance(expr, relax.Var):
        return known.get(expr, expr.name)
    if isinstance(expr, tvm.ir.GenericConst):
        array = expr.value.numpy()
        return _hash(str(array.dtype), str(array.shape), array.tobytes().hex())
    if isinstance(expr, relax.SeqExpr):
        return _sequence(expr, known)
    if isinstance(expr, relax.Tuple):
        return _hash("tuple", *(_expr(field, known) for field in expr.fields))
    if isinstance(expr, relax.TupleGetItem):
        return _hash("item", str(expr.index), _expr(expr.tuple_value, known))
    if isinstance(expr, relax.Call):
        return _hash(str(expr.op), str(expr.attrs), *(_expr(arg, known) for arg in expr.args))
    if isinstance(expr, relax.If):
        return _hash("if", *(_expr(part, known) for part in (expr.cond, expr.true_branch, expr.false_branch)))
    return str(expr)


def _hash(*parts: str) -> str:
    return hashlib.sha256("|".join(parts).encode()).hexdigest()
