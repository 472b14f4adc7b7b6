"""The operators that work element by element, the shape of their result, and constants of one value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from relax_glue.ir import Extent, Node, same

BINARY = tuple(
    f"relax.{name}"
    for name in (
        "add", "subtract", "multiply", "divide", "floor_divide", "power", "mod", "floor_mod", "maximum", "minimum",
        "atan2", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or",
        "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift",
    )
)  # fmt: skip

UNARY = tuple(
    f"relax.{name}"
    for name in (
        "abs", "negative", "sign", "square", "sqrt", "rsqrt", "exp", "log", "erf", "sigmoid", "sin", "cos",
        "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "ceil", "floor",
        "round", "trunc", "isnan", "isinf", "isfinite", "logical_not", "bitwise_not", "clip", "astype",
        "nn.relu", "nn.leakyrelu", "nn.gelu", "nn.gelu_tanh", "nn.silu", "nn.selu", "nn.softplus",
    )
)  # fmt: skip

WHERE = "relax.where"
ASTYPE = "relax.astype"


def casts_bytes(node: Node) -> bool:
    """Return whether a node casts uint8 to a float: TensorRT takes nothing else of that dtype, so it comes first."""
    return node.op == ASTYPE and node.inputs[0].dtype == "uint8" and node.value.dtype in ("float32", "float16")


def broadcast_shape(shapes: Iterable[Sequence[Extent] | None]) -> tuple[Extent, ...] | None:
    """Return the shape that operands are broadcast to, or None where it is not proved.

    Shapes are aligned at the right. (n, 1) and (1, 4) give (n, 4); (n, 1) and (4, 1) give None, for n may be 1 or 4.
    """
    result: list[Extent] = []
    for shape in shapes:
        if shape is None:
            return None
        result = [1] * (len(shape) - len(result)) + result
        for axis, extent in enumerate(shape, len(result) - len(shape)):
            if same(result[axis], 1):
                result[axis] = extent
            elif not same(extent, 1) and not same(result[axis], extent):
                return None
    return tuple(result)


def is_splat(array: np.ndarray) -> bool:
    """Return whether a constant has elements and all of them have the same bits: 0.0 and -0.0 differ."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.size == 0 or flat[:1].tobytes() != flat[-1:].tobytes():
        return False
    rows = flat.view("uint8").reshape(flat.size, -1)
    return bool((rows == rows[0]).all())
