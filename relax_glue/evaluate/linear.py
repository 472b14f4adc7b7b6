"""Products of matrices: exact on integers, another order of summation on floats."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from relax_glue.evaluate.application import Application, Evaluator, Outcome, kind


def _matmul(app: Application) -> Outcome:
    left, right = app.values
    kinds = {kind(left), kind(right)}
    if left.dtype != right.dtype or kinds - set("iuf") or kind(app.out.dtype) not in "iuf":
        return None
    if kinds == {"f"}:
        wide = np.matmul(left.astype(np.float64), right.astype(np.float64))
        return np.asarray(wide).astype(app.out.dtype) if kind(app.out.dtype) == "f" else None
    dtype = app.out.dtype
    return np.asarray(np.matmul(left.astype(dtype), right.astype(dtype))) if kind(dtype) != "f" else None


EVALUATORS = MappingProxyType({"relax.matmul": Evaluator(_matmul, "float_reassoc")})
