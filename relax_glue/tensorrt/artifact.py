"""What an exported model carries for each region: its signature, the region, and its engine.

The region is written as TVMScript with the constants lifted out, because TVM's JSON cannot hold tensors. It is
what the cache key is made of, what build="lazy" ships, and what an engine is rebuilt from.
"""

from __future__ import annotations

import base64
import hashlib
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm import relax

from ..errors import EngineWarning, PlanError
from ..ir.bounds import attribute_bounds
from .container import pack, unpack
from .options import BuildOptions
from .plain import lift_constants
from .profiles import Profile, resolve
from .signature import ShapeSpec, TensorSpec, signature_of, values_of


@dataclass(frozen=True)
class Plan:
    """A serialised engine.

    Attributes
    ----------
    provider : str
        The TensorRT it was built by, such as "tensorrt 10.14.1".
    gpu : str
        The GPU it was built on, such as "NVIDIA H200 (9.0)", or "no GPU".
    tf32 : bool
        Whether its float32 layers may use TF32.
    inputs, outputs : tuple[str, ...]
        The names of the engine's tensors, in the order of the region's parameters and results.
    data : bytes
        What TensorRT serialised.
    shapes : tuple[str, ...]
        The names of the engine's shape tensors, in the order of the region's shape parameters; "" for one that it
        does not need.
    """

    provider: str
    gpu: str
    tf32: bool
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    data: bytes
    shapes: tuple[str, ...] = ()

    def header(self) -> dict[str, Any]:
        """Return all but the data, as JSON holds it."""
        names = ("provider", "gpu", "tf32", "inputs", "outputs", "shapes")
        return {name: getattr(self, name) for name in names}

    @staticmethod
    def of(header: dict[str, Any], data: bytes) -> Plan:
        """Make a plan of what `header` returned and the data."""
        inputs, outputs, shapes = (tuple(header[key]) for key in ("inputs", "outputs", "shapes"))
        return Plan(header["provider"], header["gpu"], header["tf32"], inputs, outputs, data, shapes)


@dataclass(frozen=True)
class Artifact:
    """All that is carried for one region.

    Attributes
    ----------
    symbol : str
        The name of the region function, for messages.
    inputs, outputs : tuple[TensorSpec, ...]
        The tensors it is called with and fills.
    options : BuildOptions
        How it is built and run on the target machine.
    region : bytes or None
        The region as `save_region` wrote it.
    plan : Plan or None
        Its engine.
    shapes : tuple[ShapeSpec, ...]
        The shapes it is called with.
    profiles : tuple[Profile, ...]
        The ranges of its variables, one item for each optimisation profile; empty where all extents are numbers.
    """

    symbol: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    options: BuildOptions
    region: bytes | None
    plan: Plan | None
    shapes: tuple[ShapeSpec, ...] = ()
    profiles: tuple[Profile, ...] = ()

    def pack(self) -> bytes:
        """Return the artifact as bytes."""
        header: dict[str, Any] = {
            "symbol": self.symbol,
            "inputs": [spec.to_json() for spec in self.inputs],
            "outputs": [spec.to_json() for spec in self.outputs],
            "shapes": [spec.to_json() for spec in self.shapes],
            "profiles": [profile.to_json() for profile in self.profiles],
            "options": self.options.to_json(),
        }
        sections = {}
        if self.region is not None:
            sections["region"] = self.region
        if self.plan is not None:
            header["plan"] = self.plan.header()
            sections["plan"] = self.plan.data
        return pack(header, sections)

    @staticmethod
    def unpack(block: bytes) -> Artifact:
        """Read what `pack` returned. A damaged engine is left out, with a warning, if the region is whole.

        Raises
        ------
        PlanError
            When nothing is left to run.
        """
        damaged: list[str] = []
        header, sections = unpack(block, "the TensorRT part of this model", damaged)
        if damaged and not sections:
            raise PlanError(f"the {' and '.join(damaged)} of {header['symbol']} is damaged: export the model again")
        if damaged:
            text = f"the {damaged[0]} of {header['symbol']} is damaged; the {next(iter(sections))} it carries is used"
            warnings.warn(text, EngineWarning, stacklevel=2)
        plan = Plan.of(header["plan"], sections["plan"]) if "plan" in sections else None
        return Artifact(
            header["symbol"],
            tuple(TensorSpec.of_json(spec) for spec in header["inputs"]),
            tuple(TensorSpec.of_json(spec) for spec in header["outputs"]),
            BuildOptions.of(header["options"]),
            sections.get("region"),
            plan,
            tuple(ShapeSpec.of_json(spec) for spec in header["shapes"]),
            tuple(Profile.of(profile) for profile in header["profiles"]),
        )

    @property
    def arguments(self) -> list[TensorSpec | ShapeSpec]:
        """What it is called with, in the order of a call."""
        found: list[TensorSpec | ShapeSpec] = list(self.inputs)
        for shape in reversed(self.shapes):
            found.insert(shape.before, shape)
        return found

    def values(self, extents: Iterable[Sequence[int]]) -> dict[str, int]:
        """Return the variables of a call whose arguments have these extents, or, if they are shapes, hold them."""
        return values_of([spec.shape for spec in self.arguments], extents)

    def without_plan(self) -> Artifact:
        """Return the artifact with no engine in it."""
        return replace(self, plan=None)


