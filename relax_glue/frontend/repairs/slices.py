"""Slice and Pad, whose bounds may be known, free, or computed."""

from __future__ import annotations

from typing import Any

from tvm import relax

from relax_glue.frontend.symbolic import Element

from .node import OnnxNode, extents_of

TO_THE_END = 10**9  # exporters write this, the largest int32 or the largest int64 for "up to the end" of an axis


def slice_(node: OnnxNode) -> relax.Expr | None:
    """Slice with bounds that are known or follow from free extents, each clamped as ONNX says.

    TVM has no form for opset 1 to 9, where the bounds are attributes (ValueError), on a free axis of extent n it
    writes "up to the end" as min(9223372036854775807, n), which it then cannot prove equal to n, and bounds that are
    computed become a dynamic_strided_slice of unknown shape.
    """
    bounds = _slice_bounds(node)
    extents = extents_of(node.inputs[0])
    if bounds is None or extents is None:
        return None
    cuts: dict[int, tuple[Element, Element, int]] = {}
    for start, stop, axis, step in zip(*bounds, strict=True):
        place = axis % len(extents)
        cut = _cut(node, extents[place], start, stop, step)
        if cut is None:
            return None
        if not _is_whole(node, cut, extents[place]):
            cuts[place] = cut
    if not cuts:
        return node.inputs[0]
    known = all(isinstance(value, int) for cut in cuts.values() for value in cut)
    if known and all(isinstance(extents[axis], int) for axis in cuts):
        columns = zip(*cuts.values(), strict=True)
        return relax.op.strided_slice(node.inputs[0], list(cuts), *map(list, columns))
    return _free_slice(node, extents, cuts)


def _slice_bounds(node: OnnxNode) -> tuple[list[Any], ...] | None:
    """Return starts, ends, axes and steps as lists of equal length; None where one is computed."""
    starts: list[Any] | None
    if node.opset < 10:
        starts, ends = node.attrs["starts"], node.attrs["ends"]
        axes, steps = node.attrs.get("axes"), None
    else:
        if any(node.input(index) is not None and node.elements(index) is None for index in range(1, 5)):
            return None
        starts, ends, axes, steps = (node.elements(index) for index in range(1, 5))
    starts, ends = starts or [], ends or []
    columns = [starts, ends, range(len(starts)) if axes is None else axes, steps or [1] * len(starts)]
    listed = tuple(list(column) for column in columns)
    if len({len(column) for column in listed}) != 1:
        raise node.refuse(f"its starts, ends, axes and steps differ in number: {listed}")
    if not all(isinstance(value, int) for column in listed[2:] for value in column):
        return None
    if 0 in listed[3]:
        raise node.refuse("a step is 0")
    return listed


def _cut(
    node: OnnxNode, extent: Element, start: Element, stop: Element, step: int
) -> tuple[Element, Element, int] | None:
    """Return begin, end and stride on one axis, with bounds inside of it; None where a sign is open."""
    if isinstance(extent, int) and isinstance(start, int) and isinstance(stop, int):
        begin, end, step = slice(start, stop, step).indices(extent)
        if not range(begin, end, step):
            return 0, 0, 1  # topi refuses an end before the beginning
        # Relax counts a negative end from the back, so "down to before the first" is -(extent + 1).
        return begin, end if end >= 0 or step > 0 else -(extent + 1), step
    arithmetic = node.facts.arithmetic
    last = arithmetic.subtract(extent, 1)
    limits = (0, extent) if step > 0 else (-1, last)
    first, behind = (_clamped(node, bound, extent, limits) for bound in (start, stop))
    if first is None or behind is None:
        return None
    if step < 0:  # counted from the back, as in a flipped tensor
        first, behind = arithmetic.subtract(last, first), arithmetic.subtract(last, behind)
    return first, arithmetic.maximum(first, behind), step


def _clamped(node: OnnxNode, bound: Element, extent: Element, limits: tuple[Element, Element]) -> Element | None:
    """Return a bound with a negative one counted from the back, moved into the limits."""
    arithmetic = node.facts.arithmetic
    if isinstance(bound, int) and bound >= TO_THE_END:
        return limits[1]
    if isinstance(bound, int) and bound <= -TO_THE_END:
        return limits[0]
    negative = arithmetic.is_negative(bound)
    if negative is None:
        return None
    place = arithmetic.add(bound, extent) if negative else bound
    return arithmetic.maximum(arithmetic.minimum(place, limits[1]), limits[0])


def _is_whole(node: OnnxNode, cut: tuple[Element, Element, int], extent: Element) -> bool:
    same = node.facts.arithmetic.same
    return cut[2] == 1 and same(cut[0], 0) and same(cut[1], extent)


def _free_slice(node: OnnxNode, extents: list[Element], cuts: dict[int, tuple[Element, Element, int]]) -> relax.Expr:
    """Return a slice on free extents. Its bounds are inside, which Relax is told: else it clamps them once more.

    A negative step is written as a flip: a negative end has two meanings in Relax, and on a free axis it takes the
    wrong one, and reads outside the tensor.
    """
    x = node.inputs[0]
    for axis in [axis for axis, cut in cuts.items() if cut[2] < 0 and not isinstance(extents[axis], int)]:
        x = node.emit(relax.op.flip(x, axis))
        cuts[axis] = (*cuts[axis][:2], -cuts[axis][2])
        if _is_whole(node, cuts[axis], extents[axis]):
            del cuts[axis]
    if not cuts:
        return x
    known = {axis: cut for axis, cut in cuts.items() if isinstance(extents[axis], int) and _is_known(cut)}
    free = {axis: cut for axis, cut in cuts.items() if axis not in known}
    if known and free:
        x = node.emit(relax.op.strided_slice(x, list(known), *map(list, zip(*known.values(), strict=True))))
    columns = map(list, zip(*(free or known).values(), strict=True))
    return relax.op.strided_slice(x, list(free or known), *columns, assume_inbound=bool(free))


def _is_known(cut: tuple[Element, Element, int]) -> bool:
    return all(isinstance(value, int) for value in cut)
