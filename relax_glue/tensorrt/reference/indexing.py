"""Layers that read or write by index: gather in its three modes, scatter in its two, one-hot, reverse sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .table import Arrays, Layer


def _gather(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    x, indices = inputs[0], inputs[1]
    mode, batch = layer.mode.name, layer.num_elementwise_dims
    if mode == "ELEMENT":
        return [_gather_elements(layer, x, indices)]
    if mode == "ND":
        return [_gather_nd(layer, x, indices, batch)]
    _inside(layer, indices, x.shape[layer.axis])
    if batch == 0:
        return [np.take(x, indices, axis=layer.axis)]
    rows = [np.take(a, b, axis=layer.axis - 1) for a, b in zip(x, indices, strict=True)]
    return [np.stack(rows)]


def _gather_elements(layer: Any, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    axis = layer.axis
    _inside(layer, indices, x.shape[axis])
    places = list(np.indices(indices.shape))
    places[axis] = indices
    return x[tuple(places)]


def _gather_nd(layer: Any, x: np.ndarray, indices: np.ndarray, batch: int) -> np.ndarray:
    depth = indices.shape[-1]
    for place in range(depth):
        _inside(layer, indices[..., place], x.shape[batch + place])
    coordinates = [indices[..., place] for place in range(depth)]
    lead = indices.ndim - 1
    outer = [
        np.arange(x.shape[axis]).reshape([-1 if place == axis else 1 for place in range(lead)]) for axis in range(batch)
    ]
    return x[(*outer, *coordinates)]


def _scatter(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    x, indices, updates = inputs
    out = x.copy()
    if layer.mode.name == "ELEMENT":
        _inside(layer, indices, x.shape[layer.axis])
        places = list(np.indices(indices.shape))
        places[layer.axis] = indices
        out[tuple(places)] = updates
        return [out]
    for place in range(indices.shape[-1]):
        _inside(layer, indices[..., place], x.shape[place])
    out[tuple(indices[..., place] for place in range(indices.shape[-1]))] = updates
    return [out]


def _inside(layer: Any, indices: np.ndarray, extent: int) -> None:
    """Refuse an index out of bounds: what TensorRT reads there is not defined, negative ones included."""
    if indices.size and (indices.min() < 0 or indices.max() >= extent):
        raise IndexError(f"layer {layer.name} has an index outside 0:{extent}: {indices.min()}, {indices.max()}")


def _one_hot(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    indices, values, depth = inputs
    hot = np.arange(int(depth)) == indices[..., None]
    spread = np.where(hot, values[1], values[0])
    axis = layer.axis if layer.axis >= 0 else layer.axis + spread.ndim
    return [np.moveaxis(spread, -1, axis)]


def _reverse_sequence(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    x, lengths = inputs
    out = np.moveaxis(x, (layer.batch_axis, layer.sequence_axis), (0, 1)).copy()
    for item, length in zip(out, lengths, strict=True):
        item[: int(length)] = item[: int(length)][::-1].copy()
    return [np.moveaxis(out, (0, 1), (layer.batch_axis, layer.sequence_axis))]


LAYERS: Mapping[str, Layer] = {
    "GATHER": Layer("IGatherLayer", _gather),
    "SCATTER": Layer("IScatterLayer", _scatter),
    "REVERSE_SEQUENCE": Layer("IReverseSequenceLayer", _reverse_sequence),
    "ONE_HOT": Layer("IOneHotLayer", _one_hot),
}
