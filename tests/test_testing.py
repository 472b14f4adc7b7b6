"""The strategies and the equivalence check themselves: do they draw what they say, and do they see faults."""

from __future__ import annotations

import collections
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, Phase, find, given, settings
from tvm import relax
from tvm.relax import op

from relax_glue.testing import (
    DTYPES,
    Case,
    NotEquivalentError,
    Pair,
    check_equivalent,
    check_many,
    check_pass,
    difference,
    evaluate,
    fuzz_examples,
    modules,
)
from relax_glue.testing.equivalence import _refines

quickly = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

X = np.arange(6, dtype="float32").reshape(2, 3)


def module_of(build, *inputs: np.ndarray) -> tvm.IRModule:
    parameters = [relax.Var(f"x{i}", relax.TensorType(a.shape, str(a.dtype))) for i, a in enumerate(inputs)]
    builder = relax.BlockBuilder()
    with builder.function("main", parameters):
        with builder.dataflow():
            result = builder.emit_output(build(*parameters))
        builder.emit_func_output(result)
    return builder.get()


def leaves(result: object) -> list[np.ndarray]:
    if isinstance(result, tuple):
        return [array for field in result for array in leaves(field)]
    return [np.asarray(result)]


@quickly
@given(case=modules())
def test_tvm_and_numpy_agree_on_what_is_drawn(case: Case) -> None:
    relax.analysis.well_formed(case.module)
    found, expected = leaves(evaluate(case.module, case.inputs)), leaves(case.expected)
    assert len(found) == len(expected)
    for got, right in zip(found, expected, strict=True):
        assert difference(right, got, payloads=case.only_moves) is None


def test_the_draws_cover_what_they_promise() -> None:
    seen: collections.Counter[str] = collections.Counter()

    @settings(quickly, max_examples=800)
    @given(case=modules())
    def draw(case: Case) -> None:
        main = case.module["main"]
        seen.update(str(array.dtype) for array in case.inputs)
        seen.update(f"rank {array.ndim}" for array in case.inputs)
        seen.update(f"extent {extent}" for array in case.inputs for extent in array.shape)
        seen.update(f"{len(case.sizes)} symbols" for _ in [0] if case.sizes)
        shapes = [list(parameter.ty.shape.values) for parameter in main.params]
        symbolic = [(axis, e) for shape in shapes for axis, e in enumerate(shape) if not isinstance(e, tvm.tirx.IntImm)]
        seen.update(f"{type(extent).__name__} at axis {axis}" for axis, extent in symbolic)
        seen.update(["tuple"] if isinstance(case.expected, tuple) else [])
        seen.update(["parameter returned"] if any(main.body.body.same_as(p) for p in main.params) else [])
        seen.update(["two blocks"] if len(main.body.blocks) > 1 else [])
        relax.analysis.post_order_visit(main, lambda e: seen.update([e.op.name] if isinstance(e, relax.Call) else []))

    draw()
    moves = (
        "strided_slice split concat reshape expand_dims squeeze flatten permute_dims broadcast_to take nn.pad flip "
        "tile repeat stack gather_elements slice_scatter image.resize2d layout_transform nn.batch_flatten"
    )
    promised = [f"relax.{name}" for name in moves.split()]
    promised += [*DTYPES, *(f"rank {rank}" for rank in range(7)), *(f"extent {e}" for e in (0, 1, 2, 3, 4, 5, 6, 8))]
    promised += [f"{count} symbols" for count in (1, 2, 3)]
    promised += [f"{kind} at axis {axis}" for kind in ("Var", "Mul", "Add") for axis in (0, 1)]
    promised += [
        "Var at axis 3",
        "tuple",
        "parameter returned",
        "two blocks",
        "relax.nn.relu",
        "relax.sum",
        "relax.where",
    ]
    assert [what for what in promised if not seen[what]] == []


@quickly
@given(case=modules(only_moves=True, dtypes=["int8"], symbolic=False))
def test_options_are_kept(case: Case) -> None:
    assert case.only_moves and not case.sizes
    assert {str(array.dtype) for array in case.inputs} == {"int8"}


@pytest.mark.parametrize("options", [{"dtypes": []}, {"dtypes": ["complex64"]}, {"max_operators": -1}])
def test_bad_options_are_named(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="give dtypes out of"):
        find(modules(**options), lambda case: True)


def test_a_failing_module_shrinks_to_the_operator_at_fault() -> None:
    def flips(case: Case) -> bool:
        return "R.flip" in case.module.script()

    case = find(modules(symbolic=False), flips, settings=settings(max_examples=2000, database=None, derandomize=True))
    assert case.module.script().count(" = R.") <= 2


@quickly
@given(case=modules())
def test_passes_of_tvm_pass(case: Case) -> None:
    check_pass(relax.transform.CanonicalizeBindings(), case, idempotent=False)


def test_a_wrong_order_is_seen() -> None:
    before = module_of(lambda x: op.flip(x, 0), X)
    after = module_of(lambda x: op.flip(x, 1), X)
    with pytest.raises(NotEquivalentError, match=r"6 of 6 entries differ; at \(0, 0\).*(?s:.*)before.*(?s:.*)after"):
        check_equivalent(before, after, [X])


