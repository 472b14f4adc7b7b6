"""Operators that move or make data against TVM's LLVM build, bit for bit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tvm
from llvm_cases import (
    Case,
    Operand,
    check,
    emit,
    grid,
    named,
    pool,
)
from tvm import relax
from tvm.relax import op

from relax_glue.evaluate import evaluate

MOVED = ("bool", "int8", "uint16", "float16", "float32", "int64")


def _moving(name: str, build: Callable[..., relax.Expr], *shapes: Any) -> list[Case]:
    """One case for each width of element; NaN payloads must come through."""
    cases = []
    for dtype in MOVED:
        args = tuple(_filled(shape, dtype) for shape in shapes)
        cases.append(Case(f"{name} {dtype} {shapes}", build, args))
    return cases


def _filled(shape: Any, dtype: str) -> Operand:
    return tuple(grid(one, dtype) for one in shape) if isinstance(shape, tuple) else grid(shape, dtype)


def _one(name: str, build: Callable[..., relax.Expr], shape: Sequence[int], **options: Any) -> Case:
    return Case(name, build, (np.arange(np.prod(shape), dtype="f4").reshape(shape),), **options)


def test_views() -> None:
    cases = _moving("reshape", lambda x: op.reshape(x, [4, 6]), [2, 3, 4])
    cases += _moving("permute_dims", lambda x: op.permute_dims(x, [2, 0, -2]), [2, 3, 4])
    cases += [
        _one("reshape -1", lambda x: op.reshape(x, [-1, 3]), [2, 3, 4]),
        _one("reshape to rank 0", lambda x: op.reshape(x, []), [1, 1]),
        _one("reshape of rank 0", lambda x: op.reshape(x, [1, 1]), []),
        _one("reshape of nothing", lambda x: op.reshape(x, [0, 7, 1]), [0, 7]),
        _one("flatten", op.flatten, [2, 3, 4]),
        _one("flatten rank 0", op.flatten, []),
        _one("batch_flatten", op.nn.batch_flatten, [2, 3, 4]),
        _one("expand_dims", lambda x: op.expand_dims(x, [0, -1, 2]), [2, 3]),
        _one("squeeze", lambda x: op.squeeze(x, [-1, 0]), [1, 2, 1, 3, 1]),
        _one("squeeze all", op.squeeze, [1, 2, 1]),
        _one("reverse axes", op.permute_dims, [2, 3, 4]),
        _one("permute rank 0", op.permute_dims, []),
        _one("permute nothing", lambda x: op.permute_dims(x, [1, 0]), [0, 3]),
        _one("layout_transform", lambda x: op.layout_transform(x, lambda n, c, h, w: (n, h, w, c)), [2, 3, 4, 5]),
    ]
    blocked = lambda n, c, h, w: (n, c // 4, h, w, c % 4)  # noqa: E731
    cases.append(_one("NCHW4c", lambda x: op.layout_transform(x, blocked), [1, 8, 2, 2], known=False))
    check(cases)


def test_pixel_shuffle() -> None:
    """The wheel's TVM cannot lower this one (its topi lacks the function), so against the definition."""
    data = grid([2, 12, 3, 5], "float32")
    call = emit(relax.BlockBuilder(), "case", Case("", lambda x: op.nn.pixel_shuffle(x, 2), (data,)))
    value = evaluate(call, (data,), call.ty)
    assert isinstance(value, np.ndarray)
    for n, c, h, w in np.ndindex(2, 3, 6, 10):
        source = data[n, c * 4 + (h % 2) * 2 + w % 2, h // 2, w // 2]
        assert value[n, c, h, w].tobytes() == source.tobytes()


def test_views_copy_nothing() -> None:
    data = np.arange(24.0).reshape(2, 3, 4)
    builds = [
        lambda x: op.reshape(x, [6, 4]),
        lambda x: op.permute_dims(x, [2, 0, 1]),
        lambda x: op.strided_slice(x, [1], [0], [2]),
        lambda x: op.broadcast_to(x, [5, 2, 3, 4]),
        lambda x: op.flip(x, 1),
    ]
    for build in builds:
        call = emit(relax.BlockBuilder(), "case", Case("", build, (data,)))
        value = evaluate(call, (data,), call.ty)
        assert isinstance(value, np.ndarray)
        assert np.shares_memory(value, data)


BOUNDS = (-(2**31), -9, -8, -7, -6, -1, 0, 1, 3, 6, 7, 8, 2**31 - 1)


@pytest.mark.parametrize("stride", [1, 2, 5, -1, -3])
def test_strided_slice_clamps(stride: int) -> None:
    """An axis of 7 elements with every begin and end around its ends.

    TVM does not compile a slice whose clamped end lies before its begin.
    """
    build = lambda b, e: lambda x: op.strided_slice(x, [1], [b], [e], [stride])  # noqa: E731
    ends = [slice(b, e, stride).indices(7) for b, e in itertools.product(BOUNDS, BOUNDS)]
    forward = [(last - first) * stride >= 0 for first, last, _ in ends]
    picked = list(itertools.compress(itertools.product(BOUNDS, BOUNDS), forward))
    check([_one(f"slice {b}:{e}:{stride}", build(b, e), [1, 7]) for b, e in picked[:: abs(stride)]])


def test_strided_slice() -> None:
    cases = _moving("slice", lambda x: op.strided_slice(x, [0, -1], [1, 3], [3, 0], [1, -2]), [3, 2, 4])
    cases += [
        _one("no axis", lambda x: op.strided_slice(x, [], [], []), [3]),
        _one("empty", lambda x: op.strided_slice(x, [0], [0], [9]), [0, 2]),
        _one("int64 max", lambda x: op.strided_slice(x, [0], [1], [2**63 - 1]), [5]),
        _one("assume", lambda x: op.strided_slice(x, [0], [1], [3], assume_inbound=True), [5]),
    ]
    check(cases)


def test_dynamic_strided_slice() -> None:
    """Compiled once, run with every bound; LLVM has no empty slice, which is compared by its length."""
    data = np.arange(14, dtype="f4").reshape(2, 7)
    bounds = itertools.product(BOUNDS, BOUNDS, (1, 3, -1, -2))
    vectors = [(np.array([1, b]), np.array([2, e]), np.array([1, s])) for b, e, s in bounds]
    builder = relax.BlockBuilder()
    call = emit(builder, "case", named("dynamic_strided_slice", data, *vectors[0]))
    machine = relax.VirtualMachine(tvm.compile(builder.get(), "llvm"), tvm.cpu())
    for begin, end, strides in vectors:
        mine = evaluate(call, (data, begin, end, strides), call.ty)
        assert isinstance(mine, np.ndarray)
        if mine.size:
            theirs = machine["case"](*map(tvm.runtime.tensor, (data, begin, end, strides))).numpy()
            np.testing.assert_array_equal(mine, theirs, f"{begin[1]}:{end[1]}:{strides[1]}")
        else:
            assert not range(7)[slice(begin[1], end[1], strides[1])]


def test_split_concat_stack() -> None:
    cases = _moving("split", lambda x: op.split(x, [1, 3], 1), [2, 5])
    cases += _moving("concat", lambda t: op.concat(t, 1), ([2, 3], [2, 0]))
    cases += _moving("stack", lambda t: op.stack(t, -1), ([2, 3], [2, 3]))
    a, b = np.arange(6, dtype="f4").reshape(2, 3), np.arange(8, dtype="f4").reshape(2, 4)
    cases += [
        _one("sections", lambda x: op.split(x, 3, -1), [2, 6]),
        _one("uneven sections", lambda x: op.split(x, 3, 0), [7]),
        _one("one section", lambda x: op.split(x, 1, 0), [4]),
        _one("split at the end", lambda x: op.split(x, [2, 4], 0), [4]),
        Case("concat of a tuple", lambda t: op.concat(t, -1), ((a, b),)),
        Case("stack of rank 0", lambda t: op.stack(t, 0), ((np.array(1.5), np.array(-2.0)),)),
    ]
    check(cases)


def test_repetition() -> None:
    cases = _moving("broadcast_to", lambda x: op.broadcast_to(x, [4, 2, 3]), [2, 1])
    cases += _moving("tile", lambda x: op.tile(x, [2, 1, 3]), [2, 3])
    cases += _moving("repeat", lambda x: op.repeat(x, 3, -1), [2, 3])
    cases += _moving("flip", lambda x: op.flip(x, -2), [2, 3, 4])
    cases += [
        _one("broadcast rank 0", lambda x: op.broadcast_to(x, [2, 3]), []),
        _one("broadcast to nothing", lambda x: op.broadcast_to(x, [0, 3]), [1, 3]),
        _one("tile short", lambda x: op.tile(x, 2), [2, 3]),
        _one("repeat flat", lambda x: op.repeat(x, 2), [2, 3]),
    ]
    check(cases)


def test_pad() -> None:
    pad = lambda widths, mode, value=0.0: lambda x: op.nn.pad(x, widths, mode, value)  # noqa: E731
    cases = []
    for mode in ("constant", "reflect", "replicate", "circular"):
        cases += _moving(mode, pad([0, 0, 1, 2, 2, 1], mode), [2, 3, 4])
    cases += [
        _one("pad value", pad([1, 1], "constant", 0.1), [3]),
        _one("pad -inf", pad([1, 1], "constant", -np.inf), [3]),
        _one("pad nothing", pad([1, 1, 0, 0], "constant", 2), [0, 3]),
        _one("reflect too far", pad([3, 0], "reflect"), [3], known=False),
        _one("circular too far", pad([4, 0], "circular"), [3], known=False),
        Case("int pad of a fraction", pad([1, 1], "constant", 0.5), (np.array([1, 2], "i4"),), known=False),
        Case("int pad", pad([1, 1], "constant", -7), (np.array([1, 2], "i4"),)),
        Case("half pad", pad([1, 1], "constant", 0.1), (np.array([1, 2], "f2"),)),
    ]
    check(cases)


def test_creation() -> None:
    cases = []
    for dtype in ("bool", "int8", "uint64", "float16", "float32", "int64"):
        fill = pool(dtype)[1:2].reshape(())
        data = grid([3, 4], dtype)
        cases += [
            Case(f"zeros {dtype}", lambda dtype=dtype: op.zeros([2, 3], dtype), ()),
            Case(f"ones {dtype}", lambda dtype=dtype: op.ones([2, 3], dtype), ()),
            Case(f"full {dtype}", lambda f, dtype=dtype: op.full([2, 0, 3], f, dtype), (fill,)),
            Case(f"full {dtype}", lambda f, dtype=dtype: op.full([2, 3], f, dtype), (fill,), constants=True),
            Case(f"full_like {dtype}", lambda x, f: op.full_like(x, f), (data, fill)),
            Case(f"like {dtype}", op.zeros_like, (data,)),
            Case(f"like {dtype}", op.ones_like, (data,)),
            Case(f"eye {dtype}", lambda dtype=dtype: op.eye(3, 5, 1, dtype), ()),
            Case(f"eye_like {dtype}", lambda x: op.eye_like(x, -1), (data,)),
            Case(f"tril {dtype}", lambda x: op.tril(x, 1), (data,)),
            Case(f"triu {dtype}", lambda x: op.triu(x, -1), (data,)),
        ]
    cases += [
        Case("arange", lambda: op.arange(2, 11, 3, "int64"), ()),
        # TVM's type counts 6 elements where there are 5 (any negative step), and -3 where there are none.
        Case("arange miscounted", lambda: op.arange(5, -5, -2, "int32"), (), known=False),
        Case("arange float", lambda: op.arange(0.0, 1.0, 0.1, "float32"), ()),
        Case("arange nothing", lambda: op.arange(5, 2, 1, "int64"), (), known=False),
        Case("cast fill", lambda f: op.full([2], f, "int32"), (np.asarray(2.75, "f4"),)),
        Case("bad fill", lambda f: op.full([2], f, "int8"), (np.asarray(np.nan, "f4"),), known=False),
        Case("shape_to_tensor", lambda: op.shape_to_tensor(relax.ShapeExpr([2, 3, 5])), ()),
        Case("size", op.size, (np.zeros([2, 3, 5], "f4"),)),
        Case("meshgrid", lambda t: op.meshgrid(t, "ij"), ((np.arange(3.0), np.arange(2.0)),)),
        # The type of "xy" is that of "ij".
        Case("meshgrid xy", lambda t: op.meshgrid(t, "xy"), ((np.arange(3.0), np.arange(2.0)),), known=False),
    ]
    check(cases)
