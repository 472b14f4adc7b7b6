"""Relax calls evaluated in numpy, with the dtype and rounding of TVM's LLVM build.

Constants are folded here and never through a compiled kernel: compiling one takes 30 ms, which is where
the 10 to 40 s of TVM's own FoldConstant go. The price is that every operator is spelled twice, so the
rule is never to guess: a case that LLVM leaves undefined (a division by zero, a float that no integer
holds, an index out of bounds), an operator that is not in the table, a dtype that numpy lacks, all give
None, and the call stays as it is. `tests/test_evaluate.py` holds each operator against LLVM.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from tvm import relax

from relax_glue.evaluate import creation, elementwise, indexing, linear, movement, reduction
from relax_glue.evaluate.application import (
    Application,
    Array,
    Evaluator,
    Outcome,
    Result,
    Undetermined,
    Value,
    bind,
    byte_size,
    declared,
    is_floating,
)

__all__ = ["EVALUATORS", "SHAPE_ONLY", "Evaluator", "byte_size", "evaluate"]

EVALUATORS: Mapping[str, Evaluator] = MappingProxyType(
    {
        **movement.EVALUATORS,
        **indexing.EVALUATORS,
        **creation.EVALUATORS,
        **elementwise.EVALUATORS,
        **reduction.EVALUATORS,
        **linear.EVALUATORS,
    }
)
"""Each operator that can be evaluated, by its full name."""

SHAPE_ONLY: frozenset[str] = creation.SHAPE_ONLY
"""Operators that read the type of their first operand only; None may stand for its value."""


def evaluate(
    call: relax.Call,
    args: Sequence[Array | tuple[Array, ...] | None],
    result_type: relax.Type,
    allow: Collection[str] = ("exact",),
) -> Array | tuple[Array, ...] | None:
    """Compute a Relax call on numpy operands.

    Parameters
    ----------
    call
        A call of a Relax operator. Shapes, scalars and attributes are read from it.
    args
        The values of its tensor operands in order, each in the operand's dtype; a tuple of arrays for a
        tuple operand. None for the operand of a `SHAPE_ONLY` operator that is not known.
    result_type
        The type that the call has in the module. The result has exactly this dtype and shape.
    allow
        The soundness classes asked for (see `Evaluator.soundness`).

    Returns
    -------
    result
        The value, which may be a view of an operand and read-only; or None where the operator is unknown,
        an extent is symbolic, or the value is not certain to be that of TVM's LLVM build. A NaN that
        arithmetic makes may have another payload.

    Raises
    ------
    ValueError
        The number of values is not the number of tensor operands, or a value has another dtype than its
        operand (`relax.const` of a float64 or int64 array narrows it unless it is told the dtype).
    """
    evaluator = EVALUATORS.get(getattr(call.op, "name", ""))
    result = declared(result_type)
    if evaluator is None or result is None:
        return None
    try:
        application = Application(call, bind(call, args), result)
        if _unsound(evaluator, application, allow) or _reads_missing(call.op.name, application.values):
            return None
        with np.errstate(all="ignore"):
            return _checked(evaluator.function(application), result)
    except Undetermined:
        return None


def _unsound(evaluator: Evaluator, application: Application, allow: Collection[str]) -> bool:
    if evaluator.soundness in allow:
        return False
    return any(is_floating(array) for array in _arrays(application.values)) or "exact" not in allow


def _arrays(values: Value) -> list[Array]:
    if isinstance(values, tuple):
        return [array for value in values for array in _arrays(value)]
    return [values] if isinstance(values, np.ndarray) else []


def _reads_missing(name: str, values: tuple[Value, ...]) -> bool:
    return any(value is None for value in values[1 if name in SHAPE_ONLY else 0 :])


def _checked(value: Outcome, result: Result | tuple[Result, ...]) -> Outcome:
    """Let a value through only in the declared type: a last guard against a misread attribute."""
    if value is None:
        return None
    if isinstance(value, tuple) and isinstance(result, tuple):
        fits = len(value) == len(result) and all(map(Result.holds, result, value))
        return tuple(map(np.asarray, value)) if fits else None
    if isinstance(value, tuple) or isinstance(result, tuple):
        return None
    return np.asarray(value) if result.holds(value) else None
