"""The passes, each a `tvm.transform.Pass` that works alone in a `tvm.transform.Sequential` and in the pipeline."""

from .reshape import CanonicalizeReshape

__all__ = ["CanonicalizeReshape"]
