"""What an exported model carries for each region: its signature, the region, and its engine.

The region is written as TVMScript with the constants lifted out, because TVM's JSON cannot hold tensors. It is
what the cache key is made of, what build="lazy" ships, and what an engine is rebuilt from.
"""

from __future__ import annotations

import base64
import hashlib
import re
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm import relax

from ..errors import ConversionError, EngineWarning, PlanError
from .container import pack, unpack
from .options import BuildOptions
from .plain import lift_constants, static_shape, tensor_types


@dataclass(frozen=True)
class TensorSpec:
    """A tensor that crosses the border of a region: its name, static shape and dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: str


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
    """

    provider: str
    gpu: str
    tf32: bool
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    data: bytes

    def header(self) -> dict[str, Any]:
        """Return all but the data, as JSON holds it."""
        names = ("provider", "gpu", "tf32", "inputs", "outputs")
        return {name: getattr(self, name) for name in names}

    @staticmethod
    def of(header: dict[str, Any], data: bytes) -> Plan:
        """Make a plan of what `header` returned and the data."""
        inputs, outputs = tuple(header["inputs"]), tuple(header["outputs"])
        return Plan(header["provider"], header["gpu"], header["tf32"], inputs, outputs, data)


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
    """

    symbol: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    options: BuildOptions
    region: bytes | None
    plan: Plan | None

    def pack(self) -> bytes:
        """Return the artifact as bytes."""
        header: dict[str, Any] = {
            "symbol": self.symbol,
            "inputs": [[spec.name, spec.shape, spec.dtype] for spec in self.inputs],
            "outputs": [[spec.name, spec.shape, spec.dtype] for spec in self.outputs],
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
            tuple(TensorSpec(name, tuple(shape), dtype) for name, shape, dtype in header["inputs"]),
            tuple(TensorSpec(name, tuple(shape), dtype) for name, shape, dtype in header["outputs"]),
            BuildOptions.of(header["options"]),
            sections.get("region"),
            plan,
        )

    def without_plan(self) -> Artifact:
        """Return the artifact with no engine in it."""
        return replace(self, plan=None)


@dataclass(frozen=True)
class SavedRegion:
    """A region in the form in which it is kept: `data` are its bytes, the rest is its signature."""

    symbol: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    data: bytes

    @cached_property
    def digest(self) -> str:
        """SHA-256 of graph, names, shapes, dtypes and weights."""
        return hashlib.sha256(self.data).hexdigest()


def save_region(function: relax.Function) -> SavedRegion:
    """Write a region function down.

    Parameters
    ----------
    function : relax.Function
        A region with static shapes.

    Raises
    ------
    ConversionError
        When it holds more than operator calls, or a shape is symbolic.
    """
    symbol = str((function.attrs or {}).get("global_symbol", "region"))
    plain = lift_constants(function)
    inputs = [_spec(symbol, given.name, given.ty) for given in plain.region.inputs]
    outputs = [_spec(symbol, f"output {i}", ty) for i, ty in enumerate(tensor_types(function.ret_ty))]
    arrays = [const.value.numpy() for const in plain.constants]
    header = {
        "script": plain.function.script(),
        "constants": [[array.shape, str(array.dtype)] for array in arrays],
    }
    sections = {f"constant{i}": np.ascontiguousarray(array).tobytes() for i, array in enumerate(arrays)}
    return SavedRegion(symbol, tuple(inputs), tuple(outputs), pack(header, sections))


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


def _spec(symbol: str, name: str, ty: relax.TensorType) -> TensorSpec:
    shape = static_shape(ty)
    if shape is None:
        raise ConversionError(
            f"{name} of {symbol} is {ty}: an engine needs every extent as a number; fix the input shapes of the model"
        )
    return TensorSpec(name, shape, str(ty.dtype))
