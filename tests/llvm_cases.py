"""Calls of single Relax operators, evaluated and run by TVM's LLVM build side by side.

All cases of one check stand in one module and compile once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from relax_glue.evaluate import evaluate

FLOATS = ("float16", "float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTEGERS
DTYPES = (*NUMBERS, "bool")
BOTH = ("exact", "float_reassoc")

Operand = Any  # an array, or a tuple of arrays


@dataclass(frozen=True)
class Case:
    """A call, its operands, and whether its value can be known."""

    name: str
    build: Callable[..., relax.Expr]
    args: tuple[Operand, ...]
    known: bool = True
    close: float = 0.0
    constants: bool = False


def _variables(index: int, arg: Operand) -> Any:
    if isinstance(arg, tuple):
        return [_variables(100 * index + place + 1, one) for place, one in enumerate(arg)]
    return relax.Var(f"x{index}", relax.TensorType(list(arg.shape), str(arg.dtype)))


def emit(builder: relax.BlockBuilder, name: str, case: Case) -> relax.Call:
    """Write the case as a function; its operands are parameters, or constants where the case says so."""
    if case.constants:
        operands, flat = [relax.const(arg, str(arg.dtype)) for arg in case.args], []
    else:
        operands = [_variables(index, arg) for index, arg in enumerate(case.args)]
        flat = [v for o in operands for v in (o if isinstance(o, list) else [o])]
    with builder.function(name, flat):
        with builder.dataflow():
            value = builder.emit(case.build(*(relax.Tuple(o) if isinstance(o, list) else o for o in operands)))
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    return builder.get()[name].body.blocks[0].bindings[0].value


def _numpy(value: Any) -> Any:
    return value.numpy() if hasattr(value, "numpy") else tuple(_numpy(field) for field in value)


def _run(cases: Sequence[Case]) -> Iterator[tuple[Case, relax.Call, Any]]:
    builder = relax.BlockBuilder()
    calls = [emit(builder, f"case{i}", case) for i, case in enumerate(cases)]
    machine = relax.VirtualMachine(tvm.compile(builder.get(), "llvm"), tvm.cpu())
    for index, (case, call) in enumerate(zip(cases, calls, strict=True)):
        flat = [one for arg in case.args for one in (arg if isinstance(arg, tuple) else (arg,))]
        tensors = [] if case.constants else [tvm.runtime.tensor(one) for one in flat]
        yield case, call, _numpy(machine[f"case{index}"](*tensors)) if case.known else None


def _bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def _differences(case: Case, mine: Any, theirs: Any) -> list[str]:
    if isinstance(theirs, tuple):
        return [line for pair in zip(mine, theirs, strict=True) for line in _differences(case, *pair)]
    if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
        return [f"{case.name}: {mine.dtype}{mine.shape} is not {theirs.dtype}{theirs.shape}"]
    if case.close:
        equal = np.isclose(mine.astype("f8"), theirs.astype("f8"), case.close, case.close, equal_nan=True)
    else:
        equal = (_bits(mine) == _bits(theirs)) | ((mine != mine) & (theirs != theirs))
    where = np.flatnonzero(~equal.ravel())[:3]
    return [f"{case.name}[{i}]: {mine.ravel()[i]!r} is not LLVM's {theirs.ravel()[i]!r}" for i in where]


def check(cases: Sequence[Case]) -> None:
    """Compare every case; list all that differ."""
    wrong: list[str] = []
    for case, call, theirs in _run([case for case in cases if case.known]):
        allow = BOTH if case.close else ("exact",)
        mine = evaluate(call, case.args, call.ty, allow)
        if mine is None:
            wrong.append(f"{case.name}: not evaluated")
        else:
            wrong += _differences(case, mine, theirs)
    builder = relax.BlockBuilder()
    for index, case in enumerate(case for case in cases if not case.known):
        call = emit(builder, f"case{index}", case)
        if evaluate(call, case.args, call.ty, BOTH) is not None:
            wrong.append(f"{case.name}: evaluated, though it is undefined")
    assert not wrong, "\n".join(wrong)


def pool(dtype: str) -> np.ndarray:
    """The values of a dtype that break things."""
    if dtype == "bool":
        return np.array([False, True])
    if dtype in FLOATS:
        info = np.finfo(dtype)
        tiny = [info.max, info.min, info.tiny, info.smallest_subnormal, info.eps]
        plain = [np.nan, 0.0, -0.0, np.inf, -np.inf, 1, -1, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 3, 7.25, -100.125]
        return np.array([*plain, *tiny], dtype)
    info = np.iinfo(dtype)
    inner = [0, 1, 2, 3, 5, 7, 100]
    values = [*inner, info.max, info.max - 1, info.min, *([] if info.min == 0 else [-v for v in inner])]
    return np.array(values, dtype)


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    values = pool(dtype)
    left, right = np.meshgrid(values, values)
    return left.ravel(), right.ravel()


def divisible(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """The pairs that integers divide: not by zero, not the smallest by -1."""
    left, right = pairs(dtype)
    if dtype in FLOATS:
        return left, right
    keep = right != 0
    if dtype in SIGNED:
        keep &= ~((left == np.iinfo(dtype).min) & (right == -1))
    return left[keep], right[keep]


def grid(shape: Sequence[int], dtype: str) -> np.ndarray:
    """An array whose elements repeat the pool of its dtype."""
    values = pool(dtype)
    return np.resize(values, int(np.prod(shape))).reshape(shape).astype(dtype)


def named(name: str, *args: Operand, **options: Any) -> Case:
    """The plain call of `relax.<name>` on `args`."""
    scope = op
    for part in name.split("."):
        scope = getattr(scope, part)
    return Case(f"{name} {[getattr(a, 'dtype', '()') for a in args]}", scope, args, **options)
