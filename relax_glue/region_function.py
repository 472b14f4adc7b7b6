"""Region functions: how they are known, and how one is made of nodes of a graph, for `RunCodegen`."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax, tirx
from tvm.relax.utils import copy_with_new_vars

from .ir import Graph, Node, Value
from .ir.operands import substitute
from .ir.order import symbols_of

CODEGEN = "tensorrt"
"""The attribute Codegen of a region function."""

# Where TVM's TensorRT backend calls an operator by another name than Relax does.
_COMPOSITE_NAMES = {
    "relax.matmul": "nn.batch_matmul",
    "relax.permute_dims": "transpose",
    "relax.concat": "concatenate",
}


def is_region(func: object) -> bool:
    """Return whether a function is a TensorRT region."""
    if not isinstance(func, relax.Function) or func.attrs is None or "Codegen" not in func.attrs:
        return False
    return str(func.attrs["Codegen"]) == CODEGEN


def region_functions(mod: tvm.IRModule) -> dict[str, relax.Function]:
    """Return the region functions of a module by their names, sorted."""
    found = {var.name_hint: func for var, func in mod.functions_items() if is_region(func)}
    return dict(sorted(found.items()))


def composite_name(op: str) -> str:
    """Return the name by which TVM's TensorRT backend knows a Relax operator."""
    return "tensorrt." + _COMPOSITE_NAMES.get(op, op.removeprefix("relax."))


def composite_ops(region: relax.Function) -> list[str]:
    """Return the operators that the composites of a region function hold, in the order of its calls."""
    local: dict[relax.Var, list[str]] = {}
    found: list[str] = []
    for binding in (b for block in region.body.blocks for b in block.bindings):
        value = binding.value
        if isinstance(value, relax.Function):
            inner = [b.value for block in value.body.blocks for b in block.bindings]
            local[binding.var] = [c.op.name for c in inner if isinstance(c, relax.Call) and _is_op(c)]
        elif isinstance(value, relax.Call):
            found += [value.op.name] if _is_op(value) else local.get(value.op, [])
    return found


def _is_op(call: relax.Call) -> bool:
    return isinstance(call.op, tvm.ir.Op)


def make_region(graph: Graph, nodes: Sequence[Node], name: str) -> tuple[tvm.ir.GlobalVar, relax.Function]:
    """Make a function of `nodes` and let the graph call it instead.

    Parameters
    ----------
    graph : Graph
        Changed in place: `nodes` are gone from it afterwards.
    nodes : sequence of Node
        A convex set, producers before users.
    name : str
        The global symbol.

    Returns
    -------
    var, func : GlobalVar, relax.Function
        The function takes the values that come from outside the set, in the order of their first use, then a shape
        of the symbols that these do not define, if there are such. It returns one tensor or a tuple.
    """
    members = set(nodes)
    inputs = list(dict.fromkeys(v for n in nodes for v in n.inputs if v.node not in members and v.op != "constant"))
    outputs = _outputs(graph, nodes, members)
    writer = _RegionWriter(inputs)
    for node in nodes:
        writer.add(node)
    symbols = _undefined_symbols(nodes, inputs)
    func = writer.function(outputs, symbols, name)
    var = tvm.ir.GlobalVar(name)
    _update_type(var, func.ty)
    _call(graph, nodes, var, func, inputs, outputs, symbols)
    return var, func


def _update_type(var: tvm.ir.GlobalVar, ty: relax.Type) -> None:
    relax.expr._update_type(var, ty)


def _outputs(graph: Graph, nodes: Sequence[Node], members: set[Node]) -> list[Value]:
    """Return the values of the set that something outside uses, in order."""
    leaving: dict[Value, None] = {}
    for node in nodes:
        if all(user in members for user in node.users):
            continue
        for user in node.users:
            if user not in members:
                leaving.update((v, None) for v in user.inputs if v.node is node)
    leaving.update((v, None) for _, v in graph.outputs if v.node in members)
    position = {node: k for k, node in enumerate(nodes)}
    return sorted(leaving, key=lambda v: (position[v.node], -1 if v.index is None else v.index))


def _undefined_symbols(nodes: Sequence[Node], inputs: Sequence[Value]) -> list[tirx.Var]:
    """Return the symbols that the set mentions and no input's type defines."""
    defined = {s for v in inputs for s in relax.analysis.definable_tir_vars_in_type(v.ty)}
    needed = dict.fromkeys(s for n in nodes for s in sorted(symbols_of(n), key=str))
    needed.update((s, None) for v in inputs for s in relax.analysis.tir_vars_in_type(v.ty))
    return [s for s in needed if s not in defined]


