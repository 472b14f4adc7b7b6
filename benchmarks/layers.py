"""How many TensorRT layers a model becomes: as imported, as optimised, and by TensorRT's own ONNX parser.

    python benchmarks/layers.py [--json FILE]

Counts the layers of the network definitions, before TensorRT fuses anything: all of them but constants, and those that
only move data (shuffle, slice, concatenation, gather). "Imported" is the module as the importer gives it, partitioned
without any rule; the parser gets the ONNX file with its shapes fixed. TFLite models are counted once more with the
layout passes enabled, which are off by default. `python docs/generate.py` makes docs/layers.md of the numbers. Needs
TensorRT or TensorRT-RTX, the project's shared folder beside the checkout, and no GPU.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tvm

import relax_glue
from relax_glue.pipeline import OFF_BY_DEFAULT
from relax_glue.region_function import region_functions
from relax_glue.tensorrt.network import build_network
from relax_glue.tensorrt.provider import get_provider
from relax_glue.zoo import MODELS, fetch

SHARED = Path(__file__).resolve().parents[2] / "shared"
ONNX_FILES = ("yolo11n", "yolo11n-seg", "yolov5n")
MOVING = ("SHUFFLE", "SLICE", "CONCATENATION", "GATHER")


def count(network: Any) -> dict[str, int]:
    """Return the layers of a network definition."""
    kinds = Counter(network.get_layer(k).type.name for k in range(network.num_layers))
    return {"layers": sum(kinds.values()) - kinds["CONSTANT"], "moving": sum(kinds[k] for k in MOVING)}


def ours(mod: tvm.IRModule) -> dict[str, int]:
    """Return the layers of all regions of a partitioned module."""
    total: Counter[str] = Counter(regions=0)
    for region in region_functions(mod).values():
        total.update(count(build_network(region).net))
        total["regions"] += 1
    return dict(total)


def parsed(model: Any) -> dict[str, int]:
    """Return the layers that TensorRT's parser makes of an ONNX model."""
    provider = get_provider()
    network = provider.builder().network()
    parser = provider.trt.OnnxParser(network, provider.trt.Logger(provider.trt.Logger.ERROR))
    if not parser.parse(model.SerializeToString()):
        raise RuntimeError(str(parser.get_error(0)))
    return count(network)


def onnx_models() -> Iterator[tuple[str, tvm.IRModule, Any]]:
    """Yield the names, the imported modules and the ONNX models with their shapes fixed."""
    import onnx
    import onnxfile

    for name in ONNX_FILES:
        model = onnxfile.load(str(SHARED / "onnx" / f"{name}.onnx.gz"))
        yield name, relax_glue.from_onnx(model), model
    for name, entry in MODELS.items():
        if not entry.member.endswith(".onnx"):
            continue
        model = onnx.load(str(fetch(name)))
        mod = relax_glue.from_onnx(model, entry.input_shape)
        for extent, dim in zip(entry.input_shape, model.graph.input[0].type.tensor_type.shape.dim, strict=True):
            dim.dim_value = extent
        yield name, mod, model


def modules() -> Iterator[tuple[str, str, tvm.IRModule]]:
    """Yield the names, the sources and the modules of exported programs and TFLite models."""
    import graphfile

    for path in sorted((SHARED / "graphs").glob("*.relax")):
        yield path.stem, "torch.export", graphfile.load(str(path))
    for name, entry in MODELS.items():
        if entry.member.endswith(".tflite"):
            yield name, "TFLite", relax_glue.from_tflite(fetch(name))


def rows() -> Iterator[dict[str, Any]]:
    """Yield the row of each model."""
    for name, mod, model in onnx_models():
        yield {"model": name, "source": "ONNX", **both(mod), "parser": parsed(model)}
    for name, source, mod in modules():
        row = {"model": name, "source": source, **both(mod)}
        yield row
        if source == "TFLite":
            enabled = ours(relax_glue.optimize(mod, enable=OFF_BY_DEFAULT))
            yield {**row, "source": "TFLite, layout passes enabled", "optimized": enabled}


def both(mod: tvm.IRModule) -> dict[str, dict[str, int]]:
    """Return the layers of a module as imported and as optimised."""
    return {"imported": ours(relax_glue.partition(mod)), "optimized": ours(relax_glue.optimize(mod))}


def main() -> int:
    """Print a row for each model."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", metavar="FILE", type=Path)
    args = options.parse_args()
    sys.path.insert(0, str(SHARED))
    found: list[dict[str, Any]] = []
    for row in rows():
        print(row, flush=True)
        found.append(row)
    if args.json:
        table = {
            "command": "python benchmarks/layers.py",
            "tvm": tvm.__version__,
            "tensorrt": str(get_provider()),
            "python": platform.python_version(),
            "models": found,
        }
        args.json.write_text(json.dumps(table, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
