"""What a partition did: the regions, what stays outside, and why."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tvm import relax

from .ir import Node
from .ir.text import written
from .rule_report import RuleReport, rule_lines


@dataclass(frozen=True)
class RegionSummary:
    """One region.

    Attributes
    ----------
    name : str
        Its global symbol.
    function : str
        The function that calls it.
    ops : dict[str, int]
        How many calls of each operator it holds, most first.
    inputs, outputs : list[str]
        The types of what goes in and comes out.
    """

    name: str
    function: str
    ops: dict[str, int]
    inputs: list[str]
    outputs: list[str]

    @staticmethod
    def of(name: str, function: str, nodes: Sequence[Node], func: relax.Function) -> RegionSummary:
        """Summarise a region function made of `nodes`."""
        return RegionSummary.from_ops(name, function, [n.op for n in nodes], func)

    @staticmethod
    def from_ops(name: str, function: str, ops: Sequence[str], func: relax.Function) -> RegionSummary:
        """Summarise a region function that holds the operators named."""
        result = func.ret_ty.fields if isinstance(func.ret_ty, relax.TupleType) else [func.ret_ty]
        counts = dict(sorted(Counter(ops).items(), key=lambda item: (-item[1], item[0])))
        return RegionSummary(name, function, counts, [_type(p.ty) for p in func.params], [_type(t) for t in result])

    @property
    def size(self) -> int:
        """How many operators it holds."""
        return sum(self.ops.values())


def _type(ty: relax.Type) -> str:
    if isinstance(ty, relax.TupleType):
        return f"({', '.join(map(_type, ty.fields))})"
    shape = getattr(ty, "shape", None)
    values = getattr(shape, "values", None)
    extents = ", ".join(map(written, values)) if values is not None else "?"
    return f"{getattr(ty, 'dtype', 'shape')}({extents})"


@dataclass(frozen=True)
class Outside:
    """One operator that stays with TVM.

    Attributes
    ----------
    op : str
        The operator, or what is called.
    name : str
        The variable that it is bound to.
    function : str
        Where it stands.
    reason : str
        Why TensorRT does not get it.
    hint : str
        What can be done about it; empty where nothing is known.
    """

    op: str
    name: str
    function: str
    reason: str
    hint: str


@dataclass
class Report:
    """The regions of a module and what stays outside them; where they are asked for, what the rules did.

    `str(report)` is for reading, `report.to_json()` for programs.
    """

    regions: list[RegionSummary]
    outside: list[Outside]
    rules: list[RuleReport] | None = None

    def to_json(self, indent: int | None = None) -> str:
        """Return the report as JSON with the keys "regions" and "outside", and "rules" where they are asked for."""
        parts: dict[str, list[Any]] = {"regions": list(map(asdict, self.regions))}
        parts["outside"] = list(map(asdict, self.outside))
        if self.rules is not None:
            parts["rules"] = list(map(asdict, self.rules))
        return json.dumps(parts, indent=indent)

    def __str__(self) -> str:
        inside = sum(r.size for r in self.regions)
        total = counted(inside + len(self.outside), "operator")
        lines = [f"{counted(len(self.regions), 'TensorRT region')}, {inside} of {total}"]
        lines += map(_region_line, self.regions)
        if self.outside:
            lines += ["", f"outside ({len(self.outside)}):", *_outside_lines(self.outside)]
        if self.rules is not None:
            lines += ["", *rule_lines(self.rules)]
        return "\n".join(lines)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _region_line(region: RegionSummary) -> str:
    top = ", ".join(f"{count} {op.removeprefix('relax.')}" for op, count in list(region.ops.items())[:6])
    more = ", ..." if len(region.ops) > 6 else ""
    ends = f"{', '.join(region.inputs)} -> {', '.join(region.outputs)}"
    return f"  {region.name}: {counted(region.size, 'operator')} ({top}{more})\n    {ends}"


def _outside_lines(outside: Sequence[Outside]) -> list[str]:
    """Return one entry per operator and reason, with the places."""
    groups: dict[tuple[str, str, str], list[Outside]] = {}
    for item in outside:
        groups.setdefault((item.op, item.reason, item.hint), []).append(item)
    lines = []
    for (op, reason, hint), items in sorted(groups.items(), key=lambda g: -len(g[1])):
        places = ", ".join(f"{i.name} in {i.function}" for i in items[:3])
        more = f" and {len(items) - 3} more" if len(items) > 3 else ""
        lines.append(f"  {len(items)} x {op} ({places}{more})")
        lines.append(f"    why: {reason}")
        if hint:
            lines.append(f"    way out: {hint}")
    return lines