def test_a_changed_type_is_seen() -> None:
    before, after = module_of(lambda x: x, X), module_of(lambda x: op.reshape(x, (3, 2)), X)
    with pytest.raises(NotEquivalentError, match="the signature changes"):
        check_equivalent(before, after, [X])


def test_a_pass_that_is_right_at_one_size_only_is_seen() -> None:
    n = tvm.tirx.Var("n", "int64")

    def sum_of(make: Callable[[relax.Var], relax.Expr]) -> tvm.IRModule:
        x = relax.Var("x", relax.TensorType([n, 3], "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [x]):
            with builder.dataflow():
                result = builder.emit_output(op.sum(builder.emit(make(x)), 0))
            builder.emit_func_output(result)
        return builder.get()

    case = Case(sum_of(lambda x: x), (X,), X.sum(0), {"n": 2}, False, ((np.ones((5, 3), "float32"),),))
    check_pass(lambda module: sum_of(lambda x: op.flip(x, 0)), case, idempotent=False)
    with pytest.raises(NotEquivalentError, match=r"inputs \[\(5, 3\)\]"):
        check_pass(lambda module: sum_of(lambda x: op.strided_slice(x, [0], [0], [2])), case, idempotent=False)


@quickly
@given(case=modules())
def test_other_sizes_fit_the_module(case: Case) -> None:
    assert bool(case.other_inputs) == bool(case.sizes)
    for inputs in case.other_inputs:
        evaluate(case.module, inputs)
        assert [a.dtype for a in inputs] == [a.dtype for a in case.inputs]


def test_one_wrong_pair_among_many_is_the_one_shown() -> None:
    same = Pair(module_of(lambda x: op.nn.relu(x), X), module_of(lambda x: op.nn.relu(x), X), [X])
    wrong = Pair(module_of(lambda x: op.negative(x), X), module_of(lambda x: op.abs(x), X), [X])
    check_many([same, same])
    with pytest.raises(NotEquivalentError, match="R.negative"):
        check_many([same, wrong])


def test_a_pass_that_is_never_done_is_seen() -> None:
    def add_a_permute(module: tvm.IRModule) -> tvm.IRModule:
        turns = module.script().count("permute_dims") + 2

        def build(x: relax.Var) -> relax.Expr:
            for _ in range(turns):
                x = op.permute_dims(x, [1, 0])
            return x

        return module_of(build, X)

    case = Case(module_of(lambda x: x, X), (X,), X, {}, True)
    with pytest.raises(NotEquivalentError, match="a second run of the pass"):
        check_pass(add_a_permute, case)


@pytest.mark.parametrize(
    ("expected", "found", "options", "differs"),
    [
        ([0.0], [-0.0], {}, True),
        ([0.0], [-0.0], {"exact": False}, False),
        ([np.nan], [np.nan], {"payloads": True}, False),
        ([np.nan], [-np.float32(np.nan)], {"payloads": True}, True),
        ([np.nan], [-np.float32(np.nan)], {}, False),
        ([1.0, 100.0], [1.001, 100.0], {"exact": False}, False),
        ([1.0, 100.0], [1.1, 100.0], {"exact": False}, True),
    ],
)
def test_what_counts_as_different(expected: list, found: list, options: dict[str, bool], differs: bool) -> None:
    reason = difference(np.array(expected, "float32"), np.array(found, "float32"), **options)
    assert (reason is not None) == differs


def test_shapes_and_dtypes_differ() -> None:
    assert "float32[2, 3] instead of float32[6]" in str(difference(X.ravel(), X))
    assert "int64" in str(difference(X, X.astype("int64")))


def test_the_number_of_examples_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RELAX_GLUE_FUZZ", raising=False)
    assert fuzz_examples(7) == 7
    monkeypatch.setenv("RELAX_GLUE_FUZZ", "50000")
    assert fuzz_examples(7) == 50000
    monkeypatch.setenv("RELAX_GLUE_FUZZ", "many")
    with pytest.raises(ValueError, match="RELAX_GLUE_FUZZ is 'many'"):
        fuzz_examples(7)


def test_extents_of_results_are_compared_by_proof() -> None:
    n = tvm.tirx.Var("n", "int64")
    one, zero = (tvm.tirx.IntImm("int64", value) for value in (1, 0))
    written = [tvm.tirx.min(one, n) - tvm.tirx.min(zero, n), tvm.tirx.min(one, n), n]
    plain, simplified, other = (identity_typed(n, extent) for extent in written)
    assert _refines(plain, simplified) and _refines(simplified, plain)
    assert not _refines(plain, other)


def identity_typed(n: tvm.tirx.Var, extent: tvm.tirx.PrimExpr) -> relax.Function:
    """Return a function of x (n,) with the result type (extent,)."""
    x = relax.Var("x", relax.TensorType((n,), "float32"))
    return relax.Function([x], x, relax.TensorType((extent,), "float32"))
