"""What a graph is made of: nodes, and the values that they produce.

A `Node` is one binding, one value from outside the block ("input"), or one constant ("constant"). A `Value` is
what a node produces: the whole of it (index None) or one item of a tuple result. Producers are compared as
(node, index), so concat(split[1], split[0]) never passes for an identity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from .arrays import array_of
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
        "inputs", "op", "order", "origin", "ty", "users", "var",
    )  # fmt: skip

    def __init__(self, op: str, inputs: list[Value], expr: relax.Expr, var: relax.Expr, order: tuple[float, int]):
        self.op = op
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
    def value(self) -> Value:
        """The whole result; one that the node held would leave a dropped node to the garbage collector."""
        return Value(self)

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
            from .views import view_of  # views builds on nodes

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


def checks_nothing(cast: Node) -> bool:
    """Return whether the operand of a match_cast is known to have the type that it is cast to.

    Such a cast neither fails nor defines a symbol.
    """
    if cast.cast_to is None:
        return False
    known = cast.inputs[0].ty if cast.inputs else cast.expr.ty
    return relax.analysis.type_base_check(cast.cast_to, known) == relax.analysis.BaseCheckResult.PASS
