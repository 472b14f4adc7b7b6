"""What each rule did in a run of the pipeline: where it fired, and why it did not elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .rewrite import Rule
from .trace import Declined, Firing, RewriteLog
from .transform import Transform

_SHOWN = 3  # places in a line of text, where many rules are listed
_FEW_RULES = 3  # so many rules are shown with all their places


@dataclass(frozen=True)
class RuleReport:
    """What one rule did.

    Attributes
    ----------
    rule : str
        Its name.
    part_of : str
        The pass that it belongs to.
    equation, soundness : str
        As in `relax_glue.rewrite.Rule`.
    verdict : str
        What came of it, in words: how often it fired and declined; that it was left out, and by what; or that no node
        of its root operators is in the model.
    firings : tuple of Firing
        Each rewrite that it made, in order.
    declined : tuple of Declined
        Each node at which it was tried last and declined: those of its root operators that are left in the end.
    rewritten : dict of str to int
        How many nodes of its root operators other rules rewrote, by rule.
    """

    rule: str
    part_of: str
    equation: str
    soundness: str
    verdict: str
    firings: tuple[Firing, ...]
    declined: tuple[Declined, ...]
    rewritten: dict[str, int]


def rule_reports(
    log: RewriteLog, rules: Mapping[str, Sequence[Rule | Transform]], left_out: Mapping[str, str]
) -> list[RuleReport]:
    """Tell what rules did.

    Parameters
    ----------
    log : RewriteLog
        Of a run of the pipeline that watched the rules.
    rules : mapping of str to sequence of Rule or Transform
        The rules to tell of, by the names of their passes.
    left_out : mapping of str to str
        The rules that took no part, and why.
    """
    return [_report(log, rule, name, left_out.get(rule.name)) for name, family in rules.items() for rule in family]


def _report(log: RewriteLog, rule: Rule | Transform, part_of: str, left_out: str | None) -> RuleReport:
    firings = tuple(f for f in log.firings if f.rule == rule.name)
    declined = log.declined_by(rule.name)
    others = Counter(f.rule for f in log.firings if f.op in rule.roots and f.rule != rule.name)
    verdict = f"left out: {left_out}" if left_out else _verdict(len(firings), len(declined), others.total())
    return RuleReport(
        rule.name, part_of, rule.equation, rule.soundness, verdict, firings, declined, dict(others.most_common())
    )


def _verdict(fired: int, declined: int, rewritten: int) -> str:
    if fired:
        return f"fired {_times(fired)}" + (f", declined at {_nodes(declined)}" if declined else "")
    if declined:
        return f"declined at {_nodes(declined)}"
    if rewritten:
        return f"no node of its root operators is left: other rules rewrote {rewritten}"
    return "no node of its root operators in the model"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def rule_lines(reports: Sequence[RuleReport]) -> list[str]:
    """Return the lines of text that tell what rules did: all places of a few rules, the first ones of many."""
    shown = None if len(reports) <= _FEW_RULES else _SHOWN
    active = [r for r in reports if r.firings or r.declined]
    fired = [r for r in reports if r.firings]
    count = sum(len(r.firings) for r in fired)
    lines = [f"rules: {len(fired)} of {len(reports)} fired, {_times(count)} in all"]
    for report in sorted(active, key=lambda r: -len(r.firings)):
        lines += _entry(report, shown)
    idle: dict[str, list[RuleReport]] = {}
    for report in reports:
        if report not in active:
            idle.setdefault(report.verdict, []).append(report)
    for verdict, group in idle.items():
        lines.append(f"  {', '.join(r.rule for r in group)}: {verdict}")
        lines += [line for r in group if shown is None for line in _others(r)]
    return lines


def _entry(report: RuleReport, shown: int | None) -> list[str]:
    lines = [f"  {report.rule} ({report.part_of}): {report.verdict}", f"    {report.equation}"]
    for firing in report.firings[:shown]:
        became = f" became {', '.join(firing.became)}" if firing.became else ""
        lines.append(f"    fired: {firing.op} {firing.name} in {firing.function}{became}")
    if shown is not None and len(report.firings) > shown:
        lines.append(f"    fired: {len(report.firings) - shown} more")
    groups: dict[tuple[str, str], list[Declined]] = {}
    for entry in report.declined:
        groups.setdefault((entry.reason, entry.op), []).append(entry)
    for (reason, op), group in sorted(groups.items(), key=lambda g: -len(g[1])):
        lines.append(f"    declined: {len(group)} x {op} ({_places(group, shown)}): {reason}")
    return lines + (_others(report) if shown is None else [])


def _others(report: RuleReport) -> list[str]:
    named = ", ".join(f"{rule} {count}" for rule, count in report.rewritten.items())
    return [f"    nodes of its root operators that other rules rewrote: {named}"] if named else []


def _places(entries: Sequence[Firing | Declined], shown: int | None) -> str:
    functions: dict[str, list[str]] = {}
    for entry in entries[:shown]:
        functions.setdefault(entry.function, []).append(entry.name)
    places = "; ".join(f"{', '.join(names)} in {function}" for function, names in functions.items())
    return places if shown is None or len(entries) <= shown else f"{places}, and {len(entries) - shown} more"


def named(rules: Mapping[str, Iterable[Rule | Transform]], names: Iterable[str]) -> dict[str, list[Rule | Transform]]:
    """Return the rules that are named, themselves or by their pass."""
    asked = set(names)
    found = {name: [r for r in family if name in asked or r.name in asked] for name, family in rules.items()}
    return {name: family for name, family in found.items() if family}
