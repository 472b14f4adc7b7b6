"""What TVM's importer of exported programs gets wrong or does not have, and how it is imported instead.

This is the one place for it. Each function takes a `TorchNode` and returns the Relax expression of the same meaning
(a list of them for several results), or None to leave the node to TVM's converter. Each docstring tells the fault, and
each is a test in tests/test_torch_repairs.py, against PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from tvm import relax

from relax_glue.errors import ModelImportError

from . import arithmetic, indexing, sampling
from .node import TorchNode

__all__ = ["REPAIRS", "TorchNode", "convert_map"]

Repair = Callable[[TorchNode], Any]

REPAIRS: Mapping[str, Repair] = MappingProxyType(
    {
        "__lshift__.Scalar": arithmetic.shift(relax.op.left_shift),
        "__lshift__.Tensor": arithmetic.shift(relax.op.left_shift),
        "__rshift__.Scalar": arithmetic.shift(relax.op.right_shift),
        "__rshift__.Tensor": arithmetic.shift(relax.op.right_shift),
        "_cdist_forward.default": arithmetic.cdist,
        "_upsample_bicubic2d_aa.default": sampling.upsample_antialias("cubic"),
        "_upsample_bilinear2d_aa.default": sampling.upsample_antialias("linear"),
        "adaptive_max_pool2d.default": sampling.adaptive_max_pool,
        "adaptive_max_pool3d.default": sampling.adaptive_max_pool,
        "add.Tensor": arithmetic.of_booleans(relax.op.logical_or, relax.op.add),
        "amax.default": arithmetic.reduce_by(relax.op.max),
        "amin.default": arithmetic.reduce_by(relax.op.min),
        "any.default": arithmetic.any_,
        "any.dim": arithmetic.any_,
        "any.dims": arithmetic.any_,
        "avg_pool1d.default": sampling.avg_pool(relax.op.nn.avg_pool1d),
        "avg_pool2d.default": sampling.avg_pool(relax.op.nn.avg_pool2d),
        "avg_pool3d.default": sampling.avg_pool(relax.op.nn.avg_pool3d),
        "clamp.default": arithmetic.clamp,
        "clamp_max.default": arithmetic.clamp,
        "clamp_min.default": arithmetic.clamp,
        "cumsum.default": arithmetic.cumsum,
        "div.Tensor_mode": arithmetic.divide,
        "elu.default": arithmetic.elu,
        "eq.Scalar": arithmetic.compare_bool(negated=False),
        "erfc.default": arithmetic.erfc,
        "exp2.default": arithmetic.exp2,
        "floor_divide.default": arithmetic.floor_divide,
        "grid_sampler_2d.default": sampling.grid_sample,
        "hypot.default": arithmetic.hypot,
        "index.Tensor": indexing.index,
        "index_put.default": indexing.index_put,
        "kthvalue.default": arithmetic.kthvalue,
        "max_pool2d_with_indices.default": sampling.max_pool(relax.op.nn.max_pool2d),
        "max_pool3d_with_indices.default": sampling.max_pool(relax.op.nn.max_pool3d),
        "min.dim": arithmetic.min_dim,
        "mul.Tensor": arithmetic.of_booleans(relax.op.logical_and, relax.op.multiply),
        "native_group_norm.default": arithmetic.group_norm,
        "ne.Scalar": arithmetic.compare_bool(negated=True),
        "prod.dim_int": arithmetic.reduce_by(relax.op.prod),
        "repeat_interleave.Tensor": indexing.repeat_interleave,
        "scatter.src": indexing.scatter,
        "scatter_add.default": indexing.scatter_add,
        "scatter_reduce.two": indexing.scatter_reduce,
        "select.int": indexing.select,
        "tril_indices.default": indexing.fixed,
        "triu_indices.default": indexing.fixed,
        "unfold.default": indexing.unfold,
        "upsample_bicubic2d.vec": sampling.upsample("cubic"),
        "upsample_bilinear2d.vec": sampling.upsample("linear"),
        "upsample_nearest2d.vec": sampling.upsample("nearest"),
        "var_mean.correction": arithmetic.var_mean,
    }
)


def convert_map() -> dict[str, Callable[[Any, Any], relax.Expr]]:
    """Return the repairs in the form of `custom_convert_map` of TVM's importer."""
    return {name: _converter(name, repair) for name, repair in REPAIRS.items()}


def _converter(name: str, repair: Repair) -> Callable[[Any, Any], relax.Expr]:
    def convert(fx_node: Any, importer: Any) -> relax.Expr:
        result = repair(TorchNode(fx_node, importer))
        if result is not None:
            return result
        own = importer.create_convert_map().get(name)
        if own is None:
            raise ModelImportError(f"node '{fx_node.name}' ({name}) has a form that has no counterpart in Relax")
        return own(fx_node)

    return convert
