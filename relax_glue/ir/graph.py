"""The graph of one dataflow block: its nodes, with their users and what is seen outside, as rules change it.

Each node keeps a Relax expression over the variables of its operands, typed at creation by TVM's own
inference. When an operand is replaced later, only `inputs` changes; the expression is rebuilt when the block
is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ..errors import RewriteError
from .arrays import tensor_of
from .node import Node, Value, checks_nothing
from .operands import same_call_with


@dataclass(frozen=True, slots=True)
class Place:
    """Where a block stands; all is left empty for a block that was read alone.

    Attributes
    ----------
    module : tvm.IRModule, optional
        The module, as it was before the pass that runs: calls of kernels and functions name what is in it.
    function : str
        The function.
    block : int
        The number of the block among those of the function.
    """

    module: tvm.IRModule | None = None
    function: str = ""
    block: int = 0


class Graph:
    """The nodes of one dataflow block, with users and outputs kept up to date.

    Attributes
    ----------
    outputs : list[tuple[relax.Var, Value]]
        The variables that are seen outside the block, in the order of their bindings, with their values.
    place : Place
        Where the block stands.
    """

    def __init__(self) -> None:
        self.place = Place()
        self.outputs: list[tuple[relax.Var, Value]] = []
        self._nodes: dict[Node, None] = {}
        self._age = 0
        self._builder = relax.BlockBuilder()
        self._constants: dict[Any, Node] = {}
        self._slots: dict[Node, list[int]] = {}
        self.at: Node | None = None  # the node being rewritten: new nodes take its place and name

    # -- reading -----------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Node]:
        """Yield the nodes, oldest first; nodes may be added or dropped meanwhile."""
        return iter(list(self._nodes))

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, node: Node) -> bool:
        return node in self._nodes

    def is_output(self, node: Node) -> bool:
        """Return whether a value of `node` is seen outside the block."""
        return bool(self._slots.get(node))

    def is_used(self, node: Node) -> bool:
        """Return whether a value of `node` is used by another node or seen outside the block."""
        return bool(node.users) or self.is_output(node)

    def uses(self, node: Node) -> int:
        """Return how many times the values of `node` are used; being an output is one use each."""
        return sum(node.users.values()) + len(self._slots.get(node, ()))

    def single_use(self, value: Value) -> bool:
        """Return whether the producer of `value` has no other use than one."""
        return self.uses(value.node) == 1

    def uses_of(self, value: Value) -> int:
        """Return how many times exactly this value (item included) is used."""
        inside = sum(1 for user in value.node.users for operand in user.inputs if operand == value)
        return inside + sum(1 for slot in self._slots.get(value.node, ()) if self.outputs[slot][1] == value)

    # -- adding ------------------------------------------------------------------------------------------

    def attach(self, op: str, inputs: Sequence[Value], expr: relax.Expr, var: relax.Expr, position: float) -> Node:
        """Add a node whose expression and variable are given."""
        self._age += 1
        node = Node(op, list(inputs), expr, var, (position, self._age))
        self._nodes[node] = None
        for operand in node.inputs:
            users = operand.node.users
            users[node] = users.get(node, 0) + 1
        return node

    def emit(self, make: Callable[..., relax.Expr], *inputs: Value | Sequence[Value]) -> Value:
        """Add a call and return its result.

        Parameters
        ----------
        make : Callable
            Gets one Relax expression per operand (a list of them for a list of operands) and returns the
            call, as the functions of `tvm.relax.op` do.
        inputs : Value or sequence of Value
            The operands.

        Raises
        ------
        RewriteError
            TVM's type inference refuses the call.
        """
        flat: list[Value] = []
        exprs: list[Any] = []
        for operand in inputs:
            group = [operand] if isinstance(operand, Value) else list(operand)
            flat += group
            exprs.append(group[0].expr if isinstance(operand, Value) else [v.expr for v in group])
        try:
            expr = self._builder.normalize(make(*exprs))
        except (ValueError, TypeError, tvm.error.InternalError) as error:
            place = f" in place of {self.at!r}" if self.at else ""
            raise RewriteError(f"a call that was built{place} is ill-typed: {error}") from error
        return self._bind(expr, flat).value

    def _bind(self, expr: relax.Expr, inputs: Sequence[Value]) -> Node:
        position = self.at.order[0] if self.at else float(self._age)
        name = (self.at.name if self.at else "") or "lv"
        return self.attach(expr.op.name, inputs, expr, relax.DataflowVar(name, expr.ty), position)

    def bind(self, expr: relax.Expr) -> Value:
        """Add a binding of an expression without operands that is no call, such as a shape."""
        position = self.at.order[0] if self.at else float(self._age)
        name = (self.at.name if self.at else "") or "lv"
        return self.attach("opaque", [], expr, relax.DataflowVar(name, expr.ty), position).value

    def pack(self, values: Sequence[Value], like: Node) -> Value:
        """Add a tuple of values that stands where `like` stands."""
        expr = relax.Tuple([value.expr for value in values])
        return self.attach("tuple", values, expr, relax.DataflowVar(like.name or "lv", expr.ty), like.order[0]).value

    def rebuild(self, node: Node, inputs: Sequence[Value]) -> Value:
        """Add the call of `node` with other operands, one for each of its own in the same order."""
        expr = self._builder.normalize(same_call_with(node.expr, [v.expr for v in inputs]))
        return self._bind(expr, inputs).value

    def constant(self, array: np.ndarray) -> Value:
        """Add a constant; equal constants of up to 64 bytes are one node."""
        key = (str(array.dtype), array.shape, array.tobytes()) if array.nbytes <= 64 else None
        node = self._constants.get(key) if key else None
        if node is not None and node in self._nodes:
            return node.value
        expr = relax.const(tensor_of(array))  # an array would be copied once more
        node = self.attach("constant", [], expr, expr, -1.0)
        if key:
            self._constants[key] = node
        return node.value

    def output(self, var: relax.Var, value: Value) -> None:
        """Let `value` be seen outside the block as `var`."""
        self._slots.setdefault(value.node, []).append(len(self.outputs))
        self.outputs.append((var, value))

    # -- changing ----------------------------------------------------------------------------------------

    def replace(self, old: Value, new: Value) -> list[Node]:
        """Let every user of `old` use `new`; return the users that changed."""
        if old == new:
            return []
        changed = [user for user in old.node.users if old in user.inputs]
        for user in changed:
            moved = user.inputs.count(old)
            user.inputs = [new if operand == old else operand for operand in user.inputs]
            self._count_use(old.node, user, -moved)
            self._count_use(new.node, user, moved)
        for slot in list(self._slots.get(old.node, ())):
            var, value = self.outputs[slot]
            if value == old:
                self.outputs[slot] = (var, new)
                self._slots[old.node].remove(slot)
                self._slots.setdefault(new.node, []).append(slot)
        return changed

    def rewire(self, user: Node, old: Node, new: Node) -> None:
        """Let one user take the values of `new` where it takes those of `old`."""
        moved = sum(v.node is old for v in user.inputs)
        user.inputs = [Value(new, v.index) if v.node is old else v for v in user.inputs]
        self._count_use(old, user, -moved)
        self._count_use(new, user, moved)

    @staticmethod
    def _count_use(node: Node, user: Node, by: int) -> None:
        count = node.users.get(user, 0) + by
        if count:
            node.users[user] = count
        else:
            del node.users[user]

    def drop_dead(self, node: Node) -> list[Node]:
        """Drop `node` if nothing uses it, and its producers in turn; return the producers that lost a use."""
        touched: list[Node] = []
        stack = [node]
        while stack:
            dead = stack.pop()
            if dead not in self._nodes or self.is_used(dead) or dead.op == "input" or _is_check(dead):
                continue
            del self._nodes[dead]
            for operand in dead.inputs:
                self._count_use(operand.node, dead, -1)
                touched.append(operand.node)
                stack.append(operand.node)
        return [n for n in touched if n in self._nodes]

    def sweep(self) -> bool:
        """Drop every node that nothing uses; return whether there was one."""
        before = len(self._nodes)
        for node in [node for node in self._nodes if not self.is_used(node)]:
            self.drop_dead(node)
        return len(self._nodes) < before


def _is_check(node: Node) -> bool:
    return node.op == "match_cast" and not checks_nothing(node)
