"""The bounds that a function declares of its symbolic variables, in the attributes that TVM itself reads."""

from __future__ import annotations

from tvm import relax

LOWER_BOUND = "tir_var_lower_bound"
UPPER_BOUND = "tir_var_upper_bound"


def attribute_bounds(function: relax.Function) -> dict[str, dict[str, int]]:
    """Return the bounds that a function's attributes give its variables: for each attribute, the bounds by name."""
    attrs = function.attrs or {}
    return {
        attribute: {str(name): int(bound) for name, bound in (attrs.get(attribute) or {}).items()}
        for attribute in (LOWER_BOUND, UPPER_BOUND)
    }
