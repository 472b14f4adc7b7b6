"""The support registry: which Relax calls TensorRT can express, and how.

A `Converter` is one object with two halves. `accepts` looks at a call and says why it cannot be taken, or
None; the partitioner asks it. `convert` adds the layers; the network builder asks that. Since both stand in
one object, what is accepted is what is converted. (The idea of a registry that the partitioner shares is
Torch-TensorRT's.)

Nothing here imports TensorRT: a machine without it can partition and explain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

import tvm
from tvm import relax

if TYPE_CHECKING:
    from .network import Network

Accepts = Callable[[relax.Call], "Refusal | str | None"]
Convert = Callable[["Network", relax.Call], Any]


@dataclass(frozen=True)
class Refusal:
    """Why a call stays outside a region.

    Attributes
    ----------
    reason : str
        The condition that fails, with the value at fault.
    hint : str
        What the user can do about it; empty where nothing is known.
    """

    reason: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.reason} ({self.hint})" if self.hint else self.reason


@dataclass(frozen=True)
class Converter:
    """Support for one or more Relax operators.

    Attributes
    ----------
    ops : tuple[str, ...]
        Full operator names, such as "relax.nn.conv2d".
    accepts : Callable
        `accepts(call)` returns None when the call can be converted, else the reason. It never mutates.
    convert : Callable
        `convert(network, call)` adds layers to a `Network` and returns the output tensor, or a list of
        tensors for a call whose result is a tuple.
    glue : bool
        True for an operator that only moves data: it alone is not worth an engine.
    """

    ops: tuple[str, ...]
    accepts: Accepts
    convert: Convert
    glue: bool = False


def converter(*ops: str, accepts: Accepts, glue: bool = False) -> Callable[[Convert], Converter]:
    """Make a `Converter` of the decorated function; nothing global is changed."""

    def wrap(convert: Convert) -> Converter:
        return Converter(ops, accepts, convert, glue)

    return wrap


@dataclass(frozen=True)
class Registry:
    """Converters by operator name.

    `registry.accepts(call)` answers for any call; `registry.of(name)` is the converter or None.
    """

    converters: Mapping[str, Converter] = field(default_factory=dict)

    @staticmethod
    def collect(*modules: ModuleType) -> Registry:
        """Take every `Converter` that stands in `modules`; two for one operator are an error."""
        found: dict[str, Converter] = {}
        for module in modules:
            for value in vars(module).values():
                if not isinstance(value, Converter):
                    continue
                for op in value.ops:
                    if found.setdefault(op, value) is not value:
                        raise ValueError(f"two converters for {op}; the second is in {module.__name__}")
        return Registry(found)

    def of(self, op: str) -> Converter | None:
        """Return the converter of the operator named `op`, or None."""
        return self.converters.get(op)

    def __iter__(self) -> Iterator[str]:
        return iter(self.converters)

    def accepts(self, call: relax.Call) -> Refusal | None:
        """Return None when TensorRT can express `call`, else why not."""
        found = self.converters.get(call.op.name) if isinstance(call.op, tvm.ir.Op) else None
        if found is None:
            return _no_layer(call)
        said = found.accepts(call)
        return Refusal(said) if isinstance(said, str) else said


_KERNEL_CALLS = ("relax.call_tir", "relax.call_tir_inplace", "relax.call_tir_with_grad")
_PACKED_CALLS = ("relax.call_packed", "relax.call_pure_packed", "relax.call_dps_packed")


def _no_layer(call: relax.Call) -> Refusal:
    """Say why no converter is there for a call, and what can be done."""
    if not isinstance(call.op, tvm.ir.Op):
        named = (getattr(call.op, key, None) for key in ("name_hint", "global_symbol", "name"))
        callee = next(filter(None, named), "a closure")
        hint = "its own operators are offloaded by themselves; inline the function to join them with those around it"
        return Refusal(f"TensorRT has no layer for a call to a function, {callee}", hint)
    name = call.op.name
    if name in _KERNEL_CALLS:
        kernel = getattr(call.args[0], "name_hint", call.args[0])
        hint = "optimise the model before its operators are legalised to kernels"
        return Refusal(f"TensorRT has no layer for a TIR kernel, {kernel}", hint)
    if name in _PACKED_CALLS:
        function = getattr(call.args[0], "global_symbol", call.args[0])
        return Refusal(f"TensorRT has no layer for a packed function, {function}", "write it in Relax operators")
    return Refusal(
        f"TensorRT has no layer for {name}",
        "it stays with TVM; rewrite it in terms of operators that TensorRT has, if it cuts the model",
    )
