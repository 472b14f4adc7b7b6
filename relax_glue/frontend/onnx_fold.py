"""Shape arithmetic of an ONNX graph, computed as soon as the input shapes are known.

Exporters write `x.view(x.shape[0], -1)` as Shape, Gather, Unsqueeze, Concat and Reshape. TVM's importer keeps much
of that as tensors, and then refuses a Reshape, Resize, Slice or Range whose operand is no constant. One sweep in
the order of the nodes settles it: infer the shapes of one node from the shapes before it, read Shape and Size off
them, evaluate small nodes whose operands are all known, and take the branch of an If whose condition is known.

The sweep is ours rather than a simplifier's because it has to be sure: it computes nothing but shape arithmetic,
of bounded size, with the reference semantics of the package `onnx`, and it rewrites no layer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from .naming import names as named
from .onnx_file import DEFAULT_DOMAINS, opset_of, subgraphs

if TYPE_CHECKING:
    import onnx

# What shape arithmetic is made of: moving, counting, comparing and calculating small tensors. Layers stay out.
FOLDABLE = named(
    """
    Abs Add And BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Concat Constant ConstantOfShape CumSum
    Div Equal Expand Flatten Floor Gather GatherElements GatherND Greater GreaterOrEqual Identity Less LessOrEqual
    Max Min Mod Mul Neg NonZero Not Or Range Reciprocal ReduceMax ReduceMin ReduceProd ReduceSum Reshape
    Round ScatterElements ScatterND Sign Size Slice Split Sqrt Squeeze Sub Tile Transpose Trilu Unsqueeze Where Xor
    """
)
MAX_ELEMENTS = 1 << 16  # per result; what is larger is data, and stays a node
MAX_INFERENCE_ELEMENTS = 1 << 12  # operands passed to shape inference by value; weights go by type alone


@dataclass
class _Sweep:
    """What is known so far about the values of the graph, by name."""

    model: onnx.ModelProto
    opset: int
    types: dict[str, onnx.TypeProto] = field(default_factory=dict)
    known: dict[str, np.ndarray] = field(default_factory=dict)
    shapes: dict[str, list[int | None]] = field(default_factory=dict)  # of a Shape's operand, by its result

    def run(self) -> None:
        """Sweep over the nodes once, and leave in the model only those that are not known."""
        graph = self.model.graph
        for value in graph.input:
            self.types[value.name] = value.type
        for tensor in graph.initializer:
            self._learn_tensor(tensor)
        pending, kept = deque(graph.node), []
        while pending:
            node = pending.popleft()
            branch = self._chosen_branch(node)
            if branch is not None:
                pending.extendleft(reversed(self._inlined(node, branch)))
                continue
            if not self._fold(node):
                kept.append(node)
        written = _free_names(kept) | {value.name for value in graph.output}
        del graph.node[:]
        graph.node.extend(kept)
        self._write_constants(written)
        self._write_types(written)

    def _learn_tensor(self, tensor: onnx.TensorProto) -> None:
        from onnx import helper, numpy_helper

        self.types[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
        if np.prod(tensor.dims, dtype=np.int64) > MAX_ELEMENTS:
            return
        value = numpy_helper.to_array(tensor)
        if value.dtype.kind in "biuf":  # not text, and no type that numpy cannot calculate with
            self.known[tensor.name] = value

    def _learn(self, name: str, value: np.ndarray) -> None:
        from onnx import helper

        dtype = helper.np_dtype_to_tensor_dtype(value.dtype)
        self.types[name] = helper.make_tensor_type_proto(dtype, value.shape)
        self.known[name] = value

    def _fold(self, node: onnx.NodeProto) -> bool:
        if node.domain not in DEFAULT_DOMAINS:
            return False
        if node.op_type == "Constant" and [attribute.name for attribute in node.attribute] == ["value"]:
            self._hoist(node)
            return True
        value = self._read_off(node)
        if value is not None:
            self._learn(node.output[0], value)
            return True
        self._infer(node)
        if not self._is_small_and_known(node):
            return False
        results = evaluate(node, [self.known.get(name) for name in node.input], self.model)
        if results is None:
            return False
        for name, result in zip(node.output, results, strict=False):
            self._learn(name, result)
        return True

    def _hoist(self, node: onnx.NodeProto) -> None:
        """Make an initializer of a Constant node, whatever its size."""
        tensor = self.model.graph.initializer.add()
        tensor.CopyFrom(node.attribute[0].t)
        tensor.name = node.output[0]
        self._learn_tensor(tensor)

    def _is_small_and_known(self, node: onnx.NodeProto) -> bool:
        if node.op_type not in FOLDABLE or any(name and name not in self.known for name in node.input):
            return False
        if node.op_type in ("Constant", "NonZero"):  # no larger than what the file or the operand holds
            return True
        # Asked before anything is computed: a broadcast or a Gather makes gigabytes of two small operands.
        shapes = [_all_known(self._dims(name)) for name in node.output if name]
        return all(shape is not None and np.prod(shape, dtype=np.float64) <= MAX_ELEMENTS for shape in shapes)

    def _read_off(self, node: onnx.NodeProto) -> np.ndarray | None:
        """Return the value of Shape, Size and of Gather and Slice on a shape, as far as the shape is known."""
        if node.op_type in ("Shape", "Size"):
            dims = self._dims(node.input[0])
            if dims is None:
                return None
            if node.op_type == "Shape":
                dims = dims[_shape_range(node)]
                self.shapes[node.output[0]] = dims
            known = _all_known(dims)
            if known is None:
                return None
            return np.array(np.prod(known, dtype=np.int64) if node.op_type == "Size" else known, np.int64)
        if node.op_type in ("Gather", "Slice") and node.input[0] in self.shapes:
            return self._part_of_shape(node)
        return None

    def _part_of_shape(self, node: onnx.NodeProto) -> np.ndarray | None:
        """Let the known extents of a shape through where only the others are free: x.shape[1] of (n, 3)."""
        if any(name and name not in self.known for name in node.input[1:]):
            return None
        dims = self.shapes[node.input[0]]
        # The node is evaluated on positions, and the extents at the positions are read off.
        positions = [np.arange(len(dims)), *(self.known.get(name) for name in node.input[1:])]
        results = evaluate(node, positions, self.model)
        if results is None:
            return None
        picked = [dims[int(position)] for position in results[0].flat]
        if results[0].ndim == 1:
            self.shapes[node.output[0]] = picked
        return None if None in picked else np.array(picked, np.int64).reshape(results[0].shape)

    def _dims(self, name: str) -> list[int | None] | None:
        entry = self.types.get(name)
        if entry is None or not entry.HasField("tensor_type") or not entry.tensor_type.HasField("shape"):
            return None
        return [int(dim.dim_value) if dim.HasField("dim_value") else None for dim in entry.tensor_type.shape.dim]

    def _infer(self, node: onnx.NodeProto) -> None:
        """Infer the types of a node's results; what cannot be inferred stays unknown, which only folds less."""
        import onnx
        from onnx import numpy_helper

        names = [name for name in node.input if name]
        if any(name not in self.types for name in names) or any(True for _ in subgraphs(node)):
            return
        try:
            schema = onnx.defs.get_schema(node.op_type, self.opset, node.domain)
            found = onnx.shape_inference.infer_node_outputs(
                schema,
                node,
                {name: self.types[name] for name in names},
                {
                    name: numpy_helper.from_array(self.known[name])
                    for name in names
                    if name in self.known and self.known[name].size <= MAX_INFERENCE_ELEMENTS
                },
                opset_imports=list(self.model.opset_import),
                ir_version=self.model.ir_version,
            )
        except (
            onnx.defs.SchemaError,
            onnx.shape_inference.InferenceError,
            onnx.checker.ValidationError,
            RuntimeError,
            ValueError,
        ):
            # An operator of another domain, a type it does not take, or a shape at odds with the file. The import
            # that follows names the node if this matters, so nothing is lost by knowing less here.
            return
        self.types.update(found)

    def _chosen_branch(self, node: onnx.NodeProto) -> onnx.GraphProto | None:
        if node.op_type != "If" or node.domain not in DEFAULT_DOMAINS or node.input[0] not in self.known:
            return None
        wanted = "then_branch" if bool(self.known[node.input[0]].reshape(-1)[0]) else "else_branch"
        return next(attribute.g for attribute in node.attribute if attribute.name == wanted)

    def _inlined(self, node: onnx.NodeProto, branch: onnx.GraphProto) -> list[onnx.NodeProto]:
        """Return the branch's nodes, and one Identity for each result of the If."""
        from onnx import helper

        self.model.graph.initializer.extend(branch.initializer)
        for tensor in branch.initializer:
            self._learn_tensor(tensor)
        ends = [
            helper.make_node("Identity", [value.name], [name], name=f"{node.name}_{name}")
            for value, name in zip(branch.output, node.output, strict=True)
        ]
        return [*branch.node, *ends]

    def _write_constants(self, wanted: set[str]) -> None:
        from onnx import numpy_helper

        graph = self.model.graph
        present = {tensor.name for tensor in graph.initializer}
        inputs = {value.name for value in graph.input}
        for name, value in self.known.items():
            if name in wanted and name not in present and name not in inputs:
                graph.initializer.append(numpy_helper.from_array(np.asarray(value, order="C"), name))

    def _write_types(self, wanted: set[str]) -> None:
        """Replace the shapes that the exporter wrote, perhaps for another input size, by those found here."""
        from onnx import helper

        graph = self.model.graph
        declared = {value.name for value in (*graph.input, *graph.output)}
        del graph.value_info[:]
        graph.value_info.extend(
            helper.make_value_info(name, self.types[name]) for name in sorted(wanted - declared) if name in self.types
        )


