"""Kernels that TVM itself makes of an operator become that operator; what only looks like one stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from build_case import build, ops
from onnx import TensorProto, helper, numpy_helper
from pass_case import declines
from tvm import relax, tirx, topi
from tvm.relax.frontend.onnx import from_onnx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from relax_glue.passes import RecognizeCallTir
from relax_glue.rewrite import RewriteStats
from relax_glue.testing import check_equivalent

TYPES = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
}


def imported(op: str, dtype: str, shape: Sequence[int | str], *operands: np.ndarray, **attrs: Any) -> tvm.IRModule:
    """Return what TVM's own importer makes of one ONNX operator whose other operands are constants."""
    names = [f"c{k}" for k in range(len(operands))]
    node = helper.make_node(op, ["x", *names], ["y"], **attrs)
    unknown = [f"y{k}" for k in range(len(shape))]
    x, y = (helper.make_tensor_value_info(n, TYPES[dtype], s) for n, s in (("x", shape), ("y", unknown)))
    constants = [numpy_helper.from_array(a, n) for a, n in zip(operands, names, strict=True)]
    graph = helper.make_graph([node], "g", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return from_onnx(model, keep_params_in_input=False)


def kernels(mod: tvm.IRModule) -> list[str]:
    return sorted(v.name_hint for v, f in mod.functions_items() if isinstance(f, tirx.PrimFunc))


def becomes(before: tvm.IRModule, *expected: str) -> tvm.IRModule:
    """Check that no kernel is left, that the operators are these at the end, and the bits."""
    assert kernels(before)
    after = RecognizeCallTir()(before)
    assert not kernels(after) and ops(after)[-len(expected) :] == list(expected)
    tvm.ir.assert_structural_equal(RecognizeCallTir()(after), after)
    param = before["main"].params[0]
    shape = [int(getattr(e, "value", 2)) for e in param.ty.shape.values]
    values = np.random.default_rng(0).permutation(int(np.prod(shape))) - 3
    check_equivalent(before, after, [values.reshape(shape).astype(str(param.ty.dtype))])
    return after


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int64"])
@pytest.mark.parametrize("shape", [(2, 3), ("n", 3, 4), (7,)])
def test_clip(dtype: str, shape: tuple[int | str, ...]) -> None:
    before = imported("Clip", dtype, shape, np.array(0, dtype), np.array(6, dtype))
    becomes(before, *(["relax.maximum", "relax.minimum"] if dtype.startswith("int") else ["relax.minimum"]))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
@pytest.mark.parametrize(
    "shape, widths",
    [((2, 3), (1, 0, 0, 2)), ((4,), (0, 3)), (("n", 3, 4), (0, 0, 1, 0, 2, 0)), ((1, 2, 2, 2), (1,) * 8)],
)
def test_pad(dtype: str, shape: tuple[int | str, ...], widths: tuple[int, ...]) -> None:
    after = becomes(imported("Pad", dtype, shape, np.array(widths), np.array(3, dtype)), "relax.nn.pad")
    (call,) = [b.value for b in after["main"].body.blocks[0].bindings]
    rank = len(shape)
    assert [int(w) for w in call.attrs.pad_width] == [w for k in range(rank) for w in (widths[k], widths[k + rank])]
    assert float(call.attrs.pad_value) == 3.0


def test_pad_by_an_infinity() -> None:
    becomes(imported("Pad", "float32", (2, 3), np.array([1, 0, 0, 2]), np.array(-np.inf, "float32")), "relax.nn.pad")


def test_pad_by_an_integer_that_no_double_holds_stays() -> None:
    before = imported("Pad", "int64", (2, 3), np.array([1, 0, 0, 2]), np.array(2**53 + 1))
    declines(RecognizeCallTir(), before)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
@pytest.mark.parametrize("mode, name", [("reflect", "reflect"), ("edge", "replicate")])
@pytest.mark.parametrize(
    "shape, widths",
    [
        ((2, 3), (1, 0, 0, 2)),
        ((4,), (0, 3)),
        (("n", 3, 4), (0, 0, 1, 0, 2, 0)),
        ((1, 2, 3, 4), (0, 0, 1, 2, 0, 0, 2, 1)),
    ],
)
def test_pad_by_the_border(shape: Any, widths: tuple[int, ...], mode: str, name: str, dtype: str) -> None:
    after = becomes(imported("Pad", dtype, shape, np.array(widths), mode=mode), "relax.nn.pad")
    (call,) = [b.value for b in after["main"].body.blocks[0].bindings]
    rank = len(shape)
    assert str(call.attrs.pad_mode) == name
    assert [int(w) for w in call.attrs.pad_width] == [w for k in range(rank) for w in (widths[k], widths[k + rank])]


def test_a_mirror_that_repeats_the_border_stays() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([4], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(builder.call_te(topi.nn.mirror_pad, x, [2], [1], "SYMMETRIC"))
        builder.emit_func_output(out)
    assert kernels(builder.get()) == ["mirror_pad"]
    declines(RecognizeCallTir(), builder.get())


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
@pytest.mark.parametrize("shape, repeats", [((2, 3), (2, 3)), ((4,), (3,)), (("n", 3), (1, 2)), ((1, 2, 2), (4, 1, 2))])
def test_tile(dtype: str, shape: tuple[int | str, ...], repeats: tuple[int, ...]) -> None:
    after = becomes(imported("Tile", dtype, shape, np.array(repeats)), "relax.tile")
    (call,) = [b.value for b in after["main"].body.blocks[0].bindings]
    assert [int(r) for r in call.attrs.repeats] == list(repeats)


def legalized(make: Any, dtype: str = "float32", **params: tuple[int | str, ...]) -> tvm.IRModule:
    """Return a module in which TVM has put kernels in the places of operators."""
    return relax.transform.LegalizeOps()(build(make, dtype, **params))


@pytest.mark.parametrize("name", ["maximum", "minimum", "add", "subtract", "multiply", "divide", "power"])
@pytest.mark.parametrize("y", [(2, 3), (1, 3), ()])
def test_binary_operators(name: str, y: tuple[int, ...]) -> None:
    call = getattr(relax.op, name)
    before = legalized(lambda emit, x, y: call(x, y), x=(2, 3), y=y)
    after = RecognizeCallTir()(before)
    tvm.ir.assert_structural_equal(after, build(lambda emit, x, y: call(x, y), x=(2, 3), y=y))


@pytest.mark.parametrize("name", ["floor_divide", "floor_mod", "mod"])
def test_binary_operators_of_integers(name: str) -> None:
    call = getattr(relax.op, name)
    before = legalized(lambda emit, x, y: call(x, y), "int32", x=(2, 3), y=(2, 3))
    assert ops(RecognizeCallTir()(before)) == [f"relax.{name}"]


def with_kernel(mod: tvm.IRModule, name: str, kernel: tirx.PrimFunc) -> tvm.IRModule:
    result = mod.clone()
    result.update_func(mod.get_global_var(name), kernel)
    return result


def test_operands_the_other_way_round_are_another_kernel() -> None:
    before = legalized(lambda emit, x, y: relax.op.subtract(x, y), x=(2, 3), y=(2, 3))
    kernel = before["subtract"]
    x, y, z = kernel.params
    swapped = tirx.PrimFunc([y, x, z], kernel.body, kernel.ret_type, kernel.attrs)
    declines(RecognizeCallTir(), with_kernel(before, "subtract", swapped))


@I.ir_module
class LookAlike:
    @T.prim_func(private=True, s_tir=True)
    def maximum(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32"), z: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("T_maximum"):
                v = T.axis.spatial(4, i)
                z[v] = T.if_then_else(y[v] < x[v], x[v], y[v])

    @T.prim_func(private=True, s_tir=True)
    def tile(x: T.Buffer((4,), "float32"), z: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.sblock("T_tile"):
                v = T.axis.spatial(8, i)
                z[v] = x[v // 2]

    @T.prim_func(private=True, s_tir=True)
    def tile_1(x: T.Buffer((2, 4), "float32"), z: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.sblock("T_tile"):
                v = T.axis.spatial(8, i)
                z[v] = x[v // 4, v % 4]

    @T.prim_func(private=True, s_tir=True)
    def pad(x: T.Buffer((4,), "float32"), z: T.Buffer((6,), "float32")):
        for i in range(6):
            with T.sblock("PadInput"):
                v = T.axis.spatial(6, i)
                z[v] = T.if_then_else(v >= 2 and v < 5, x[v - 1], T.float32(0))

    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32"), w: R.Tensor((2, 4), "float32")):
        cls = LookAlike
        with R.dataflow():
            a = R.call_tir(cls.maximum, (x, y), out_ty=R.Tensor((4,), "float32"))
            b = R.call_tir(cls.tile, (a,), out_ty=R.Tensor((8,), "float32"))
            c = R.call_tir(cls.tile_1, (w,), out_ty=R.Tensor((8,), "float32"))
            d = R.call_tir(cls.pad, (a,), out_ty=R.Tensor((6,), "float32"))
            R.output(b, c, d)
        return (b, c, d)


def test_kernels_that_only_carry_the_name_stay() -> None:
    stats = RewriteStats()
    tvm.ir.assert_structural_equal(RecognizeCallTir(stats=stats)(LookAlike), LookAlike)
    count = stats.of("call-tir-to-operator")
    assert (count.tried, count.fired) == (4, 0)
    assert "tile_1 is the kernel of no operator known here" in count.declined


def test_a_kernel_under_another_name_stays() -> None:
    before = legalized(lambda emit, x, y: relax.op.less(x, y), x=(3,), y=(3,))
    declines(RecognizeCallTir(), before)


def test_a_kernel_that_is_still_called_stays_and_others_go() -> None:
    before = legalized(lambda emit, x: relax.op.maximum(emit(relax.op.negative(x)), x), x=(4,))
    assert kernels(before) == ["maximum", "tir_negative"]
    after = RecognizeCallTir()(before)
    assert kernels(after) == ["tir_negative"]
    assert ops(after) == ["relax.call_tir", "relax.maximum"]
    check_equivalent(before, after, [np.arange(4, dtype="float32")])


def test_a_kernel_that_code_outside_a_block_calls_stays() -> None:
    before = legalized(lambda emit, x, y: relax.op.maximum(x, y), x=(4,), y=(4,))
    plain = relax.transform.ToNonDataflow()(before)["main"].with_attr("global_symbol", "plain")
    both = before.clone()
    both.update_func(tvm.ir.GlobalVar("plain"), plain)
    after = RecognizeCallTir()(both)
    assert kernels(after) == ["maximum"] and ops(after) == ["relax.maximum"]
    assert ops(after, "plain") == ["relax.call_tir"]


def test_a_public_kernel_stays_in_the_module() -> None:
    before = legalized(lambda emit, x, y: relax.op.maximum(x, y), x=(4,), y=(4,))
    public = with_kernel(before, "maximum", before["maximum"].with_attr("global_symbol", "maximum"))
    after = RecognizeCallTir()(public)
    assert kernels(after) == ["maximum"] and ops(after) == ["relax.maximum"]


def test_a_module_without_kernels_is_returned_as_it_is() -> None:
    mod = build(lambda emit, x: relax.op.exp(x), x=(4,))
    assert RecognizeCallTir()(mod).same_as(mod)


def test_a_result_used_twice_and_operands_that_repeat() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        y = emit(relax.op.multiply(x, x))
        return relax.op.add(y, y)

    tvm.ir.assert_structural_equal(RecognizeCallTir()(legalized(make, x=(2, 3))), build(make, x=(2, 3)))
