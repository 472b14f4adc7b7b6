"""In which order nodes can stand: after their operands, and after what defines their symbolic extents.

The second is a dependency that no operand shows.
`y = match_cast(x, Tensor((m, 8)))` defines m. A later call whose type or shape operand mentions m depends on
that binding although y is not among its operands (apache/tvm issue 20195).
"""

from __future__ import annotations

from collections.abc import Collection

import tvm
from tvm import relax, tirx

from .graph import Graph
from .node import Node


def symbols_of(node: Node) -> set[tirx.Var]:
    """Return the symbolic variables that the type or the expression of a node mentions."""
    found = set(relax.analysis.tir_vars_in_type(node.ty))
    if node.op not in ("input", "constant", "match_cast"):
        found |= set(relax.analysis.free_symbolic_vars(node.expr)) if isinstance(node.expr, relax.Function) else set()
        for arg in getattr(node.expr, "args", ()):
            found |= _symbols_in(arg)
    return found


def by_dependency(nodes: Collection[Node]) -> list[Node]:
    """Return nodes, each after those of them that it uses."""
    members = set(nodes)
    waiting = {node: len({v.node for v in node.inputs} & members) for node in nodes}
    ready = [node for node, count in waiting.items() if not count]
    for node in ready:
        for user in node.users:
            if user not in waiting:
                continue
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    return ready


def _symbols_in(arg: relax.Expr) -> set[tirx.Var]:
    """Return the symbols that an argument mentions: a shape, a tensor by its type, an integer, or a tuple of such."""
    if isinstance(arg, relax.Tuple):
        return {symbol for item in arg.fields for symbol in _symbols_in(item)}
    ty = getattr(arg, "ty", None)
    if isinstance(ty, (relax.ShapeType, relax.TensorType)):
        return set(relax.analysis.tir_vars_in_type(ty))
    if isinstance(ty, tvm.ir.PrimType):
        return set(tirx.analysis.undefined_vars(arg))
    return set()


def symbol_dependencies(graph: Graph) -> dict[Node, set[Node]]:
    """Return, for each node that needs it, the match_casts that define the symbols it mentions.

    Returns
    -------
    after : dict[Node, set[Node]]
        Empty for a block without match_cast, which costs nothing.
    """
    casts = [node for node in graph if node.op == "match_cast"]
    if not casts:
        return {}
    casts.sort(key=lambda n: n.order)
    outside = {s for node in graph if node.op == "input" for s in symbols_of(node)}
    definer: dict[tirx.Var, Node] = {}
    for cast in casts:
        # a cast to Shape((max(h, w),)) uses h and w; only a lone symbol is defined
        for symbol in relax.analysis.definable_tir_vars_in_type(cast.cast_to):
            if symbol not in outside:
                definer.setdefault(symbol, cast)
    after: dict[Node, set[Node]] = {}
    for node in graph:
        if node.op in ("input", "constant"):
            continue
        needed = {definer[s] for s in symbols_of(node) if s in definer} - {node}
        if needed:
            after[node] = needed
    return after
