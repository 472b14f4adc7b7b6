"""Writes docs/rules.md from the rules themselves.

python docs/generate.py [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path

from relax_glue.passes import motion
from relax_glue.pipeline import FAMILIES, SINK
from relax_glue.rewrite import Rule

TARGET = Path(__file__).with_name("rules.md")

HEAD = """# The rules

Made by `python docs/generate.py` from the rules themselves. `exact` keeps every bit; `float_reassoc` may change the
last bits of float arithmetic and the sign of a zero that it gives; `nan_sensitive` may change what becomes of NaN,
infinities and signed zeros, and is off unless asked for. A `fold` builds nothing new. Each rule can be left out by
its name: `relax_glue.optimize(mod, disable=["slice-of-concat"])`.
"""


def text() -> str:
    """Return the page."""
    lines = [HEAD]
    for name, rules in FAMILIES.items():
        lines += [
            f"## {name}",
            "",
            "| rule | what it does | soundness | kind | only where | source |",
            "|---|---|---|---|---|---|",
        ]
        lines += [_row(rule) for rule in rules]
        lines.append("")
    lines += [f"## {SINK}", "", *(motion.__doc__ or "").strip().splitlines(), ""]
    return "\n".join(lines)


def _row(rule: Rule) -> str:
    guards = []
    if rule.producers:
        guards.append("operand 0 from " + ", ".join(p.removeprefix("relax.") for p in rule.producers))
    if rule.single_use:
        guards.append("single use of operand " + ", ".join(map(str, rule.single_use)))
    doc = (rule.apply.__doc__ or "").strip().split("\n")[0]
    equation = f"`{rule.equation}`".replace("|", "\\|")
    return f"| {rule.name} | {equation} {doc} | {rule.soundness} | {rule.kind} | {'; '.join(guards)} | {rule.source} |"


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(0 if TARGET.read_text() == text() else f"{TARGET.name} is out of date: run python docs/generate.py")
    TARGET.write_text(text())
