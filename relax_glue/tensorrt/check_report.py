"""What `check` finds: differences of tensors, of regions, of a module."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_TOLERANCES = {"float32": 1e-3, "float16": 2e-2, "bfloat16": 1e-1, "float8_e4m3fn": 2.5e-1}


@dataclass(frozen=True)
class Difference:
    """How far a tensor is from TVM's.

    Attributes
    ----------
    name : str
        The Relax variable, or "output <i>".
    op : str
        The operator that yields it; empty for a result of the region.
    error : float
        The largest absolute difference, as a share of the largest absolute value of TVM's tensor.
    tolerance : float
        What is allowed.
    place : tuple[int, ...]
        Where it is.
    got, expected : float
        The numbers there.
    """

    name: str
    op: str
    error: float
    tolerance: float
    place: tuple[int, ...]
    got: float
    expected: float

    @property
    def ok(self) -> bool:
        """Whether it is close enough."""
        return self.error <= self.tolerance

    def __str__(self) -> str:
        label = f"{self.op} ({self.name})" if self.op else self.name
        return f"{label}: {self.got:.6g} instead of {self.expected:.6g} at {list(self.place)}, error {self.error:.2e}"


@dataclass(frozen=True)
class RegionCheck:
    """What was found of one region.

    Attributes
    ----------
    region : str
        Its name.
    outputs : tuple[Difference, ...]
        Each of its results.
    first : Difference or None
        The first layer, in the order of the region, that differs; None where none does.
    layers : int
        How many layers were compared to find it.
    """

    region: str
    outputs: tuple[Difference, ...]
    first: Difference | None
    layers: int

    @property
    def ok(self) -> bool:
        """Whether all results agree."""
        return all(output.ok for output in self.outputs)

    def __str__(self) -> str:
        worst = max((output.error for output in self.outputs), default=0.0)
        if self.ok:
            return f"{self.region}: ok, largest error {worst:.2e}"
        where = f"first different layer: {self.first}" if self.first else "no single layer differs by more than that"
        return f"{self.region}: DIFFERS, largest error {worst:.2e}; {where}"


@dataclass(frozen=True)
class CheckReport:
    """What `check` found.

    Attributes
    ----------
    where : str
        What computed TensorRT's side: the GPU's name, or "numpy".
    regions : tuple[RegionCheck, ...]
        The regions that the inputs reach, in the order of the calls.
    """

    where: str
    regions: tuple[RegionCheck, ...]

    @property
    def ok(self) -> bool:
        """Whether every region agrees with TVM."""
        return all(region.ok for region in self.regions)

    def __str__(self) -> str:
        return "\n".join([f"TensorRT ({self.where}) against TVM (llvm):", *(f"  {each}" for each in self.regions)])


def difference(name: str, op: str, got: np.ndarray, expected: np.ndarray, tolerance: float | None) -> Difference:
    """Compare a tensor with TVM's.

    Parameters
    ----------
    name, op : str
        What it is, for the report.
    got, expected : np.ndarray
        TensorRT's numbers and TVM's.
    tolerance : float, optional
        The error allowed for floating point; by dtype if left out. Integers have to be equal.
    """
    allowed = _TOLERANCES.get(str(expected.dtype), 0.0)
    if allowed and tolerance is not None:
        allowed = tolerance
    if got.shape != expected.shape:
        return Difference(name, op, float("inf"), allowed, (), float("nan"), float("nan"))
    if expected.size == 0:
        return Difference(name, op, 0.0, allowed, (), 0.0, 0.0)
    a, b = got.astype(np.float64), expected.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.nan_to_num(np.abs(a - b), nan=np.inf, posinf=np.inf))
    place = np.unravel_index(int(np.argmax(apart)), apart.shape)
    scale = float(np.max(np.abs(b), where=np.isfinite(b), initial=0.0)) or 1.0
    error = float(apart[place]) / scale
    return Difference(name, op, error, allowed, tuple(map(int, place)), float(a[place]), float(b[place]))