@dataclass(frozen=True)
class SavedRegion:
    """A region in the form in which it is kept: `data` are its bytes, the rest is its signature and ranges."""

    symbol: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    data: bytes
    shapes: tuple[ShapeSpec, ...] = ()
    profiles: tuple[Profile, ...] = ()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of graph, names, shapes, dtypes and weights."""
        return hashlib.sha256(self.data).hexdigest()


def save_region(function: relax.Function, profiles: Sequence[Profile] = ()) -> SavedRegion:
    """Write a region function down.

    Parameters
    ----------
    function : relax.Function
        A region.
    profiles : Sequence[Profile]
        The ranges that the user gave for symbolic extents; for others they are those of the function's attributes.

    Raises
    ------
    ConversionError
        When it holds more than operator calls, or an extent of its inputs and results cannot be carried.
    BuildError
        When the range of a symbolic extent is not known.
    """
    symbol = str((function.attrs or {}).get("global_symbol", "region"))
    plain = lift_constants(function)
    signature = signature_of(plain.region, function.ret_ty)
    ranges = resolve(symbol, signature.names, profiles, attribute_bounds(function))
    arrays = [const.value.numpy() for const in plain.constants]
    header = {
        "script": plain.function.script(),
        "constants": [[array.shape, str(array.dtype)] for array in arrays],
    }
    sections = {f"constant{i}": np.ascontiguousarray(array).tobytes() for i, array in enumerate(arrays)}
    data = pack(header, sections)
    return SavedRegion(symbol, signature.inputs, signature.outputs, data, signature.shapes, ranges)


def load_region(data: bytes) -> relax.Function:
    """Read a region back, as a function without composites.

    Raises
    ------
    PlanError
        When the bytes are damaged.
    """
    header, sections = unpack(data, "the region")
    function = tvm.script.from_source(header["script"])
    count = len(header["constants"])
    values = {}
    for index, (shape, dtype) in enumerate(header["constants"]):
        array = np.frombuffer(sections[f"constant{index}"], _numpy_dtype(dtype)).reshape(shape)
        values[function.params[len(function.params) - count + index]] = tvm.runtime.tensor(array)
    return function.bind_params(values) if values else function


def to_text(block: bytes) -> str:
    """Return bytes as text that an LLVM string constant can hold."""
    return base64.b64encode(block).decode("ascii")


def from_text(text: str) -> bytes:
    """Return the bytes that `to_text` was given.

    Raises
    ------
    PlanError
        When the text is damaged.
    """
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        pass  # one bad character: what stands before and after it may be whole
    try:
        return base64.b64decode(re.sub("[^A-Za-z0-9+/=]", "A", text))
    except ValueError as error:
        raise PlanError(f"the TensorRT part of this model is damaged: {error}") from error


def _numpy_dtype(name: str) -> np.dtype:
    """Return the numpy dtype of a Relax dtype; bfloat16 and float8 are those of ml_dtypes."""
    return np.dtype(getattr(ml_dtypes, name, name))
