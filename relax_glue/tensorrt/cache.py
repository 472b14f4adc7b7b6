"""Engines on disk, so that a model is built once per machine.

The name of a file is the digest of everything that the engine depends on, so an engine is found exactly when it
fits: graph, weights, shapes and dtypes (the saved region), the ranges of symbolic extents, build options,
TensorRT's name and version, and the GPU. Files are written beside their place and moved there, so a reader or a
second writer never sees half of one. Trouble with the disk costs a warning, never a result.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import EngineWarning, PlanError
from .artifact import Plan, SavedRegion
from .container import pack, unpack
from .options import BuildOptions

VARIABLE = "RELAX_GLUE_CACHE_DIR"
_SUFFIXES = (".engine", ".kernels", ".timing")


def engine_key(region: SavedRegion, options: BuildOptions, provider: str, gpu: str) -> str:
    """Return the digest of all that an engine depends on.

    Parameters
    ----------
    region : SavedRegion
        Graph, names, weights, shapes and dtypes, and the ranges of symbolic extents.
    options : BuildOptions
        Those of its fields that change the engine count.
    provider : str
        TensorRT's name and version.
    gpu : str
        The GPU's name and compute capability.
    """
    ranges = [profile.to_json() for profile in region.profiles]
    parts = [region.digest, ranges, options.engine_settings(), provider, gpu]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def kernels_key(plan: Plan, gpu: str) -> str:
    """Return the digest under which the kernels of an engine are kept for one GPU."""
    return hashlib.sha256(plan.data + f"{plan.provider} {gpu} tf32={plan.tf32}".encode()).hexdigest()


def cache_of(options: BuildOptions) -> EngineCache | None:
    """Return the cache that the options ask for, or None."""
    if not options.cache:
        return None
    return EngineCache(Path(options.cache_dir or _default_dir()), options.cache_size)


@dataclass(frozen=True)
class EngineCache:
    """A folder of engines, kernels and timings.

    Attributes
    ----------
    folder : Path
        Made when the first file is written.
    size : int
        Bytes that it may grow to.
    """

    folder: Path
    size: int

    def load(self, key: str) -> Plan | None:
        """Return the engine of that key; a damaged file is removed, with a warning."""
        block = self.read(key, ".engine")
        if block is None:
            return None
        try:
            header, sections = unpack(block, f"the cached engine {self._path(key, '.engine')}")
        except PlanError as error:
            self._warn(f"{error}; it is removed and the engine is built again")
            self.remove(key)
            return None
        return Plan.of(header, sections["plan"])

    def store(self, key: str, plan: Plan) -> None:
        """Keep an engine."""
        self.write(key, ".engine", pack(plan.header(), {"plan": plan.data}))

    def remove(self, key: str) -> None:
        """Forget an engine."""
        with suppress(OSError):
            self._path(key, ".engine").unlink()

    def read(self, key: str, suffix: str) -> bytes | None:
        """Return a file's bytes, or None; it then counts as used just now."""
        path = self._path(key, suffix)
        try:
            block = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._warn(f"the engine cache cannot be read ({error})")
            return None
        with suppress(OSError):
            os.utime(path)
        return block

    def write(self, key: str, suffix: str, block: bytes) -> None:
        """Write a file at once or not at all, then make room."""
        temporary = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=".", suffix=suffix)
            with os.fdopen(handle, "wb") as file:
                file.write(block)
            os.replace(temporary, self._path(key, suffix))
        except OSError as error:
            if temporary is not None:
                with suppress(OSError):
                    os.unlink(temporary)
            self._warn(f"the engine cache cannot be written ({error}); set {VARIABLE} or cache_dir, or cache=False")
            return
        self._trim()

    def _trim(self) -> None:
        """Remove what was used longest ago until the rest fits. Another process may be doing the same."""
        found: list[tuple[float, int, Path]] = []
        for path in self.folder.iterdir():
            if path.suffix not in _SUFFIXES:
                continue
            with suppress(OSError):
                stat = path.stat()
                found.append((stat.st_mtime, stat.st_size, path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found, key=lambda item: item[0]):
            if total <= self.size:
                return
            with suppress(OSError):
                path.unlink()
            total -= size

    def _path(self, key: str, suffix: str) -> Path:
        return self.folder / f"{key}{suffix}"

    def _warn(self, text: str) -> None:
        """Warn; Python shows the same text from the same place once."""
        warnings.warn(text, EngineWarning, stacklevel=3)


def _default_dir() -> str:
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return chosen
    base: Any = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return str(Path(base) / "relax_glue")
