"""Names and words taken over from elsewhere: nodes as Relax variables, and what an exception of TVM says."""

from __future__ import annotations

import re


def names(listed: str) -> frozenset[str]:
    """Return the words of a text as a set: how the tables of operators here are written."""
    return frozenset(listed.split())


def variable_name(name: str) -> str:
    """Turn the name of a node or value into one that TVMScript can print and parse: `/m.0/Conv` to `m_0_Conv`."""
    spelled = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "v"
    return f"v{spelled}" if spelled[0].isdigit() else spelled


def last_line(error: BaseException) -> str:
    """Return what an exception says in one line, without the stack of TVM's C++ side."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("#", "File ", "Traceback")) and any(map(str.isalpha, line))]
    return (told or [type(error).__name__])[-1].rstrip(".")