def fold_shape_arithmetic(model: onnx.ModelProto) -> None:
    """Evaluate what follows from the input shapes, and drop what nothing uses, in place.

    Parameters
    ----------
    model : onnx.ModelProto
        A model whose inputs carry the shapes that the caller wants (`input_shapes.bind_onnx_inputs`).
    """
    graph = model.graph
    _Sweep(model, opset_of(model)).run()
    _drop_unused(graph)


def evaluate(
    node: onnx.NodeProto, operands: Sequence[np.ndarray | None], model: onnx.ModelProto
) -> list[np.ndarray] | None:
    """Evaluate one node on known operands.

    Parameters
    ----------
    node : onnx.NodeProto
        A node of an operator in `FOLDABLE`.
    operands : sequence of numpy.ndarray or None
        One array for each input; None where an optional input is left out.
    model : onnx.ModelProto
        The node's model, for the operator set.

    Returns
    -------
    list of numpy.ndarray or None
        The results; None if they are no numbers, or if the reference does not know the node.
    """
    from onnx import TypeProto, helper
    from onnx.reference import ReferenceEvaluator

    if node.op_type == "Div" and operands[0] is not None and operands[0].dtype.kind in "iu":
        return _divide(operands)
    feeds = {name: value for name, value in zip(node.input, operands, strict=True) if value is not None}
    graph = helper.make_graph(
        [node],
        "one_node",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in feeds.items()
        ],
        [helper.make_value_info(name, TypeProto()) for name in node.output if name],
    )
    single = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    try:
        results = ReferenceEvaluator(single).run(None, feeds)
    except (RuntimeError, TypeError, ValueError, IndexError, KeyError, NotImplementedError):
        # Operands at odds with the operator, or a form the reference lacks: the node stays for the importer,
        # which names it.
        return None
    arrays = [np.asarray(result) for result in results]
    return arrays if all(array.dtype.kind in "biuf" for array in arrays) else None


