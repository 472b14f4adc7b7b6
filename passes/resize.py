"""Nearest-neighbour resizes: one spelling of the ones that repeat each element k times.

torch.export writes an upsampling by 2 as half-pixel coordinates with rounding "round", TensorFlow as
tf_half_pixel_for_nn with "floor"; TVM's TensorRT table takes neither. Where the source element of every result
element is the same, they become asymmetric coordinates with "floor". Whether it is, is computed, in fractions, for
each axis; a position so near to where the rounding turns that float32 may fall on the other side is a no.
A resize that moves nothing is none, and one of single elements is a broadcast.

Linear ones compute a * 1 + b * 0, which is NaN where b is infinite, so those that keep the size or repeat single
elements go only if such a difference is allowed. (rules.md Q01, Q03, Q13.)
"""

from __future__ import annotations

import math
from fractions import Fraction

from tvm import relax

from relax_glue.ir import Graph, Node, Value
from relax_glue.ir.views import emit_movement
from relax_glue.movement import Broadcast
from relax_glue.rewrite import NAN_SENSITIVE, Decline, Replacement, RuleSet, rule

from .base import family
from .convolution import spatial_axes

RESIZES = ("relax.image.resize2d", "relax.image.resize3d")
_HALF = Fraction(1, 2)
_INDEX_DTYPES = ("float32", "float16", "bfloat16", "int8", "uint8", "int16", "uint16")  # exact in float32
NOT_STATIC = Decline("it is no nearest-neighbour resize of static extents")


def _coordinate(position: int, extent: int, size: int, mode: str) -> Fraction | None:
    """Return where a position of the result lies in the operand, or None for a mode that needs more to know."""
    scale = Fraction(extent, size)
    match mode:
        case "asymmetric":
            return position * scale
        case "half_pixel":
            return (position + _HALF) * scale - _HALF
        case "pytorch_half_pixel":
            return (position + _HALF) * scale - _HALF if size > 1 else Fraction(0)
        case "tf_half_pixel_for_nn":
            return (position + _HALF) * scale
        case "align_corners" if size > 1:
            return Fraction(position * (extent - 1), size - 1)
    return None


# rounding -> how far before an integer it turns to that integer
_TURNS = {
    "floor": Fraction(0),
    "round": _HALF,
    "round_prefer_ceil": _HALF,
    "round_prefer_floor": _HALF,
    "ceil": Fraction(1),
}


def source_index(position: int, extent: int, size: int, mode: str, rounding: str) -> int | None:
    """Return which element a nearest-neighbour resize takes, by exact arithmetic.

    Parameters
    ----------
    position, extent, size : int
        The position in the result, the operand's extent and the result's.
    mode, rounding : str
        `coordinate_transformation_mode` and `rounding_method` of `relax.image.resize2d`.

    Returns
    -------
    index : int or None
        None where the coordinate is too near to where the rounding turns to be sure of float32, or is unknown.
    """
    rounding = rounding or ("round" if mode == "align_corners" else "floor")
    where = _coordinate(position, extent, size, mode)
    if where is None or rounding not in _TURNS:
        return None
    turned = where + _TURNS[rounding]
    margin = min(turned - math.floor(turned), math.ceil(turned) - turned)
    if margin * 2**20 <= extent:  # a few float32 units in the last place of a coordinate up to `extent`
        return None
    return min(max(math.floor(turned), 0), extent - 1)


