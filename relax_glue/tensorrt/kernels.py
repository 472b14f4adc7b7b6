"""Kernels that TensorRT-RTX compiled for a GPU, kept for the next process.

A plan of TensorRT-RTX fits any GPU because its kernels are compiled where it is loaded, which takes seconds. The
provider calls what it has compiled a runtime cache.

An engine of symbolic shapes keeps to its general kernels (the strategy NONE). EAGER and LAZY compile others for the
extents that it is called with; on an H200 these are 1 to 4 % faster, and after a call of a text recogniser with a width
of one step, one with another width gave wrong numbers. A detector's numbers are in docs/engines.md.
"""

from __future__ import annotations

import logging
from typing import Any

from .artifact import Artifact, Plan
from .cache import cache_of, kernels_key
from .cuda import Gpu
from .provider import Provider

_LOG = logging.getLogger("relax_glue.tensorrt")


class Kernels:
    """TensorRT-RTX compiles an engine's kernels when it is loaded; this keeps them for the next process."""

    def __init__(self, engine: Any, config: Any, artifact: Artifact, key: str) -> None:
        self._engine = engine
        self._config = config
        self._key = key
        self._files = cache_of(artifact.options)
        self._compiled = config.create_runtime_cache()
        self._loaded = (self._files.read(key, ".kernels") if self._files is not None else None) or b""
        if self._loaded and not self._compiled.deserialize(self._loaded):
            _LOG.info("the kernels kept for %s are of no use here; they are compiled again", artifact.symbol)
            self._loaded = b""
        config.set_runtime_cache(self._compiled)

    @staticmethod
    def of(engine: Any, provider: Provider, artifact: Artifact, plan: Plan, gpu: Gpu) -> Kernels | None:
        """Make one where the provider compiles late."""
        if not provider.is_rtx:
            return None
        config = engine.create_runtime_config()
        if artifact.profiles:
            strategies = provider.trt.DynamicShapesKernelSpecializationStrategy
            config.dynamic_shapes_kernel_specialization_strategy = strategies.NONE
        return Kernels(engine, config, artifact, kernels_key(plan, gpu.name))

    def context(self) -> Any:
        """Make an execution context that takes its kernels from here."""
        return self._engine.create_execution_context(self._config)

    def keep(self) -> None:
        """Write the kernels to the cache if there are new ones."""
        if self._files is None:
            return
        compiled = bytes(memoryview(self._compiled.serialize()))
        if len(compiled) != len(self._loaded):
            self._files.write(self._key, ".kernels", compiled)
            self._loaded = compiled
