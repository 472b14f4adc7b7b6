"""What rules did where: the log that `relax_glue.explain(mod, rules=...)` reads.

The driver writes a log only where `RewriteStats` carries one, so a run that nobody asks about pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .ir import Node, Place, Value


@dataclass(frozen=True, slots=True)
class Firing:
    """One rewrite that was made.

    Attributes
    ----------
    rule : str
        The rule that made it.
    op : str
        The operator that it was made at.
    name : str
        The variable that the operator is bound to; what a rule builds keeps the name of what it replaces.
    function : str
        The function in which it stands.
    became : tuple of str
        What took its place: the call that was built, or the value that was there already.
    """

    rule: str
    op: str
    name: str
    function: str
    became: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Declined:
    """One node that a rule was tried at last, and left alone.

    Attributes
    ----------
    rule, op, name, function : str
        As in `Firing`.
    reason : str
        The guard that declined, in words.
    """

    rule: str
    op: str
    name: str
    function: str
    reason: str


class RewriteLog:
    """Every rewrite of a run, and for the rules that are watched the nodes at which they declined.

    Parameters
    ----------
    watched : iterable of str
        The rules whose declines are kept.

    Attributes
    ----------
    firings : list[Firing]
        In the order in which they were made.
    """

    def __init__(self, watched: Iterable[str]):
        self.watched = frozenset(watched)
        self.firings: list[Firing] = []
        self._declined: dict[tuple[str, str, int], list[Declined]] = {}

    def begin(self, rules: Iterable[str], place: Place) -> None:
        """Forget what rules declined in a block: all of its nodes are about to be tried again."""
        for name in rules:
            self._declined.pop((name, place.function, place.block), None)

    def fired(self, rule: str, node: Node, became: Sequence[str], place: Place) -> None:
        """Write down a rewrite."""
        self.firings.append(Firing(rule, node.op, node.name, place.function, tuple(became)))

    def declined(self, rule: str, node: Node, reason: str, place: Place) -> None:
        """Write down that a rule left a node alone."""
        if rule in self.watched:
            entry = Declined(rule, node.op, node.name, place.function, reason)
            self._declined.setdefault((rule, place.function, place.block), []).append(entry)

    def declined_by(self, rule: str) -> tuple[Declined, ...]:
        """Return the nodes at which a rule was tried last and declined, in the order of the functions and blocks."""
        keys = sorted(key for key in self._declined if key[0] == rule)
        return tuple(entry for key in keys for entry in self._declined[key])


def described(value: Value, instead: Node) -> str:
    """Return a value in words: a constant by its type, what was there before by its name, a new call in full."""
    if value.op == "constant":
        return f"constant {value.dtype}{tuple(value.shape or ())}"
    if value.op == "input" or value.node.name != instead.name:
        return repr(value)
    return f"{value.op}({', '.join(map(repr, value.node.inputs))})"