def _is_repetition(extent: int, size: int, mode: str, rounding: str) -> bool:
    """Return whether a resize takes element o // k for every position o, with k = size / extent an integer."""
    if size % extent:
        return False
    if (mode, rounding or "floor") == ("asymmetric", "floor") or extent == 1:
        return True
    factor = size // extent
    return all(source_index(o, extent, size, mode, rounding) == o // factor for o in range(size))


def _floor_is_sure(op: str, extent: int, size: int) -> bool:
    """Return whether TVM computes o // k for asymmetric coordinates with "floor": by integers, or exact floats."""
    factor = size // extent
    by_integers = op == RESIZES[0] and factor * (extent + 1) <= 10**5
    return by_integers or factor & (factor - 1) == 0


def _spatial(node: Node, method: str = "nearest_neighbor") -> list[tuple[int, int]] | None:
    """Return (extent before, extent after) by spatial axis of a resize by that method, or None."""
    before, after = node.inputs[0].shape, node.value.shape
    if before is None or after is None or str(node.attrs.method) != method:
        return None
    axes = spatial_axes(str(node.attrs.layout), len(before))
    pairs = [(before[a], after[a]) for a in axes or ()]
    static = all(isinstance(e, int) and e > 0 for pair in pairs for e in pair)
    return pairs if pairs and static else None


def _repeats(node: Node) -> list[tuple[int, int]] | None:
    """Return `_spatial` of a resize that repeats every element on each axis, or None."""
    pairs = _spatial(node)
    mode, rounding = str(node.attrs.coordinate_transformation_mode), str(node.attrs.rounding_method)
    if pairs is None or mode == "tf_crop_and_resize":
        return None
    return pairs if all(_is_repetition(n, m, mode, rounding) for n, m in pairs) else None


@rule(
    "resize-to-broadcast",
    *RESIZES,
    equation="resize(x, shape(x)) -> x; resize(x) of extents of 1 -> broadcast_to(x)",
    source="Q01, Q13",
)
def resize_to_broadcast(node: Node, graph: Graph) -> Replacement | Decline:
    """Spell a resize whose axes stay or are 1 as a broadcast, or as x."""
    pairs, x = _repeats(node), node.inputs[0]
    if pairs is None:
        return NOT_STATIC
    if any(n not in (1, m) for n, m in pairs):
        return Decline("it repeats more than one element")
    if x.dtype != node.value.dtype or x.dtype not in _INDEX_DTYPES:
        return Decline("TVM's resize goes through float32, which changes this dtype")
    return emit_movement(graph, Broadcast(node.value.shape or ()), x)


@rule(
    "nearest-normal-form",
    *RESIZES,
    equation="resize(x, k * shape(x), any mode that repeats) -> resize(x, asymmetric, floor)",
    source="Q03",
)
def nearest_normal_form(node: Node, graph: Graph) -> Replacement | Decline:
    """Spell the repetition of every element with asymmetric coordinates and "floor"."""
    attrs = node.attrs
    if (str(attrs.coordinate_transformation_mode), str(attrs.rounding_method)) == ("asymmetric", "floor"):
        return Decline("it has that form")
    pairs = _repeats(node)
    if pairs is None:
        return Decline("some position does not take element o // k, or not for sure")
    if not all(_floor_is_sure(node.op, n, m) for n, m in pairs):
        return Decline("float32 is not exact enough for extents like these")
    return _asymmetric_floor(graph, node, [m for _, m in pairs])


def _asymmetric_floor(graph: Graph, node: Node, size: list[int]) -> Value:
    make = relax.op.image.resize2d if node.op == RESIZES[0] else relax.op.image.resize3d
    attrs = node.attrs
    return graph.emit(
        lambda x: make(
            x,
            size,
            layout=attrs.layout,
            method="nearest_neighbor",
            coordinate_transformation_mode="asymmetric",
            rounding_method="floor",
            cubic_alpha=attrs.cubic_alpha,
            cubic_exclude=attrs.cubic_exclude,
            extrapolation_value=attrs.extrapolation_value,
            out_dtype=attrs.out_dtype,
        ),
        node.inputs[0],
    )


@rule(
    "linear-to-broadcast",
    *RESIZES,
    equation="linear resize(x, shape(x)) -> x; linear resize(x) of extents of 1 -> broadcast_to(x)",
    soundness=NAN_SENSITIVE,
    source="Q01, Q13",
)
def linear_to_broadcast(node: Node, graph: Graph) -> Replacement | Decline:
    """Spell a linear resize between equal elements as a broadcast, or as x."""
    pairs, x, mode = _spatial(node, "linear"), node.inputs[0], str(node.attrs.coordinate_transformation_mode)
    if pairs is None or any(n not in (1, m) for n, m in pairs):
        return Decline("it is no linear resize, or it interpolates between elements")
    if "float" not in str(x.dtype) and any(n != m for n, m in pairs):
        return Decline("it cuts integers off: 15 * 2 / 3 + 15 / 3 is 14.999999, and so 14")
    # tf_half_pixel_for_nn lies half-way to the next element even where the size stays
    if mode not in ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"):
        return Decline("its coordinates are not those of the elements")
    if x.dtype != node.value.dtype or x.dtype not in _INDEX_DTYPES:
        return Decline("TVM's resize goes through float32, which changes this dtype")
    return emit_movement(graph, Broadcast(node.value.shape or ()), x)


RULES = RuleSet.of(resize_to_broadcast, nearest_normal_form, linear_to_broadcast)


CanonicalizeResize = family(
    "CanonicalizeResize",
    RULES,
    "Spell nearest-neighbour resizes by integer factors in the one way that TensorRT takes.",
)
