"""TVM's ONNX importer, with errors that name the node, variables named after nodes, and the repairs applied.

The importer keeps its converters in a table that every import in the process shares. It is left alone: a subclass
asks `repairs` first and falls back on the table, so other users of TVM in the same process see no change.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax.frontend.onnx import onnx_frontend

from relax_glue.errors import ModelImportError, RelaxGlueError
from relax_glue.ir.inputs import with_input_names

from .legacy import with_aligned_axes
from .naming import last_line, names, variable_name
from .onnx_file import DEFAULT_DOMAINS, names_read, nodes, opset_of
from .onnx_loop import Loop
from .repairs import REPAIRS, SHAPE_OPERANDS, Facts, OnnxNode
from .repairs.shapes import materialise
from .symbolic import (
    MAX_ELEMENTS,
    MAX_EXTENT,
    Arithmetic,
    EntryChecks,
    Joins,
    SymbolicTensor,
    evaluate_symbolic,
    shape_of,
)
from .symbolic.checks import symbols_of

if TYPE_CHECKING:
    import onnx

MAX_AXES = 64  # elements of a constant that can be a shape, or the amounts of a padding

# What TVM's table means as operators of ONNX Runtime's own domain. By name alone it would take an operator of any
# domain for the ONNX one of the same name.
MICROSOFT_OPS = names(
    """
    Attention BiasGelu EmbedLayerNormalization FastGelu Gelu MatMulInteger16 SkipLayerNormalization
    """
)
# Entries of the table that are no operators of the default domain, or mean another one there.
FOREIGN_OPS = (MICROSOFT_OPS - {"Gelu"}) | {"AllClassNMS"}
# Converters whose single result is itself a tuple.
RETURNS_ONE_TUPLE = names(
    """
    ConcatFromSequence Optional OptionalGetElement SequenceConstruct SequenceEmpty SequenceErase SequenceInsert
    SplitToSequence
    """
)


def import_graph(model: onnx.ModelProto, bounds: Mapping[str, tuple[int, int | None]] | None = None) -> tvm.IRModule:
    """Import a model that has been read, bound to its input shapes and folded.

    Parameters
    ----------
    model : onnx.ModelProto
        A model with a name on every node.
    bounds : mapping of str to (int, int or None), optional
        The least and the largest value of free extents, by name.

    Returns
    -------
    tvm.IRModule
        One function `main`, with the weights as constants.

    Raises
    ------
    ModelImportError
        An operator that no converter knows, or a node that its converter refuses.
    """
    check_operators(model)
    importer = _Importer(model, bounds or {})
    # The importer prints operands and warns of renamed inputs; what matters of that is in the errors.
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importer.build()
        except RelaxGlueError:
            raise
        except Exception as error:
            raise ModelImportError(
                f"the graph cannot be put together as a Relax function: {last_line(error)}"
            ) from error


def check_operators(model: onnx.ModelProto) -> None:
    """Refuse operators that no converter knows, naming the first node of each.

    Raises
    ------
    ModelImportError
        At least one operator is unknown.
    """
    unknown: dict[str, str] = {}
    for node in nodes(model.graph):
        if not is_known(node):
            domain = node.domain or "ai.onnx"
            unknown.setdefault(f"{node.op_type} of domain {domain}", node.name)
    if not unknown:
        return
    versions = ", ".join(f"{entry.domain or 'ai.onnx'} {entry.version}" for entry in model.opset_import)
    listed = "; ".join(f"{operator}, first at node '{name}'" for operator, name in unknown.items())
    raise ModelImportError(
        f"no converter to Relax for: {listed}. (Operator sets of the model: {versions}.) Export the model "
        "without it, or cut it off with onnx.utils.extract_model and import the rest"
    )


def is_known(node: onnx.NodeProto) -> bool:
    """Tell whether TVM's table, or a repair, has this operator of this domain."""
    table = onnx_frontend._get_convert_map()
    if node.domain in DEFAULT_DOMAINS:
        in_table = node.op_type in table and node.op_type not in FOREIGN_OPS
        return in_table or node.op_type in REPAIRS or node.op_type in ("If", "Loop")
    return node.domain == "com.microsoft" and node.op_type in MICROSOFT_OPS and node.op_type in table