class _RegionWriter:
    """Writes the body of one region function."""

    def __init__(self, inputs: Sequence[Value]):
        self.params = [relax.Var(_name(v), v.ty) for v in inputs]
        self.names: dict[Value, relax.Expr] = dict(zip(inputs, self.params, strict=True))
        self.bindings: list[relax.Binding] = []

    def expr(self, value: Value) -> relax.Expr:
        """Return the expression by which the region refers to a value."""
        if value.op == "constant":
            return value.expr
        found = self.names.get(value)
        if found is None:
            whole = self.expr(Value(value.node))
            item = value.node.item_var(value.index or 0)
            found = self.names[value] = relax.Var(item.name, item.ty)
            self.bindings.append(relax.VarBinding(found, relax.TupleGetItem(whole, value.index)))
        return found

    def add(self, node: Node) -> None:
        """Add the call of a node, as a call of its composite."""
        args = list(dict.fromkeys(v for v in node.inputs if v.op != "constant"))
        exprs = [self.expr(v) for v in args]
        composite = _composite(node, args)
        callee = relax.Var(f"{node.name}_{node.op.rpartition('.')[2]}", composite.ty)
        result = relax.Var(node.name, node.ty)
        self.bindings.append(relax.VarBinding(callee, composite))
        self.bindings.append(relax.VarBinding(result, relax.Call(callee, exprs, ret_ty=node.ty)))
        self.names[Value(node)] = result

    def function(self, outputs: Sequence[Value], symbols: Sequence[tirx.Var], name: str) -> relax.Function:
        """Return the function; symbols that no parameter defines come in one more parameter, a shape."""
        exprs = [self.expr(v) for v in outputs]
        params = list(self.params)
        if symbols:
            params.append(relax.Var("symbols", relax.ShapeType(list(symbols))))
        result = exprs[0] if len(exprs) == 1 else relax.Tuple(exprs)
        out = relax.Var("gv", result.ty)
        self.bindings.append(relax.VarBinding(out, result))
        body = relax.SeqExpr([relax.BindingBlock(self.bindings)], out)
        relax.expr._update_type(body, result.ty)
        attrs = tvm.ir.make_node("ir.DictAttrs", Codegen=CODEGEN, global_symbol=name)
        func = relax.Function(params, body, result.ty, True, attrs)
        symbolic = bool(symbols) or any(relax.analysis.tir_vars_in_type(p.ty) for p in params)
        # a symbol belongs to one function
        return copy_with_new_vars(func) if symbolic else func


def _name(value: Value) -> str:
    name = value.node.name or "x"
    return name if value.index is None else f"{name}_{value.index}"


def _composite(node: Node, args: Sequence[Value]) -> relax.Function:
    """Return the local function of one operator; constants stay inside."""
    params = [relax.Var(_name(v), v.ty) for v in args]
    names = dict(zip(args, params, strict=True))
    call = substitute(node.expr, [names.get(v, v.expr) for v in node.inputs])
    out = relax.Var("gv", node.ty)
    body = relax.SeqExpr([relax.DataflowBlock([relax.VarBinding(out, call)])], out)
    relax.expr._update_type(body, node.ty)
    attrs = tvm.ir.make_node("ir.DictAttrs", Composite=composite_name(node.op))
    return relax.Function(params, body, node.ty, True, attrs)


def _call(
    graph: Graph,
    nodes: Sequence[Node],
    var: tvm.ir.GlobalVar,
    func: relax.Function,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    symbols: Sequence[tirx.Var],
) -> None:
    """Put a call of the region in the place of its nodes."""
    args = [v.expr for v in inputs]
    if symbols:
        args.append(relax.ShapeExpr(list(symbols)))
    ty = outputs[0].ty if len(outputs) == 1 else relax.TupleType([v.ty for v in outputs])
    call = relax.Call(var, args, ret_ty=ty)
    result = relax.DataflowVar(outputs[0].node.name if len(outputs) == 1 else "lv", ty)
    node = graph.attach("call", inputs, call, result, nodes[-1].order[0])
    for k, old in enumerate(outputs):
        graph.replace(old, Value(node) if len(outputs) == 1 else Value(node, k))
    for member in reversed(nodes):
        graph.drop_dead(member)
