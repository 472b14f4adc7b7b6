"""How long `optimize` takes beside TVM's own route to TensorRT, in the same process, on the same modules.

    python benchmarks/compile_time.py [GRAPH ...] [--json FILE]

TVM's route is DecomposeOpsForInference, FoldConstant, CanonicalizeBindings, DeadCodeElimination and
partition_for_tensorrt. Both get the imported module and give the partitioned one. The second part counts how the
time of `optimize` grows with the number of bindings of a generated network. Needs the project's shared folder beside
the checkout.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tvm
from tvm import relax
from tvm.relax.backend.contrib.tensorrt import partition_for_tensorrt

import relax_glue
from relax_glue.demo import cut_of

SHARED = Path(__file__).resolve().parents[2] / "shared"
GRAPHS = ("yolo11n", "swin_t", "densenet121")
SIZES = (1_000, 3_000, 10_000, 30_000)
GOAL = 10


def timed(action: Callable[[], tvm.IRModule]) -> tuple[tvm.IRModule, float]:
    """Return a result and the seconds that it took, by the clock of the processor: it counts no other process."""
    start = time.process_time()
    result = action()
    return result, time.process_time() - start


def upstream(mod: tvm.IRModule) -> tvm.IRModule:
    """TVM's own route."""
    passes = [
        relax.transform.DecomposeOpsForInference(),
        relax.transform.FoldConstant(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination(),
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        return partition_for_tensorrt(tvm.transform.Sequential(passes)(mod))


def compare(name: str) -> dict[str, object]:
    """Time both routes on one graph; ours is the median of three runs, the first included."""
    sys.path.insert(0, str(SHARED))
    import graphfile

    mod = graphfile.load(str(SHARED / "graphs" / name))
    theirs, upstream_seconds = timed(lambda: upstream(mod))
    runs = [timed(lambda: relax_glue.optimize(mod)) for _ in range(3)]
    seconds = statistics.median(s for _, s in runs)
    ours = runs[0][0]
    return {
        "graph": name,
        "upstream_s": round(upstream_seconds, 2),
        "relax_glue_s": round(seconds, 2),
        "ratio": round(upstream_seconds / seconds, 1),
        "upstream": str(cut_of(theirs)),
        "relax_glue": str(cut_of(ours)),
    }


def network(bindings: int) -> tvm.IRModule:
    """Generate a network of about as many bindings: blocks of convolution, bias, slices, concat, reshapes and relu."""
    rng = np.random.default_rng(0)
    weight = relax.const(rng.standard_normal((8, 8, 1, 1)).astype("float32"))
    bias = relax.const(rng.standard_normal((1, 8, 1, 1)).astype("float32"))
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 8, 4, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value: relax.Expr = x
            for _ in range(bindings // 10):
                value = _block(builder, value, weight, bias)
            out = builder.emit_output(value)
        builder.emit_func_output(out)
    return builder.finalize()


def _block(builder: relax.BlockBuilder, x: relax.Expr, weight: relax.Expr, bias: relax.Expr) -> relax.Expr:
    emit = builder.emit
    x = emit(relax.op.add(emit(relax.op.nn.conv2d(x, weight)), bias))
    halves = [emit(relax.op.strided_slice(x, [1], [b], [b + 4])) for b in (0, 4)]
    x = emit(relax.op.concat([halves[1], halves[0]], axis=1))
    x = emit(relax.op.reshape(x, (1, 8, 16)))
    x = emit(relax.op.permute_dims(x, [0, 1, 2]))
    x = emit(relax.op.reshape(x, (1, 8, 4, 4)))
    return emit(relax.op.nn.relu(emit(relax.op.nn.relu(x))))


def scaling() -> list[dict[str, object]]:
    """Time `optimize` on networks of growing size."""
    rows: list[dict[str, object]] = []
    for size in SIZES:
        mod = network(size)
        _, seconds = timed(lambda mod=mod: relax_glue.optimize(mod))
        rows.append(
            {"bindings": size, "relax_glue_s": round(seconds, 2), "us_per_binding": round(seconds / size * 1e6)}
        )
    return rows


def main() -> int:
    """Print both tables; exit with 1 where a ratio misses the goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="*", default=GRAPHS)
    parser.add_argument("--json", metavar="FILE", help="write the numbers to FILE")
    args = parser.parse_args()
    rows = []
    for name in args.graphs:
        rows.append(compare(name))
        print(rows[-1], flush=True)
    grown = scaling()
    for row in grown:
        print(row, flush=True)
    found = {
        "command": "python benchmarks/compile_time.py",
        "tvm": tvm.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "clock": "time.process_time",
        "compile_time": rows,
        "scaling": grown,
    }
    if args.json:
        Path(args.json).write_text(json.dumps(found, indent=1) + "\n")
    return 0 if all(float(str(row["ratio"])) >= GOAL for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