class _Importer(onnx_frontend.ONNXGraphImporter):
    """One import. The methods without a docstring replace those of the base class."""

    _nodes: dict[str, Any]

    def __init__(self, model: onnx.ModelProto, bounds: Mapping[str, tuple[int, int | None]]) -> None:
        super().__init__(shape_dict={}, dtype_dict={})
        self._model = model
        self._ranges = bounds
        self._read = names_read(model.graph)
        self._tensors: dict[SymbolicTensor, relax.Expr] = {}
        self._only_output: str | None = None

    def _sanitize_name(self, name: str) -> str:
        return str(self._name_supply.fresh_name(variable_name(name)))

    def build(self) -> tvm.IRModule:
        """Build the module with the function `main`."""
        graph = self._model.graph
        self.opset = opset_of(self._model)
        self._parse_graph_initializers(graph)
        self._parse_graph_input(graph)
        params = [value for value in self._inputs.values() if isinstance(value, relax.Var)]
        self._facts = self._known_of(params)
        # A dataflow block holds no branches.
        branches = any(node.op_type == "If" for node in nodes(graph))
        if len(graph.output) == 1 and not branches:
            self._only_output = graph.output[0].name
        with self.bb.function("main", params=params):
            with contextlib.nullcontext() if branches else self.bb.dataflow():
                self._convert_nodes(graph.node)
                values = [self._as_tensor(self._nodes[value.name]) for value in graph.output]
                result = values[0] if len(values) == 1 else relax.Tuple(values)
                if not branches and not self._is_emitted_output(result):
                    result = self.bb.emit_output(result)
            self.bb.emit_func_output(result)
        mod = self.bb.get()
        main = self._facts.checks.write(mod["main"]).with_attr("num_input", self._num_input)
        inputs = {value.name: name for name, value in self._inputs.items() if isinstance(value, relax.Var)}
        mod["main"] = with_input_names(main, inputs)
        return mod

    def _known_of(self, params: Sequence[relax.Var]) -> Facts:
        symbols = symbols_of(params)
        arithmetic = Arithmetic()
        for symbol in symbols:
            least, most = self._ranges.get(symbol.name, (1, None))
            arithmetic.bind(symbol, least, MAX_EXTENT if most is None else most, symbol.name in self._ranges)
        checks = EntryChecks(symbols, self.bb, arithmetic)
        return Facts(arithmetic, checks, Joins(self.bb, arithmetic, checks))

    def _is_emitted_output(self, value: Any) -> bool:
        # A variable that its dataflow block gives out; the parameters are variables too, but not bound in it.
        is_plain = isinstance(value, relax.Var) and not isinstance(value, relax.DataflowVar)
        return is_plain and not any(value.same_as(param) for param in self._inputs.values())

    def _convert_nodes(self, listed: Iterable[onnx.NodeProto]) -> None:
        for node in listed:
            try:
                convert = {"If": self._convert_if, "Loop": self._convert_loop}.get(node.op_type, self._convert_node)
                self._bind_results(node, convert(node))
            except RelaxGlueError:
                raise
            except Exception as error:
                raise ModelImportError(self._refusal(node, error)) from error

    def _convert_node(self, node: onnx.NodeProto) -> Any:
        operands = [self._nodes[name] if name else None for name in node.input]
        known = self._evaluated(node, operands)
        if known is not None:
            return known
        kept = SHAPE_OPERANDS.get(node.op_type, ())
        inputs = [value if index in kept else self._as_tensor(value) for index, value in enumerate(operands)]
        attrs = self._parse_attr(node.attribute)
        inputs = with_aligned_axes(node.op_type, self.opset, inputs, attrs, self.bb)
        inputs = self._facts.joins.fit(node.op_type, node.name, inputs, attrs)
        repaired = self._repaired(node, inputs, attrs)
        if repaired is None:
            tensors = onnx_frontend.onnx_input(self._as_tensor(value) for value in inputs)
            attrs["tvm_custom"] = {"name": node.name, "num_outputs": len(node.output)}
            repaired = self._convert_operator(node.op_type, tensors, attrs, self.opset)
        if isinstance(repaired, relax.Call) and isinstance(repaired.ty, (relax.TensorType, relax.TupleType)):
            # Bound here, the variable carries the name of the node to reports and to TensorRT's layers.
            # The last one is given out under that name, where an alias would hide it.
            emit = self.bb.emit_output if node.output[0] == self._only_output else self.bb.emit
            repaired = emit(repaired, name_hint=variable_name(node.name))
        return self._with_extents(repaired, node.name)

    def _with_extents(self, value: Any, name: str) -> Any:
        """Give symbols to the extents of a tensor of which only the rank is known.

        They get lost where TVM cannot prove two extents equal, or where they depend on values. Most converters ask
        for a shape, and TVM has no code for a strided_slice without one. The symbols are bound when the model runs.
        """
        ty = getattr(value, "ty", None)
        shape = getattr(ty, "shape", None)
        if isinstance(shape, relax.ShapeExpr):
            self._facts.checks.not_negative(shape.values, variable_name(name))
        if not isinstance(ty, relax.TensorType) or ty.shape is not None or ty.ndim < 0:
            return value
        symbols = [tirx.Var(f"{variable_name(name)}_dim{axis}", "int64") for axis in range(ty.ndim)]
        return self.bb.match_cast(value, relax.TensorType(symbols, ty.dtype))

    def _evaluated(self, node: onnx.NodeProto, operands: Sequence[Any]) -> Any:
        """Return the results of a node of shape arithmetic as they are known, None for any other node."""
        if node.domain not in DEFAULT_DOMAINS:
            return None
        if node.op_type in ("Shape", "Size") and isinstance(operands[0], relax.Expr):
            extents = getattr(operands[0].ty, "shape", None)
            if not isinstance(extents, relax.ShapeExpr):
                return None
            return [shape_of(node, extents.values, self._facts.arithmetic)]
        # In the bodies of branches and loops constants have not been folded; small ones are shape arithmetic there too.
        most = MAX_ELEMENTS if any(isinstance(value, SymbolicTensor) for value in operands) else MAX_AXES
        values = [_known_value(value, most) for value in operands]
        if any(value is None and operand is not None for value, operand in zip(values, operands, strict=True)):
            return None
        return evaluate_symbolic(node, values, self._facts.arithmetic, self._model)

    def _repaired(self, node: onnx.NodeProto, inputs: list[Any], attrs: dict[str, Any]) -> Any:
        repair = REPAIRS.get(node.op_type)
        tensors = all(
            value is None or isinstance(value, SymbolicTensor) or isinstance(value.ty, relax.TensorType)
            for value in inputs
        )
        if repair is None or node.domain not in DEFAULT_DOMAINS or not tensors:
            return None
        read = [name if name in self._read else "" for name in node.output]
        result = repair(OnnxNode(node.op_type, node.name, inputs, attrs, read, self.bb, self.opset, self._facts))
        return self.bb.normalize(result) if isinstance(result, relax.Expr) else result

    def _convert_if(self, node: onnx.NodeProto) -> Any:
        attrs = self._parse_attr(node.attribute)
        known = self._known_array(self._nodes[node.input[0]])
        if known is not None:
            chosen = attrs["then_branch" if bool(known.reshape(-1)[0]) else "else_branch"]
            return self._run_body(chosen, [])
        condition = self._as_tensor(self._nodes[node.input[0]])
        if condition.ty.ndim != 0:
            condition = self.bb.emit(relax.op.reshape(condition, ()))
        branches = [self._convert_branch(attrs[name]) for name in ("then_branch", "else_branch")]
        result = self.bb.emit(relax.If(condition, *branches), name_hint=variable_name(node.name))
        return self._with_extents(result, node.name)

    def _convert_loop(self, node: onnx.NodeProto) -> list[Any]:
        body = self._parse_attr(node.attribute)["body"]
        operands = [self._nodes[name] if name else None for name in [*node.input, "", ""][: max(2, len(node.input))]]
        loop = Loop(node, body, operands, lambda values: self._run_body(body, values), self._known_array)
        carried, collected = loop.unroll()
        stacked = [self.bb.emit(relax.op.stack([*map(self._as_tensor, parts)], 0)) for parts in collected]
        return [*carried, *stacked]

    def _run_body(self, graph: onnx.GraphProto, values: Sequence[Any]) -> list[Any]:
        """Convert a body where it stands, on values for its inputs, and return those of its outputs."""
        outer = dict(self._nodes)
        self._nodes.update(zip((value.name for value in graph.input), values, strict=True))
        for tensor in graph.initializer:
            self._nodes[tensor.name] = relax.const(self._parse_array(tensor))
        self._convert_nodes(graph.node)
        results = [self._nodes[value.name] for value in graph.output]
        self._nodes = outer
        return results

    @staticmethod
    def _known_array(value: Any) -> np.ndarray | None:
        if isinstance(value, SymbolicTensor):
            return value.array()
        return value.value.numpy() if isinstance(value, tvm.ir.GenericConst) else None

    def _convert_branch(self, graph: onnx.GraphProto) -> relax.SeqExpr:
        """Convert a branch into bindings of its own, so that it runs only where it is chosen."""
        outer, tensors = dict(self._nodes), dict(self._tensors)
        self.bb._begin_binding_block()
        for tensor in graph.initializer:
            self._nodes[tensor.name] = relax.const(self._parse_array(tensor))
        with self._facts.checks.inside_branch():
            self._convert_nodes(graph.node)
        results = [self._as_tensor(self._nodes[value.name]) for value in graph.output]
        result = self.bb.normalize(results[0] if len(results) == 1 else relax.Tuple(results))
        block = self.bb._end_block()
        self._nodes, self._tensors = outer, tensors
        return relax.SeqExpr([block], result)

    def _bind_results(self, node: onnx.NodeProto, result: Any) -> None:
        if isinstance(result, list):
            self._nodes.update((name, value) for name, value in zip(node.output, result, strict=False) if name)
            return
        single = node.op_type in RETURNS_ONE_TUPLE
        if single or not isinstance(getattr(result, "ty", None), relax.TupleType):
            self._nodes[node.output[0]] = result
            return
        for index, name in enumerate(node.output):
            if not name:
                continue
            part = result[index] if isinstance(result, relax.Tuple) else relax.TupleGetItem(result, index)
            self._nodes[name] = part if isinstance(result, relax.Tuple) else self.bb.emit(part)

    def _as_tensor(self, value: Any) -> Any:
        """Turn what is known as expressions into the tensor that ONNX means."""
        if not isinstance(value, SymbolicTensor):
            return value
        if value not in self._tensors:
            self._tensors[value] = materialise(self.bb, value)
        return self._tensors[value]

    def _refusal(self, node: onnx.NodeProto, error: BaseException) -> str:
        operands = ", ".join(
            f"{name}: {getattr(self._nodes.get(name), 'ty', 'unknown')}" for name in node.input if name
        )
        return (
            f"node '{node.name}' ({node.op_type}) cannot be converted: {last_line(error)}. Its inputs are "
            f"{operands or 'none'}"
        )


def _known_value(operand: Any, most: int) -> SymbolicTensor | None:
    """Return an operand as far as shape arithmetic knows it: expressions, or a constant of `most` elements at most."""
    if isinstance(operand, SymbolicTensor):
        return operand
    if not isinstance(operand, tvm.ir.GenericConst):
        return None
    array = operand.value.numpy()
    return SymbolicTensor.known(array) if array.size <= most and array.dtype.kind in "biuf" else None
