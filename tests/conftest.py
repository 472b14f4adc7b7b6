"""Shared fixtures: where the models beside the checkout are, and whether this machine has a GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real models beside the checkout; a test that needs it skips where it is missing."""
    if not (SHARED / "graphs").is_dir():
        pytest.skip(f"no models at {SHARED}: put the project's shared folder beside the checkout")
    if str(SHARED) not in sys.path:
        sys.path.insert(0, str(SHARED))
    return SHARED


def _has_gpu() -> bool:
    import tvm

    return bool(tvm.cuda(0).exist)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked `gpu` on a machine that has none."""
    marked = [item for item in items if "gpu" in item.keywords]
    if marked and not _has_gpu():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU on this machine"))
