"""gelu and layer_norm, spelled in arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from build_case import build, const, ops
from pass_case import declines
from tvm import relax
from tvm.relax import op

from relax_glue.passes import RecognizeIdioms
from relax_glue.testing import check_equivalent

X = (2, 5, 8)


def numbers() -> np.ndarray:
    return np.random.default_rng(0).normal(size=X).astype("float32") * 3


def becomes(make: Any, *wanted: str) -> None:
    before = build(make, x=X)
    after = RecognizeIdioms()(before)
    assert ops(after) == [f"relax.nn.{name}" for name in wanted]
    check_equivalent(before, after, [numbers()], exact=False, rtol=1e-5)


def stays(make: Any, **options: Any) -> None:
    declines(RecognizeIdioms(), build(make, **{"x": X, **options}))


def erf_part(emit: Any, x: relax.Expr, inner: float = math.sqrt(2)) -> relax.Expr:
    return emit(op.add(emit(op.erf(emit(op.divide(x, const(inner))))), const(1.0)))


def tanh_part(emit: Any, x: relax.Expr, cubic: float = 0.044715) -> relax.Expr:
    cube = emit(op.power(x, const(3.0)))
    inner = emit(op.multiply(const(math.sqrt(2 / math.pi)), emit(op.add(x, emit(op.multiply(cube, const(cubic)))))))
    return emit(op.add(const(1.0), emit(op.tanh(inner))))


ORDERS: dict[str, Callable[[Any, relax.Expr, relax.Expr], relax.Expr]] = {
    "exporter of PyTorch": lambda emit, x, t: emit(op.multiply(emit(op.multiply(x, t)), const(0.5))),
    "half of x": lambda emit, x, t: emit(op.multiply(emit(op.multiply(x, const(0.5))), t)),
    "half of the rest": lambda emit, x, t: emit(op.multiply(x, emit(op.multiply(const(0.5), t)))),
    "divided": lambda emit, x, t: emit(op.divide(emit(op.multiply(t, x)), const(2.0))),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("part", "name"), [(erf_part, "gelu"), (tanh_part, "gelu_tanh")])
def test_gelu(order: str, part: Any, name: str) -> None:
    becomes(lambda emit, x: ORDERS[order](emit, x, part(emit, x)), name)


def test_gelu_of_a_sum() -> None:
    """What x itself is made of is arithmetic too."""

    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        y = emit(op.add(x, const(np.arange(8.0))))
        return ORDERS["half of x"](emit, y, erf_part(emit, y))

    before = build(make, x=X)
    after = RecognizeIdioms()(before)
    assert ops(after) == ["relax.add", "relax.nn.gelu"]
    check_equivalent(before, after, [numbers()], exact=False, rtol=1e-5)


def test_other_constants_are_other_functions() -> None:
    order = ORDERS["exporter of PyTorch"]
    stays(lambda emit, x: order(emit, x, erf_part(emit, x, inner=1.4)))
    stays(lambda emit, x: order(emit, x, tanh_part(emit, x, cubic=0.0447)))
    stays(lambda emit, x: emit(op.multiply(x, erf_part(emit, x))))
    stays(lambda emit, x: order(emit, emit(op.negative(x)), erf_part(emit, x)))


def test_a_part_that_is_read_elsewhere_stays() -> None:
    def make(emit: Any, x: relax.Expr) -> tuple[relax.Expr, ...]:
        part = erf_part(emit, x)
        return ORDERS["half of x"](emit, x, part), emit(op.exp(part))

    stays(make)


def test_float64_stays() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        half, one, root = (const(v, "float64") for v in (0.5, 1.0, math.sqrt(2)))
        t = emit(op.add(emit(op.erf(emit(op.divide(x, root)))), one))
        return emit(op.multiply(emit(op.multiply(x, t)), half))

    stays(make, dtype="float64")


# -- layer normalisation -------------------------------------------------------------------------------------


def norm(emit: Any, x: relax.Expr, square: str = "power", axes: tuple[int, ...] = (-1,), root: str = "divide") -> Any:
    d = emit(op.subtract(x, emit(op.mean(x, list(axes), keepdims=True))))
    squares = {
        "power": lambda: op.power(d, const(2.0)),
        "multiply": lambda: op.multiply(d, d),
        "square": lambda: op.square(d),
        "cube": lambda: op.power(d, const(3.0)),
    }
    shifted = emit(op.add(emit(op.mean(emit(squares[square]()), list(axes), keepdims=True)), const(1e-5)))
    if root == "divide":
        return emit(op.divide(d, emit(op.sqrt(shifted))))
    return emit(op.multiply(emit(op.rsqrt(shifted)), d))


@pytest.mark.parametrize("square", ["power", "multiply", "square"])
@pytest.mark.parametrize("axes", [(-1,), (2,), (1, 2)])
@pytest.mark.parametrize("root", ["divide", "multiply"])
def test_layer_norm(square: str, axes: tuple[int, ...], root: str) -> None:
    becomes(lambda emit, x: norm(emit, x, square, axes, root), "layer_norm")


def test_scale_and_shift_go_into_the_layer() -> None:
    scale, shift = np.arange(8.0), np.linspace(-1, 1, 8)

    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        return emit(op.add(const(shift), emit(op.multiply(norm(emit, x), const(scale[None])))))

    becomes(make, "layer_norm")


def test_a_scale_along_another_axis_stays() -> None:
    rows = np.arange(5.0)[:, None]
    before = build(lambda emit, x: emit(op.multiply(norm(emit, x), const(rows))), x=X)
    assert ops(RecognizeIdioms()(before)) == ["relax.nn.layer_norm", "relax.multiply"]


def test_what_is_no_layer_norm_stays() -> None:
    stays(lambda emit, x: norm(emit, x, "cube"))
    stays(lambda emit, x: norm(emit, x, axes=(1,)))
    stays(lambda emit, x: norm(emit, x), x=(2, 5, "n"))

    def other_user(emit: Any, x: relax.Expr) -> tuple[relax.Expr, ...]:
        d = emit(op.subtract(x, emit(op.mean(x, [-1], keepdims=True))))
        shifted = emit(op.add(emit(op.mean(emit(op.multiply(d, d)), [-1], keepdims=True)), const(1e-5)))
        return emit(op.divide(d, emit(op.sqrt(shifted)))), emit(op.exp(d))

    stays(other_user)


def test_a_symbolic_batch_is_no_hindrance() -> None:
    before = build(lambda emit, x: norm(emit, x), x=("n", 5, 8))
    after = RecognizeIdioms()(before)
    assert ops(after) == ["relax.nn.layer_norm"]
    check_equivalent(before, after, [numbers()], exact=False, rtol=1e-5)
