"""Writes docs/rules.md from the rules themselves; docs/layers.md, latency.md and left_out.md from what was measured.

python docs/generate.py [--check]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from guards import guards

from relax_glue.passes import motion
from relax_glue.pipeline import FAMILIES, LEGALITY, OFF_BY_DEFAULT, PIPELINE, SINK, TRANSFORMS
from relax_glue.rewrite import Rule
from relax_glue.transform import Transform

FOLDER = Path(__file__).parent
RESULTS = FOLDER.parent / "benchmarks" / "results"
COUNTED = RESULTS / "layers.json"
MEASURED = RESULTS / "h200_legality.json"
ABLATED = RESULTS / "h200_ablation.json"
LEFT_OUT = RESULTS / "h200_left_out.json"

RULES_HEAD = """# The rules

Made by `python docs/generate.py` from the rules themselves: the guards are the reasons that their code gives when it
declines. [catalogue.md](catalogue.md) says what becomes of each rule of the project's catalogue, whose numbers (S04)
stand behind the rules here.

`exact` keeps every bit; `float_reassoc` may change the last bits of float arithmetic and the sign of a zero that it
gives; `nan_sensitive` may change what becomes of NaN, infinities and signed zeros, and is off unless asked for. A
`fold` builds nothing new. `legality` marks what TensorRT needs to take a model at all
(`relax_glue.pipeline.LEGALITY`); all else makes the network smaller.

Each rule and each pass can be left out by its name: `relax_glue.optimize(mod, disable=["slice-of-concat"])`. Where a
rule fired, and why it did not elsewhere: `relax_glue.explain(mod, rules="slice-of-concat")`, or
`python -m relax_glue explain MODEL --rule slice-of-concat`.
"""

ABLATION_HEAD = """## Without one rule or pass

From [h200_ablation.json](../benchmarks/results/h200_ablation.json), measured in the same way (`--ablate`). A ratio
below 1 says that the model is faster without.

