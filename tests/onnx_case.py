"""ONNX models of one node, and models of the zoo, for the tests of the frontend."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from relax_glue import zoo


def one_node(
    op: str,
    inputs: Sequence[np.ndarray],
    constants: Sequence[np.ndarray | None] = (),
    opset: int = 17,
    outputs: int = 1,
    domain: str = "",
    **attrs: object,
) -> onnx.ModelProto:
    """Return a model of one node `n` with inputs x0.. and constants c0.., of which None leaves an operand out."""
    names = [f"x{index}" for index in range(len(inputs))]
    constant_names = ["" if value is None else f"c{index}" for index, value in enumerate(constants)]
    results = [f"y{index}" for index in range(outputs)]
    node = helper.make_node(op, names + constant_names, results, name="n", domain=domain, **attrs)
    graph = helper.make_graph(
        [node],
        "one_node",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in zip(names, inputs, strict=True)
        ],
        [helper.make_value_info(name, onnx.TypeProto()) for name in results],
        [
            numpy_helper.from_array(value, name)
            for value, name in zip(constants, constant_names, strict=True)
            if value is not None
        ],
    )
    domains = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(graph, opset_imports=domains, ir_version=8)


def graph_model(
    nodes: list[Any], inputs: dict[str, list[Any]], outputs: list[str], **constants: Any
) -> onnx.ModelProto:
    """A model of several nodes; inputs and outputs are float32."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def flatten_model() -> onnx.ModelProto:
    """`x.view(x.shape[0], -1)` as exporters write it, on a free batch and height."""
    return graph_model(
        [
            helper.make_node("Relu", ["x"], ["r"], name="/act/Relu"),
            helper.make_node("Shape", ["r"], ["s"]),
            helper.make_node("Gather", ["s", "zero"], ["n"]),
            helper.make_node("Unsqueeze", ["n", "first"], ["n1"]),
            helper.make_node("Concat", ["n1", "rest"], ["target"], axis=0),
            helper.make_node("Reshape", ["r", "target"], ["y"], name="/view/Reshape"),
        ],
        {"x": ["batch", 3, "height", 4]},
        ["y"],
        zero=np.array(0),
        first=np.array([0]),
        rest=np.array([-1]),
    )


def run_onnx(model: onnx.ModelProto | str, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Run a model in ONNX Runtime."""
    import onnxruntime

    source = model if isinstance(model, str) else onnx.shape_inference.infer_shapes(model).SerializeToString()
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip((value.name for value in session.get_inputs()), inputs, strict=True)))


def run_relax(mod: tvm.IRModule, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Compile a module with TVM alone, and run it."""
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(value) for value in inputs))
    return [part.numpy() for part in ([result] if isinstance(result, tvm.runtime.Tensor) else result)]


def op_names(mod: tvm.IRModule) -> list[str]:
    """Return the operators that `main` calls, in order."""
    found: list[str] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call):
            found.append(str(getattr(expr.op, "name", expr.op)).removeprefix("relax."))

    relax.analysis.post_order_visit(mod["main"], visit)
    return found


def zoo_model(name: str) -> Path:
    """Return a model of the zoo; skip where it cannot be had, and only there: a wrong digest is a failure."""
    try:
        return zoo.fetch(name)
    except zoo.ModelUnavailableError as error:
        pytest.skip(str(error))
