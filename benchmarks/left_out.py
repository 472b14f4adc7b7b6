"""What the rules would be worth that docs/catalogue.md leaves out: pairs of networks, with and without each rewriting.

    python benchmarks/left_out.py [--json FILE] [--only TEXT ...] [--skip N] [--jobs N] [--no-gpu]

For each pair of `left_out_cases`: both networks are optimised by relax_glue, each is built twice, and the four engines
are measured in turns; a ratio above 1 says that the rewriting is faster, and "noise" by how much two engines of one
network differ. Their results are compared, and a pair that differs has no numbers. With `--no-gpu` each pair is
checked by TVM's LLVM, at a smaller size, and only the layers are counted. `--only S24 focus` picks those whose rule or
name holds one of the texts. Of a pair whose rule was built since, the networks are optimised without that rule.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import tvm
import tvm_ffi
from layers import ours
from left_out_cases import CASES, Case, Shape
from left_out_net import Net
from timing import difference, flat, in_turns
from tvm import relax

import relax_glue
from relax_glue.tensorrt import BuildOptions, converters, get_provider
from relax_glue.testing import evaluate

STANDS, REWRITTEN = "stands", "rewritten"
AGAIN = " again"
LARGEST = {"float32": 1e-4, "float16": 2e-2}  # what two orders of summation may differ, of the largest value


class DifferentError(Exception):
    """The two networks of a pair compute different numbers."""


def networks(case: Case, shape: Shape) -> dict[str, tvm.IRModule]:
    """Return both networks of a pair with parameters of one shape, not yet optimised."""
    build = {STANDS: False, REWRITTEN: True}
    shapes = [shape] * case.count
    return {name: Net(shapes, case.dtype).build(case.make, new=new, **case.options) for name, new in build.items()}


def inputs(case: Case, shape: Shape) -> list[np.ndarray]:
    """Draw one array for each parameter."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, dtype="float32").astype(case.dtype) for _ in range(case.count)]


def check(case: Case, results: Mapping[str, list[np.ndarray]]) -> float:
    """Return by how much the results of a pair differ.

    Raises
    ------
    DifferentError
        They differ by more than rounding, or are no numbers.
    """
    found = difference(results[REWRITTEN], results[STANDS])
    if not found <= LARGEST[case.dtype]:
        raise DifferentError(f"{case.rule}, {case.name}: the results differ by {found:.2g} of the largest value")
    return found


def check_on_llvm(case: Case) -> float:
    """Compare both networks of a pair at the smaller size, as they are and as the rules leave them."""
    arrays = inputs(case, case.small)
    worst = 0.0
    small = networks(case, case.small)
    right = flat(evaluate(small[STANDS], arrays))
    others = [small[REWRITTEN], *(relax_glue.canonicalize(mod) for mod in small.values())]
    for other in others:
        worst = max(worst, check(case, {STANDS: right, REWRITTEN: flat(evaluate(other, arrays))}))
    return worst


Calls = dict[str, Callable[[], Any]]


def counted(case: Case) -> tuple[dict[str, Any], dict[str, tvm.IRModule]]:
    """Return the row of a pair with its layers, and both networks as the rules leave them."""
    without = [case.built] if case.built else []
    optimized = {name: relax_glue.optimize(mod, disable=without) for name, mod in networks(case, case.x).items()}
    row = {**_title(case), "built": case.built, "layers": {name: ours(mod) for name, mod in optimized.items()}}
    row["same"] = bool(tvm_ffi.structural_equal(*optimized.values()))
    return row, optimized


def _title(case: Case) -> dict[str, Any]:
    return {"rule": case.rule, "case": case.name, "shape": list(case.x), "dtype": case.dtype}


def _failed(case: Case, error: Exception) -> dict[str, Any]:
    traceback.print_exc()
    return {**_title(case), "failed": f"{type(error).__name__}: {error}"[:500]}


def prepare(case: Case) -> tuple[dict[str, Any], Calls]:
    """Build each network of a pair twice, and compare the results.

    Raises
    ------
    DifferentError
        They differ.
    """
    start = time.perf_counter()
    row, optimized = counted(case)
    device = tvm.cuda(0)
    tensors = [tvm.runtime.tensor(array, device) for array in inputs(case, case.x)]
    calls: Calls = {}
    for name, mod in [(name + tail, mod) for tail in ("", AGAIN) for name, mod in optimized.items()]:
        registry = case.registry if name.startswith(REWRITTEN) else None
        with mock.patch.object(converters, "REGISTRY", registry or converters.REGISTRY):
            # no cache: the second one has to be built as well
            executable = relax_glue.compile(mod, "cuda", build=BuildOptions(cache=False), require_engines=True)
        main = relax.VirtualMachine(executable, device)["main"]
        calls[name] = lambda main=main: main(*tensors)
    found = check(case, {name: flat(calls[name]()) for name in optimized})
    row["difference"] = float(f"{found:.2g}")
    row["build_s"] = round(time.perf_counter() - start, 1)
    return row, calls