`scale-into-conv`, which folds a batch normalisation into the convolution before it, is the one rule that lost, while
all convolutions were TensorRT's layers: 2 % on the PP-OCR classifier, half a percent on the recogniser and the
detector, 1.5 % on shufflenet_v2_x1_0. The folding was not what cost. With a scale between a 1x1 convolution and its
bias, TensorRT-RTX 1.5 took a matrix product for some of them, and where nothing stood between, its convolution kernel,
which is slower at these sizes. Now such convolutions are products in the first place
([engines.md](engines.md#convolutions-as-products)), and the rule gains. It still loses that much with
`BuildOptions(conv_as_matmul=False)`; `disable=["scale-into-conv"]` turns it off.
"""

LAYERS_HEAD = """# Layers

Made by `python docs/generate.py` from [layers.json](../benchmarks/results/layers.json), which `python
benchmarks/layers.py` writes. Counted in the network definitions, before TensorRT fuses anything: all layers but
constants, and of them those that only move data (shuffle, slice, concatenation, gather). "Before" is the module as
imported, partitioned without any rule and built by the converters of relax_glue; "after" is `relax_glue.optimize`; the
last is what TensorRT's own ONNX parser makes of the same file, where there is one. Convolutions are counted as layers;
where they become products ([engines.md](engines.md#convolutions-as-products)), the network that is built has more.
"""


LATENCY_HEAD = """# Latency by rules

Made by `python docs/generate.py` from [h200_legality.json](../benchmarks/results/h200_legality.json), which
`python benchmarks/gpu.py MODEL_FOLDER --legality` writes. One call of the Relax VM with its result waited for, in
milliseconds: with all rules, with the same network built once more, and with the rules and passes alone that legality
needs (`relax_glue.pipeline.LEGALITY`), measured in turns. A ratio above 1 says that all rules are faster; one between
the first two columns is noise. Layers are those of networks with every convolution a layer.
"""


LEFT_OUT_HEAD = """# What rules of the catalogue are worth

Made by `python docs/generate.py` from [h200_left_out.json](../benchmarks/results/h200_left_out.json), which `python
benchmarks/left_out.py` writes. Each line is a pair of small networks, cut out of models of the kind that has such glue:
as importers write it, and with the glue rewritten by hand, several times in a row. Both go through
`relax_glue.optimize`, without the rule in question where it was built since; each is built twice and the four engines
are measured in turns. A ratio above 1 says that the rewriting is faster; one within the noise, by how much two engines
of one network differ, says nothing. That the two compute the same is checked by TVM's LLVM and on the GPU. Pairs of
`benchmarks/left_out_cases.py` that are not in the table were not measured. Of S20 the first line moves the slice before
the activation alone; the rule takes it into the weights (S25).
"""


def rules_text() -> str:
    """Return the page of rules."""
    lines = [RULES_HEAD, "## The order", ""]
    for number, step in enumerate(PIPELINE, 1):
        lines.append(f"{number}. {', '.join(step.passes)}: {step.reason}.")
    lines.append("")
    for name in dict.fromkeys([*(n for step in PIPELINE for n in step.passes), *FAMILIES, *TRANSFORMS]):
        lines += _pass(name)
    return "\n".join(lines)


def _pass(name: str) -> Iterator[str]:
    marks = [mark for mark, names in (("legality", LEGALITY), ("off by default", OFF_BY_DEFAULT)) if name in names]
    yield f"## {name} ({', '.join(marks)})" if marks else f"## {name}"
    yield ""
    for rule in FAMILIES.get(name, ()):
        yield from _entry(rule, f"{rule.soundness}, {rule.kind}", guards(rule), rule.apply.__doc__)
    for transform in TRANSFORMS.get(name, ()):
        what = f"{transform.soundness}, no rule: a whole block or function"
        yield from _entry(transform, what, transform.guards, transform.purpose)
    if name == SINK:
        yield from (*(motion.__doc__ or "").strip().splitlines(), "")


def _entry(
    rule: Rule | Transform, what: str, declines: tuple[str, ...] | list[str], purpose: str | None
) -> Iterator[str]:
    legality = ", legality" if rule.name in LEGALITY else ""
    yield f"### {rule.name}"
    yield ""
    yield f"`{rule.equation}`"
    yield ""
    yield " ".join((purpose or "").strip().split("\n\n")[0].split())
    yield ""
    yield f"- {what}{legality}; {rule.source}"
    if declines:
        yield f"- declines: {'; '.join(declines)}"
    yield ""


def layers_text() -> str:
    """Return the page of layers."""
    found = json.loads(COUNTED.read_text())
    lines = [
        LAYERS_HEAD,
        f"TVM {found['tvm']}, {found['tensorrt']}.",
        "",
        "| model | regions: before, after | layers: before, after, parser | of them moving: before, after, parser |",
        "|---|---|---|---|",
    ]
    for row in found["models"]:
        kinds = [row["imported"], row["optimized"], row.get("parser")]
        layers, moving = (
            ", ".join("-" if kind is None else str(kind[key]) for kind in kinds) for key in ("layers", "moving")
        )
        regions = ", ".join(str(kind["regions"]) for kind in kinds[:2])
        lines.append(f"| {row['model']} ({row['source']}) | {regions} | {layers} | {moving} |")
    return "\n".join([*lines, ""])


def latency_text() -> str:
    """Return the page of latencies with all rules and with those that legality needs."""
    found = json.loads(MEASURED.read_text())
    note = [f"They were {found['how']}.", ""] if "how" in found else []
    lines = [
        LATENCY_HEAD,
        f"{found['gpu']}, {found['tensorrt']}, TVM {found['tvm']}, float32 without TF32.",
        "",
        *note,
        "| model | all rules | again | legality | ratio | layers: all, legality | regions: all, legality |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["models"]:
        every, again = row["variants"]["all rules"], row["variants"]["all rules again"]
        legal = row["variants"].get("legality rules", every)  # left out where the module is the same
        pairs = (f"{every[key]}, {legal[key]}" for key in ("layers", "regions"))
        times = f"{every['call_ms']:.3f} | {again['call_ms']:.3f} | {legal['call_ms']:.3f} | {legal['ratio']:.3f}"
        lines.append(f"| {row['model']} ({row['source']}) | {times} | {' | '.join(pairs)} |")
    return "\n".join([*lines, "", ABLATION_HEAD, *_ablation_lines(), ""])


def _ablation_lines() -> Iterator[str]:
    yield "| model | left out | all rules | without | ratio |"
    yield "|---|---|---|---|---|"
    for run in json.loads(ABLATED.read_text())["runs"]:
        for row in run["models"]:
            every = row["variants"]["all rules"]["call_ms"]
            for name, found in row["variants"].items():
                if name.startswith("without "):
                    times = f"{every:.3f} | {found['call_ms']:.3f} | {found['ratio']:.3f}"
                    yield f"| {row['model']} ({row['source']}) | {name.removeprefix('without ')} | {times} |"


def left_out_text() -> str:
    """Return the page of what rules that are left out, or were, are worth."""
    found = json.loads(LEFT_OUT.read_text())
    lines = [
        LEFT_OUT_HEAD,
        f"{found['gpu']}, {found['tensorrt']}, TVM {found['tvm']}; float32 without TF32.",
        "",
        "| rule | networks | layers | as it stands, ms | rewritten, ms | ratio | noise | here |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in found["cases"]:
        name = f"{row['case']}, {'x'.join(map(str, row['shape']))} {row['dtype']}"
        layers = " → ".join(str(row["layers"][kind]["layers"]) for kind in ("stands", "rewritten"))
        times = " | ".join(f"{min(row['call_ms'][kind]):.3f}" for kind in ("stands", "rewritten"))
        here = f"`{row['built']}`" if row["built"] else "left out"
        lines.append(
            f"| {row['rule']} | {name} | {layers} | {times} | {row['ratio']:.3f} | {row['noise']:.1%} | {here} |"
        )
    return "\n".join([*lines, ""])


PAGES = {
    "rules.md": rules_text,
    "layers.md": layers_text,
    "latency.md": latency_text,
    "left_out.md": left_out_text,
}

if __name__ == "__main__":
    pages = {FOLDER / name: text() for name, text in PAGES.items()}
    if "--check" in sys.argv[1:]:
        stale = [page.name for page, text in pages.items() if not page.exists() or page.read_text() != text]
        sys.exit(f"out of date: {', '.join(stale)}; run python docs/generate.py" if stale else 0)
    for page, text in pages.items():
        page.write_text(text)
