"""The guards of a rule, read from its code: every reason for which it may decline.

A rule says in words why it leaves a node alone, `Decline(reason)`. The reasons in its function, and in the functions of
this project that it calls, are its guards; so a page made of them says what the code does.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from types import FunctionType

from relax_glue.rewrite import Decline, Rule

_FEW = 8  # so many operators are listed by name


def guards(rule: Rule) -> list[str]:
    """Return what a rule asks for or declines at, each in words, in the order of its code."""
    found = []
    if rule.producers:
        none = "is not from" if len(rule.producers) == 1 else "comes from none of"
        found.append(f"operand 0 {none} {_operators(rule.producers)}")
    found += [f"operand {operand} has other users" for operand in rule.single_use]
    return list(dict.fromkeys([*found, *_reasons(rule.apply, set())]))


def _operators(names: tuple[str, ...]) -> str:
    short = [name.removeprefix("relax.") for name in names]
    if len(short) <= _FEW:
        return ", ".join(short)
    return f"{', '.join(short[:_FEW])} and {len(short) - _FEW} more"


def _reasons(function: object, seen: set[object]) -> Iterator[str]:
    """Yield the reasons in a function and in those that it calls."""
    if not isinstance(function, FunctionType) or function in seen or not _may_decline(function):
        return
    seen.add(function)
    known = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    for node in _in_order(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Decline":
            yield _text(node.args[0])
        elif isinstance(node, ast.Name):
            value = known.get(node.id)
            if isinstance(value, Decline):
                yield value.reason
            else:
                yield from _reasons(value, seen)


def _may_decline(function: FunctionType) -> bool:
    """Return whether a function is one of this project's in a module that knows `Decline`."""
    return function.__module__.startswith("relax_glue") and function.__globals__.get("Decline") is Decline


def _in_order(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree as they stand in the source."""
    for child in ast.iter_child_nodes(tree):
        yield child
        yield from _in_order(child)


def _text(argument: ast.expr) -> str:
    """Return a reason, with dots for what is filled in when it is given."""
    if isinstance(argument, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in argument.values)
    return str(ast.literal_eval(argument))
