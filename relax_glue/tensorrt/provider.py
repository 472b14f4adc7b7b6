"""One interface over `tensorrt` 10 and 11 and `tensorrt_rtx`.

The packages have one layer API and differ in version, in a few layers and flags, and in name. A `Provider`
is the imported module with what has to be asked about it; nothing else here imports TensorRT. The PyPI
package `tensorrt` can be a placeholder without libraries: importing it fails, and it counts as absent.

Only strongly typed networks are made, which all of them have: precision stands in the IR, so TVM decides it.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import ProviderError

if TYPE_CHECKING:
    import tensorrt  # type: ignore[import-not-found, import-untyped, unused-ignore]

PACKAGES = ("tensorrt", "tensorrt_rtx")
VARIABLE = "RELAX_GLUE_TENSORRT"

_LOG = logging.getLogger("relax_glue.tensorrt")
_OLDEST = {"tensorrt": (10,), "tensorrt_rtx": (1,)}


@dataclass(frozen=True)
class Provider:
    """An imported TensorRT package.

    Attributes
    ----------
    name : str
        "tensorrt" or "tensorrt_rtx".
    version : tuple[int, ...]
        The package's version, such as (10, 14, 1).
    trt : ModuleType
        The module itself, for layer types and enumerations.
    """

    name: str
    version: tuple[int, ...]
    trt: Any = field(compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.name} {'.'.join(map(str, self.version))}"

    @property
    def is_rtx(self) -> bool:
        """Whether this is TensorRT-RTX, which builds engines without a GPU."""
        return self.name == "tensorrt_rtx"

    def has(self, member: str) -> bool:
        """Say whether the network class has a method of that name, such as "add_attention"."""
        return hasattr(self.trt.INetworkDefinition, member)

    def has_flag(self, flag: str) -> bool:
        """Say whether the builder has a flag of that name, such as "WEIGHT_STREAMING"."""
        return flag in self.trt.BuilderFlag.__members__

    def logger(self) -> Any:
        """Return the logger that passes TensorRT's messages to `logging` under "relax_glue.tensorrt".

        Returns
        -------
        trt.ILogger
            The same one each time: TensorRT keeps the first that it is given for the whole process, and
            warns about, and ignores, any other.
        """
        return _logger(self.trt)

    def builder(self) -> Builder:
        """Make a builder."""
        builder = self.trt.Builder(self.logger())
        if builder is None:
            raise ProviderError(f"{self} cannot make a builder; is the NVIDIA driver of this machine usable?")
        return Builder(self, builder)

    def recorder(self) -> Any:
        """Make an error recorder: a TensorRT object that has one reports errors to it, not to the logger.

        Returns
        -------
        trt.IErrorRecorder
            Its `messages` is the list of error texts so far.
        """
        return _recorder_type(self.trt)()


@dataclass(frozen=True)
class Builder:
    """A TensorRT builder, and the networks and configurations it makes."""

    provider: Provider
    builder: tensorrt.Builder

    def network(self) -> tensorrt.INetworkDefinition:
        """Make an empty, strongly typed `INetworkDefinition`."""
        flags = self.provider.trt.NetworkDefinitionCreationFlag.__members__
        bits = 0
        if "STRONGLY_TYPED" in flags:  # gone where there is no other kind
            bits |= 1 << int(flags["STRONGLY_TYPED"])
        return self.builder.create_network(bits)

    def config(self, *, tf32: bool = False) -> tensorrt.IBuilderConfig:
        """Make an `IBuilderConfig`; TF32, which TensorRT has on by default, is off unless asked for."""
        config = self.builder.create_builder_config()
        flag = self.provider.trt.BuilderFlag.TF32
        if tf32:
            config.set_flag(flag)
        else:
            config.clear_flag(flag)
        return config


def installed() -> list[Provider]:
    """Return the providers that this process can import, `tensorrt` before `tensorrt_rtx`."""
    found = [_load(name)[0] for name in PACKAGES]
    return [provider for provider in found if provider is not None]


def get_provider(name: str | None = None) -> Provider:
    """Return the TensorRT package to use.

    Parameters
    ----------
    name : str, optional
        "tensorrt" or "tensorrt_rtx". Left out, the environment variable RELAX_GLUE_TENSORRT decides; without
        it, the first that is installed.

    Raises
    ------
    ProviderError
        When the name is unknown, or no package that would do can be imported; it says why for each.
    """
    wanted = name or os.environ.get(VARIABLE) or None
    if wanted is not None and wanted not in PACKAGES:
        raise ProviderError(f"no TensorRT provider is called {wanted!r}: use one of {', '.join(PACKAGES)}")
    reasons = []
    for package in (wanted,) if wanted else PACKAGES:
        provider, reason = _load(package)
        if provider is not None:
            return provider
        reasons.append(f"{package}: {reason}")
    raise ProviderError(
        f"no TensorRT to build engines with ({'; '.join(reasons)}); install the package tensorrt (10 or 11) or "
        f"tensorrt-rtx-cu13, or compile without TensorRT"
    )


def _load(name: str) -> tuple[Provider | None, str]:
    """Import a package; the second item says why there is none."""
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        return None, str(error)
    except (OSError, RuntimeError) as error:  # a placeholder, or libraries that do not load
        return None, f"{type(error).__name__}: {error}"
    if not hasattr(module, "INetworkDefinition"):
        return None, "the package holds no TensorRT"
    version = tuple(int(part) for part in re.findall(r"\d+", str(module.__version__))[:4])
    if version < _OLDEST[name]:
        return None, f"version {module.__version__} is too old, {_OLDEST[name][0]} is the oldest that will do"
    return Provider(name, version, module), ""


@functools.cache
def _logger(trt: Any) -> Any:
    levels = {
        trt.ILogger.INTERNAL_ERROR: logging.ERROR,
        trt.ILogger.ERROR: logging.ERROR,
        trt.ILogger.WARNING: logging.WARNING,
        trt.ILogger.INFO: logging.DEBUG,  # TensorRT's info is a build log of hundreds of lines
    }

    class Logger(trt.ILogger):
        """Passes messages on; verbose ones, one for each tactic, are dropped."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            level = levels.get(severity)
            if level is not None:
                _LOG.log(level, "%s", message)

    return Logger()


def _recorder_type(trt: Any) -> Callable[[], Any]:
    class Recorder(trt.IErrorRecorder):
        """Keeps the texts of errors."""

        def __init__(self) -> None:
            trt.IErrorRecorder.__init__(self)
            self.messages: list[str] = []

        def report_error(self, code: Any, description: str) -> bool:
            self.messages.append(description)
            return False

        def clear(self) -> None:
            self.messages.clear()

        def num_errors(self) -> int:
            return len(self.messages)

        def get_error_desc(self, index: int) -> str:
            return self.messages[index]

        def get_error_code(self, index: int) -> Any:
            return trt.ErrorCode.UNSPECIFIED_ERROR

        def has_overflowed(self) -> bool:
            return False

        def inc_ref_count(self) -> int:
            return 1

        def dec_ref_count(self) -> int:
            return 1

    return Recorder
