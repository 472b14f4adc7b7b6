"""Copy the package `tensorrt-stubs` to a folder with its slips mended, for the type checker.

    python .ci/stubs.py FOLDER        then MYPYPATH=FOLDER mypy …

Three signatures in it are no Python (parameters called `in`, and one without a default behind one that has it);
mypy stops at the first, and so checks nothing at all. And it does not know that TensorRT takes a sequence of
numbers wherever it takes `Dims` or a `Permutation`.
"""

from __future__ import annotations

import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

MENDED = (
    (r"\bin: list\[", "in_: list["),
    (r"channel_axis: int\) ->", "channel_axis: int = ...) ->"),
    (r": (Dims|Permutation)\b", r": \1 | typing.Sequence[int]"),
)


def main(folder: Path) -> None:
    """Copy both packages, and mend the second."""
    spec = find_spec("tensorrt_stubs")
    if spec is None or spec.origin is None:
        sys.exit("tensorrt-stubs is not installed: pip install --no-deps tensorrt-stubs")
    site = Path(spec.origin).parents[1]
    for package in ("tensorrt", "tensorrt_bindings"):
        shutil.copytree(site / package, folder / package, dirs_exist_ok=True)
    path = folder / "tensorrt_bindings" / "tensorrt.pyi"
    text = path.read_text()
    for slip, right in MENDED:
        text = re.sub(slip, right, text)
    path.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
