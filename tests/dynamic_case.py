"""ONNX graphs with free axes: imported once, run at several sizes, and held against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

import relax_glue

Shape = Sequence["int | str"]
Sizes = Sequence[Mapping[str, int]]
TOLERANCE = 1e-4


class Graph:
    """A graph under construction: each call adds one node and returns the name of its result.

    Arrays among the operands become constants.
    """

    def __init__(self, **inputs: Shape) -> None:
        self.inputs = inputs
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def __call__(self, op: str, *operands: Any, outputs: int = 1, domain: str = "", **attrs: Any) -> Any:
        names = [value if isinstance(value, str) else self.constant(value) for value in operands]
        results = [f"{op.lower()}{len(self.nodes)}_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(op, names, results, name=f"{op}_{len(self.nodes)}", domain=domain, **attrs))
        return results[0] if outputs == 1 else results

    def constant(self, value: Any) -> str:
        """Add an initializer; integers are int64, other numbers float32."""
        array = np.asarray(value)
        array = array.astype(
            np.int64 if array.dtype.kind in "iu" else array.dtype if array.dtype == bool else np.float32
        )
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def extent(self, value: str, axis: int) -> str:
        """Return one extent of a value as a tensor of rank 0, as exporters read it."""
        return self("Gather", self("Shape", value), np.array(axis), axis=0)

    def vector(self, *parts: Any) -> str:
        """Join extents and numbers to a shape."""
        rows = [self("Unsqueeze", p, np.array([0])) if isinstance(p, str) else np.array([p]) for p in parts]
        return self("Concat", *rows, axis=0)

    def model(self, *results: str, opset: int = 17) -> onnx.ModelProto:
        """Return the model; its inputs are float32."""
        graph = helper.make_graph(
            self.nodes,
            "graph",
            [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))
                for name, shape in self.inputs.items()
            ],
            [helper.make_value_info(name, onnx.TypeProto()) for name in results],
            self.constants,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model)


def arrays_for(model: onnx.ModelProto, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Return random inputs of a model at the sizes of its free axes."""
    rng = np.random.default_rng(0)
    shapes = {
        value.name: [sizes[d.dim_param] if d.dim_param else d.dim_value for d in value.type.tensor_type.shape.dim]
        for value in model.graph.input
    }
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


class Machines:
    """A model in ONNX Runtime, and as relax_glue compiles it for the CPU, side by side."""

    def __init__(self, model: onnx.ModelProto | bytes, mod: tvm.IRModule | None = None) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        # Its own rewrites need no longer hold at the ends of what a shape may be.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        data = model if isinstance(model, bytes) else model.SerializeToString()
        self._session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        self.mod = relax_glue.from_onnx(model) if mod is None else mod
        self._machine = relax.VirtualMachine(relax_glue.compile(self.mod, "llvm"), tvm.cpu())

    def reference(self, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Run ONNX Runtime."""
        return self._session.run(None, dict(feeds))

    def run(self, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Run what TVM compiled."""
        result = self._machine["main"](*(tvm.runtime.tensor(value) for value in feeds.values()))
        return [part.numpy() for part in ([result] if isinstance(result, tvm.runtime.Tensor) else result)]

    def check(self, feeds: Mapping[str, np.ndarray]) -> None:
        """Ask for the same shapes, types and numbers."""
        got, wanted = self.run(feeds), self.reference(feeds)
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted, strict=True):
            assert one.shape == other.shape
            assert one.dtype == other.dtype
            scale = max(1.0, float(np.abs(other).max(initial=0)))
            np.testing.assert_allclose(one, other, rtol=0, atol=TOLERANCE * scale)


def check_sizes(model: onnx.ModelProto, sizes: Sizes) -> Machines:
    """Import a model once, and compare with ONNX Runtime at each of the sizes."""
    machines = Machines(model)
    for size in sizes:
        machines.check(arrays_for(model, size))
    return machines
