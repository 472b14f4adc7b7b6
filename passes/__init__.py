"""The passes, each a `tvm.transform.Pass` that works alone in a `tvm.transform.Sequential` and in the pipeline."""

from .batch_norm import FoldBatchNorm
from .constants import FoldConstants
from .reshape import CanonicalizeReshape
from .shapes import FoldShapes

__all__ = ["CanonicalizeReshape", "FoldBatchNorm", "FoldConstants", "FoldShapes"]
