"""The graph of one dataflow block.

A `Node` is one binding, one value from outside the block ("input"), or one constant ("constant"). A `Value` is
what a node produces: the whole of it (index None) or one item of a tuple result. Producers are compared as
(node, index), so concat(split[1], split[0]) never passes for an identity.

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
from .arrays import array_of, tensor_of
from .operands import same_call_with
from .shapes import Extent, dtype_of, extents


@dataclass(frozen=True, slots=True)
class Value:
    """What a node produces: all of it (`index` None), or item `index` of its tuple."""

    node: Node
    index: int | None = None

    @property
    def ty(self) -> relax.Type:
        """The Relax type."""
        return self.node.ty if self.index is None else self.node.ty.fields[self.index]

    @property
    def shape(self) -> tuple[Extent, ...] | None:
        """The extents, or None where the shape is unknown or the value is no tensor."""
        return self.node.shape_of(self.index)

    @property
    def ndim(self) -> int:
        """The rank, or -1 where it is unknown."""
        return int(getattr(self.ty, "ndim", -1))

    @property
    def dtype(self) -> str | None:
        """The element type as a string, or None where it is unknown."""
        return self.node.dtype_of(self.index)

    @property
    def op(self) -> str:
        """The operator of the producer: "input", "constant", or a Relax name."""
        return self.node.op

    @property
    def array(self) -> np.ndarray | None:
        """The value of a constant as a read-only view, or None."""
        return self.node.array

    @property
    def expr(self) -> relax.Expr:
        """The Relax expression by which a user refers to this value."""
        return self.node.var if self.index is None else self.node.item_var(self.index)

    def __repr__(self) -> str:
        name = self.node.name or self.node.op
        return name if self.index is None else f"{name}[{self.index}]"


class Node:
    """One binding, outside value or constant of a `Graph`.

    Attributes
    ----------
    op : str
        "input", "constant", "tuple", "match_cast", "opaque", "call" for a call to anything but an operator, or the
        name of a Relax operator such as "relax.reshape".
    value : Value
        The whole result.
    inputs : list[Value]
        The operands that are values, in the order in which they stand in `expr`.
    expr : relax.Expr
        The bound expression over the operands' variables as they were when the node was made.
    var : relax.Expr
        The variable bound to it; for a constant the constant itself.
    order : tuple[float, int]
        Where the node stands in the block: its position, then its age.
    users : dict[Node, int]
        The nodes that use a value of it, each with the number of times.
    origin : str
        The rule that made the node; empty for one that was read.
    history : tuple
        What the node came from, by the last rules: the driver finds rules that undo each other with it.
    cast_to : relax.Type, optional
        The type that a match_cast states.
    """

    __slots__ = (
        "_array", "_items", "_tensors", "_view", "cast_to", "expr", "history",
        "inputs", "op", "order", "origin", "ty", "users", "value", "var",
    )  # fmt: skip

    def __init__(self, op: str, inputs: list[Value], expr: relax.Expr, var: relax.Expr, order: tuple[float, int]):
        self.op = op
        self.value = Value(self)
        self.inputs = inputs
        self.expr = expr
        self.var = var
        self.ty = var.ty
        self.order = order
        self.users: dict[Node, int] = {}
        self.origin = ""
        self.history: tuple[tuple[Any, str], ...] = ()
        self.cast_to: relax.Type | None = None
        self._items: dict[int, relax.Var] = {}
        self._tensors: dict[int | None, tuple[tuple[Extent, ...] | None, str | None]] = {}
        self._array: np.ndarray | None = None
        self._view: Any = None

    @property
    def name(self) -> str:
        """The name of the bound variable; empty for a constant."""
        return getattr(self.var, "name", "")

    @property
    def attrs(self) -> Any:
        """The attributes of the call, or None."""
        return getattr(self.expr, "attrs", None)

    @property
    def array(self) -> np.ndarray | None:
        """The value of a constant as a read-only array, or None for any other node."""
        if self.op != "constant":
            return None
        if self._array is None:
            self._array = array_of(self.var.value)
            self._array.flags.writeable = False
        return self._array

    @property
    def view(self) -> Any:
        """The movement that the node is (`relax_glue.movement`), or None where it is none or not static."""
        if self._view is None:
            from .views import view_of  # views builds on graph

            self._view = (view_of(self),)
        return self._view[0]

    def shape_of(self, index: int | None) -> tuple[Extent, ...] | None:
        """Return the extents of the result or of one of its items."""
        return self._tensor(index)[0]

    def dtype_of(self, index: int | None) -> str | None:
        """Return the element type of the result or of one of its items."""
        return self._tensor(index)[1]

    def _tensor(self, index: int | None) -> tuple[tuple[Extent, ...] | None, str | None]:
        """Return the extents and the element type, which are read once: TVM takes microseconds to give them."""
        found = self._tensors.get(index)
        if found is None:
            ty = self.ty if index is None else self.ty.fields[index]
            found = (extents(ty) if isinstance(ty, relax.TensorType) else None, dtype_of(ty))
            self._tensors[index] = found
        return found

    def item_var(self, index: int) -> relax.Var:
        """Return the variable that stands for item `index` of a tuple result."""
        var = self._items.get(index)
        if var is None:
            var = relax.DataflowVar(f"{self.name}_{index}", self.ty.fields[index])
            self._items[index] = var
        return var

    def name_item(self, index: int, var: relax.Var) -> None:
        """Let `var` stand for item `index`, unless one does already."""
        self._items.setdefault(index, var)

    def __repr__(self) -> str:
        return f"<{self.op} {self.name}({', '.join(map(repr, self.inputs))})>"


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


def checks_nothing(cast: Node) -> bool:
    """Return whether the operand of a match_cast is known to have the type that it is cast to.

    Such a cast neither fails nor defines a symbol.
    """
    if cast.cast_to is None:
        return False
    known = cast.inputs[0].ty if cast.inputs else cast.expr.ty
    return relax.analysis.type_base_check(cast.cast_to, known) == relax.analysis.BaseCheckResult.PASS


def _is_check(node: Node) -> bool:
    return node.op == "match_cast" and not checks_nothing(node)
