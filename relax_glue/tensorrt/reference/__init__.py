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
from . import elementwise, indexing, movement, products, reduction, spatial
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
    spatial.LAYERS,
)


def evaluate(
    network: Network, inputs: Mapping[str, np.ndarray] | Sequence[np.ndarray], every_tensor: bool = False
) -> Any:
    """Evaluate a network.

    Parameters
    ----------
    network : Network
        A built network; only its `INetworkDefinition` is read.
    inputs : Mapping[str, np.ndarray] or Sequence[np.ndarray]
        The inputs by name, or in the order of the network's inputs.
    every_tensor : bool
        Return the value of every tensor by name, instead of the outputs.

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
    given = [net.get_input(index) for index in range(net.num_inputs)]
    if not isinstance(inputs, Mapping):
        if len(inputs) != len(given):
            raise ConversionError(f"the network takes {len(given)} inputs, not {len(inputs)}")
        inputs = {tensor.name: array for tensor, array in zip(given, inputs, strict=True)}
    values: dict[str, np.ndarray] = {}
    for tensor in given:
        values[tensor.name] = _checked(tensor, np.asarray(inputs[tensor.name]))
    for index in range(net.num_layers):
        layer = net.get_layer(index)
        outputs = [layer.get_output(number) for number in range(layer.num_outputs)]
        results = _run(network.trt, layer, values)
        for tensor, array in zip(outputs, results, strict=True):
            values[tensor.name] = np.asarray(array, dtype=numpy_dtype(tensor.dtype))
    if every_tensor:
        return values
    return [values[net.get_output(index).name] for index in range(net.num_outputs)]


def _run(trt: Any, layer: Any, values: Mapping[str, np.ndarray]) -> Sequence[np.ndarray]:
    kind = layer.type.name
    if kind not in LAYERS:
        raise ConversionError(f"layer {layer.name} is a {kind}: there is no numpy definition of it")
    arguments = []
    for index in range(layer.num_inputs):
        tensor = layer.get_input(index)
        arguments.append(None if tensor is None else values[tensor.name])
    found = LAYERS[kind]
    layer.__class__ = getattr(trt, found.reader)
    return found.run(layer, arguments)


def _checked(tensor: Any, array: np.ndarray) -> np.ndarray:
    shape = tuple(tensor.shape)
    fits = len(shape) == array.ndim and all(-1 == a or a == b for a, b in zip(shape, array.shape, strict=True))
    if not fits or array.dtype != numpy_dtype(tensor.dtype):
        raise ConversionError(
            f"input {tensor.name} is a {numpy_dtype(tensor.dtype)} of shape {shape}; got a {array.dtype} of shape "
            f"{array.shape}"
        )
    return array
