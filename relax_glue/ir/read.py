"""From a Relax dataflow block to a `Graph`."""

from __future__ import annotations

import tvm
from tvm import relax

from ..errors import InvalidModuleError
from .graph import Graph, Value
from .shapes import is_symbol

# Operators whose first operand is a tuple of tensors: a tuple-typed variable there is read item by item.
VARIADIC = frozenset({"relax.concat", "relax.stack", "relax.einsum", "relax.meshgrid"})


class _Reader:
    """Reads one block; `env` maps the variables and constants seen so far to values."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.env: dict[relax.Expr, Value] = {}
        self.position = 0.0

    def value_of(self, expr: relax.Expr) -> Value | None:
        """Return the value that a leaf expression refers to, or None where it refers to none."""
        if is_symbol(expr):
            return None
        if isinstance(expr, relax.Var):
            found = self.env.get(expr)
            return found if found is not None else self._outside(expr)
        if isinstance(expr, tvm.ir.GenericConst):
            return self._constant(expr)
        return None

    def _outside(self, var: relax.Var) -> Value:
        node = self.graph.attach("input", [], var, var, -2.0)
        self.env[var] = Value(node)
        return self.env[var]

    def _constant(self, const: relax.Expr) -> Value:
        found = self.env.get(const)
        if found is None:
            found = self.env[const] = Value(self.graph.attach("constant", [], const, const, -1.0))
        return found

    def operands(self, expr: relax.Expr, found: list[Value]) -> None:
        """Append the values in `expr`, in the order in which `write.substitute` puts them back.

        The function that a call calls is the last of them where a variable holds it: a local function, a parameter.
        """
        for arg in (*expr.args, expr.op) if isinstance(expr, relax.Call) else (expr,):
            self._operand(arg, found)

    def _operand(self, expr: relax.Expr, found: list[Value]) -> None:
        value = self.value_of(expr)
        if value is not None:
            found.append(value)
        elif isinstance(expr, relax.Tuple):
            for item in expr.fields:
                self._operand(item, found)
        elif isinstance(expr, relax.TupleGetItem):
            self._operand(expr.tuple_value, found)
        elif isinstance(expr, relax.Call):  # reshape(exp(x)) would pass for a reshape of x
            name = getattr(expr.op, "name", expr.op)
            raise InvalidModuleError(f"{name} is called inside another call; run relax.transform.Normalize() first")

    def bind(self, binding: relax.Binding) -> Value:
        """Add the node of a binding, or find the value that the binding only renames."""
        if isinstance(binding, relax.MatchCast):
            return self._cast(binding)
        expr = binding.value
        alias = self.value_of(expr)
        if alias is not None:
            return alias
        if isinstance(expr, relax.TupleGetItem):
            return self._item(expr, binding)
        if isinstance(expr, relax.Call):
            return self._call(expr, binding)
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
        whole = self.value_of(call.args[0])
        if whole is None or not isinstance(whole.ty, relax.TupleType):
            return call
        items = [self._item_value(whole, k) for k in range(len(whole.ty.fields))]
        for item in items:
            self.env.setdefault(item.expr, item)
        args = [relax.Tuple([item.expr for item in items]), *list(call.args)[1:]]
        return relax.Call(call.op, args, call.attrs, call.ty_args, call.span, call.ty)

    def _item(self, expr: relax.TupleGetItem, binding: relax.Binding) -> Value:
        whole = self.value_of(expr.tuple_value)
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
        found: list[Value] = []
        if isinstance(expr, relax.Function):
            found = [v for v in map(self.value_of, relax.analysis.free_vars(expr)) if v is not None]
        else:
            self.operands(expr, found)
        node = self.graph.attach(op, found, expr, binding.var, self.position)
        if isinstance(binding, relax.MatchCast):
            node.cast_to = binding.ty
        if isinstance(expr, relax.Call) and getattr(node.ty, "shape", node.ty) is None:
            node.ty = expr.ty  # a result may be declared with less than is known of it
        return Value(node)


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
    for position, binding in enumerate(block.bindings):
        reader.position = float(position)
        value = reader.bind(binding)
        reader.env[binding.var] = value
        if not isinstance(binding.var, relax.DataflowVar):
            reader.graph.output(binding.var, value)
    return reader.graph
