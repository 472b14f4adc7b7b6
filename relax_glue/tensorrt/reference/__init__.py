"""A network evaluated layer by layer in numpy, from the built `INetworkDefinition` alone.

A machine without a GPU can build a network but not run it. So the layers are read back, with the attributes
and weights that TensorRT has of them, and computed after TensorRT's own definitions. Nothing here knows the
Relax function that the network was made from: a wrong start, stride, axis or permutation shows as a wrong
number, whoever made the layer.

Each module holds one family of layers as `LAYERS`: the name of the layer type, the class to read it with, and
a function `(layer, inputs) -> outputs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ConversionError
from . import elementwise, indexing, movement, products, reduction, sampling, spatial
from .numpy_types import numpy_dtype
from .table import Layer, merged

if TYPE_CHECKING:
    from ..network import Network

LAYERS: Mapping[str, Layer] = merged(
    elementwise.LAYERS,
    indexing.LAYERS,
    movement.LAYERS,
    products.LAYERS,
    reduction.LAYERS,
    sampling.LAYERS,
    spatial.LAYERS,
)


def evaluate(
    network: Network,
    inputs: Mapping[str, np.ndarray] | Sequence[np.ndarray],
    every_tensor: bool = False,
    shapes: Sequence[np.ndarray] = (),
) -> Any:
    """Evaluate a network.

    Parameters
    ----------
    network : Network
        A built network; only its `INetworkDefinition` is read, and which of its inputs are shapes.
    inputs : Mapping[str, np.ndarray] or Sequence[np.ndarray]
        The tensors by name, or in the order of the network's inputs.
    every_tensor : bool
        Return the value of every tensor by name, instead of the outputs.
    shapes : Sequence[np.ndarray]
        The values of the region's ShapeType parameters in order, int64. The network may read none of them.

    Returns
    -------
    list[np.ndarray] or dict[str, np.ndarray]
        The outputs in order, or all tensors.

    Raises
    ------
    ConversionError
        When a layer is of a type that is not known here, or an input does not fit.
    """
    net = network.net
    values = _inputs(network, inputs, shapes)
    pending = [net.get_layer(index) for index in range(net.num_layers)]
    while pending:
        late = [layer for layer in pending if not _step(network.trt, layer, values)]
        if len(late) == len(pending):
            raise ConversionError(f"the layers {', '.join(layer.name for layer in late)} read what nothing makes")
        pending = late
    if every_tensor:
        return values
    return [values[net.get_output(index).name] for index in range(net.num_outputs)]


def _inputs(
    network: Network, inputs: Mapping[str, np.ndarray] | Sequence[np.ndarray], shapes: Sequence[np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the value of each input by name."""
    read = {shape.name: shape.place for shape in network.shapes}
    given = [network.net.get_input(index) for index in range(network.net.num_inputs)]
    tensors = [tensor for tensor in given if tensor.name not in read]
    if not isinstance(inputs, Mapping):
        if len(inputs) != len(tensors):
            raise ConversionError(f"the network takes {len(tensors)} inputs, not {len(inputs)}")
        inputs = {tensor.name: array for tensor, array in zip(tensors, inputs, strict=True)}
    if any(place >= len(shapes) for place in read.values()):
        raise ConversionError(f"the network reads {', '.join(read)}; got {len(shapes)} shapes")
    arrays = {**inputs, **{name: shapes[place] for name, place in read.items()}}
    return {tensor.name: _checked(tensor, np.asarray(arrays[tensor.name])) for tensor in given}


def _step(trt: Any, layer: Any, values: dict[str, np.ndarray]) -> bool:
    """Compute a layer's outputs; False when an input is not there yet, for layers can stand in any order."""
    tensors = [layer.get_input(index) for index in range(layer.num_inputs)]
    if any(tensor is not None and tensor.name not in values for tensor in tensors):
        return False
    kind = layer.type.name
    if kind not in LAYERS:
        raise ConversionError(f"layer {layer.name} is a {kind}: there is no numpy definition of it")
    found = LAYERS[kind]
    layer.__class__ = getattr(trt, found.reader)
    results = found.run(layer, [None if tensor is None else values[tensor.name] for tensor in tensors])
    for index, array in zip(range(layer.num_outputs), results, strict=True):
        tensor = layer.get_output(index)
        values[tensor.name] = np.asarray(array, dtype=numpy_dtype(tensor.dtype))
    return True


def _checked(tensor: Any, array: np.ndarray) -> np.ndarray:
    shape = tuple(tensor.shape)
    fits = len(shape) == array.ndim and all(a in (-1, b) for a, b in zip(shape, array.shape, strict=True))
    if not fits or array.dtype != numpy_dtype(tensor.dtype):
        raise ConversionError(
            f"input {tensor.name} is a {numpy_dtype(tensor.dtype)} of shape {shape}; got a {array.dtype} of shape "
            f"{array.shape}"
        )
    return array
