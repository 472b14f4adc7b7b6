"""From a network to a serialised engine.

`build_plan` is the one place where TensorRT's builder runs; `obtain_plan` asks the cache first. What the
builder learns about a GPU (tactic timings, where the provider has them) is kept beside the engines, so a second
model builds faster.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import relax

from ..errors import BuildError
from .artifact import Plan, SavedRegion, load_region
from .cache import EngineCache, cache_of, engine_key
from .cuda import gpu_name
from .network import Network, build_network
from .options import BuildOptions
from .precision import precision
from .progress import Reporter, monitor, progress_function
from .provider import Provider, get_provider

if TYPE_CHECKING:
    import tensorrt as trt

_LOG = logging.getLogger("relax_glue.tensorrt")


def obtain_plan(
    region: SavedRegion,
    options: BuildOptions,
    function: relax.Function | None = None,
    *,
    gpu: int = 0,
    fresh: bool = False,
) -> Plan:
    """Return the engine of a region, from the cache or built now.

    Parameters
    ----------
    region : SavedRegion
        The region, for the key, and to build from when there is no `function`.
    options : BuildOptions
        How to build; the cache is that of `cache_of(options)`.
    function : relax.Function, optional
        The region function.
    gpu : int
        The GPU that the engine is for; it has to be the current one if it must be built.
    fresh : bool
        Build it even if the cache has one.

    Raises
    ------
    ProviderError
        When there is no TensorRT.
    ConversionError
        When the region cannot be a network.
    BuildError
        When TensorRT builds no engine of it.
    """
    provider = get_provider(options.provider)
    options = _settled(options, provider)
    name = gpu_name(gpu)
    key = engine_key(region, options, str(provider), name)
    cache = cache_of(options)
    plan = cache.load(key) if cache is not None and not fresh else None
    if plan is not None:
        _LOG.info("the engine of %s is in the cache: %s", region.symbol, key)
        return plan
    network = build_network(load_region(region.data) if function is None else function, provider)
    plan = build_plan(network, options, region.symbol, gpu=name)
    if cache is not None:
        cache.store(key, plan)
    return plan


def build_plan(network: Network, options: BuildOptions, title: str, gpu: str | None = None) -> Plan:
    """Build and serialise a network's engine.

    Parameters
    ----------
    network : Network
        A network with its outputs marked and with static shapes.
    options : BuildOptions
        Workspace, optimisation level, TF32, progress.
    title : str
        What is built, for the progress bar and messages.
    gpu : str, optional
        The name of the current GPU.

    Raises
    ------
    BuildError
        When TensorRT builds none; the message holds what it said.
    """
    provider, gpu = network.provider, gpu if gpu is not None else gpu_name()
    options = _settled(options, provider)
    config = _config(network, options)
    timings = _Timings.attach(config, cache_of(options), provider, gpu)
    reporter = _attach_progress(config, provider, options, title)
    recorder = provider.recorder()
    builder: trt.Builder = network.builder.builder
    builder.error_recorder = recorder
    try:
        with precision().held(provider, options.tf32):
            data = builder.build_serialized_network(network.net, config)
    finally:
        # the builder does not keep the recorder alive; that None is allowed is missing from the stubs
        setattr(builder, "error_recorder", None)  # noqa: B010
    if reporter is not None and reporter.error is not None:
        raise reporter.error
    if data is None:
        raise BuildError(_why(provider, title, recorder.messages, reporter))
    timings.keep()
    inputs = tuple(given.name for given in network.inputs)
    return Plan(str(provider), gpu, options.tf32, inputs, tuple(network.outputs), bytes(memoryview(data)))


def _settled(options: BuildOptions, provider: Provider) -> BuildOptions:
    """Return the options with TF32 as this process will have it."""
    return replace(options, tf32=precision().settle(provider, options.tf32))


def _config(network: Network, options: BuildOptions) -> trt.IBuilderConfig:
    if network.symbols:
        symbol = network.symbols[0]
        raise BuildError(
            f"axis {symbol.axis} of {symbol.input} is {symbol.extent}: an engine needs every extent as a number; "
            f"fix the input shapes of the model"
        )
    config: trt.IBuilderConfig = network.builder.config(tf32=options.tf32)
    if options.workspace is not None:
        config.set_memory_pool_limit(network.trt.MemoryPoolType.WORKSPACE, options.workspace)
    if options.optimization_level is not None:
        config.builder_optimization_level = options.optimization_level
    return config


def _attach_progress(
    config: trt.IBuilderConfig, provider: Provider, options: BuildOptions, title: str
) -> Reporter | None:
    function = progress_function(options.progress, f"TensorRT {title[:40]}")
    if function is None or not hasattr(provider.trt, "IProgressMonitor"):
        return None
    reporter = Reporter(function)
    config.progress_monitor = monitor(provider.trt, reporter)
    return reporter


def _why(provider: Provider, title: str, messages: list[str], reporter: Reporter | None) -> str:
    if reporter is not None and reporter.stopped:
        return f"the build of {title} was stopped by the progress function"
    said = "; ".join(messages) or "it gave no reason"
    text = f"{provider} builds no engine of {title}: {said}"
    if any("memory" in message.lower() or "workspace" in message.lower() for message in messages):
        text += " (free memory on the GPU, give more workspace, or lower optimization_level)"
    return text


def timings_key(provider: Provider, gpu: str) -> str:
    """Return the digest under which tactic timings are kept: they hold for one TensorRT on one GPU."""
    return hashlib.sha256(f"{provider} {gpu}".encode()).hexdigest()


class _Timings:
    """The timing cache of a build: read before it, written after it if it grew."""

    def __init__(self, cache: EngineCache | None, key: str, timing_cache: trt.ITimingCache | None, old: bytes) -> None:
        self._cache = cache
        self._key = key
        self._timing_cache = timing_cache
        self._old = old

    @staticmethod
    def attach(config: trt.IBuilderConfig, cache: EngineCache | None, provider: Provider, gpu: str) -> _Timings:
        """Give the config the timings kept for this provider and GPU. TensorRT-RTX times nothing."""
        if cache is None or provider.is_rtx:
            return _Timings(None, "", None, b"")
        key = timings_key(provider, gpu)
        old = cache.read(key, ".timing") or b""
        timing_cache = config.create_timing_cache(old)
        if timing_cache is None:  # TensorRT refuses a damaged file
            timing_cache, old = config.create_timing_cache(b""), b""
        config.set_timing_cache(timing_cache, False)
        return _Timings(cache, key, timing_cache, old)

    def keep(self) -> None:
        """Write the timings if there are new ones."""
        if self._cache is None or self._timing_cache is None:
            return
        new = bytes(memoryview(self._timing_cache.serialize()))
        if new != self._old:
            self._cache.write(self._key, ".timing", new)
