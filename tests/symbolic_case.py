"""Modules with symbolic extents, their regions, and what LLVM makes of them at given sizes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm
from engine_case import conv_block, region_of
from tvm import relax

import relax_glue

Body = Callable[..., relax.Expr]
Shape = tuple["int | str", ...]


def symbolic(
    body: Body, *shapes: Shape, upper: dict[str, int] | None = None, lower: dict[str, int] | None = None
) -> tvm.IRModule:
    """Return a module whose `main` takes tensors with these extents, strings being symbols, and its bounds."""
    symbols: dict[str, tvm.tirx.Var] = {}
    attrs = {"tir_var_upper_bound": upper, "tir_var_lower_bound": lower}
    params = [
        relax.Var(f"x{index}", relax.TensorType([_extent(extent, symbols) for extent in shape], "float32"))
        for index, shape in enumerate(shapes)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params, attrs={name: bounds for name, bounds in attrs.items() if bounds}):
        with builder.dataflow():
            made = builder.emit_output(body(builder.emit, *params))
        builder.emit_func_output(made)
    return builder.get()


def _extent(extent: int | str, symbols: dict[str, tvm.tirx.Var]) -> int | tvm.tirx.PrimExpr:
    """Return a number, a symbol, or `factor*symbol`."""
    if isinstance(extent, int):
        return extent
    factor, _, name = extent.rpartition("*")
    symbol = symbols.setdefault(name, tvm.tirx.Var(name, "int64"))
    return symbol * int(factor) if factor else symbol


def halving(seed: int = 0) -> Body:
    """Return a body that convolves and halves height and width."""
    block = conv_block(seed)

    def body(emit: Callable[..., relax.Var], x: relax.Var) -> relax.Expr:
        return emit(relax.op.nn.max_pool2d(block(emit, x), 2, 2))

    return body


def conv_of_free_size(seed: int = 0, **bounds: dict[str, int]) -> tvm.IRModule:
    """Return a convolution net for images of any number and size."""
    return symbolic(halving(seed), ("n", 8, "h", "w"), **bounds)


def of_flat_rows() -> tvm.IRModule:
    """Return a module whose region needs n and m and gets a vector of n * m: they come as a shape."""
    n, m = (tvm.tirx.Var(name, "int64") for name in ("n", "m"))
    x = relax.Var("x", relax.TensorType([n * m], "float32"))
    sizes = relax.Var("sizes", relax.ShapeType([n, m]))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, sizes], attrs={"tir_var_upper_bound": {"n": 8, "m": 6}}):
        with builder.dataflow():
            rows = builder.emit(relax.op.reshape(relax.op.exp(x), [n, m]))
            made = builder.emit_output(relax.op.nn.softmax(rows, -1))
        builder.emit_func_output(made)
    return builder.get()


def region(mod: tvm.IRModule) -> relax.Function:
    """Return the only region that `optimize` makes of a module."""
    return region_of(relax_glue.optimize(mod))


def images(*shape: int, seed: int = 0) -> np.ndarray:
    """Return random numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")
