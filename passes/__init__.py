"""The passes, each a `tvm.transform.Pass` that works alone in a `tvm.transform.Sequential` and in the pipeline."""

from .batch_norm import FoldBatchNorm
from .concat import CanonicalizeConcat
from .constants import FoldConstants
from .reshape import CanonicalizeReshape
from .shapes import FoldShapes
from .split import CanonicalizeSplit
from .strided_slice import CanonicalizeStridedSlice
from .take import CanonicalizeTake

__all__ = [
    "CanonicalizeConcat",
    "CanonicalizeReshape",
    "CanonicalizeSplit",
    "CanonicalizeStridedSlice",
    "CanonicalizeTake",
    "FoldBatchNorm",
    "FoldConstants",
    "FoldShapes",
]
