"""The passes, each a `tvm.transform.Pass` that works alone in a `tvm.transform.Sequential` and in the pipeline."""

from .batch_norm import FoldBatchNorm
from .broadcast import CanonicalizeBroadcast
from .call_tir import RecognizeCallTir
from .clip import RecognizeClip
from .concat import CanonicalizeConcat
from .constants import FoldConstants
from .dataflow import ConvertToDataflow
from .elementwise import CanonicalizeElementwise
from .layout import ConvertLayout
from .lift_branches import LiftBranches
from .motion import SinkPermuteDims
from .pad import CanonicalizePad
from .permute_dims import CanonicalizePermuteDims
from .pool import CanonicalizePool
from .regions import MergeRegions
from .reshape import CanonicalizeReshape
from .resize import CanonicalizeResize
from .resolve_if import ResolveIf
from .shapes import FoldShapes
from .split import CanonicalizeSplit
from .stack_reduce import RecognizeMaximum
from .strided_slice import CanonicalizeStridedSlice
from .take import CanonicalizeTake

__all__ = [
    "CanonicalizeBroadcast",
    "CanonicalizeConcat",
    "CanonicalizeElementwise",
    "CanonicalizePad",
    "CanonicalizePermuteDims",
    "CanonicalizePool",
    "CanonicalizeReshape",
    "CanonicalizeResize",
    "CanonicalizeSplit",
    "CanonicalizeStridedSlice",
    "CanonicalizeTake",
    "ConvertLayout",
    "ConvertToDataflow",
    "FoldBatchNorm",
    "FoldConstants",
    "FoldShapes",
    "LiftBranches",
    "MergeRegions",
    "RecognizeCallTir",
    "RecognizeClip",
    "RecognizeMaximum",
    "ResolveIf",
    "SinkPermuteDims",
]
