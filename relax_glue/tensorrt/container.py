"""Named byte sections with a JSON header, in one checked block.

Regions, engines and cache files are written this way: a digest covers the header, the header holds a digest of
each section, so one changed or missing byte is found before TensorRT or TVM sees it.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from typing import Any

from ..errors import PlanError

MAGIC = b"RGLUE\x00\x00\x02"  # the last byte is the version of this format
_HEAD = struct.Struct("<8s32sI")


def pack(header: Mapping[str, Any], sections: Mapping[str, bytes]) -> bytes:
    """Write a header and sections; equal content gives equal bytes.

    Parameters
    ----------
    header : Mapping[str, Any]
        What JSON can hold.
    sections : Mapping[str, bytes]
        Raw bytes by name.
    """
    table = [[name, len(data), hashlib.sha256(data).hexdigest()] for name, data in sections.items()]
    text = json.dumps({"header": dict(header), "sections": table}, sort_keys=True).encode()
    return b"".join([_HEAD.pack(MAGIC, hashlib.sha256(text).digest(), len(text)), text, *sections.values()])


def unpack(block: bytes, what: str, damaged: list[str] | None = None) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Read what `pack` wrote.

    Parameters
    ----------
    block : bytes
        The packed bytes.
    what : str
        What they are, for messages.
    damaged : list[str], optional
        If given, damaged sections are left out and their names put here, for a caller that can do without.

    Raises
    ------
    PlanError
        When the block is cut short, damaged, or none of ours.
    """
    if len(block) < _HEAD.size:
        raise PlanError(f"{what} is cut short: {len(block)} bytes")
    magic, digest, length = _HEAD.unpack_from(block)
    if magic != MAGIC:
        raise PlanError(f"{what} is no file of this version of relax_glue: it starts with {magic!r}")
    text = block[_HEAD.size : _HEAD.size + length]
    if hashlib.sha256(text).digest() != digest:
        raise PlanError(f"{what} is damaged: its header does not match its digest")
    content = json.loads(text)
    sections, place = {}, _HEAD.size + length
    for name, size, expected in content["sections"]:
        data = block[place : place + size]
        place += size
        if hashlib.sha256(data).hexdigest() == expected:
            sections[name] = data
        elif damaged is None:
            raise PlanError(f"{what} is damaged: its {name} does not match its digest")
        else:
            damaged.append(name)
    if place != len(block):
        raise PlanError(f"{what} is damaged: it has {len(block)} bytes where its header says {place}")
    return content["header"], sections
