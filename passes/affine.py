"""Chains of scales and shifts by constants become one scale and one shift; scales go into the weights after them.

    ((x - m) / s) * a + b         ->  x * A + B
    conv(x * c, W), matmul(x * c, W), c along the channels that are summed  ->  conv(x, W * c), matmul(x, W * c)

The constants are computed in float64 and rounded once. A chain right after a layer stays: TensorRT computes it with the
layer, and on an H200 the PP-OCR classifier, whose hard sigmoids are such chains, took 0.502 ms where they were joined
and 0.491 ms where they were not. (rules.md B09 to B11, X15.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

from relax_glue.ir import Graph, Node, Value, same_shape
from relax_glue.rewrite import FLOAT_REASSOC, Decline, Replacement, RuleSet, rule

from .base import family
from .batch_norm import CONVOLUTIONS, FLOATS, rounded, scaled_weight
from .convolution import summed_axes
from .permute_clusters import LAYERS

Step = tuple[str, np.ndarray, bool]  # the operator, the constant, and whether it is c - x

STEPS = ("relax.add", "relax.subtract", "relax.multiply", "relax.divide")
AFTER_LAYER = Decline("a layer comes before it: TensorRT computes such a chain with the layer")
SHORTEST = Decline("it is as short as can be")
NOT_FINITE = Decline("a constant leaves the range of the type")


@rule(
    "affine-chain",
    *STEPS,
    equation="(x * a + b) * c + d -> x * (a * c) + (b * c + d), constants; - and / likewise",
    soundness=FLOAT_REASSOC,
    source="B11, X15",
)
def affine_chain(node: Node, graph: Graph) -> Replacement | Decline:
    """Scale and shift once, where that is fewer operators than there are."""
    if node.value.dtype not in FLOATS:
        return Decline("the dtype is no float")
    x, steps = _steps(node.value, graph)
    if x.op in LAYERS:
        return AFTER_LAYER
    if len(steps) < 2:
        return SHORTEST
    scale, shift = _joined(steps)
    if len(steps) <= sum((scale is not None, shift is not None)):
        return SHORTEST
    found = x
    for array, make in ((scale, relax.op.multiply), (shift, relax.op.add)):
        if array is None:
            continue
        constant = _constant(array, x.dtype or "")
        if constant is None:
            return NOT_FINITE
        found = graph.emit(make, found, graph.constant(constant))
    return found


def _constant(exact: np.ndarray, dtype: str) -> np.ndarray | None:
    """Return float64 values in a float type, or None where one would lose more than its last bits."""
    found = rounded(exact, dtype)
    if found is None or not np.isfinite(found).all():
        return None
    small = (exact != 0) & (np.abs(exact) < np.finfo(dtype).tiny)
    return None if small.any() else found


def _steps(value: Value, graph: Graph) -> tuple[Value, list[Step]]:
    """Return x and the steps, the last one first, of the longest chain that ends in a value."""
    steps: list[Step] = []
    while (step := _step(value)) is not None:
        inner, array, swapped = step
        if steps and not (graph.single_use(value) and _aligned([a for _, a, _ in steps], array)):
            break
        steps.append((value.op, array, swapped))
        value = inner
    return value, steps


def _joined(steps: Sequence[Step]) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the scale and the shift of a chain, in float64."""
    scale: np.ndarray | None = None
    shift: np.ndarray | None = None
    for op, array, swapped in reversed(steps):
        scale, shift = _after(op, array.astype("float64"), swapped, scale, shift)
    return scale, shift


def _step(value: Value) -> tuple[Value, np.ndarray, bool] | None:
    """Return the operand, the constant and whether it is c - x, of one step; None where it is none."""
    if value.op not in STEPS or value.index is not None:
        return None
    left, right = value.node.inputs
    if right.array is not None and left.array is None:
        inner, array, swapped = left, right.array, False
    elif left.array is not None and right.array is None and value.op != "relax.divide":
        inner, array, swapped = right, left.array, value.op == "relax.subtract"
    else:
        return None
    usable = same_shape(inner.shape, value.shape) and inner.dtype == value.dtype and array.size
    if value.op == "relax.divide" and usable and not array.all():
        return None
    return (inner, array, swapped) if usable and np.isfinite(array).all() else None


def _aligned(arrays: list[np.ndarray], array: np.ndarray) -> bool:
    """Return whether constants together are not larger than the largest of them."""
    everything = [*arrays, array]
    size = np.broadcast_shapes(*(a.shape for a in everything))
    return int(np.prod(size)) <= max(a.size for a in everything)


def _after(
    op: str, array: np.ndarray, swapped: bool, scale: np.ndarray | None, shift: np.ndarray | None
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the scale and the shift after one more step."""
    if op in ("relax.multiply", "relax.divide"):
        factor = array if op == "relax.multiply" else 1 / array
        return factor if scale is None else scale * factor, None if shift is None else shift * factor
    if swapped:
        minus = np.full((), -1.0)
        scale, shift = (minus if scale is None else -scale), (None if shift is None else -shift)
    added = -array if op == "relax.subtract" and not swapped else array
    return scale, added if shift is None else shift + added


@rule(
    "scale-before-weight",
    *CONVOLUTIONS,
    "relax.matmul",
    equation="conv(x * c, W) -> conv(x, W * c), matmul(x * c, W) -> matmul(x, W * c), c along what is summed",
    producers=("relax.multiply",),
    single_use=(0,),
    soundness=FLOAT_REASSOC,
    source="B09, B10",
)
def scale_before_weight(node: Node, graph: Graph) -> Replacement | Decline:
    """Multiply the weights, once, instead of the operand."""
    scaled, weight = node.inputs[0], node.inputs[1].array
    step = _step(scaled)
    if step is None or weight is None or weight.dtype.name not in FLOATS:
        return Decline("it is no product with a constant before a constant weight")
    x, factor, _ = step
    axes = summed_axes(node)
    if axes is None:
        return Decline("its weight is no matrix, or it has groups, or another layout")
    operand_axis, weight_axis = axes
    vector = _along(factor, x.ndim, operand_axis)
    if vector is None:
        return Decline("the constant varies along other axes than the one that is summed")
    shape = [-1 if k == weight_axis else 1 for k in range(weight.ndim)]
    new = scaled_weight(weight, vector.astype("float64").reshape(shape))
    return NOT_FINITE if new is None else graph.rebuild(node, [x, graph.constant(new)])


def _along(constant: np.ndarray, rank: int, axis: int) -> np.ndarray | None:
    """Return a constant that varies along one axis of a tensor only as a vector, or None."""
    if constant.ndim > rank:
        return None
    full = constant.reshape((1,) * (rank - constant.ndim) + constant.shape)
    return full.ravel() if all(n == 1 for k, n in enumerate(full.shape) if k != axis) else None


RULES = RuleSet.of(affine_chain, scale_before_weight)


FoldAffine = family(
    "FoldAffine", RULES, "Join scales and shifts by constants, and let them go into the weights that follow."
)
