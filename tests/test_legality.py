"""The passes and rules that legality needs: with them TensorRT takes a model whole, and without one of them not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tvm
from build_case import build
from tvm import relax, topi
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import relax_glue
from relax_glue.pipeline import FAMILIES, LEGALITY, MOTIONS, improvements, rule_names


def cut(mod: tvm.IRModule, *disable: str) -> tuple[int, int]:
    """Return how many regions a module becomes, and how many operators stay outside."""
    report = relax_glue.explain(mod, disable=disable)
    return len(report.regions), len(report.outside)


def kernel() -> tvm.IRModule:
    """exp, a maximum as TVM's kernel, and exp again."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_te(topi.maximum, builder.emit(op.exp(x)), x)
            out = builder.emit_output(op.exp(y))
        builder.emit_func_output(out)
    return builder.get()


def nothing() -> tvm.IRModule:
    """A slice without elements, of which the sum is taken."""

    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        empty = emit(op.strided_slice(emit(op.exp(x)), [0], [2], [2]))
        return emit(op.add(x, emit(op.sum(empty))))

    return build(make, x=(4,))


def empty_operand() -> tvm.IRModule:
    """A concat of x, y and a slice without elements."""

    def make(emit: Any, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        return emit(op.exp(emit(op.concat([emit(op.exp(x)), y], axis=1))))

    return build(make, x=(2, 4), y=(2, 0))


def image() -> tvm.IRModule:
    """An image of uint8 whose channels come first before it is cast."""

    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        return emit(op.exp(emit(op.astype(emit(op.permute_dims(x, [0, 3, 1, 2])), "float32"))))

    return build(make, "uint8", x=(1, 8, 6, 3))


@I.ir_module
class Shapes:
    """The sum of x, reshaped to a shape that is computed from that of x."""

    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        n = T.int64()
        with R.dataflow():
            y = R.exp(x)
            sizes = R.shape_to_tensor(R.shape_of(y))
            size = R.reshape(R.prod(sizes), (1,))
            shape = R.tensor_to_shape(size)
            lv = R.match_cast(shape, R.Shape([n]))
            flat = R.reshape(y, (n,))
            total = R.sum(flat)
            R.output(total)
        return total


@I.ir_module
class Branch:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        a = R.exp(x)
        if R.const(True, "bool"):
            b = R.exp(a)
            c = b
        else:
            b = R.sin(a)
            c = b
        return R.exp(c)


@I.ir_module
class Loose:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        a = R.exp(x)
        return R.sin(a)


NEEDED: dict[str, Callable[[], tvm.IRModule]] = {
    "ConvertToDataflow": lambda: Loose,
    "RecognizeCallTir": kernel,
    "FoldShapes": lambda: Shapes,
    "FoldConstants": nothing,
    "ResolveIf": lambda: Branch,
    "empty-concat-operand": empty_operand,
    "cast-before-movement": image,
}


def test_every_name_is_shown_to_be_needed() -> None:
    assert set(NEEDED) == LEGALITY


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_without_one_of_them_a_model_is_cut(name: str) -> None:
    mod = NEEDED[name]()
    assert cut(mod, *improvements()) == (1, 0)
    regions, outside = cut(mod, *improvements(), name)
    assert outside or regions > 1


def test_what_is_left_are_improvements() -> None:
    needed = {r.name for family, rules in FAMILIES.items() for r in rules if family in LEGALITY or r.name in LEGALITY}
    assert {*improvements()} | needed == {*rule_names(), *MOTIONS} and not needed & {*improvements()}


@pytest.mark.parametrize("graph", ["mobilevitv2_050", "shufflenet_v2_x1_0", "swin_t", "yolo11n"])
def test_legality_alone_takes_real_models_whole(graph: str, shared: Path) -> None:
    import graphfile

    mod = graphfile.load(str(shared / "graphs" / graph))
    assert cut(mod, *improvements()) == cut(mod) == (1, 0)
