"""From a region function to an `INetworkDefinition`.

`build_network` walks the calls of a region and lets the registry's converters add their layers. `Network` is
what a converter works with: it knows which tensor each Relax value has become, makes constants once, aligns
ranks, and names layers after the Relax variable they come from. After each call the shape and type that
TensorRT derived are compared with those of Relax, so a wrong layer is found where it is added.

A reshape or permute_dims that only one layer reads is not a layer of its own: a shuffle layer transposes,
reshapes and transposes again, so three of them become one.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ..errors import ConversionError
from .dtypes import DTYPES, HELD_AS, constant_array
from .extents import Dim, Extent, Extents
from .products import NO_PRODUCTS, Products
from .provider import Builder, Provider, get_provider
from .region import Input, Region, Result, ShapeInput, Step, Value, flatten
from .registry import Registry
from .shuffles import Shuffles
from .weights import Weights


@dataclass(frozen=True)
class Symbol:
    """A dimension of an input that is not a number: `extent` at `axis` of the input called `input`."""

    input: str
    axis: int
    extent: tvm.ir.Expr


class Network:
    """A TensorRT network under construction, and what is known of it afterwards.

    Attributes
    ----------
    trt : ModuleType
        The TensorRT package.
    net : trt.INetworkDefinition
        The network itself.
    provider : Provider
        Where `trt` comes from.
    builder : Builder
        The builder that owns the network.
    inputs : list[Input]
        The tensors that the network takes, in parameter order.
    outputs : list[str]
        The names of its outputs, in result order.
    symbols : list[Symbol]
        The symbolic dimensions of the inputs.
    shapes : list[ShapeInput]
        The shape parameters whose values the network needs, since no input has these extents. Each is one more
        input, an int64 shape tensor that holds them.
    extents : Extents
        The shape tensors.
    products : Products
        Which convolutions become matrix products.
    named : dict[str, str]
        For each result of a Relax call, by its variable's name, the name of its tensor.
    """

    def __init__(self, builder: Builder, products: Products = NO_PRODUCTS) -> None:
        self.builder = builder
        self.products = products
        self.provider: Provider = builder.provider
        self.trt: Any = builder.provider.trt
        self.net = builder.network()
        self._recorder = builder.provider.recorder()
        self.net.error_recorder = self._recorder
        self.inputs: list[Input] = []
        self.outputs: list[str] = []
        self.symbols: list[Symbol] = []
        self.shapes: list[ShapeInput] = []
        self.extents = Extents(self)
        self.named: dict[str, str] = {}
        self._weights = Weights(self.trt, self.dtype)
        self._values: dict[Value, Any] = {}
        self._constants: dict[relax.Expr, Any] = {}
        self._arrays: dict[str, np.ndarray] = {}
        self._shuffles = Shuffles(self)
        self._names: set[str] = set()
        self._layers: dict[str, Any] = {}
        self._step: Step | None = None

    # Relax values

    def tensor(self, expr: relax.Expr) -> Any:
        """Return the `ITensor` of an argument: a variable, or a constant, which becomes a layer once."""
        value = self._resolve(expr)
        if isinstance(value, Input | Result):
            return self._values[value]
        if isinstance(value, tvm.ir.GenericConst):
            if value not in self._constants:
                self._constants[value] = self.constant(constant_array(value))
            return self._constants[value]
        raise ConversionError(f"{self._where()}: {expr} is no tensor")

    def tensors(self, expr: relax.Expr) -> list[Any]:
        """Return the tensors of a tuple argument."""
        if isinstance(expr, relax.Tuple):
            return [self.tensor(item) for item in expr.fields]
        value = self._resolve(expr)
        items = value if isinstance(value, tuple) else (value,)
        return [self._values[item] if isinstance(item, Input | Result) else self.tensor(item) for item in items]

    def array(self, expr: relax.Expr) -> np.ndarray | None:
        """Return the numbers of a constant argument, or None when it is computed."""
        value = self._resolve(expr)
        return constant_array(value) if isinstance(value, tvm.ir.GenericConst) else None

    def _resolve(self, expr: relax.Expr) -> Value:
        if isinstance(expr, relax.Var) and self._step is not None:
            return self._step.scope[expr]
        return expr

    # Making tensors

    def dtype(self, name: str) -> Any:
        """Return the `trt.DataType` of a Relax dtype.

        Raises
        ------
        ConversionError
            When TensorRT has no such type.
        """
        member = DTYPES.get(name)
        if member is None or member not in self.trt.DataType.__members__:
            raise ConversionError(f"{self._where()}: TensorRT has no {name} tensors; use one of {', '.join(DTYPES)}")
        return self.trt.DataType.__members__[member]

    def weights(self, array: np.ndarray) -> Any:
        """Return `trt.Weights` of an array, whose memory then lives as long as this network."""
        return self._weights.of(array)

    def constant(self, array: np.ndarray) -> Any:
        """Add a constant layer that holds `array`, and return its tensor; see `HELD_AS` for its type."""
        array = np.asarray(array)
        held = array.astype(HELD_AS.get(str(array.dtype), array.dtype), copy=False)
        tensor = self.name(self.net.add_constant(held.shape, self.weights(held)), "const").get_output(0)
        tensor = self.cast(tensor, str(array.dtype))
        self._arrays[tensor.name] = array
        return tensor

    def array_of(self, tensor: Any) -> np.ndarray | None:
        """Return the numbers of a tensor that `constant` made, or None."""
        return self._arrays.get(tensor.name)

    def cast(self, tensor: Any, dtype: str) -> Any:
        """Return `tensor` as `dtype`, itself if it has it already."""
        wanted = self.dtype(dtype)
        if tensor.dtype == wanted:
            return tensor
        return self.name(self.net.add_cast(tensor, wanted), "cast").get_output(0)

    def align(self, *tensors: Any, rank: int | None = None) -> list[Any]:
        """Give tensors one rank, by leading extents of 1, as TensorRT wants where Relax broadcasts.

        Parameters
        ----------
        tensors : trt.ITensor
            Tensors of any ranks.
        rank : int, optional
            The rank to reach; the largest of theirs if left out.
        """
        wanted = max([rank or 0, *(len(tensor.shape) for tensor in tensors)])
        return [self._lead(tensor, wanted - len(tensor.shape)) for tensor in tensors]

    def _lead(self, tensor: Any, ones: int) -> Any:
        if ones == 0:
            return tensor
        array = self.array_of(tensor)
        if array is not None:
            return self.constant(array.reshape((1,) * ones + array.shape))
        return self.reshape(tensor, [1] * ones + [Extent(axis) for axis in range(len(tensor.shape))])

    def reshape(self, tensor: Any, dims: Sequence[Dim]) -> Any:
        """Reshape; merged into the shuffle layer before it where that can be.

        Parameters
        ----------
        tensor : trt.ITensor
            The input.
        dims : Sequence[Dim]
            The extents; one may be -1, which is what is left over.
        """
        return self._shuffles.reshape(tensor, dims)

    def transpose(self, tensor: Any, perm: Sequence[int]) -> Any:
        """Permute: axis i of the result is axis `perm[i]` of `tensor`; merged as `reshape` is."""
        return self._shuffles.transpose(tensor, perm)

    def shuffle(
        self,
        tensor: Any,
        first: Sequence[int] | None = None,
        dims: Sequence[Dim] | None = None,
        second: Sequence[int] | None = None,
    ) -> Any:
        """Add a shuffle layer: transpose by `first`, reshape to `dims`, transpose by `second`.

        An `Extent(i)` among the dims is that of `tensor`, before any transpose.
        """
        return self._shuffles.add(tensor, first, dims, second)

    # Names and errors

    def name(self, layer: Any, suffix: str = "") -> Any:
        """Name a layer, and its outputs, after the Relax variable at hand; return the layer.

        Raises
        ------
        ConversionError
            When `layer` is None: TensorRT refused it, and said why.
        """
        if layer is None:
            raise self._failure("refuses a layer")
        base = self._step.name if self._step is not None else "region"
        name = self._unique(f"{base}.{suffix}" if suffix else base)
        layer.name = name
        for index in range(layer.num_outputs):
            layer.get_output(index).name = name if layer.num_outputs == 1 else self._unique(f"{name}:{index}")
            self._layers[layer.get_output(index).name] = layer
        return layer

    def layer_of(self, tensor: Any) -> Any | None:
        """Return the layer that makes a tensor nothing else reads, so that it may still change, or None.

        Nothing else: the tensor is the result of a call that only the call at hand uses, or it stands between
        two layers of one call.
        """
        seen = tensor.name in self.named.values()
        if seen and not self._shuffles.is_sole(tensor.name):
            return None
        return self._layers.get(tensor.name)

    def take_over(self, tensor: Any) -> Any:
        """Let the layer that makes `tensor` yield the value of the call at hand; return its tensor, renamed."""
        if self._shuffles.knows(tensor):
            return self._shuffles.take_over(tensor)
        layer = self._layers[tensor.name]
        self.forget(tensor.name)
        return self.name(layer).get_output(0)

    def forget(self, tensor: str) -> None:
        """Drop the record of a tensor that no longer is in the network."""
        self.named = {var: name for var, name in self.named.items() if name != tensor}

    def _unique(self, name: str) -> str:
        found, number = name, 1
        while found in self._names:
            number += 1
            found = f"{name}_{number}"
        self._names.add(found)
        return found

    def _where(self) -> str:
        if self._step is None:
            return "region"
        return f"{self._step.call.op.name} ({self._step.name})"

    def _failure(self, what: str) -> ConversionError:
        said = [message for message in self._recorder.messages if "Cuda Runtime" not in message]
        self._recorder.clear()
        because = f": {'; '.join(said)}" if said else ""
        return ConversionError(
            f"{self._where()}: {self.provider} {what}{because}; keep the operator outside the region, and report "
            f"that its `accepts` took it"
        )

    # The walk

    def build(self, region: Region, registry: Registry) -> None:
        """Add the layers of a whole region."""
        for given in region.inputs:
            self._input(given)
        for shape in region.shapes:
            self.extents.define_later(shape.extents, functools.cache(functools.partial(self._shape_input, shape)))
        for number, step in enumerate(region.steps):
            self._convert(number, step, registry)
        self._step = None
        for index, value in enumerate(region.outputs):
            self._output(index, value)

    def _input(self, given: Input) -> None:
        dims = [int(extent) if isinstance(extent, tvm.tirx.IntImm) else -1 for extent in _extents(given)]
        name = self._unique(given.name)
        self._values[given] = self.net.add_input(name, self.dtype(str(given.ty.dtype)), dims)
        self.inputs.append(given)
        for axis, extent in enumerate(_extents(given)):
            if dims[axis] == -1:
                self.symbols.append(Symbol(name, axis, extent))
                self.extents.define(extent, self._values[given], axis)

    def _shape_input(self, shape: ShapeInput) -> Any:
        used = replace(shape, name=self._unique(shape.name))
        self.shapes.append(used)
        return self.net.add_input(used.name, self.dtype("int64"), (len(shape.extents),))

    def _convert(self, number: int, step: Step, registry: Registry) -> None:
        self._step = step
        converter = registry.of(step.call.op.name)
        if converter is None:
            raise ConversionError(f"{self._where()}: there is no converter; keep the operator outside the region")
        types = step.call.ty.fields if isinstance(step.call.ty, relax.TupleType) else [step.call.ty]
        try:
            made = converter.convert(self, step.call)
            made = list(made) if isinstance(made, list | tuple) else [made]
            for tensor, ty in zip(made, types, strict=True):
                self._check(tensor, ty)
        except ValueError as error:  # the shape of a tensor that TensorRT finds fault with cannot be read
            if not self._recorder.messages:
                raise
            raise self._failure("refuses a layer") from error
        for item, tensor in enumerate(made):
            self._values[Result(number, item)] = tensor
            self._shuffles.count(tensor.name, step.uses[item])
            self.named[step.name if len(made) == 1 else f"{step.name}.{item}"] = tensor.name

    def _check(self, tensor: Any, ty: relax.TensorType) -> None:
        """Compare what TensorRT derived with what Relax says."""
        shape = tuple(tensor.shape)
        if self._recorder.messages:
            raise self._failure("refuses the layer")
        if tensor.dtype != self.dtype(str(ty.dtype)):
            raise self._failure(f"yields {tensor.dtype} where Relax has {ty.dtype}")
        if ty.shape is None:
            return
        wanted = [int(extent) if isinstance(extent, tvm.tirx.IntImm) else -1 for extent in ty.shape.values]
        fits = len(wanted) == len(shape) and all(
            -1 in pair or pair[0] == pair[1] for pair in zip(wanted, shape, strict=True)
        )
        if not fits:
            raise self._failure(f"yields the shape {shape} where Relax has {wanted}")

    def _output(self, index: int, value: Value) -> None:
        """Mark an output; an input, a constant and an output marked before need a layer of their own."""
        tensor = self._values[value] if isinstance(value, Input | Result) else self.tensor(value)
        marked = tensor.is_network_input or tensor.is_network_output
        if marked or tensor.name in self._arrays or isinstance(value, tvm.ir.GenericConst):
            tensor = self.name(self.net.add_identity(tensor), f"output{index}").get_output(0)
        self.net.mark_output(tensor)
        self.outputs.append(tensor.name)


def build_network(
    function: relax.Function,
    provider: Provider | str | None = None,
    registry: Registry | None = None,
    products: Products = NO_PRODUCTS,
) -> Network:
    """Make the TensorRT network of a region function.

    Parameters
    ----------
    function : relax.Function
        A region as MergeCompositeFunctions or the partitioner makes it, or a function whose body is nothing
        but operator calls. Its parameters and results are tensors; symbolic extents become -1.
    provider : Provider or str, optional
        Which TensorRT to use; see `get_provider`.
    registry : Registry, optional
        The converters; all of them if left out.
    products : Products
        Which convolutions become matrix products; none if left out. `products_for` makes it of `BuildOptions`.

    Returns
    -------
    Network
        With its outputs marked, ready for the builder.

    Raises
    ------
    ConversionError
        When an operator has no converter, or TensorRT refuses a layer.
    ProviderError
        When there is no TensorRT.
    """
    if not isinstance(provider, Provider):
        provider = get_provider(provider)
    from .converters import REGISTRY  # the converters' modules import this one

    network = Network(provider.builder(), products)
    network.build(flatten(function), REGISTRY if registry is None else registry)
    return network


def _extents(given: Input) -> list[tvm.ir.Expr]:
    if given.ty.shape is None or not hasattr(given.ty.shape, "values"):
        raise ConversionError(f"input {given.name} has no known rank; give the region's parameters a shape")
    return list(given.ty.shape.values)
