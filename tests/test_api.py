"""The public functions: bad input is told by its name, good input is never changed, options do what they say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from build_case import build, const, ops
from tvm import relax, tirx
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R

import relax_glue
from relax_glue import Report, passes
from relax_glue.errors import InvalidModuleError, RelaxGlueError, UnknownNameError
from relax_glue.pipeline import FAMILIES, PIPELINE, TRANSFORMS, check_disabled, rule_names
from relax_glue.region_function import region_functions
from relax_glue.rewrite import EXACT, NAN_SENSITIVE, RewriteStats
from relax_glue.testing import check_equivalent

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "canonicalize": relax_glue.canonicalize,
    "partition": relax_glue.partition,
    "optimize": relax_glue.optimize,
    "explain": relax_glue.explain,
    "compile": lambda mod: relax_glue.compile(mod, "llvm"),
    "inline": relax_glue.inline,
}
every_function = pytest.mark.parametrize("name", FUNCTIONS)


def glue(emit: Any, x: relax.Expr) -> relax.Expr:
    """A focus layer, a permute there and back, a batch normalisation and a ReLU6."""
    parts = [emit(op.strided_slice(x, [2, 3], [a, b], [8, 8], [2, 2])) for a in (0, 1) for b in (0, 1)]
    y = emit(op.concat(parts, axis=1))
    y = emit(op.nn.conv2d(y, const(np.ones((4, 12, 1, 1)) / 12)))
    statistics = [const(np.full(4, v)) for v in (2.0, 1.0, 0.5, 4.0)]
    y = emit(emit(op.nn.batch_norm(y, *statistics, axis=1, training=False))[0])
    y = emit(op.permute_dims(emit(op.permute_dims(y, [0, 2, 3, 1])), [0, 3, 1, 2]))
    return op.minimum(emit(op.maximum(y, const(0.0))), const(6.0))


def model() -> tvm.IRModule:
    return build(glue, x=(1, 3, 8, 8))


def lacking() -> tvm.IRModule:
    """A module with an operator that TensorRT has not."""

    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        rois = const([[0, 0, 0, 3, 3]])
        y = emit(op.vision.roi_align(emit(op.exp(x)), rois, (2, 2), 1.0, 2, layout="NCHW", mode="avg"))
        return op.negative(y)

    return build(make, x=(1, 3, 4, 4))


# -- bad input -------------------------------------------------------------------------------------------


@every_function
@pytest.mark.parametrize("value", [None, "model.onnx", 3, model()["main"]], ids=["None", "path", "int", "function"])
def test_what_is_no_module(name: str, value: object) -> None:
    with pytest.raises(InvalidModuleError, match=f"IRModule is needed, not {type(value).__name__}; .*from_onnx"):
        FUNCTIONS[name](value)


@every_function
def test_a_module_without_a_relax_function(name: str) -> None:
    kernels = relax.transform.LegalizeOps()(build(lambda emit, x: op.exp(x), x=(2,)))
    only = tvm.IRModule({v: f for v, f in kernels.functions_items() if isinstance(f, tirx.PrimFunc)})
    with pytest.raises(InvalidModuleError, match=r"no Relax function \(it holds .*exp\); import a model"):
        FUNCTIONS[name](only)
    with pytest.raises(InvalidModuleError, match="it holds nothing"):
        FUNCTIONS[name](tvm.IRModule())


@every_function
def test_an_ill_formed_function(name: str) -> None:
    x, stray = (relax.Var(n, relax.TensorType([2], "float32")) for n in ("x", "stray"))
    call = relax.BlockBuilder().normalize(op.add(x, stray))
    out = relax.Var("out", call.ty)
    func = relax.Function([x], relax.SeqExpr([relax.BindingBlock([relax.VarBinding(out, call)])], out), out.ty)
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    with pytest.raises(InvalidModuleError, match="not well formed: .*stray"):
        FUNCTIONS[name](mod)


@pytest.mark.parametrize("name", ["canonicalize", "optimize", "explain"])
@pytest.mark.parametrize(
    "options, message",
    [
        ({"disable": ["CanonicalizeSplits"]}, "disable names 'CanonicalizeSplits'.*CanonicalizeSplit.*rule_names"),
        ({"disable": "nop-reshapes"}, "disable names 'nop-reshapes'"),
        ({"soundness": ["exakt"]}, "soundness names 'exakt'; the classes are exact, float_reassoc, nan_sensitive"),
        ({"soundness": "fast"}, "soundness names 'fast'"),
    ],
)
def test_unknown_passes_rules_and_classes(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UnknownNameError, match=message):
        FUNCTIONS[name](model(), **options)


@pytest.mark.parametrize("name", ["partition", "optimize", "explain"])
@pytest.mark.parametrize(
    "options, message",
    [
        ({"exclude_ops": ["conv2d"]}, "exclude_ops names 'conv2d'.*'nn.conv2d'"),
        ({"exclude_ops": "nn.softmacks"}, "exclude_ops names 'nn.softmacks'"),
        ({"exclude_names": ["conv1"]}, "exclude_names names 'conv1'"),
    ],
)
def test_unknown_operators_and_bindings(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UnknownNameError, match=message):
        FUNCTIONS[name](model(), **options)


@pytest.mark.parametrize("name", ["partition", "optimize", "explain"])
def test_an_option_that_does_not_exist(name: str) -> None:
    with pytest.raises(TypeError, match="exclude_opps"):
        FUNCTIONS[name](model(), exclude_opps=["nn.softmax"])


@pytest.mark.parametrize("option", ["disable", "soundness", "exclude_ops", "exclude_names"])
@pytest.mark.parametrize("value", [3, [3]])
def test_an_option_that_holds_no_names(option: str, value: object) -> None:
    with pytest.raises(UnknownNameError, match=f"{option} holds 3, which is no name"):
        relax_glue.optimize(model(), **{option: value})


@pytest.mark.parametrize("options", [{"exclude": "nn.softmax"}, {"min_region_ops": "many"}])
def test_an_option_of_another_type(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="give a"):
        relax_glue.explain(model(), **options)


@pytest.mark.parametrize("target", ["llvm", "cuda"])
@pytest.mark.parametrize("value", ["lazy", 3])
def test_build_options_that_are_none(target: str, value: object) -> None:
    with pytest.raises(TypeError, match=rf"such as BuildOptions\(build='lazy'\), not {value!r}"):
        relax_glue.compile(model(), target, build=value)


def test_a_target_that_tvm_has_not() -> None:
    with pytest.raises(UnknownNameError, match="target='gpu9'.*try 'llvm' or 'cuda'"):
        relax_glue.compile(model(), "gpu9")


def test_what_tvm_cannot_compile() -> None:
    x = relax.Var("x", relax.TensorType(dtype="float32", ndim=3))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(op.permute_dims(x))
        builder.emit_func_output(out)
    with pytest.raises(relax_glue.CompilationError, match="for llvm: (.|\n)*permute_dims"):
        relax_glue.compile(builder.finalize(), "llvm")


def test_files_hold_modules_and_have_paths(tmp_path: Path) -> None:
    with pytest.raises(InvalidModuleError, match="IRModule is needed, not NoneType"):
        relax_glue.save(None, tmp_path / "model.relax")
    assert not list(tmp_path.iterdir())
    with pytest.raises(relax_glue.ModelImportError, match="load takes a path, not IRModule; a module is loaded"):
        relax_glue.load(model())


def test_errors_are_of_one_family_and_of_a_builtin_type() -> None:
    assert issubclass(InvalidModuleError, (RelaxGlueError, ValueError))
    assert issubclass(UnknownNameError, RelaxGlueError) and issubclass(UnknownNameError, ValueError)


# -- what goes in stays as it is -------------------------------------------------------------------------


@every_function
@pytest.mark.parametrize("make", [model, lacking], ids=["model", "lacking"])
def test_the_module_given_never_changes(name: str, make: Callable[[], tvm.IRModule]) -> None:
    mod = make()
    kept, text = tvm_ffi.structural_hash(mod), mod.script()
    FUNCTIONS[name](mod)
    assert tvm_ffi.structural_hash(mod) == kept and mod.script() == text


@pytest.mark.parametrize("name", ["partition", "optimize", "canonicalize"])
def test_a_partitioned_module_is_left_as_it_is(name: str) -> None:
    ready = relax_glue.optimize(model())
    tvm.ir.assert_structural_equal(FUNCTIONS[name](ready), ready)


def test_the_numbers_and_the_signature_stay() -> None:
    mod = model()
    after = relax_glue.optimize(mod)
    tvm.ir.assert_structural_equal(after["main"].ty, mod["main"].ty)
    x = np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype("float32")
    check_equivalent(mod, relax_glue.inline(after), [x], exact=False, rtol=1e-5)
    machine = relax.VirtualMachine(relax_glue.compile(mod, "llvm"), tvm.cpu())
    plain = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    results = [m["main"](tvm.runtime.tensor(x)).numpy() for m in (machine, plain)]
    np.testing.assert_allclose(*results, rtol=1e-5)


def test_results_keep_their_order() -> None:
    def make(emit: Any, x: relax.Expr, y: relax.Expr) -> tuple[relax.Expr, ...]:
        parts = emit(op.split(emit(op.concat([x, y], axis=0)), 2, axis=0))
        return emit(parts[1]), x, emit(op.negative(emit(parts[0]))), emit(parts[1]), const(2.0)

    mod = build(make, x=(2, 3), y=(2, 3))
    after = relax_glue.optimize(mod)
    tvm.ir.assert_structural_equal(after["main"].ret_ty, mod["main"].ret_ty)
    values = [np.arange(6, dtype="float32").reshape(2, 3), np.ones((2, 3), "float32")]
    check_equivalent(mod, relax_glue.inline(after), values)


# -- options ---------------------------------------------------------------------------------------------


def test_canonicalize_does_the_whole_of_it() -> None:
    # the focus layer is one shuffle, batch norm is in the weights, the permutes are gone, the ReLU is recognised, and
    # the minimum is kept for its NaN
    after = ops(relax_glue.canonicalize(model()))
    assert after[:3] == ["relax.reshape", "relax.permute_dims", "relax.reshape"]
    assert after[-4:] == ["relax.nn.conv2d", "relax.add", "relax.nn.relu", "relax.minimum"]


@pytest.mark.parametrize("name", ["FoldBatchNorm", "batch-norm-to-scale"])
def test_a_pass_or_a_rule_can_be_disabled(name: str) -> None:
    for disable in (name, [name]):
        assert "relax.nn.batch_norm" in ops(relax_glue.canonicalize(model(), disable=disable))
    assert "relax.nn.batch_norm" not in ops(relax_glue.canonicalize(model(), disable=["CanonicalizeTake"]))


@pytest.mark.parametrize("part, whole", [(t.name, name) for name, found in TRANSFORMS.items() for t in found])
def test_what_is_no_rule_can_be_disabled_by_its_name(part: str, whole: str) -> None:
    mod = build(lambda emit, x: op.permute_dims(emit(op.exp(emit(op.permute_dims(x))))), x=(2, 3))
    for named in ({part}, {whole}):
        assert len(ops(relax_glue.canonicalize(mod, disable=named))) == (3 if whole == "CancelPermuteDims" else 1)
    alone = len(TRANSFORMS[whole]) == 1 and whole not in FAMILIES
    assert (whole in check_disabled(part)) == alone


def test_a_pass_of_which_every_part_is_disabled_does_not_run() -> None:
    for name, rules in FAMILIES.items():
        parts = [part.name for part in (*rules, *TRANSFORMS.get(name, ()))]
        assert name in check_disabled(parts) and name not in check_disabled(parts[1:])


def test_a_name_to_disable_that_is_nearly_right_is_told() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'cancel-permute-dims'"):
        relax_glue.optimize(model(), disable="cancel-permutedims")


def test_everything_can_be_disabled() -> None:
    names = {name for step in PIPELINE for name in step.passes}
    mod = model()
    tvm.ir.assert_structural_equal(relax_glue.canonicalize(mod, disable=names), mod)


def test_soundness_classes_widen_and_narrow() -> None:
    assert "relax.nn.batch_norm" in ops(relax_glue.canonicalize(model(), soundness=EXACT))
    wide = ops(relax_glue.canonicalize(model(), soundness=("exact", "float_reassoc", NAN_SENSITIVE)))
    assert "relax.clip" in wide and "relax.minimum" not in wide


def test_exact_rules_fold_what_keeps_every_bit() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        moved = emit(op.permute_dims(const(np.arange(6.0).reshape(2, 3))))
        return op.multiply(op.add(x, moved), emit(op.exp(const(np.ones((3, 2))))))

    narrow = ops(relax_glue.canonicalize(build(make, x=(3, 2)), soundness=EXACT))
    assert narrow == ["relax.exp", "relax.add", "relax.multiply"]
    assert ops(relax_glue.canonicalize(build(make, x=(3, 2)))) == ["relax.add", "relax.multiply"]


def test_exact_rules_keep_every_bit() -> None:
    mod = model()
    x = np.random.default_rng(1).normal(size=(1, 3, 8, 8)).astype("float32")
    check_equivalent(mod, relax_glue.canonicalize(mod, soundness=EXACT), [x])


def test_stats_tell_what_each_rule_did() -> None:
    stats = RewriteStats()
    relax_glue.canonicalize(model(), stats=stats)
    assert stats.of("batch-norm-to-scale").fired == 1
    assert stats.fired == sum(c.fired for c in stats.rules.values()) > 3
    assert set(stats.rules) <= {*rule_names(), "cancel-permute-dims", "move-reshapes", "sink-permute-dims"}


def test_rule_names_are_unique_and_every_step_has_a_reason() -> None:
    names = rule_names()
    assert len(names) == len(set(names)) == sum(len(rules) for rules in FAMILIES.values())
    assert all(step.reason for step in PIPELINE)


OTHERS = ("CancelPermuteDims", "ConvertToDataflow", "SinkPermuteDims", "MergeRegions", "MoveReshapes")


@pytest.mark.parametrize("name", sorted({*FAMILIES, *OTHERS}))
def test_each_pass_works_among_passes_of_tvm(name: str) -> None:
    mod = model()
    step = getattr(passes, name)()
    assert isinstance(step, tvm.transform.Pass) and str(step.info.name) == f"relax_glue.{name}"
    transform = relax.transform
    around = [transform.CanonicalizeBindings(), step, transform.DeadCodeElimination(), step, transform.Normalize()]
    after = tvm.transform.Sequential(around)(mod)
    relax.analysis.well_formed(after)
    x = np.random.default_rng(2).normal(size=(1, 3, 8, 8)).astype("float32")
    check_equivalent(mod, after, [x], exact=False, rtol=1e-5)


def test_passes_obey_instruments_of_tvm() -> None:
    seen: list[str] = []

    @tvm.instrument.pass_instrument
    class Names:
        def run_before_pass(self, mod: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
            seen.append(str(info.name))

    with tvm.transform.PassContext(instruments=[Names()]):
        relax_glue.canonicalize(model())
    assert "relax_glue.RecognizeCallTir" in seen


# -- explain ---------------------------------------------------------------------------------------------


def test_an_operator_that_tensorrt_lacks_is_named_with_place_reason_and_way_out() -> None:
    report = relax_glue.explain(lacking())
    (outside,) = report.outside
    assert (outside.op, outside.name, outside.function) == ("relax.vision.roi_align", "lv1", "main")
    assert outside.reason == "TensorRT has no layer for relax.vision.roi_align"
    assert "stays with TVM" in outside.hint
    text = str(report)
    for part in (
        "2 TensorRT regions, 2 of 3 operators",
        "1 x relax.vision.roi_align (lv1 in main)",
        "why:",
        "way out:",
    ):
        assert part in text


def test_a_report_as_json() -> None:
    report = relax_glue.explain(lacking())
    data = json.loads(report.to_json())
    assert [r["ops"] for r in data["regions"]] == [{"relax.exp": 1}, {"relax.negative": 1}]
    assert data["outside"][0]["op"] == "relax.vision.roi_align"
    again = Report(
        [relax_glue.RegionSummary(**r) for r in data["regions"]], [relax_glue.Outside(**o) for o in data["outside"]]
    )
    assert again == report and str(again) == str(report)


def test_places_of_one_reason_are_listed_together() -> None:
    def make(emit: Any, x: relax.Expr) -> relax.Expr:
        for _ in range(5):
            x = emit(op.exp(x))
        return x

    text = str(relax_glue.explain(build(make, x=(2,)), exclude_ops=["exp"]))
    assert "5 x relax.exp (lv in main, lv1 in main, lv2 in main and 2 more)" in text
    assert text.startswith("0 TensorRT regions, 0 of 5 operators")


def test_a_full_offload_has_nothing_outside() -> None:
    report = relax_glue.explain(model())
    assert not report.outside and len(report.regions) == 1
    (region,) = report.regions
    assert (region.name, region.function) == ("main_tensorrt_0", "main")
    assert region.inputs == ["float32(1, 3, 8, 8)"] and region.outputs == ["float32(1, 4, 4, 4)"]
    assert region.size == sum(region.ops.values()) and "outside" not in str(report)


def test_a_report_of_a_partitioned_module_tells_its_regions() -> None:
    for make in (model, lacking):
        before, after = relax_glue.explain(make()), relax_glue.explain(relax_glue.optimize(make()))
        assert sorted(r.name for r in after.regions) == sorted(r.name for r in before.regions)
        assert sorted(r.size for r in after.regions) == sorted(r.size for r in before.regions)
        assert after.outside == before.outside


def test_a_report_spells_extents_as_one_writes_them() -> None:
    n = tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType([n, 4], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            both = builder.emit(relax.op.concat([x, x], axis=0))
            result = builder.emit_output(relax.op.exp(both))
        builder.emit_func_output(result)
    (region,) = relax_glue.explain(builder.get()).regions
    assert region.inputs == ["float32(n, 4)"]
    assert region.outputs in (["float32(n * 2, 4)"], ["float32(2 * n, 4)"], ["float32(n + n, 4)"])


def test_explain_ignores_that_full_offload_is_required() -> None:
    assert relax_glue.explain(lacking(), require_full_offload=True).outside


@I.ir_module
class TwoFunctions:
    @R.function
    def encode(x: R.Tensor((4,), "float32")):
        y = R.exp(x)
        return R.negative(y)

    @R.function
    def decode(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            y = R.nn.relu(x)
            R.output(y)
        return y


def test_functions_of_any_name_and_code_outside_blocks() -> None:
    after = relax_glue.optimize(TwoFunctions)
    assert sorted(region_functions(after)) == ["decode_tensorrt_0", "encode_tensorrt_0"]
    machine = relax.VirtualMachine(relax_glue.compile(after, "llvm"), tvm.cpu())
    x = np.arange(4, dtype="float32")
    np.testing.assert_allclose(machine["encode"](tvm.runtime.tensor(x)).numpy(), -np.exp(x), rtol=1e-6)


def test_a_module_without_dataflow_blocks_or_work() -> None:
    empty = build(lambda emit, x: x, x=(2,))
    report = relax_glue.explain(empty)
    assert (report.regions, report.outside) == ([], [])
    assert str(report) == "0 TensorRT regions, 0 of 0 operators"


def test_layouts_are_converted_only_when_that_is_enabled() -> None:
    def make(emit, x):
        return op.nn.conv2d(x, const(np.ones((1, 1, 3, 4))), data_layout="NHWC", kernel_layout="HWIO")

    mod = build(make, x=(1, 5, 5, 3))
    assert ops(relax_glue.canonicalize(mod)) == ["relax.nn.conv2d"]
    enabled = relax_glue.canonicalize(mod, enable=("ConvertLayout", "SinkPermuteDims"))
    assert ops(enabled) == ["relax.permute_dims", "relax.nn.conv2d", "relax.permute_dims"]
    with pytest.raises(UnknownNameError, match="off by default is ConvertLayout, SinkPermuteDims"):
        relax_glue.explain(mod, enable="CanonicalizeSplit")
