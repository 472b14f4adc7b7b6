"""The rules of each step of the pipeline in random orders: the same normal form, or a difference that is known.

docs/rule_order.md tells the known ones. More modules by RELAX_GLUE_FUZZ=<number>.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import tvm
from hypothesis import HealthCheck, Phase, given, settings
from order_case import arranged, by_seed, calls, normal_form
from tvm import relax
from tvm.relax import op

import relax_glue
from relax_glue.rewrite import Rule
from relax_glue.testing import Case, fuzz_examples, modules

MODULES = fuzz_examples(150)
SEEDS = range(3)
GRAPHS = ("mobilenet_v3_small", "mobilevitv2_050", "shufflenet_v2_x1_0", "swin_t", "yolo11n", "yolo11n-seg")
ONNX = ("yolo11n", "yolov5n", "batched_nms", "yolort_v5n")
MOVES = {f"relax.{name}" for name in ("reshape", "permute_dims", "strided_slice", "broadcast_to", "concat", "take")}


def test_random_modules() -> None:
    compared, other = 0, 0

    @settings(
        max_examples=MODULES,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(case=modules(max_operators=8))
    def compare(case: Case) -> None:
        nonlocal compared, other
        right = relax_glue.canonicalize(case.module)
        for seed in SEEDS:
            found = arranged(case.module, by_seed(seed))
            compared += 1
            if normal_form(found) == normal_form(right):
                continue
            other += 1
            check_known(case.module, right, found)

    compare()
    assert other <= 0.01 * compared, f"{other} of {compared} differ"


def check_known(module: tvm.IRModule, right: tvm.IRModule, found: tvm.IRModule) -> None:
    """Check that two normal forms compute by the same operators, and differ by two movements at the most."""
    more, fewer = calls(found) - calls(right), calls(right) - calls(found)
    moved = {*more, *fewer} <= MOVES
    assert moved and abs(more.total() - fewer.total()) <= 2, (
        f"{dict(more)} instead of {dict(fewer)}\n{module.script()}\n{right.script()}\n{found.script()}"
    )


def check_model(mod: tvm.IRModule) -> None:
    right = relax_glue.canonicalize(mod)
    for seed in (0, 1):
        found = arranged(mod, by_seed(seed))
        assert normal_form(found) == normal_form(right)
        assert calls(found) == calls(right)


@pytest.mark.parametrize("name", GRAPHS)
def test_exported_programs(shared: Path, name: str) -> None:
    import graphfile

    check_model(graphfile.load(str(shared / "graphs" / name)))


@pytest.mark.parametrize("name", ONNX)
def test_onnx_models(shared: Path, name: str) -> None:
    pytest.importorskip("onnx")
    import onnxfile

    check_model(relax_glue.from_onnx(onnxfile.load(str(shared / "onnx" / f"{name}.onnx.gz"))))


# -- the comparison itself -------------------------------------------------------------------------------


def chain_of(*makes: Callable[[relax.Expr], relax.Expr]) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value: relax.Expr = x
            for make in makes:
                value = builder.emit(make(value))
            out = builder.emit_output(value)
        builder.emit_func_output(out)
    return builder.get()


def test_one_map_in_two_spellings_is_one_normal_form() -> None:
    one = chain_of(lambda x: op.permute_dims(x, [1, 2, 0]), lambda x: op.reshape(x, [12, 2]))
    two = chain_of(lambda x: op.reshape(x, [2, 12]), lambda x: op.permute_dims(x, [1, 0]))
    other = chain_of(lambda x: op.permute_dims(x, [2, 1, 0]), lambda x: op.reshape(x, [12, 2]))
    assert normal_form(one) == normal_form(two) != normal_form(other)


def test_other_attributes_and_operands_are_other_normal_forms() -> None:
    forms = [
        normal_form(chain_of(lambda x, make=make: make(x)))
        for make in (
            lambda x: op.sum(x, 1),
            lambda x: op.sum(x, 2),
            lambda x: op.max(x, 1),
            lambda x: op.add(x, relax.const(1.0)),
            lambda x: op.add(x, relax.const(2.0)),
            lambda x: op.strided_slice(x, [0], [0], [1]),
            lambda x: op.strided_slice(x, [0], [1], [2]),
        )
    ]
    assert len(set(forms)) == len(forms)


def test_rules_are_arranged() -> None:
    seen: Counter[str] = Counter()
    module = chain_of(lambda x: op.nn.relu(x), lambda x: op.nn.relu(x))

    def arrange(rules: Sequence[Rule]) -> Sequence[Rule]:
        seen.update(rule.name for rule in rules)
        return rules[::-1]

    assert calls(arranged(module, arrange)) == calls(relax_glue.canonicalize(module))
    assert {"same-twice", "fold-constants"} <= set(seen)
