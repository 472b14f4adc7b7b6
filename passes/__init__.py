"""The passes, each a `tvm.transform.Pass` that works alone in a `tvm.transform.Sequential` and in the pipeline."""

from .affine import FoldAffine
from .batch_norm import FoldBatchNorm
from .broadcast import CanonicalizeBroadcast
from .call_tir import RecognizeCallTir
from .clip import RecognizeClip
from .concat import CanonicalizeConcat
from .constants import FoldConstants
from .dataflow import ConvertToDataflow
from .elementwise import CanonicalizeElementwise
from .layer_norm import RecognizeIdioms
from .layout import ConvertLayout
from .lift_branches import LiftBranches
from .merge import MergeEqual
from .motion import CancelPermuteDims, SinkPermuteDims
from .pad import CanonicalizePad
from .permute_dims import CanonicalizePermuteDims
from .pool import CanonicalizePool
from .regions import MergeRegions
from .reshape import CanonicalizeReshape
from .reshape_motion import MoveReshapes
from .resize import CanonicalizeResize
from .resolve_if import ResolveIf
from .shapes import FoldShapes
from .split import CanonicalizeSplit
from .stack_reduce import RecognizeMaximum
from .strided_slice import CanonicalizeStridedSlice
from .take import CanonicalizeTake

__all__ = [
    "CancelPermuteDims",
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
    "FoldAffine",
    "FoldBatchNorm",
    "FoldConstants",
    "FoldShapes",
    "LiftBranches",
    "MergeEqual",
    "MergeRegions",
    "MoveReshapes",
    "RecognizeCallTir",
    "RecognizeClip",
    "RecognizeIdioms",
    "RecognizeMaximum",
    "ResolveIf",
    "SinkPermuteDims",
]
