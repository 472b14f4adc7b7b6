"""Whole models as one engine each, on a GPU, against TVM's LLVM or ONNX Runtime.

In float32 the largest difference may be 1e-3 of the largest value; in practice it is 1e-5. The float16 models are
the same graphs with float16 in every type; LLVM computes them in float32, with the weights and inputs rounded to
float16, so the tolerance of 2e-2 is for what the engine's own rounding adds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tvm
from engine_case import flat, on_llvm
from test_models import text_image
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

import relax_glue
import relax_glue.tensorrt as trt
from relax_glue import zoo

pytestmark = pytest.mark.gpu

GRAPHS = (
    "densenet121",
    "mobilenet_v3_small",
    "mobilevitv2_050",
    "shufflenet_v2_x1_0",
    "swin_t",
    "yolo11n",
    "yolo11n-seg",
    "yolov8n",
)
ONNX = ("yolo11n", "yolo11n-seg", "yolov5n")
OPTIONS = trt.BuildOptions(cache=False, keep_region=False)


def one_engine(mod: tvm.IRModule) -> Any:
    """Return `main` of a module that has become one engine."""
    optimised = relax_glue.optimize(mod)
    count = sum(bool(function.attrs) and "Codegen" in function.attrs for function in optimised.functions.values())
    assert count == 1
    compiled = relax_glue.compile(optimised, "cuda", build=OPTIONS, require_engines=True)
    return relax.VirtualMachine(compiled, tvm.cuda())["main"]


def random_inputs(mod: tvm.IRModule) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    shapes = [[int(extent) for extent in param.ty.shape.values] for param in mod["main"].params]
    return [random.random(shape, "float32").astype("float16").astype("float32") for shape in shapes]


def compare(name: str, got: list[np.ndarray], wanted: list[np.ndarray], tolerance: float) -> None:
    assert len(got) == len(wanted)
    errors = [
        float(np.abs(a.astype("float64") - b).max() / max(np.abs(b).max(), 1e-9))
        for a, b in zip(got, wanted, strict=True)
    ]
    print(name, "errors as a share of the largest value:", errors)
    assert max(errors) <= tolerance


def run(main: Any, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Run it three times, so that the last is a CUDA graph."""
    given = [tvm.runtime.tensor(array, tvm.cuda()) for array in inputs]
    for _ in range(2):
        main(*given)
    return flat(main(*given))


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_in_float32(name: str, shared: Path) -> None:
    import graphfile

    mod = graphfile.load(str(shared / "graphs" / name))
    inputs = random_inputs(mod)
    compare(name, run(one_engine(mod), inputs), on_llvm(mod, inputs), 1e-3)


@mutator
class Rounded(PyExprMutator):
    """Rounds float32 constants to what float16 holds."""

    def visit_generic_const_(self, const: relax.Expr) -> relax.Expr:
        array = const.value.numpy()
        return relax.const(array.astype("float16").astype("float32")) if array.dtype == np.float32 else const


def in_float16(path: Path, folder: Path) -> tvm.IRModule:
    """Load a graph with float16 in the place of float32."""
    import graphfile

    text = path.with_suffix(".relax").read_text()
    (folder / "half.relax").write_text(text.replace("float32", "float16"))
    kept = dict(np.load(path.with_suffix(".npz")))
    np.savez(folder / "half.npz", **{k: v.astype("float16") if v.dtype == np.float32 else v for k, v in kept.items()})
    return graphfile.load(str(folder / "half"))


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_in_float16(name: str, shared: Path, tmp_path: Path) -> None:
    import graphfile

    full = graphfile.load(str(shared / "graphs" / name))
    rounding = Rounded(full)
    rounded = tvm.IRModule({gv: rounding.visit_expr(function) for gv, function in full.functions_items()})
    inputs = random_inputs(full)
    main = one_engine(in_float16(shared / "graphs" / name, tmp_path))
    got = run(main, [array.astype("float16") for array in inputs])
    compare(f"{name} float16", got, on_llvm(rounded, inputs), 2e-2)


@pytest.mark.parametrize("name", ONNX)
def test_an_onnx_model(name: str, shared: Path) -> None:
    import onnxfile

    model = onnxfile.load(str(shared / "onnx" / f"{name}.onnx.gz"))
    mod = relax_glue.from_onnx(model)
    against_onnx_runtime(name, model.SerializeToString(), mod, random_inputs(mod))


@pytest.mark.parametrize("name", ["ppocr_det", "ppocr_rec"])
def test_pp_ocr(name: str) -> None:
    path, shape = zoo.fetch(name), zoo.MODELS[name].input_shape
    mod = relax_glue.from_onnx(path, shape)
    # noise is no text: the detector would answer with nothing but rounding errors
    inputs = [text_image(shape)] if name == "ppocr_det" else random_inputs(mod)
    against_onnx_runtime(name, path.read_bytes(), mod, inputs)


def against_onnx_runtime(name: str, model: bytes, mod: tvm.IRModule, inputs: list[np.ndarray]) -> None:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    wanted = session.run(None, dict(zip(names, inputs, strict=True)))
    compare(name, run(one_engine(mod), inputs), wanted, 1e-3)