def _divide(operands: Sequence[np.ndarray | None]) -> list[np.ndarray] | None:
    # Older releases of the reference divide integers downwards; ONNX divides towards zero.
    left, right = operands
    if left is None or right is None or not np.all(right):
        return None
    down = left // right
    return [(down + ((left % right != 0) & ((left < 0) != (right < 0)))).astype(left.dtype)]


def _all_known(dims: Sequence[int | None] | None) -> list[int] | None:
    """Return the extents of a static shape, None for any other."""
    known = [dim for dim in dims or () if dim is not None]
    return known if dims is not None and len(known) == len(dims) else None


def _shape_range(node: onnx.NodeProto) -> slice:
    bounds: Mapping[str, int] = {attribute.name: attribute.i for attribute in node.attribute}
    return slice(bounds.get("start", 0), bounds.get("end"))


def _free_names(nodes: Sequence[onnx.NodeProto]) -> set[str]:
    """Return every name that the nodes, or the bodies in them, read."""
    names: set[str] = set()
    for node in nodes:
        names.update(node.input)
        for body in subgraphs(node):
            names |= _free_names(body.node) | {value.name for value in body.output}
    return names


def _drop_unused(graph: onnx.GraphProto) -> None:
    """Drop nodes and weights whose results reach no output."""
    wanted = {value.name for value in graph.output}
    kept = []
    for node in reversed(graph.node):
        if wanted.isdisjoint(node.output):
            continue
        kept.append(node)
        wanted |= _free_names([node])
    tensors = [tensor for tensor in graph.initializer if tensor.name in wanted]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(reversed(kept))
    graph.initializer.extend(tensors)
