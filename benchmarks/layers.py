"""How many TensorRT layers a model becomes: as imported, as optimised, and by TensorRT's own ONNX parser.

    python benchmarks/layers.py [--json FILE]

Counts the layers of the network definitions, before TensorRT fuses anything: all of them but constants, and those that
only move data (shuffle, slice, concatenation, gather). "As imported" is the module from `from_onnx`,
partitioned without any rule; the parser gets the file with its shapes fixed. Needs TensorRT or TensorRT-RTX, no GPU.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import tvm

import relax_glue
from relax_glue.region_function import region_functions
from relax_glue.tensorrt.network import build_network
from relax_glue.tensorrt.provider import get_provider
from relax_glue.zoo import MODELS, fetch

SHARED = Path(__file__).resolve().parents[2] / "shared"
FILES = ("yolo11n", "yolo11n-seg", "yolov5n")
ZOO = ("ppocr_det", "ppocr_rec", "ppocr_cls", "nudenet")
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


def models() -> list[tuple[str, Any, tuple[int, ...] | None]]:
    """Return the names, the ONNX models and the shapes to fix."""
    import onnx

    sys.path.insert(0, str(SHARED))
    import onnxfile

    found: list[tuple[str, Any, tuple[int, ...] | None]] = [
        (name, onnxfile.load(str(SHARED / "onnx" / f"{name}.onnx.gz")), None) for name in FILES
    ]
    return found + [(name, onnx.load(str(fetch(name))), MODELS[name].input_shape) for name in ZOO]


def main() -> int:
    """Print a row for each model."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", metavar="FILE", type=Path)
    args = options.parse_args()
    rows = []
    for name, model, shape in models():
        mod = relax_glue.from_onnx(model, shape)
        if shape is not None:
            for extent, dim in zip(shape, model.graph.input[0].type.tensor_type.shape.dim, strict=True):
                dim.dim_value = extent
        row = {
            "model": name,
            "imported": ours(relax_glue.partition(mod)),
            "optimized": ours(relax_glue.optimize(mod)),
            "parser": parsed(model),
        }
        print(row, flush=True)
        rows.append(row)
    if args.json:
        found = {
            "command": "python benchmarks/layers.py",
            "tvm": tvm.__version__,
            "tensorrt": str(get_provider()),
            "python": platform.python_version(),
            "models": rows,
        }
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
