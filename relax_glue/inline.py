"""Region functions put back into their callers, so that TVM compiles them like the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tvm
from tvm import relax

from .ir import Graph, Node, Value, map_blocks, map_functions, read_block, write_block
from .ir.dataflow import open_dataflow_blocks
from .ir.operands import call_with, is_value
from .ir.rename import with_symbols_of
from .region_function import is_region, region_functions
from .validate import check_module


def inline(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module without region functions: every call of one is replaced by its operators.

    Parameters
    ----------
    mod : tvm.IRModule
        A partitioned module, by relax_glue or by TVM itself; it is not changed. One without regions is returned as
        it is.

    Raises
    ------
    InvalidModuleError
        `mod` is no IRModule, has no Relax function, or is ill-formed.
    """
    regions = region_functions(check_module(mod))
    if not regions:
        return mod
    flat = _inlined(mod, regions)
    if _called(flat) & set(regions):  # a call outside dataflow blocks, as after ToNonDataflow
        flat = _inlined(map_functions(flat, lambda _, func: open_dataflow_blocks(func)), regions)
    kept = {var: func for var, func in flat.functions_items() if var.name_hint not in regions}
    return tvm.IRModule(kept, attrs=mod.attrs, global_infos=mod.global_infos)


def _inlined(mod: tvm.IRModule, regions: dict[str, relax.Function]) -> tvm.IRModule:
    def block(old: relax.DataflowBlock) -> relax.DataflowBlock:
        graph = read_block(old)
        calls = [n for n in graph if n.op == "call" and getattr(n.expr.op, "name_hint", None) in regions]
        for node in calls:
            _inline_call(graph, node, regions[node.expr.op.name_hint])
        return write_block(graph) if calls else old

    return map_functions(mod, lambda _, func: map_blocks(func, block))


def _called(mod: tvm.IRModule) -> set[str]:
    """Return the names of what the functions of a module call, regions apart."""
    callers = [f for _, f in mod.functions_items() if isinstance(f, relax.Function) and not is_region(f)]
    return {var.name_hint for func in callers for var in relax.analysis.all_global_vars(func)}


def _inline_call(graph: Graph, node: Node, func: relax.Function) -> None:
    graph.at = node
    results = _Inliner(graph).run(with_symbols_of(func, node.expr.args), node.expr.args, iter(node.inputs))
    graph.at = None
    graph.replace(Value(node), _whole(graph, node, results))
    if isinstance(node.ty, relax.TupleType):
        for index in range(len(node.ty.fields)):
            item = Value(results[0].node, index) if _is_whole(results) else results[index]
            graph.replace(Value(node, index), item)
    graph.drop_dead(node)


def _whole(graph: Graph, node: Node, results: Sequence[Value]) -> Value:
    """Return the results of a call as the one value that the call is."""
    if _is_whole(results) or not isinstance(node.ty, relax.TupleType):
        return results[0]
    return graph.pack(results, node)


def _is_whole(results: Sequence[Value]) -> bool:
    """Return whether the results are one tuple, such as a split, and not its items."""
    return len(results) == 1 and isinstance(results[0].ty, relax.TupleType)


class _Inliner:
    """Adds the operators of one function to a graph."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.values: dict[relax.Expr, list[Value]] = {}
        self.literals: dict[relax.Expr, relax.Expr] = {}
        self.local: dict[relax.Expr, relax.Function] = {}

    def run(self, func: relax.Function, args: Sequence[relax.Expr], given: Iterator[Value]) -> list[Value]:
        """Return the values of the function's result, one per item of a tuple.

        Parameters
        ----------
        func : relax.Function
            What is called.
        args : sequence of relax.Expr
            The arguments; those that are no values, such as shapes, are put in as they are.
        given : iterator of Value
            The values of the others.
        """
        inner = _Inliner(self.graph)
        for param, arg in zip(func.params, args, strict=True):
            if _is_value(arg):
                inner.values[param] = [next(given)]
            else:
                inner.literals[param] = arg
        for block in func.body.blocks:
            for binding in block.bindings:
                inner.bind(binding)
        return inner.of(func.body.body)

    def bind(self, binding: relax.Binding) -> None:
        """Add one binding."""
        value = binding.value
        if isinstance(value, relax.Function):
            self.local[binding.var] = value
            return
        values = self.values[binding.var] = self.of(value)
        if isinstance(value, relax.Call) and len(values) == 1 and values[0].index is None:
            node = values[0].node
            node.var = relax.DataflowVar(binding.var.name, node.ty)

    def of(self, expr: relax.Expr) -> list[Value]:
        """Return the values of an expression, one per item of a tuple."""
        if expr in self.values:
            return self.values[expr]
        if isinstance(expr, tvm.ir.GenericConst):
            return self.values.setdefault(expr, [self._constant(expr)])
        if isinstance(expr, relax.Tuple):
            return [v for field in expr.fields if _is_value(field) for v in self.of(field)]
        if isinstance(expr, relax.TupleGetItem):
            return [self._item(self.of(expr.tuple_value), expr.index)]
        if expr.op in self.local:
            return self._call_local(expr)
        return [self._call(expr)]

    def _call_local(self, call: relax.Call) -> list[Value]:
        args = [self.literals.get(arg, arg) for arg in call.args]
        given = (v for arg in args if _is_value(arg) for v in self.of(arg))
        return self.run(self.local[call.op], args, given)

    def _constant(self, const: relax.Expr) -> Value:
        return Value(self.graph.attach("constant", [], const, const, -1.0))

    @staticmethod
    def _item(values: Sequence[Value], index: int) -> Value:
        if len(values) == 1 and isinstance(values[0].ty, relax.TupleType):
            return Value(values[0].node, index)
        return values[index]

    def _call(self, call: relax.Call) -> Value:
        args = [self.literals.get(arg, arg) for arg in call.args]
        filled = relax.Call(call.op, args, call.attrs, call.ty_args, call.span)
        operands = [v for arg in args if _is_value(arg) for v in self.of(arg)]
        return self.graph.emit(lambda *exprs: call_with(filled, exprs), *operands)


def _is_value(arg: relax.Expr) -> bool:
    """Return whether an argument is a value: a shape, or a tuple of axes or bounds of a slice, is none."""
    if isinstance(arg, relax.Tuple):
        return any(map(_is_value, arg.fields))
    return is_value(arg) or isinstance(arg, relax.TupleGetItem)
