"""Layers that compute each element by itself: unary, elementwise, activation, select, parametric ReLU."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .precision import wide
from .table import Arrays, Layer

_ERF = np.vectorize(math.erf, otypes=[np.float64])

_UNARY: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "EXP": np.exp,
    "LOG": np.log,
    "SQRT": np.sqrt,
    "RECIP": np.reciprocal,
    "ABS": np.abs,
    "NEG": np.negative,
    "SIN": np.sin,
    "COS": np.cos,
    "TAN": np.tan,
    "SINH": np.sinh,
    "COSH": np.cosh,
    "ASIN": np.arcsin,
    "ACOS": np.arccos,
    "ATAN": np.arctan,
    "ASINH": np.arcsinh,
    "ACOSH": np.arccosh,
    "ATANH": np.arctanh,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "ERF": _ERF,
    "NOT": np.logical_not,
    "SIGN": np.sign,
    "ROUND": np.rint,
    "ISINF": np.isinf,
    "ISNAN": np.isnan,
}


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Divide; integers towards zero, as in C."""
    if a.dtype.kind != "i":
        return np.divide(a, b)
    down = a // b
    return np.where((a % b != 0) & ((a < 0) != (b < 0)), down + 1, down)


_ELEMENTWISE: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "SUM": np.add,
    "PROD": np.multiply,
    "MAX": np.maximum,
    "MIN": np.minimum,
    "SUB": np.subtract,
    "DIV": _divide,
    "POW": np.power,
    "FLOOR_DIV": np.floor_divide,
    "AND": np.logical_and,
    "OR": np.logical_or,
    "XOR": np.logical_xor,
    "EQUAL": np.equal,
    "GREATER": np.greater,
    "LESS": np.less,
}


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


# alpha and beta are the layer's attributes
_ACTIVATION: Mapping[str, Callable[[np.ndarray, float, float], np.ndarray]] = {
    "RELU": lambda x, alpha, beta: np.maximum(x, 0),
    "SIGMOID": lambda x, alpha, beta: 1.0 / (1.0 + np.exp(-x)),
    "TANH": lambda x, alpha, beta: np.tanh(x),
    "LEAKY_RELU": lambda x, alpha, beta: np.where(x >= 0, x, alpha * x),
    "SELU": lambda x, alpha, beta: beta * np.where(x > 0, x, alpha * np.expm1(x)),
    "SOFTPLUS": lambda x, alpha, beta: alpha * np.log1p(np.exp(beta * x)),
    "CLIP": lambda x, alpha, beta: np.maximum(alpha, np.minimum(beta, x)),
    "GELU_ERF": lambda x, alpha, beta: 0.5 * x * (1.0 + _ERF(x * math.sqrt(0.5))),
    "GELU_TANH": lambda x, alpha, beta: _gelu_tanh(x),
}


def _unary(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    with np.errstate(all="ignore"):
        return [_UNARY[layer.op.name](wide(inputs[0]))]


def _elementwise(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    a, b = inputs
    _same_rank(layer, a, b)
    with np.errstate(all="ignore"):
        return [_ELEMENTWISE[layer.op.name](wide(a), wide(b))]


def _activation(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    with np.errstate(all="ignore"):
        return [_ACTIVATION[layer.type.name](wide(inputs[0]), layer.alpha, layer.beta)]


def _select(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    condition, a, b = (wide(array) for array in inputs)
    _same_rank(layer, condition, a, b)
    return [np.where(condition, a, b)]


def _parametric_relu(layer: Any, inputs: Arrays) -> Sequence[np.ndarray]:
    x, slope = (wide(array) for array in inputs)
    _same_rank(layer, x, slope)
    return [np.where(x < 0, slope * x, x)]


def _same_rank(layer: Any, *arrays: np.ndarray | None) -> None:
    """Hold to TensorRT's rule that only extents of 1 broadcast, never a missing axis."""
    ranks = {array.ndim for array in arrays if array is not None}
    if len(ranks) != 1:
        raise ValueError(f"layer {layer.name} has operands of the ranks {sorted(ranks)}")


LAYERS: Mapping[str, Layer] = {
    "UNARY": Layer("IUnaryLayer", _unary),
    "ELEMENTWISE": Layer("IElementWiseLayer", _elementwise),
    "ACTIVATION": Layer("IActivationLayer", _activation),
    "SELECT": Layer("ISelectLayer", _select),
    "PARAMETRIC_RELU": Layer("IParametricReLULayer", _parametric_relu),
}
