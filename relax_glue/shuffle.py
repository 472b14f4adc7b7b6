"""Chains of reshapes and permutes in the fewest movements.

Reshapes and permutes only regroup and reorder the factors of a shape. So a chain of them is followed factor by
factor: a reshape cuts factors where its extents end inside one, a permute reorders them, and factors that are
neighbours both before and after are one factor again. What is left is one permutation of few factors, printed
as reshape, permute, reshape with each of the three left out where it does nothing. (tinygrad merges views of
shapes and strides in the same spirit; rules.md R23.)

A symbolic extent is a factor that is never cut or joined.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from .ir.shapes import Extent, same, same_shape
from .movement import Permute, Reshape

Shuffle = Reshape | Permute


@dataclass
class _Factors:
    """The factors of a tensor's extents, by number.

    Attributes
    ----------
    extent : dict[int, Extent]
        The extent of each factor; never 1.
    source : list[int]
        The factors in the order of the operand's elements.
    """

    extent: dict[int, Extent] = field(default_factory=dict)
    source: list[int] = field(default_factory=list)

    def add(self, extent: Extent) -> int:
        """Return the number of a new factor, which is not yet in `source`."""
        number = len(self.extent)
        self.extent[number] = extent
        return number

    def cut(self, factor: int, first: int) -> tuple[int, int]:
        """Cut a static factor into one of extent `first` and the rest."""
        parts = self.add(first), self.add(self.extent[factor] // first)
        at = self.source.index(factor)
        self.source[at : at + 1] = parts
        return parts

    def join(self, order: Sequence[int]) -> list[int]:
        """Join static factors that are neighbours in the operand and in `order`; return the new order."""
        joined: list[int] = []
        for factor in order:
            if joined and self._follows(joined[-1], factor):
                factor = self._join_pair(joined.pop(), factor)
            joined.append(factor)
        return joined

    def _follows(self, left: int, right: int) -> bool:
        if not (isinstance(self.extent[left], int) and isinstance(self.extent[right], int)):
            return False
        return self.source.index(right) == self.source.index(left) + 1

    def _join_pair(self, left: int, right: int) -> int:
        both = self.add(self.extent[left] * self.extent[right])
        at = self.source.index(left)
        self.source[at : at + 2] = [both]
        return both


def _regroup(factors: _Factors, order: Sequence[int], shape: Sequence[Extent]) -> list[list[int]] | None:
    """Return the factors of each axis of `shape`, or None where an extent ends inside no common factor.

    (6, 2) permuted and then reshaped to (4, 3): 4 ends inside the 6 without dividing it.
    """
    waiting = deque(order)
    axes = []
    for extent in shape:
        axis = _take_axis(factors, waiting, extent)
        if axis is None:
            return None
        axes.append(axis)
    return None if waiting else axes


def _take_axis(factors: _Factors, waiting: deque[int], extent: Extent) -> list[int] | None:
    if not isinstance(extent, int):
        fits = bool(waiting) and same(factors.extent[waiting[0]], extent)
        return [waiting.popleft()] if fits else None
    axis = []
    while extent > 1:
        have = factors.extent[waiting[0]] if waiting else None
        if not isinstance(have, int) or (have % extent and extent % have):
            return None
        factor = waiting.popleft()
        if have > extent:
            factor, rest = factors.cut(factor, extent)
            waiting.appendleft(rest)
        axis.append(factor)
        extent //= min(have, extent)
    return axis


def _follow(factors: _Factors, shape: Sequence[Extent], chain: Sequence[Shuffle]) -> list[int] | None:
    """Return the order of the factors after a chain; joined, so that each neighbour of one is none before."""
    axes: list[list[int]] = []
    for extent in shape:
        axes.append([] if isinstance(extent, int) and extent == 1 else [factors.add(extent)])
    factors.source = [f for axis in axes for f in axis]
    for movement in chain:
        if isinstance(movement, Permute):
            axes = [axes[a] for a in movement.axes]
            continue
        regrouped = _regroup(factors, factors.join([f for axis in axes for f in axis]), movement.shape)
        if regrouped is None:
            return None
        axes = regrouped
    return factors.join([f for axis in axes for f in axis])


def _runs(shape: Sequence[Extent], extents: Sequence[Extent]) -> list[list[int]] | None:
    """Return the run of axes of `shape` that makes up each extent, or None where an axis spans two.

    Axes of extent 1 go to the run that follows, the last ones to the last run.
    """
    runs: list[list[int]] = []
    axis = 0
    for extent in extents:
        run = []
        left = extent
        while not (isinstance(left, int) and left == 1):
            if axis == len(shape):
                return None
            here = shape[axis]
            if isinstance(left, int):
                if not isinstance(here, int) or left % here:
                    return None
                left //= here
            elif same(left, here):
                left = 1
            elif not (isinstance(here, int) and here == 1):
                return None
            run.append(axis)
            axis += 1
        runs.append(run)
    if runs:
        runs[-1] += range(axis, len(shape))
    return runs


def _result_shape(shape: Sequence[Extent], chain: Sequence[Shuffle]) -> tuple[Extent, ...]:
    result = tuple(shape)
    for movement in chain:
        result = movement.shape if isinstance(movement, Reshape) else tuple(result[a] for a in movement.axes)
    return result


def _one_permute(shape: Sequence[Extent], target: Sequence[Extent], runs: list[list[int]]) -> Permute | None:
    """Return the permute that alone turns `shape` into `target` with the axes in runs, if there is one.

    Axes of extent 1 have no order: they go wherever `target` has a 1.
    """
    ones = deque(a for a, e in enumerate(shape) if isinstance(e, int) and e == 1)
    moved = deque(a for run in runs for a in run if a not in ones)
    if len(target) != len(shape):
        return None
    axes = []
    for extent in target:
        pool = ones if isinstance(extent, int) and extent == 1 else moved
        if not pool or not same(shape[pool[0]], extent):
            return None
        axes.append(pool.popleft())
    return Permute(tuple(axes))


def shortest(shape: Sequence[Extent], chain: Sequence[Shuffle]) -> list[Shuffle] | None:
    """Return the fewest movements that do what a chain of reshapes and permutes does.

    Parameters
    ----------
    shape : sequence of extents
        The operand's shape; no extent is 0.
    chain : sequence of Reshape and Permute
        The first movement first. A reshape's shape holds as many elements as what it reshapes.

    Returns
    -------
    movements : list of Reshape and Permute, or None
        At most a reshape, a permute and a reshape; none at all for an identity. None where a reshape between
        two permutes cuts across the factors, or symbolic extents would have to be cut or joined.
    """
    factors = _Factors()
    order = _follow(factors, shape, chain)
    if order is None:
        return None
    target = _result_shape(shape, chain)
    if order == factors.source:
        return [] if same_shape(shape, target) else [Reshape(target)]
    return min(_spellings(factors, order, shape, target), key=_cost)


def _cost(movements: Sequence[Shuffle]) -> tuple[int, int]:
    return len(movements), permute_rank(movements)


def permute_rank(movements: Sequence[Shuffle]) -> int:
    """Return the largest rank that a chain permutes, 0 if it permutes none."""
    return max((len(m.axes) for m in movements if isinstance(m, Permute)), default=0)


def _spellings(
    factors: _Factors, order: list[int], shape: Sequence[Extent], target: tuple[Extent, ...]
) -> list[list[Shuffle]]:
    """Return the ways to print a permutation of factors that is no identity."""
    before = [factors.extent[f] for f in factors.source]
    place = {f: i for i, f in enumerate(factors.source)}
    axes = tuple(place[f] for f in order)
    found: list[list[Shuffle]] = [[Reshape(tuple(before)), Permute(axes), Reshape(target)]]
    runs = _runs(shape, before)
    if runs is not None:
        found += _permute_first(shape, target, [runs[i] for i in axes])
    runs = _runs(target, [before[i] for i in axes])
    if runs is not None:
        found.append(_permute_last(target, runs, axes))
    return found


def _permute_first(shape: Sequence[Extent], target: tuple[Extent, ...], runs: list[list[int]]) -> list[list[Shuffle]]:
    alone = _one_permute(shape, target, runs)
    then = Permute(tuple(a for run in runs for a in run))
    found: list[list[Shuffle]] = [[then, Reshape(target)]]
    return [[alone], *found] if alone else found


def _permute_last(target: tuple[Extent, ...], runs: list[list[int]], axes: tuple[int, ...]) -> list[Shuffle]:
    """Print as a reshape to the target's extents in the operand's order, then the permute."""
    in_source_order = sorted(range(len(axes)), key=lambda i: axes[i])
    laid = [a for i in in_source_order for a in runs[i]]
    back = {axis: at for at, axis in enumerate(laid)}
    return [Reshape(tuple(target[a] for a in laid)), Permute(tuple(back[a] for a in range(len(target))))]
