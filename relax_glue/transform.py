"""What a pass does that is no rule: it looks at a whole block or function, where a rule looks at one node."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Transform:
    """A rewrite of a whole block or function, described as rules are.

    Attributes
    ----------
    name : str
        In kebab-case, named after what it does.
    equation : str
        What becomes of what, in one line.
    guards : tuple[str, ...]
        Where it leaves things alone.
    purpose : str
        What it is for, in a sentence.
    soundness : str
        As that of a rule.
    source : str
        Where the idea comes from, and its numbers in the project's rule catalogue.
    roots : tuple[str, ...]
        The operators that it moves; empty where it is about none in particular.
    """

    name: str
    equation: str
    guards: tuple[str, ...]
    purpose: str
    soundness: str
    source: str
    roots: tuple[str, ...] = ()
