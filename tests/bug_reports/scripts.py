"""Reports whose graph needs more than one function, shape values, match_cast or kernels: in TVMScript."""

from __future__ import annotations

import numpy as np
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T


@I.ir_module
class B17:
    """A callee's tuple that is returned whole: https://github.com/apache/tvm/pull/17253."""

    @R.function(private=True)
    def callee(x: R.Tensor((2, 4), "float32")):
        with R.dataflow():
            a = R.add(x, R.const(1, "float32"))
            parts = R.split(x, 2, axis=1)
            b = parts[0]
            R.output(a, b)
        return (a, b)

    @R.function
    def main(x: R.Tensor((2, 4), "float32")):
        cls = B17
        with R.dataflow():
            t = cls.callee(x)
            R.output(t)
        return t


@I.ir_module
class B73:
    """A reshape to a constant that becomes a shape: https://github.com/apache/tvm/issues/20192."""

    @R.function
    def main(x: R.Tensor((12,), "float32"), y: R.Tensor((2, 6), "float32")):
        with R.dataflow():
            s: R.Shape(ndim=2) = R.tensor_to_shape(R.const(np.array([2, 6], "int64"), "int64"))
            r: R.Tensor(ndim=2, dtype="float32") = R.reshape(x, s)
            z = R.add(r, y)
            R.output(z)
        return z


@I.ir_module
class B74:
    """A symbol that is only in an output's type: https://github.com/apache/tvm/issues/20195."""

    @T.prim_func(private=True, s_tir=True)
    def copy(x: T.handle, y: T.handle):
        s1 = T.int64()
        a = T.match_buffer(x, (T.int64(2), T.int64(8)))
        b = T.match_buffer(y, (s1, T.int64(8)))
        for i, j in T.grid(s1, T.int64(8)):
            with T.sblock("copy"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = a[vi, vj]

    @R.function
    def main(x: R.Tensor((2, 8), "float32"), y: R.Tensor(("k", 8), "float32")):
        cls = B74
        s1 = T.int64()
        with R.dataflow():
            s: R.Shape([s1, 8]) = R.match_cast(R.shape_of(y), R.Shape([s1, 8]))
            z = R.call_tir(cls.copy, (x,), out_ty=R.Tensor((s1, 8), "float32"))
            w = R.nn.relu(z)
            R.output(w)
        return w


@I.ir_module
class B77:
    """A reshape whose result is another's shape: https://github.com/microsoft/onnxruntime/issues/32105."""

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            flat = R.reshape(R.const(np.array([[2], [2]], "int64"), "int64"), (2,))
            s: R.Shape(ndim=2) = R.tensor_to_shape(flat)
            r: R.Tensor(ndim=2, dtype="float32") = R.reshape(x, s)
            R.output(r)
        return r


@I.ir_module
class B79:
    """Part of a shape as the ends of a slice: https://github.com/tsingmicro-toolchain/OnnxSlim/issues/38."""

    @R.function
    def main(x: R.Tensor((1, 3, 8, 6), "float32"), y: R.Tensor((1, 3, 10, 9), "float32")):
        with R.dataflow():
            shape = R.shape_to_tensor(R.shape_of(x))
            spatial = R.strided_slice(shape, (0,), (2,), (4,))
            ends = R.concat((R.const(np.array([1, 3], "int64"), "int64"), spatial), axis=0)
            begins = R.const(np.zeros(4, "int64"), "int64")
            strides = R.const(np.ones(4, "int64"), "int64")
            z: R.Tensor(ndim=4, dtype="float32") = R.dynamic_strided_slice(y, begins, ends, strides)
            R.output(z)
        return z


@I.ir_module
class B82:
    """match_cast beside a split: https://github.com/apache/tvm/issues/20207."""

    @R.function
    def main(x: R.Tensor(ndim=2, dtype="float32")):
        with R.dataflow():
            a = R.match_cast(x, R.Tensor((4, 16), "float32"))
            b = R.negative(a)
            c = R.match_cast(b, R.Tensor((4, 16), "float32"))
            p = R.split(c, 2, axis=1)
            d = R.concat((p[0], p[1]), axis=1)
            R.output(d)
        return d


@I.ir_module
class B83:
    """An alias by match_cast: https://github.com/apache/tvm/issues/20190."""

    @R.function
    def main(x: R.Tensor((5, 8), "float32")):
        with R.dataflow():
            s = R.add(x, R.const(0.25, "float32"))
            left = R.match_cast(s, R.Tensor((5, 8), "float32"))
            right = R.add(x, R.const(0.125, "float32"))
            z = R.add(left, right)
            R.output(z)
        return z


@I.ir_module
class B94:
    """A diamond with one side unsupported: https://github.com/PaddlePaddle/Paddle/issues/13120."""

    @R.function
    def main(x: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.permute_dims(a)
            d = R.median(a, axis=[1], keepdims=True)
            c = R.add(b, d[0])
            R.output(c)
        return c


@I.ir_module
class B95:
    """A kernel between two operators: https://github.com/apache/tvm/issues/17120."""

    @T.prim_func(private=True, s_tir=True)
    def scale(x: T.Buffer((T.int64(10),), "float32"), y: T.Buffer((T.int64(10),), "float32")):
        for i in range(T.int64(10)):
            with T.sblock("scale"):
                vi = T.axis.spatial(T.int64(10), i)
                y[vi] = x[vi] * T.float32(3) + T.float32(1)

    @R.function
    def main(x: R.Tensor((10,), "float32")):
        cls = B95
        with R.dataflow():
            a = R.nn.gelu(x)
            b = R.call_tir(cls.scale, (a,), out_ty=R.Tensor((10,), "float32"))
            c = R.nn.relu(b)
            R.output(c)
        return c
