"""Real models as engines on a GPU: how right they are and how fast, beside an engine of TensorRT's own ONNX parser.

    python benchmarks/gpu.py MODEL_FOLDER [--json FILE] [--only NAME ...] [--float16] [--disable PASS ...]
    python benchmarks/gpu.py MODEL_FOLDER --legality [--ablate [NAME ...]] [--no-gpu]

MODEL_FOLDER holds `*.onnx`, `*.onnx.gz`, `*.tflite` and `*.relax` (with its `.npz`) files. For each: regions, build and
load time, the largest difference from ONNX Runtime (or from TVM's LLVM build of the module as imported), the latency of
one call of the VM with the results waited for, and of many calls in a row, the same with convolutions as TensorRT's
layers for them (`conv_as_matmul=False`), and for ONNX files of an engine that TensorRT's parser made of the same model
with fixed shapes, enqueued and as a CUDA graph. Needs a GPU, TensorRT or
TensorRT-RTX, and torch for the peer.

With `--legality` or `--ablate` each model is built under several sets of rules instead (`rule_variants`): all of them,
those that legality needs, all but one family. Their latencies are measured in turns, and a ratio above 1 says that all
rules are faster. With `--no-gpu` only their regions and layers are counted, which needs TensorRT alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import rule_variants
import tvm
from timing import difference, flat, latency
from tvm import relax

import relax_glue
from relax_glue.demo import text_image
from relax_glue.tensorrt import BuildOptions, get_provider
from relax_glue.testing import evaluate
from relax_glue.zoo import MODELS


def load(path: Path) -> tuple[tvm.IRModule, Any]:
    """Return the imported module, and the ONNX model with fixed shapes where it is one."""
    name = path.name.split(".")[0]
    if path.suffix == ".relax":
        import graphfile

        return graphfile.load(str(path)), None
    if path.suffix == ".tflite":
        return relax_glue.from_tflite(path), None
    import onnx

    if path.suffix == ".gz":
        import onnxfile

        model = onnxfile.load(str(path))
    else:
        model = onnx.load(str(path))
    shape = MODELS[name].input_shape if name in MODELS else None
    mod = relax_glue.from_onnx(model, shape)
    if shape is not None:
        for extent, dim in zip(shape, model.graph.input[0].type.tensor_type.shape.dim, strict=True):
            dim.dim_value = extent
    return mod, model


def inputs_for(name: str, mod: tvm.IRModule) -> list[np.ndarray]:
    """Draw inputs; the text detector gets a picture with text."""
    if name == "ppocr_det":
        return [text_image(MODELS[name].input_shape)]
    rng = np.random.default_rng(0)
    return [rng.random([int(e) for e in p.ty.shape.values]).astype(str(p.ty.dtype)) for p in mod["main"].params]


def reference(model: Any, mod: tvm.IRModule, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Return what ONNX Runtime, or for a Relax file TVM's LLVM build, gives on the CPU."""
    if model is None:
        return flat(evaluate(mod, inputs))
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {i.name: a for i, a in zip(session.get_inputs(), inputs, strict=True)})


