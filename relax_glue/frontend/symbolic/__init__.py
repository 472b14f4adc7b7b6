"""Sizes that stay free: shape arithmetic of a model as expressions of the extents of its inputs.

Where every extent is a number, `frontend/onnx_fold.py` computes the shapes that a model is to have. Where some are
free, the same nodes (Shape, Gather, Mul, Concat) are computed here, on expressions: `(height - 1) // 32 + 1` is the
value of an element, and what asks for a shape (Reshape, Expand, Range) is given that expression.

`arithmetic.py` calculates with single elements, `evaluate.py` evaluates nodes on small tensors of them, `joins.py`
makes extents equal that ONNX says are equal (`operands.py` says which, for operators with weights), and `checks.py`
asks at the entry of the function what the model needs of its sizes. `ranges.py` reads what the caller says of them.
"""

from .arithmetic import MAX_EXTENT, Arithmetic, Element, Quotient
from .checks import EntryChecks
from .evaluate import evaluate_symbolic, shape_of
from .joins import Joins
from .values import MAX_ELEMENTS, SymbolicTensor

__all__ = [
    "MAX_ELEMENTS",
    "MAX_EXTENT",
    "Arithmetic",
    "Element",
    "EntryChecks",
    "Joins",
    "Quotient",
    "SymbolicTensor",
    "evaluate_symbolic",
    "shape_of",
]
