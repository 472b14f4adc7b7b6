"""Gathers, scatters, reductions, scans, sorting and matmul against TVM's LLVM build, bit for bit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tvm
from llvm_cases import (
    DTYPES,
    FLOATS,
    INTEGERS,
    NUMBERS,
    Case,
    check,
    emit,
    grid,
)
from tvm import relax
from tvm.relax import op

from relax_glue.evaluate import evaluate


def test_take() -> None:
    data = np.arange(12, dtype="f4").reshape(3, 4)
    outside = np.array([[0, -1], [-5, 7]], "i8")
    rows = np.array([2, 0, 2])
    cases = [Case(f"take {d}", lambda x, i: op.take(x, i, 1), (grid([2, 3, 2], d), rows)) for d in DTYPES[::3]]
    for axis in (0, -1):
        take = lambda mode, axis=axis: lambda x, i: op.take(x, i, axis, mode)  # noqa: E731
        cases += [
            Case("fast", take("fast"), (data, np.array([[2, 0], [1, 1]], "i4"))),
            Case("clip", take("clip"), (data, outside)),
            Case("wrap", take("wrap"), (data, outside)),
            Case("scalar index", take("fast"), (data, np.array(1, "i8"))),
            Case("no index", take("fast"), (data, np.zeros([0], "i8"))),
            Case("out of bounds", take("fast"), (data, outside), known=False),
        ]
    cases.append(Case("flat", lambda x, i: op.take(x, i), (data.ravel(), np.array([1, 0, 3]))))
    cases.append(Case("small index", lambda x, i: op.take(x, i, 0, "wrap"), (data, np.array([-1, 2], "i4"))))
    check(cases)


def test_gather() -> None:
    data = grid([3, 4, 2], "float32")
    elements = lambda x, i: op.gather_elements(x, i, 1)  # noqa: E731
    nd = lambda batch: lambda x, i: op.gather_nd(x, i, batch)  # noqa: E731
    rows = np.resize([3, 0, 2, 1, 1], (3, 5, 2)).astype("i8")
    cases = [
        Case("gather_elements", elements, (data, rows)),
        Case("gather_elements, fewer", elements, (data, rows[:2, :2, :1].copy())),
        Case("gather_elements, negative", elements, (data, rows - 4), known=False),
        Case("gather_nd", nd(0), (data, np.array([[2, 3], [0, 1]], "i8"))),
        Case("gather_nd full", nd(0), (data, np.array([[[2, 3, 1]], [[0, 1, 0]]], "i8"))),
        Case("gather_nd batch", nd(1), (data, np.array([[3], [0], [2]], "i8"))),
        Case("gather_nd outside", nd(0), (data, np.array([[3, 0]], "i8")), known=False),
        Case("gather_nd negative", nd(0), (data, np.array([[-1, 0]], "i8")), known=False),
        Case("index_tensor", op.index_tensor, (data, (np.array([[1], [2]]), np.array([0, 3, 3])))),
        Case("index_tensor outside", op.index_tensor, (data, (np.array([3]),)), known=False),
    ]
    check(cases)


REDUCTIONS = ("update", "add", "mul", "min", "max")


def test_scatter() -> None:
    cases = []
    for dtype in ("float32", "int8", "float16"):
        data = (np.arange(12).reshape(3, 4) + 1).astype(dtype)
        updates = (np.arange(6).reshape(3, 2) * 23 - 40).astype(dtype)
        twice = np.array([[1, 1], [-1, 0], [2, 2]], "i8")
        places = np.array([[1], [1], [2]], "i8")
        for how in REDUCTIONS:
            elements = lambda x, i, u, how=how: op.scatter_elements(x, i, u, 1, how)  # noqa: E731
            nd = lambda x, i, u, how=how: op.scatter_nd(x, i, u, how)  # noqa: E731
            cases.append(Case(f"scatter_elements {how} {dtype}", elements, (data, twice, updates)))
            cases.append(Case(f"scatter_elements outside {how}", elements, (data, twice + 4, updates), known=False))
            rows = np.concatenate([updates, updates], 1)
            cases.append(Case(f"scatter_nd {how} {dtype}", nd, (data, places, rows)))
            cases.append(Case(f"scatter_nd outside {how}", nd, (data, places + 2, rows), known=False))
    window = lambda x, u: op.slice_scatter(x, u, 1, 6, 2, 1)  # noqa: E731
    cases.append(Case("slice_scatter", window, (grid([2, 7], "float32"), np.ones([2, 3], "f4"))))
    full = lambda x, u: op.slice_scatter(x, u, 0, 3, 1, 0)  # noqa: E731
    cases.append(Case("slice_scatter all", full, (grid([3, 2], "int32"), grid([3, 2], "int32")[::-1].copy())))
    check(cases)


def test_one_hot() -> None:
    prim = tvm.tirx.FloatImm
    hot = lambda axis: lambda i: op.one_hot(i, prim("float32", 2.5), prim("float32", -1.0), 4, axis)  # noqa: E731
    indices = np.array([[0, 3, -1], [4, 1, 1]], "i8")
    check([Case(f"one_hot {axis}", hot(axis), (indices,)) for axis in (-1, 0, 1)])


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
def test_integer_reductions(name: str) -> None:
    cases = []
    for dtype in INTEGERS:
        data = grid([3, 4, 5], dtype)
        for axis, keep in ((None, False), ([0], True), ([-1, 0], False), ([], False)):
            build = lambda x, axis=axis, keep=keep: getattr(op, name)(x, axis, keep)  # noqa: E731
            cases.append(Case(f"{name} {dtype} {axis}", build, (data,)))
    if name in ("sum", "prod"):
        cases.append(Case("of nothing", lambda x: getattr(op, name)(x, [1]), (np.zeros([2, 0, 3], "i4"),)))
    check(cases)


def test_float_extrema() -> None:
    """NaN and signed zeros are left alone: which one stays depends on the order."""
    cases = []
    for dtype, name in itertools.product(FLOATS, ("max", "min")):
        data = grid([4, 5], dtype)
        cases.append(Case(f"{name} {dtype} nan", lambda x, n=name: getattr(op, n)(x, [1]), (data,), known=False))
        data = np.where(np.isnan(data) | (data == 0), 0, data).astype(dtype)
        cases.append(Case(f"{name} {dtype}", lambda x, n=name: getattr(op, n)(x, [1]), (data,)))
        cases.append(Case(f"{name} {dtype}", lambda x, n=name: getattr(op, n)(x, None, True), (data,)))
        # LLVM says the lowest finite float for the maximum of -inf alone.
        data = np.full([2, 3], np.inf if name == "min" else -np.inf, dtype)
        cases.append(Case(f"{name} inf {dtype}", lambda x, n=name: getattr(op, n)(x, [1]), (data,), known=False))
    check(cases)


def test_float_sums_are_close_and_asked_for() -> None:
    data = (np.arange(60, dtype="f4").reshape(3, 4, 5) / 7 - 3).astype("f4")
    cases = []
    for name in ("sum", "mean", "variance", "std"):
        cases.append(Case(name, lambda x, n=name: getattr(op, n)(x, [0, 2], True), (data,), close=1e-5))
    cases.append(Case("prod", lambda x: op.prod(x, [0]), (data,), close=1e-5))
    cases.append(Case("cumsum", lambda x: op.cumsum(x, 1), (data,), close=1e-5))
    cases.append(Case("matmul", op.matmul, (data, data.transpose(0, 2, 1).copy()), close=1e-5))
    check(cases)
    for case in cases:
        call = emit(relax.BlockBuilder(), "case", case)
        assert evaluate(call, case.args, call.ty) is None


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("prod", [300, 300, 0]),  # infinity times 0 on the way: NaN
        ("prod", [1e-4, 1e-4, 1e4]),  # 0 on the way
        ("sum", [6e4, 6e4, -6e4]),
        ("mean", [6e4, 6e4, 6e4]),
        ("variance", [6e4, -6e4, 0]),
        ("std", [300, -300, 0]),
    ],
)
def test_partial_results_that_leave_the_dtype_are_not_folded(name: str, numbers: list[float]) -> None:
    build = lambda x: getattr(op, name)(x, [0])  # noqa: E731
    half, single = (np.array(numbers, dtype) for dtype in ("f2", "f4"))
    check([Case(name, build, (half,), known=False), Case(name, build, (single,), close=1e-5)])


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions(name: str) -> None:
    cases = []
    for dtype in NUMBERS:
        data = grid([3, 5, 4], dtype)
        data = np.clip(np.where(data == data, data, 3), 1, 100).astype(dtype)
        for axis, keep in ((0, False), (-1, True), (None, False)):
            build = lambda x, axis=axis, keep=keep: getattr(op, name)(x, axis, keep)  # noqa: E731
            cases.append(Case(f"{name} {dtype} {axis}", build, (data,)))
    highest = {"argmax": np.iinfo("i4").min, "argmin": np.iinfo("i4").max}[name]
    # LLVM answers -1 where no element goes beyond the value that it starts with.
    for data in (
        np.array([1, np.nan, 2], "f4"),
        np.full([2, 3], highest, "i4"),
        np.array([-np.inf, np.inf], "f2")[::1],
    ):
        position = lambda x: getattr(op, name)(x, -1)  # noqa: E731
        cases.append(Case(f"{data}", position, (data,), known=data.dtype == "f2"))
    check(cases)


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_scans(name: str) -> None:
    scan = lambda *options: lambda x: getattr(op, name)(x, *options)  # noqa: E731
    cases = []
    for dtype in INTEGERS:
        data = grid([2, 5, 3], dtype)
        cases.append(Case(f"{name} {dtype}", scan(1), (data,)))
        cases.append(Case(f"{name} {dtype} exclusive", scan(-1, None, True), (data,)))
        cases.append(Case(f"{name} {dtype} flat wide", scan(None, "int64"), (data,)))
    cases.append(Case(f"{name} bool", scan(0, "int32"), (np.array([True, True, False, True]),)))
    check(cases)


def test_sorting() -> None:
    """Equal elements keep their order, whichever the direction."""
    cases = []
    for dtype in ("float32", "float64", "int32", "int64"):
        data = grid([3, 7], dtype)
        data = np.where(data == data, data, 1).astype(dtype)
        data = np.concatenate([data, data], 1)
        for axis, down in itertools.product((0, -1), (False, True)):
            name = f"{dtype} {axis} {down}"
            cases.append(Case(f"sort {name}", lambda x, a=axis, d=down: op.sort(x, a, d), (data,)))
            argsort = lambda x, a=axis, d=down: op.argsort(x, a, d, "int64")  # noqa: E731
            cases.append(Case(f"argsort {name}", argsort, (data,)))
            topk = lambda x, a=axis, d=down: op.topk(x, 2, a, "both", d, "int32")  # noqa: E731
            cases.append(Case(f"topk {name}", topk, (data,)))
    cases.append(Case("nan", op.sort, (np.array([1, np.nan], "f4"),), known=False))
    check(cases)


def test_integer_matmul() -> None:
    cases = []
    for dtype in ("int8", "uint8", "int32", "int64"):
        left, right = grid([2, 3, 4], dtype), grid([4, 5], dtype)
        cases.append(Case(f"matmul {dtype}", op.matmul, (left, right)))
        cases.append(Case(f"matmul {dtype} wide", lambda x, y: op.matmul(x, y, "int32"), (left, right)))
        cases.append(Case(f"matmul {dtype} vector", op.matmul, (left, right[:, 0].copy())))
    cases.append(Case("matmul over nothing", op.matmul, (np.zeros([2, 0], "i4"), np.zeros([0, 3], "i4"))))
    check(cases)
