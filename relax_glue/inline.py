"""Region functions put back into their callers, so that TVM compiles them like the rest."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax

from .ir import Graph, Node, Value, map_blocks, map_functions, read_block, write_block
from .ir.write import call_with


def is_region(func: object) -> bool:
    """Return whether a function is a TensorRT region."""
    if not isinstance(func, relax.Function) or func.attrs is None or "Codegen" not in func.attrs:
        return False
    return str(func.attrs["Codegen"]) == "tensorrt"


def region_functions(mod: tvm.IRModule) -> dict[str, relax.Function]:
    """Return the region functions of a module by their names, sorted."""
    found = {var.name_hint: func for var, func in mod.functions_items() if is_region(func)}
    return dict(sorted(found.items()))


def inline(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module without region functions: every call of one is replaced by its operators.

    Parameters
    ----------
    mod : tvm.IRModule
        A partitioned module, by relax_glue or by TVM itself; it is not changed. One without regions is returned as
        it is.
    """
    regions = region_functions(mod)
    if not regions:
        return mod

    def block(old: relax.DataflowBlock) -> relax.DataflowBlock:
        graph = read_block(old)
        calls = [n for n in graph if n.op == "call" and getattr(n.expr.op, "name_hint", None) in regions]
        for node in calls:
            _inline_call(graph, node, regions[node.expr.op.name_hint])
        return write_block(graph) if calls else old

    flat = map_functions(mod, lambda _, func: map_blocks(func, block))
    kept = {var: func for var, func in flat.functions_items() if var.name_hint not in regions or not is_region(func)}
    return tvm.IRModule(kept, attrs=mod.attrs, global_infos=mod.global_infos)


def _inline_call(graph: Graph, node: Node, func: relax.Function) -> None:
    graph.at = node
    results = _Inliner(graph).run(func, node.inputs)
    graph.at = None
    if isinstance(node.ty, relax.TupleType):
        for index, value in enumerate(results):
            graph.replace(Value(node, index), value)
    else:
        graph.replace(Value(node), results[0])
    graph.drop_dead(node)


class _Inliner:
    """Adds the operators of one function to a graph."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.values: dict[relax.Expr, list[Value]] = {}
        self.local: dict[relax.Expr, relax.Function] = {}

    def run(self, func: relax.Function, args: Sequence[Value]) -> list[Value]:
        """Return the values of the function's result, one per item of a tuple."""
        inner = _Inliner(self.graph)
        inner.values = {p: [a] for p, a in zip(func.params, args, strict=False)}
        for block in func.body.blocks:
            for binding in block.bindings:
                inner.bind(binding)
        return inner.of(func.body.body)

    def bind(self, binding: relax.Binding) -> None:
        """Add one binding."""
        value = binding.value
        if isinstance(value, relax.Function):
            self.local[binding.var] = value
        else:
            self.values[binding.var] = self.of(value)

    def of(self, expr: relax.Expr) -> list[Value]:
        """Return the values of an expression, one per item of a tuple."""
        if expr in self.values:
            return self.values[expr]
        if isinstance(expr, tvm.ir.GenericConst):
            return self.values.setdefault(expr, [self._constant(expr)])
        if isinstance(expr, relax.Tuple):
            return [v for field in expr.fields for v in self.of(field)]
        if isinstance(expr, relax.TupleGetItem):
            return [self._item(self.of(expr.tuple_value), expr.index)]
        if expr.op in self.local:
            return self.run(self.local[expr.op], [v for arg in expr.args for v in self.of(arg)])
        return [self._call(expr)]

    def _constant(self, const: relax.Expr) -> Value:
        return Value(self.graph.attach("constant", [], const, const, -1.0))

    @staticmethod
    def _item(values: Sequence[Value], index: int) -> Value:
        if len(values) == 1 and isinstance(values[0].ty, relax.TupleType):
            return Value(values[0].node, index)
        return values[index]

    def _call(self, call: relax.Call) -> Value:
        operands: list[Value] = []
        for arg in call.args:
            if isinstance(arg, (relax.Var, tvm.ir.GenericConst, relax.Tuple)) and not _is_literal(arg):
                operands += self.of(arg)
        return self.graph.emit(lambda *exprs: call_with(call, exprs), *operands)


def _is_literal(arg: relax.Expr) -> bool:
    """Return whether a tuple holds attributes, such as the axes of a slice, and no tensors."""
    if not isinstance(arg, relax.Tuple):
        return False
    return all(not isinstance(f, (relax.Var, tvm.ir.GenericConst)) for f in arg.fields)
