"""One model under several sets of rules: regions, layers and latency, measured in turns on one machine.

Used by `benchmarks/gpu.py --legality` and `--ablate`. "all rules" is `optimize` as it is, and "all rules again" the
same module built once more, which tells how far two builds of one network lie apart; "legality rules" leaves out what
`relax_glue.pipeline.improvements()` names; "without X" leaves out one family or one rule. A variant that gives the
module that all rules give is not built.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from layers import ours
from timing import difference, flat, in_turns
from tvm import relax

import relax_glue
from relax_glue.pipeline import FAMILIES, LEGALITY, MOTIONS, OFF_BY_DEFAULT, improvements
from relax_glue.tensorrt import BuildOptions

ALL, AGAIN, LEGAL = "all rules", "all rules again", "legality rules"


@dataclass(frozen=True)
class Variant:
    """A set of rules, by what it leaves out."""

    name: str
    disable: tuple[str, ...] = ()


def variants(legality: bool, ablate: Sequence[str] | None) -> list[Variant]:
    """Return the variants to measure.

    Parameters
    ----------
    legality : bool
        Measure the legality rules alone.
    ablate : sequence of str or None
        Passes and rules to leave out, one at a time; empty for each family that is not needed for legality.
    """
    found = [Variant(ALL), Variant(AGAIN)]
    if legality:
        found.append(Variant(LEGAL, tuple(improvements())))
    if ablate is not None:
        names = ablate or sorted({*FAMILIES, *MOTIONS} - LEGALITY - OFF_BY_DEFAULT)
        found += [Variant(f"without {name}", (name,)) for name in names]
    return found


def compare(
    mod: tvm.IRModule, inputs: Sequence[np.ndarray], chosen: Sequence[Variant], options: dict[str, Any], on_gpu: bool
) -> dict[str, Any]:
    """Build a module under each variant, and measure them in turns.

    Parameters
    ----------
    mod : tvm.IRModule
        As imported.
    inputs : sequence of numpy.ndarray
        What to call it with.
    chosen : sequence of Variant
        "all rules" first.
    options : dict
        More options of `relax_glue.optimize`.
    on_gpu : bool
        Build engines and run them; else only regions and layers are counted.

    Returns
    -------
    row : dict
        "variants": for each what was counted and measured, with "ratio" to "all rules"; above 1 all rules are faster.
        "same": the names of those that make no difference to this model.
    """
    counted, modules, same = _optimised(mod, chosen, options)
    if on_gpu:
        _measure(modules, inputs, counted)
    return {"variants": counted, "same": same}


def _optimised(
    mod: tvm.IRModule, chosen: Sequence[Variant], options: dict[str, Any]
) -> tuple[dict[str, dict[str, Any]], dict[str, tvm.IRModule], list[str]]:
    """Optimise under each variant; count regions, what is outside, and layers."""
    counted: dict[str, dict[str, Any]] = {}
    modules: dict[str, tvm.IRModule] = {}
    same = []
    for variant in chosen:
        disable = (*options.get("disable", ()), *variant.disable)
        optimized = relax_glue.optimize(mod, **{**options, "disable": disable})
        if variant.name not in (ALL, AGAIN) and tvm_ffi.structural_equal(optimized, modules[ALL]):
            same.append(variant.name)
            continue
        modules[variant.name] = optimized
        counted[variant.name] = {**ours(optimized), "outside": len(relax_glue.explain(optimized).outside)}
    return counted, modules, same


def _measure(
    modules: Mapping[str, tvm.IRModule], inputs: Sequence[np.ndarray], counted: Mapping[str, dict[str, Any]]
) -> None:
    """Add build seconds, latency and the difference of the results to what was counted."""
    device = tvm.cuda(0)
    tensors = [tvm.runtime.tensor(a, device) for a in inputs]
    calls: dict[str, Callable[[], Any]] = {}
    results: dict[str, list[np.ndarray]] = {}
    for name, optimized in modules.items():
        start = time.perf_counter()
        # no cache: "again" has to be built again
        executable = relax_glue.compile(optimized, "cuda", build=BuildOptions(cache=False))
        counted[name]["build_s"] = round(time.perf_counter() - start, 2)
        main = relax.VirtualMachine(executable, device)["main"]
        calls[name] = lambda main=main: main(*tensors)
        results[name] = flat(calls[name]())
        counted[name]["difference"] = difference(results[name], results[ALL])
    for name, milliseconds in in_turns(calls, device.sync).items():
        counted[name]["call_ms"] = round(milliseconds, 4)
    fastest = counted[ALL]["call_ms"]
    for row in counted.values():
        row["ratio"] = round(row["call_ms"] / fastest, 3)


def line(name: str, row: Mapping[str, Any]) -> str:
    """Return what was found of one model, in a few lines of text."""
    lines = [name]
    for variant, found in row["variants"].items():
        latency = f"{found['call_ms']:8.3f} ms  x{found['ratio']:.3f}" if "call_ms" in found else ""
        lines.append(
            f"  {variant:34} {found['regions']} regions, {found['outside']} outside, {found.get('layers', 0)} layers, "
            f"{found.get('moving', 0)} moving {latency}"
        )
    if row["same"]:
        lines.append(f"  no difference: {', '.join(row['same'])}")
    return "\n".join(lines)