def half(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module in float16 by TVM's own pass."""
    passes = [relax.transform.DecomposeOpsForInference(), relax.transform.ToMixedPrecision(out_dtype="float16")]
    return tvm.transform.Sequential(passes)(mod)


def measure_rules(path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Measure one model under several sets of rules."""
    name = path.name.split(".")[0]
    mod, _ = load(path)
    inputs = inputs_for(name, mod)
    row: dict[str, Any] = {"model": name, "source": path.suffix, "float16": args.float16, "disable": args.disable}
    options = {"disable": args.disable, "enable": args.enable}
    chosen = rule_variants.variants(args.legality, args.ablate)
    row.update(rule_variants.compare(half(mod) if args.float16 else mod, inputs, chosen, options, not args.no_gpu))
    print(rule_variants.line(f"{name}{path.suffix}", row), flush=True)
    return row


def measure(path: Path, float16: bool, disable: list[str], enable: list[str]) -> dict[str, Any]:
    """Measure one model."""
    name = path.name.split(".")[0]
    mod, model = load(path)
    inputs = inputs_for(name, mod)
    right = reference(model, mod, inputs)
    row: dict[str, Any] = {"model": name, "source": path.suffix, "float16": float16, "disable": disable}
    start = time.perf_counter()
    optimized = relax_glue.optimize(half(mod) if float16 else mod, disable=disable, enable=enable)
    row["optimize_s"] = round(time.perf_counter() - start, 2)
    report = relax_glue.explain(optimized)
    row["outside"] = len(report.outside)
    row["regions"] = sum(1 for _, f in optimized.functions_items() if f.attrs and "Codegen" in f.attrs)
    row.update(measure_engine(optimized, inputs, right, BuildOptions()))
    layers = measure_engine(optimized, inputs, right, BuildOptions(conv_as_matmul=False))
    row["convolutions"] = {"error": layers["error"], **layers["relax_glue"]}
    if model is not None and not float16:
        row["parser"] = peer(model, inputs, right)
    return row


def measure_engine(
    optimized: tvm.IRModule, inputs: list[np.ndarray], right: list[np.ndarray], options: BuildOptions
) -> dict[str, Any]:
    """Build, load and call an optimised module with these options."""
    start = time.perf_counter()
    executable = relax_glue.compile(optimized, "cuda", build=options, require_engines=True)
    row: dict[str, Any] = {"build_s": round(time.perf_counter() - start, 2)}
    device = tvm.cuda(0)
    start = time.perf_counter()
    main = relax.VirtualMachine(executable, device)["main"]
    tensors = [tvm.runtime.tensor(a, device) for a in inputs]
    found = flat(main(*tensors))
    row["load_and_first_call_s"] = round(time.perf_counter() - start, 2)
    row["error"] = difference(found, right)
    row["relax_glue"] = latency(lambda: main(*tensors), device.sync)
    return row


def peer(model: Any, inputs: list[np.ndarray], right: list[np.ndarray]) -> dict[str, Any]:
    """Measure an engine of TensorRT's own ONNX parser, with torch for its buffers."""
    import torch

    provider = get_provider()
    trt = provider.trt
    builder = provider.builder()
    network = builder.network()
    logger = trt.Logger(trt.Logger.ERROR)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(model.SerializeToString()):
        return {"failed": str(parser.get_error(0))[:200]}
    start = time.perf_counter()
    plan = builder.builder.build_serialized_network(network, builder.config(tf32=False))
    built = time.perf_counter() - start
    engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
    fed = iter(inputs)
    buffers = {}
    for tensor in names:
        is_input = engine.get_tensor_mode(tensor) == trt.TensorIOMode.INPUT
        array = (
            next(fed)
            if is_input
            else np.empty(tuple(engine.get_tensor_shape(tensor)), trt.nptype(engine.get_tensor_dtype(tensor)))
        )
        buffers[tensor] = torch.from_numpy(np.ascontiguousarray(array)).cuda()
        context.set_tensor_address(tensor, buffers[tensor].data_ptr())
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        context.execute_async_v3(stream.cuda_stream)
    stream.synchronize()
    outputs = [buffers[n].cpu().numpy() for n in names if engine.get_tensor_mode(n) != trt.TensorIOMode.INPUT]
    error = difference(outputs, right)
    row: dict[str, Any] = {"build_s": round(built, 2), "layers": network.num_layers, "error": error}
    row["enqueue"] = latency(lambda: context.execute_async_v3(stream.cuda_stream), stream.synchronize)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        context.execute_async_v3(stream.cuda_stream)
    row["cuda_graph"] = latency(graph.replay, torch.cuda.synchronize)
    return row


def _options(arguments: list[str]) -> list[str]:
    """Return the arguments without folders and files, which differ from machine to machine."""
    return [a for a, before in zip(arguments[1:], arguments, strict=False) if "--json" not in (a, before)]


def main() -> int:
    """Measure each model of the folder; one that fails is reported and does not stop the others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", metavar="FILE", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--float16", action="store_true")
    parser.add_argument("--disable", nargs="*", default=[], help="passes and rules to leave out")
    parser.add_argument("--enable", nargs="*", default=[], help="passes to run that are off by default")
    parser.add_argument("--legality", action="store_true", help="measure beside the rules that legality needs, alone")
    parser.add_argument("--ablate", nargs="*", metavar="NAME", help="measure without these passes or rules, one by one")
    parser.add_argument("--no-gpu", action="store_true", help="with these two: count regions and layers only")
    args = parser.parse_args()
    by_rules = args.legality or args.ablate is not None
    sys.path.insert(0, str(args.folder))
    provider = get_provider()
    found: dict[str, Any] = {
        "command": " ".join(["python benchmarks/gpu.py MODEL_FOLDER", *_options(sys.argv[1:])]),
        "tvm": tvm.__version__,
        "tensorrt": f"{provider.name} {provider.trt.__version__}",
        "gpu": None if args.no_gpu else tvm.cuda(0).device_name,
        "models": [],
    }
    failed = 0
    for path in sorted(p for p in args.folder.iterdir() if p.suffix in (".onnx", ".gz", ".relax", ".tflite")):
        if args.only and path.name.split(".")[0] not in args.only:
            continue
        try:
            row = measure_rules(path, args) if by_rules else measure(path, args.float16, args.disable, args.enable)
        except Exception as error:
            traceback.print_exc()
            row, failed = {"model": path.name, "failed": f"{type(error).__name__}: {error}"[:500]}, failed + 1
        if not by_rules or "failed" in row:
            print(json.dumps(row), flush=True)
        found["models"].append(row)
        if args.json:
            args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
