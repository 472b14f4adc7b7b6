"""From a network to a serialised engine.

`build_plan` is the one place where TensorRT's builder runs; `obtain_plan` asks the cache first. What the
builder learns about a GPU (tactic timings, where the provider has them) is kept beside the engines, so a second
model builds faster. An engine of symbolic extents gets one optimisation profile for each of the region's ranges.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
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
from .products import products_for
from .profiles import Profile
from .progress import Reporter, monitor, progress_function
from .provider import Provider, get_provider
from .sizes import Size, bounds, evaluate, text

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
    products = products_for(options, provider, region.profiles, gpu)
    network = build_network(load_region(region.data) if function is None else function, provider, products=products)
    plan = build_plan(network, options, region, gpu=name)
    if cache is not None:
        cache.store(key, plan)
    return plan


def build_plan(
    network: Network, options: BuildOptions, region: SavedRegion, *, title: str | None = None, gpu: str | None = None
) -> Plan:
    """Build and serialise a network's engine.

    Parameters
    ----------
    network : Network
        A network with its outputs marked.
    options : BuildOptions
        Workspace, optimisation level, TF32, progress.
    region : SavedRegion
        What the network was made of: its signature and the ranges of its symbolic extents.
    title : str, optional
        What is built, for the progress bar and messages; the region's name if left out.
    gpu : str, optional
        The name of the current GPU.

    Raises
    ------
    BuildError
        When TensorRT builds none; the message holds what it said.
    """
    provider, gpu = network.provider, gpu if gpu is not None else gpu_name()
    options, title = _settled(options, provider), title or region.symbol
    config = _config(network, options, region)
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
    read = {shape.place: shape.name for shape in network.shapes}
    shapes = tuple(read.get(place, "") for place in range(len(region.shapes)))
    return Plan(str(provider), gpu, options.tf32, inputs, tuple(network.outputs), bytes(memoryview(data)), shapes)


def _settled(options: BuildOptions, provider: Provider) -> BuildOptions:
    """Return the options with TF32 as this process will have it."""
    return replace(options, tf32=precision().settle(provider, options.tf32))


def _config(network: Network, options: BuildOptions, region: SavedRegion) -> trt.IBuilderConfig:
    config: trt.IBuilderConfig = network.builder.config(tf32=options.tf32)
    if options.workspace is not None:
        config.set_memory_pool_limit(network.trt.MemoryPoolType.WORKSPACE, options.workspace)
    if options.optimization_level is not None:
        config.builder_optimization_level = options.optimization_level
    for profile in region.profiles:
        config.add_optimization_profile(_optimization_profile(network, region, profile))
    return config


def _optimization_profile(network: Network, region: SavedRegion, profile: Profile) -> trt.IOptimizationProfile:
    """Return the profile for ranges of the variables: the least, usual and greatest extents of each input."""
    made: trt.IOptimizationProfile = network.builder.builder.create_optimization_profile()
    for given, spec in zip(network.inputs, region.inputs, strict=True):
        if not spec.is_static:
            made.set_shape(given.name, *_corners(f"{spec.name} of {region.symbol}", spec.shape, profile))
    for shape in network.shapes:
        held = region.shapes[shape.place].shape
        made.set_shape_input(shape.name, *_corners(f"{shape.name} of {region.symbol}", held, profile))
    return made


def _corners(what: str, sizes: Sequence[Size], profile: Profile) -> tuple[list[int], list[int], list[int]]:
    """Return the least, the usual and the greatest extents while the variables stay in their ranges."""
    ranges = {name: (found.min, found.max) for name, found in profile.ranges}
    usual = {name: found.opt for name, found in profile.ranges}
    try:
        spans = [bounds(size, ranges) for size in sizes]
    except ZeroDivisionError as error:
        extents = ", ".join(map(text, sizes))
        raise BuildError(
            f"{what} has the extents ({extents}), where {error} for {profile}; narrow the range"
        ) from error
    least, most = [max(0, low) for low, _ in spans], [max(0, high) for _, high in spans]
    return least, [evaluate(size, usual) for size in sizes], most


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
    if any("kOPT" in message for message in messages):
        text += " (the model does not take the middle values of its ranges: give others, as (min, opt, max))"
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
