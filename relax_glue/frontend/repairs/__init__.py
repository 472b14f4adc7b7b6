"""What TVM's ONNX importer gets wrong, or writes so that it cannot be offloaded, and how it is imported instead.

This is the one place for it. Each function takes an ONNX node and returns the Relax expression of the same meaning, or
None to leave the node, possibly with other operands or attributes, to TVM's converter. Each docstring tells the case
that shows the fault, and each case is a test in tests/test_onnx_repairs.py or test_onnx_attributes.py, for free sizes
in test_onnx_dynamic*.py.

Three kinds of fault are mended. The importer builds several operators as TIR functions (`call_tir`), although Relax
has the operator. It refuses forms that ONNX allows. And it reads some wrongly, without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from tvm import relax

from . import arithmetic, layers, movement, padding, recurrent, resize, shapes, slices
from .node import SHAPE_OPERANDS, Facts, OnnxNode
from .rows import non_zero, top_k
from .suppression import non_max_suppression

__all__ = ["REPAIRS", "SHAPE_OPERANDS", "Facts", "OnnxNode", "Repair"]

Repair = Callable[[OnnxNode], "relax.Expr | None"]

REPAIRS: Mapping[str, Repair] = MappingProxyType(
    {
        "AveragePool": layers.average_pool,
        "BatchNormalization": layers.batch_norm,
        "Cast": movement.cast,
        "Clip": arithmetic.clip,
        "ConstantOfShape": shapes.constant_of_shape,
        "Conv": layers.conv,
        "ConvTranspose": layers.conv_transpose,
        "CumSum": arithmetic.cum_sum,
        "Dropout": layers.first_result_only,
        "Einsum": arithmetic.einsum,
        "Elu": arithmetic.elu,
        "Expand": shapes.expand,
        "Flatten": shapes.flatten,
        "GRU": recurrent.gru,
        "Gather": movement.gather,
        "GatherElements": movement.elements_at,
        "GatherND": movement.slices_at,
        "IsInf": arithmetic.is_inf,
        "LSTM": recurrent.lstm,
        "LayerNormalization": layers.first_result_only,
        "LpNormalization": arithmetic.lp_normalization,
        "LpPool": layers.lp_pool,
        "Max": arithmetic.chain(relax.op.maximum),
        "MaxPool": layers.max_pool,
        "Mean": arithmetic.mean,
        "Min": arithmetic.chain(relax.op.minimum),
        "NonMaxSuppression": non_max_suppression,
        "NonZero": non_zero,
        "OneHot": arithmetic.one_hot,
        "PRelu": layers.prelu,
        "Pad": padding.pad,
        "Pow": arithmetic.power,
        "Range": shapes.range_,
        "Reshape": shapes.reshape,
        "Resize": resize.resize,
        "RoiAlign": layers.roi_align,
        "ScatterElements": movement.elements_at,
        "ScatterND": movement.slices_at,
        "Selu": arithmetic.selu,
        "Slice": slices.slice_,
        "SpaceToDepth": movement.space_to_depth,
        "Split": movement.split,
        "Squeeze": movement.squeeze,
        "Sum": arithmetic.chain(relax.op.add),
        "ThresholdedRelu": arithmetic.thresholded_relu,
        "Tile": shapes.tile,
        "TopK": top_k,
        "Upsample": resize.upsample,
    }
)
