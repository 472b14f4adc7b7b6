"""Small networks built layer by layer, for `left_out`: a layer of one name has the same weights in every network."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

Array = np.ndarray


class Net:
    """A module whose `main` is one dataflow block, while it is built.

    Parameters
    ----------
    shapes : sequence of tuple of int
        The shape of each parameter.
    dtype : str
        The element type of parameters and weights.
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]], dtype: str) -> None:
        self.dtype = dtype
        self.params = [relax.Var(f"x{k}", relax.TensorType(shape, dtype)) for k, shape in enumerate(shapes)]
        self._builder = relax.BlockBuilder()

    def build(self, make: Callable[..., relax.Expr], **options: Any) -> tvm.IRModule:
        """Return the module whose result is `make(net, *params, **options)`."""
        builder = self._builder
        with builder.function("main", self.params):
            with builder.dataflow():
                result = builder.emit_output(make(self, *self.params, **options))
            builder.emit_func_output(result)
        return builder.get()

    def emit(self, call: relax.Expr) -> relax.Var:
        """Bind a call."""
        return self._builder.emit(call)

    def weight(self, name: str, *shape: int) -> Array:
        """Draw the weights called `name`; sums over all axes but the first keep the size of what they weigh."""
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else 16
        return (rng.standard_normal(shape, dtype="float32") / np.sqrt(fan_in)).astype(self.dtype)

    def const(self, array: Array | float) -> relax.Expr:
        """Return a constant in the dtype of the network."""
        return relax.const(np.asarray(array, self.dtype), self.dtype)

    # -- layers ------------------------------------------------------------------------------------------

    def conv(self, x: relax.Expr, weight: Array, bias: Array | None = None, **attrs: Any) -> relax.Var:
        """Convolve NCHW with OIHW weights; with padding that keeps the extents where none is given."""
        attrs.setdefault("padding", [k // 2 for k in weight.shape[2:]])
        y = self.emit(op.nn.conv2d(x, self.const(weight), **attrs))
        return y if bias is None else self.emit(op.add(y, self.const(bias.reshape(1, -1, 1, 1))))

    def named_conv(self, name: str, x: relax.Var, maps: int, kernel: int = 3, **attrs: Any) -> relax.Var:
        """Convolve with weights and a bias drawn by name."""
        channels = shape_of(x)[1] // attrs.get("groups", 1)
        weight = self.weight(f"{name}.weight", maps, channels, kernel, kernel)
        return self.conv(x, weight, self.weight(f"{name}.bias", maps), **attrs)

    def linear(self, x: relax.Expr, weight: Array, bias: Array) -> relax.Var:
        """Multiply by the transpose of weights (out, in), and add a bias."""
        product = self.emit(op.matmul(x, self.const(np.ascontiguousarray(weight.T))))
        return self.emit(op.add(product, self.const(bias)))

    def named_linear(self, name: str, x: relax.Expr, width: int) -> relax.Var:
        """Apply a linear layer drawn by name to the last axis."""
        weight = self.weight(f"{name}.weight", width, shape_of(x)[-1])
        return self.linear(x, weight, self.weight(f"{name}.bias", width))

    def layer_norm(self, name: str, x: relax.Expr) -> relax.Var:
        """Normalise the last axis."""
        width = shape_of(x)[-1]
        scale, shift = self.const(1 + self.weight(f"{name}.scale", width)), self.const(self.weight(name, width))
        return self.emit(op.nn.layer_norm(x, scale, shift, axes=[-1], epsilon=1e-5))

    def silu(self, x: relax.Expr) -> relax.Var:
        """x * sigmoid(x), as exporters write it."""
        return self.emit(op.multiply(x, self.emit(op.sigmoid(x))))

    def relu(self, x: relax.Expr) -> relax.Var:
        """Cut negative values."""
        return self.emit(op.nn.relu(x))

    def add(self, x: relax.Expr, y: relax.Expr) -> relax.Var:
        """Add."""
        return self.emit(op.add(x, y))

    def mlp(self, name: str, x: relax.Expr) -> relax.Var:
        """Widen four times, gelu, and back."""
        width = shape_of(x)[-1]
        inner = self.emit(op.nn.gelu(self.named_linear(f"{name}.in", x, 4 * width)))
        return self.named_linear(f"{name}.out", inner, width)

    # -- data movement -----------------------------------------------------------------------------------

    def reshape(self, x: relax.Expr, *shape: int) -> relax.Var:
        """Reshape to static extents."""
        return self.emit(op.reshape(x, shape))

    def permute(self, x: relax.Expr, *axes: int) -> relax.Var:
        """Permute the axes."""
        return self.emit(op.permute_dims(x, list(axes)))

    def cut(self, x: relax.Expr, axis: int, begin: int, end: int, stride: int = 1) -> relax.Var:
        """Slice one axis."""
        return self.emit(op.strided_slice(x, [axis], [begin], [end], [stride]))

    def split(self, x: relax.Expr, parts: int, axis: int) -> list[relax.Var]:
        """Split an axis into equal parts."""
        whole = self.emit(op.split(x, parts, axis))
        return [self.emit(relax.TupleGetItem(whole, k)) for k in range(parts)]

    def concat(self, parts: Sequence[relax.Expr], axis: int) -> relax.Var:
        """Concatenate."""
        return self.emit(op.concat(list(parts), axis))

    def upsample(self, x: relax.Expr) -> relax.Var:
        """Repeat each pixel twice in both directions."""
        size = tuple(2 * e for e in shape_of(x)[2:])
        mode = {"coordinate_transformation_mode": "asymmetric", "rounding_method": "floor"}
        return self.emit(op.image.resize2d(x, size, layout="NCHW", method="nearest_neighbor", **mode))


def shape_of(x: relax.Expr) -> tuple[int, ...]:
    """Return the static shape of a bound value."""
    return tuple(int(e) for e in x.ty.shape.values)
