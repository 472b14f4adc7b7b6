"""How engines are built, kept and run: one frozen value that is passed along.

What shapes the engine goes into the cache key; what is needed on the machine that runs the model travels with
it (`to_json`); the progress callback does neither.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..errors import UnknownNameError
from .profiles import Profile, read_profiles

Progress: TypeAlias = Callable[[str, int, int], "bool | None"]

DEFAULT_CACHE_SIZE = 4 << 30
_OF_THE_ENGINE = ("workspace", "optimization_level", "tf32", "conv_as_matmul")
# profiles are carried region by region, as they were resolved
_NOT_CARRIED = ("build", "keep_region", "progress", "profiles")


@dataclass(frozen=True)
class BuildOptions:
    """Options of `Codegen` and of `relax.ext.tensorrt`.

    Attributes
    ----------
    provider : str, optional
        "tensorrt" or "tensorrt_rtx"; see `get_provider` for what is taken without it.
    build : str
        "now" builds engines when the model is compiled. "lazy" carries the region, and the first call on the
        target machine builds it: for compiling where there is no GPU.
    keep_region : bool
        With build="now", carry the region beside its engine, so that an engine which the target machine
        refuses (another TensorRT version, another GPU) is rebuilt there. The exported file then holds the
        weights twice.
    workspace : int, optional
        Bytes of scratch memory that the builder may plan for; TensorRT's default is the whole device.
    optimization_level : int, optional
        0 (fast build) to 5 (fast engine); TensorRT's default is 3.
    tf32 : bool
        Allow TF32 in float32 layers; off, since it keeps ten bits of the mantissa.
    conv_as_matmul : bool, optional
        Compute small convolutions as matrix products: those of float32, and 1x1 ones of float16 whose channels do not
        fit tensor cores. True does it with every TensorRT, False with none; None with TensorRT-RTX, for float32 if
        TF32 is off and the extents are fixed, where models were measured to be up to six times faster. See
        docs/engines.md.
    cuda_graphs : bool
        Replay calls with static shapes as CUDA graphs.
    cache : bool
        Keep built engines on disk.
    cache_dir : str, optional
        Where; the environment variable RELAX_GLUE_CACHE_DIR or the user's cache folder without it. A folder
        that is named here is used on the target machine too.
    cache_size : int
        Bytes that the folder may grow to; what was used longest ago goes first.
    progress : bool or Callable, optional
        True draws a bar on stderr, False does not, and None draws it when stderr is a terminal. A function
        is called with (phase, step, steps); it stops the build by returning False.
    profiles : Mapping or Sequence of Mapping, optional
        For which extents engines of symbolic shapes are built: by the name of each symbolic variable (min, opt, max),
        (min, max), where the kernels are chosen for max (its last multiple of 32), or one number. Several mappings
        give several optimisation profiles; a call uses the active one while it holds the call's extents, else the
        first that does. Variables that are not named have the range of the function attributes
        `tir_var_lower_bound` and `tir_var_upper_bound`.
        Afterwards a tuple of `Profile`.
    """

    provider: str | None = None
    build: str = "now"
    keep_region: bool = True
    workspace: int | None = None
    optimization_level: int | None = None
    tf32: bool = False
    conv_as_matmul: bool | None = None
    cuda_graphs: bool = True
    cache: bool = True
    cache_dir: str | None = None
    cache_size: int = DEFAULT_CACHE_SIZE
    progress: bool | Progress | None = None
    profiles: Mapping[str, Any] | Sequence[Mapping[str, Any] | Profile] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "profiles", read_profiles(self.profiles))
        if self.build not in ("now", "lazy"):
            raise UnknownNameError(f"build={self.build!r}: engines are built 'now' or 'lazy'")
        if self.workspace is not None and self.workspace <= 0:
            raise ValueError(f"workspace={self.workspace}: give a number of bytes, or None for the whole device")
        if self.optimization_level is not None and not 0 <= self.optimization_level <= 5:
            raise ValueError(f"optimization_level={self.optimization_level}: TensorRT has levels 0 to 5")
        if self.cache_size < 0:
            raise ValueError(f"cache_size={self.cache_size}: give a number of bytes; cache=False turns it off")

    @staticmethod
    def of(values: BuildOptions | Mapping[str, Any] | None) -> BuildOptions:
        """Make options of a mapping, such as RunCodegen's target options; None stands for the usual ones.

        Raises
        ------
        UnknownNameError
            When a key is no option.
        TypeError
            When it is something else, such as the value of one option.
        """
        if isinstance(values, BuildOptions):
            return values
        values = {} if values is None else values
        if not isinstance(values, Mapping):
            raise TypeError(f"build options are a BuildOptions, such as BuildOptions(build='lazy'), not {values!r}")
        known = [field.name for field in dataclasses.fields(BuildOptions)]
        unknown = sorted(set(map(str, values)) - set(known))
        if unknown:
            raise UnknownNameError(f"no TensorRT option {', '.join(unknown)}; there are {', '.join(known)}")
        return BuildOptions(**{str(key): value for key, value in values.items()})

    def engine_settings(self) -> dict[str, Any]:
        """Return what changes the engine that is built."""
        return {name: getattr(self, name) for name in _OF_THE_ENGINE}

    def to_json(self) -> dict[str, Any]:
        """Return what the machine that runs the model has to know."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if name not in _NOT_CARRIED}