def take_times(row: dict[str, Any], calls: Calls) -> dict[str, Any]:
    """Measure the four engines of a pair in turns."""
    spent = in_turns(calls, tvm.cuda(0).sync)
    times = {name: [round(spent[name + tail], 4) for tail in ("", AGAIN)] for name in (STANDS, REWRITTEN)}
    row["call_ms"] = times
    row["ratio"] = round(sum(times[STANDS]) / sum(times[REWRITTEN]), 3)
    row["noise"] = round(max(max(pair) / min(pair) - 1 for pair in times.values()), 3)
    return row


def _work(number: int, pipe: Connection) -> None:
    """Prepare a pair, wait until it may be measured, and send its row."""
    case = CASES[number]
    try:
        row, calls = prepare(case)
        pipe.send(None)
        pipe.recv()
        pipe.send(take_times(row, calls))
    except Exception as error:
        pipe.send(_failed(case, error))


def measured(cases: Sequence[Case], jobs: int) -> Iterator[dict[str, Any]]:
    """Yield the row of each pair; of `jobs` pairs that are prepared at a time, one is measured after the other."""
    context = multiprocessing.get_context("spawn")
    for batch in (cases[k : k + jobs] for k in range(0, len(cases), jobs)):
        pipes = []
        for case in batch:
            ours_, theirs = context.Pipe()
            context.Process(target=_work, args=(CASES.index(case), theirs), daemon=True).start()
            theirs.close()
            pipes.append(ours_)
        said = [_said(case, pipe) for case, pipe in zip(batch, pipes, strict=True)]
        for case, pipe, row in zip(batch, pipes, said, strict=True):
            if row is None:  # it is ready
                pipe.send(None)
                row = _said(case, pipe)
            yield row


def _said(case: Case, pipe: Connection) -> dict[str, Any] | None:
    try:
        return pipe.recv()
    except EOFError:
        return {**_title(case), "failed": "its process ended"}


def checked(cases: Sequence[Case]) -> Iterator[dict[str, Any]]:
    """Yield the row of each pair, with its layers and what LLVM says."""
    for case in cases:
        try:
            yield {**counted(case)[0], "difference": float(f"{check_on_llvm(case):.2g}")}
        except Exception as error:
            yield _failed(case, error)


def line(row: Mapping[str, Any]) -> str:
    """Return what was found of a pair as a line of text."""
    name = f"{row['rule']:9} {row['case']:36} {'x'.join(map(str, row['shape'])):14} {row['dtype']}"
    if "failed" in row:
        return f"{name} FAILED: {row['failed']}"
    layers = " -> ".join(f"{count['layers']}" for count in row["layers"].values())
    times = ""
    if "ratio" in row:
        first = " -> ".join(f"{min(pair):.3f}" for pair in row["call_ms"].values())
        times = f", {first} ms, x{row['ratio']:.3f} (noise {row['noise']:.1%})"
    same = ", made already" if row["same"] else ""
    return f"{name}: {layers} layers, difference {row['difference']:.1g}{times}{same}"


def main() -> int:
    """Measure the pairs asked for; one that fails is reported, and does not stop the others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", type=Path)
    parser.add_argument("--only", nargs="*", default=[], metavar="TEXT")
    parser.add_argument("--skip", type=int, default=0, metavar="N", help="the first N pairs")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="pairs that are prepared at a time")
    parser.add_argument("--no-gpu", action="store_true", help="check by LLVM and count layers")
    args = parser.parse_args()
    provider = get_provider()
    found: dict[str, Any] = {
        "command": "python benchmarks/left_out.py" + "".join(f" --only {text}" for text in args.only),
        "tvm": tvm.__version__,
        "tensorrt": f"{provider.name} {provider.trt.__version__}",
        "gpu": None if args.no_gpu else tvm.cuda(0).device_name,
        "cases": [],
    }
    start = time.perf_counter()
    cases = [c for c in CASES[args.skip :] if not args.only or any(t in f"{c.rule} {c.name}" for t in args.only)]
    for row in checked(cases) if args.no_gpu else measured(cases, args.jobs):
        print(line(row), flush=True)
        found["cases"].append(row)
        found["seconds"] = round(time.perf_counter() - start, 1)
        if args.json:
            args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if any("failed" in row for row in found["cases"]) else 0


if __name__ == "__main__":
    sys.exit(main())
