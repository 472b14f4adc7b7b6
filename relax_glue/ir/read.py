"""From a Relax dataflow block to a `Graph`."""

from __future__ import annotations

import tvm
from tvm import relax

from .graph import Graph
from .node import Value
from .operands import is_value, operands_of

# Operators whose first operand is a tuple of tensors: a tuple-typed variable there is read item by item.
VARIADIC = frozenset({"relax.concat", "relax.stack", "relax.einsum", "relax.meshgrid"})


class _Reader:
    """Reads one block; `env` maps the variables and constants seen so far to values."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.env: dict[relax.Expr, Value] = {}
        self.position = 0.0

    def value_of(self, expr: relax.Expr) -> Value:
        """Return the value that a variable or a constant is."""
        found = self.env.get(expr)
        if found is None:
            is_constant = isinstance(expr, tvm.ir.GenericConst)
            op, position = ("constant", -1.0) if is_constant else ("input", -2.0)
            found = self.env[expr] = self.graph.attach(op, [], expr, expr, position).value
        return found

    def bind(self, binding: relax.Binding) -> Value:
        """Add the node of a binding, or find the value that the binding only renames."""
        if isinstance(binding, relax.MatchCast):
            return self._cast(binding)
        expr = binding.value
        if isinstance(expr, relax.Call):
            return self._call(expr, binding)
        if is_value(expr):
            return self.value_of(expr)
        if isinstance(expr, relax.TupleGetItem):
            return self._item(expr, binding)
        if isinstance(expr, relax.Tuple):
            return self._bind("tuple", expr, binding)
        return self._bind("opaque", expr, binding)

    def _cast(self, binding: relax.MatchCast) -> Value:
        """Add a match_cast; what it casts is a node of its own, as in match_cast(nonzero(x), ...)."""
        value = binding.value
        if isinstance(value, (relax.Call, relax.Tuple, relax.TupleGetItem)):
            inner = relax.DataflowVar(binding.var.name, value.ty)
            self.env[inner] = self.bind(relax.VarBinding(inner, value))
            value = inner
        return self._bind("match_cast", value, binding)

    def _call(self, expr: relax.Call, binding: relax.Binding) -> Value:
        op = expr.op.name if isinstance(expr.op, tvm.ir.Op) else "call"
        if op in VARIADIC and not isinstance(expr.args[0], relax.Tuple):
            expr = self._spread(expr)
        return self._bind(op, expr, binding)

    def _spread(self, call: relax.Call) -> relax.Call:
        """Write concat(t) as concat((t[0], t[1], ...))."""
        first, *rest = call.args[:]
        if not is_value(first) or not isinstance(first.ty, relax.TupleType):
            return call
        whole = self.value_of(first)
        items = [self._item_value(whole, k) for k in range(len(whole.ty.fields))]
        for item in items:
            self.env.setdefault(item.expr, item)
        args = [relax.Tuple([item.expr for item in items]), *rest]
        return relax.Call(call.op, args, call.attrs, call.ty_args, call.span, call.ty)

    def _item(self, expr: relax.TupleGetItem, binding: relax.Binding) -> Value:
        whole = self.value_of(expr.tuple_value) if is_value(expr.tuple_value) else None
        if whole is None or whole.index is not None:
            return self._bind("opaque", expr, binding)
        value = self._item_value(whole, expr.index)
        if value.index is not None:
            value.node.name_item(value.index, binding.var)
        return value

    @staticmethod
    def _item_value(whole: Value, index: int) -> Value:
        node = whole.node
        if node.op == "tuple" and len(node.inputs) == len(node.ty.fields):
            return node.inputs[index]
        return Value(node, index)

    def _bind(self, op: str, expr: relax.Expr, binding: relax.Binding) -> Value:
        operands = [self.value_of(value) for value in operands_of(expr)]
        node = self.graph.attach(op, operands, expr, binding.var, self.position)
        if isinstance(binding, relax.MatchCast):
            node.cast_to = binding.ty
        if isinstance(expr, relax.Call) and getattr(node.ty, "shape", node.ty) is None:
            node.ty = expr.ty  # a result may be declared with less than is known of it
        return node.value


def read_block(block: relax.DataflowBlock) -> Graph:
    """Read a dataflow block.

    Parameters
    ----------
    block : relax.DataflowBlock
        A block of a well-formed function; it is not changed.

    Returns
    -------
    graph : Graph
        Its graph. Variables bound outside the block are "input" nodes. Items of tuples, renamings and
        `concat` of a tuple variable are resolved to their producers.
    """
    reader = _Reader()
    for position, binding in enumerate(block.bindings[:]):
        reader.position = float(position)
        var = binding.var
        value = reader.env[var] = reader.bind(binding)
        if not isinstance(var, relax.DataflowVar):
            reader.graph.output(var, value)
    return reader.graph
