"""From a `Graph` back to a Relax dataflow block.

Bindings come out in an order that respects every dependency and is otherwise the order of the source, so a
block that no rule touched comes out as it was read. Nodes that nothing uses are left out.
"""

from __future__ import annotations

import heapq

from tvm import relax

from .blocks import typed
from .graph import Graph
from .node import Node, Value
from .operands import substitute
from .order import symbol_dependencies


def _may_be_bound(var: relax.Var, value: Value | relax.Expr) -> bool:
    """Return whether TVM sees that a value has the type of a variable."""
    if var.ty.same_as(value.ty):
        return True
    return relax.analysis.type_base_check(var.ty, value.ty) == relax.analysis.BaseCheckResult.PASS


def _of_type_of(var: relax.Var, expr: relax.Expr) -> relax.Expr:
    """Return what is bound to a variable as a value of its type, where TVM does not see that it is.

    TVM's mutators leave such pairs: where an operand was exchanged they infer min(n, k) - min(0, n) for a variable of
    the extent min(n, k). That is the same where n is an extent, but neither they nor `well_formed` know that it is.
    """
    if not isinstance(expr, relax.Call) or _may_be_bound(var, expr):
        return expr
    return relax.Call(expr.op, expr.args, expr.attrs, expr.ty_args, expr.span, var.ty)


def _cannot_be_loaded(node: Node) -> bool:
    """Return whether TVM would write a constant into an executable that it cannot read.

    It reads 0 bytes, which fails, and forgives that only where the first extent is 0: 0x4 is read, and 4x0 is said to
    have an "Invalid DLTensor file format". Zeros that are made when the model runs are the same.
    """
    shape = node.value.shape if node.op == "constant" else None
    return shape is not None and 0 in shape[1:] and shape[0] != 0


class _Writer:
    """Writes one graph; `names` maps values to the expressions by which users refer to them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.names: dict[Value, relax.Expr] = {}
        self.bindings: list[relax.Binding] = []
        self.aliases: list[tuple[relax.Var, Value]] = []

    def write(self) -> relax.DataflowBlock:
        self._claim_outputs()
        used = self._used_items()
        for node in _schedule(self.graph):
            self._bind(node)
            for index in used.get(node, ()):
                self._bind_item(node, index)
        for var, value in self.aliases:
            self.bindings.append(self._alias(var, value))
        return relax.DataflowBlock(self.bindings)

    def _claim_outputs(self) -> None:
        """Let a value be bound to the output variable itself; a second output of it is a renaming."""
        for var, value in self.graph.outputs:
            bound_here = value.node.op not in ("input", "constant") or value.index is not None
            if (bound_here or _cannot_be_loaded(value.node)) and value not in self.names and _may_be_bound(var, value):
                self.names[value] = var
            else:
                self.aliases.append((var, value))

    def _alias(self, var: relax.Var, value: Value) -> relax.Binding:
        """Return the binding of an output to a value that has a name already.

        An extent may be equal by proof only, as min(2**63 - 1, n) is to n: TVM wants a cast there.
        """
        if _may_be_bound(var, value):
            return relax.VarBinding(var, self.names[value])
        return relax.MatchCast(var, self.names[value], var.ty)

    def _used_items(self) -> dict[Node, list[int]]:
        used: dict[Node, set[int]] = {}
        values = [v for node in self.graph for v in node.inputs] + [v for _, v in self.graph.outputs]
        for value in values:
            if value.index is not None:
                used.setdefault(value.node, set()).add(value.index)
        return {node: sorted(items) for node, items in used.items()}

    def _bind(self, node: Node) -> None:
        if _cannot_be_loaded(node):
            var = self._name(node.value, relax.DataflowVar("empty", node.ty))
            self.bindings.append(relax.VarBinding(var, typed(relax.op.zeros(node.ty.shape, node.ty.dtype), node.ty)))
            return
        if node.op in ("input", "constant"):
            self.names[node.value] = node.var
            return
        var = self._name(node.value, node.var)
        if node.op == "match_cast":
            source = self.names[node.inputs[0]] if node.inputs else node.expr
            self.bindings.append(relax.MatchCast(var, source, node.cast_to))
            return
        value = substitute(node.expr, [self.names[v] for v in node.inputs])
        self.bindings.append(relax.VarBinding(var, _of_type_of(var, value)))

    def _bind_item(self, node: Node, index: int) -> None:
        value = Value(node, index)
        var = self._name(value, node.item_var(index))
        self.bindings.append(relax.VarBinding(var, relax.TupleGetItem(self.names[node.value], index)))

    def _name(self, value: Value, own: relax.Var) -> relax.Var:
        """Return the variable to bind: the output claimed, else its own unless another value claimed that."""
        var = self.names.get(value)
        if var is None:
            # one that was declared with less than is known is bound anew: TVM has no code for an unknown shape
            is_right = isinstance(own, relax.DataflowVar) and own.ty.same_as(value.ty)
            var = own if is_right else relax.DataflowVar(own.name, value.ty)
            self.names[value] = var
        return var


def _schedule(graph: Graph) -> list[Node]:
    """Order the nodes by their dependencies, and as in the source where these leave a choice."""
    after = symbol_dependencies(graph)
    waiting = {node: len({v.node for v in node.inputs} | after.get(node, set())) for node in graph}
    followers: dict[Node, list[Node]] = {}
    for node, earlier in after.items():
        for first in earlier - {v.node for v in node.inputs}:
            followers.setdefault(first, []).append(node)
    ready = [(node.order, node) for node, count in waiting.items() if not count]
    heapq.heapify(ready)
    ordered = []
    while ready:
        _, node = heapq.heappop(ready)
        ordered.append(node)
        for user in [*node.users, *followers.get(node, ())]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, (user.order, user))
    return ordered


def write_block(graph: Graph) -> relax.DataflowBlock:
    """Write a graph as a dataflow block; the graph's dead nodes are dropped first.

    Parameters
    ----------
    graph : Graph
        Any graph; its nodes are swept, else it stays as it is.

    Returns
    -------
    block : relax.DataflowBlock
        Binds every output variable of the graph, with bindings in a valid order.
    """
    graph.sweep()
    return _Writer(graph).write()
