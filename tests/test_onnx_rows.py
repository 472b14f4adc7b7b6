"""ONNX operators that give as many rows as values decide, held against ONNX Runtime: NMS, TopK with a computed k."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper
from onnx_case import graph_model, one_node, run_onnx
from tvm import relax

import relax_glue
from relax_glue.errors import ModelImportError
from relax_glue.frontend import from_onnx

RNG = np.random.default_rng(0)
CENTRES = RNG.uniform(0, 1, (1, 20, 2))
SIDES = RNG.uniform(0.05, 0.4, (1, 20, 2))
BOXES = np.concatenate([CENTRES - SIDES / 2, CENTRES + SIDES / 2], -1).astype("float32")
SIGNED = RNG.normal(size=(1, 3, 20)).astype("float32")
TIED = np.round(RNG.uniform(size=(1, 3, 20)), 1).astype("float32")


def check(model: onnx.ModelProto, *feeds: Sequence[np.ndarray]) -> tvm.IRModule:
    """Check a model against ONNX Runtime on several inputs; return what it was imported as."""
    mod = from_onnx(model)
    machine = relax.VirtualMachine(relax_glue.compile(mod, "llvm"), tvm.cpu())
    for feed in feeds:
        result = machine["main"](*map(tvm.runtime.tensor, feed))
        found = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        for right, ours in zip(run_onnx(model, feed), found, strict=True):
            assert ours.dtype == right.dtype
            np.testing.assert_allclose(ours.numpy(), right, rtol=1e-4, atol=1e-5)
    return mod


def nms(scores: np.ndarray, *constants: object, boxes: np.ndarray = BOXES, **attrs: int) -> onnx.ModelProto:
    """A model of one NonMaxSuppression; constants are the limit, the IoU and the score threshold, None if left out."""
    dtypes = ("int64", "float32", "float32")
    given = [None if v is None else np.array([v], dtype) for v, dtype in zip(constants, dtypes, strict=False)]
    return one_node("NonMaxSuppression", [boxes, scores], given, **attrs)


@pytest.mark.parametrize(
    "constants",
    [
        pytest.param((20, 0.5), id="no-score-threshold"),
        pytest.param((20, 0.5, -0.5), id="negative-score-threshold"),
        pytest.param((3, 0.3, 0.25), id="limited"),
        pytest.param((2**63 - 1, 0.3, 0.25), id="not-limited"),
        pytest.param((20,), id="no-iou-threshold"),
        pytest.param((20, 0.0, 0.1), id="iou-threshold-of-0"),
        pytest.param((5, 1.0, 0.1), id="iou-threshold-of-1"),
        pytest.param((), id="no-limit-is-none"),
    ],
)
def test_suppression_means_what_onnx_says(constants: tuple[float, ...]) -> None:
    feeds = [(BOXES, scores) for scores in (SIGNED, -np.abs(SIGNED), TIED, -TIED, np.zeros_like(TIED))]
    check(nms(SIGNED, *constants), *feeds)


def test_an_overlap_at_the_threshold_does_not_suppress() -> None:
    boxes = np.array([[[0, 0, 1, 1], [0, 0, 1, 0.5], [0, 0, 0.5, 1], [2, 2, 3, 3], [2, 2, 3, 2.5]]], "float32")
    scores = np.array([[[0.9, 0.8, 0.7, 0.6, 0.5]]], "float32")
    check(nms(scores, 5, 0.5, 0.1, boxes=boxes), (boxes, scores))


def test_batches_of_boxes_given_by_their_centres() -> None:
    boxes = np.concatenate([np.concatenate([CENTRES, SIDES], -1)] * 2).astype("float32")[..., [1, 0, 3, 2]]
    scores = np.abs(np.concatenate([SIGNED, SIGNED[:, ::-1]]))
    check(nms(scores, 5, 0.3, 0.1, boxes=boxes, center_point_box=1), (boxes, scores))


@pytest.mark.parametrize("sigmoid", [True, False])
def test_thresholds_may_be_computed(sigmoid: bool) -> None:
    squash = helper.make_node("Sigmoid" if sigmoid else "Identity", ["s"], ["t"])
    node = helper.make_node("NonMaxSuppression", ["x", "t", "limit", "iou", "least"], ["i"], name="nms")
    inputs = {"x": [1, 20, 4], "s": [1, 3, 20], "iou": [1], "least": [1]}
    model = graph_model(
        [squash, node, helper.make_node("Cast", ["i"], ["y"], to=1)], inputs, ["y"], limit=np.array([9])
    )
    feeds = [
        (BOXES, SIGNED, np.array([iou], "float32"), np.array([least], "float32"))
        for iou, least in ((0.4, -0.5), (0.0, 0.3), (0.7, 0.6))
    ]
    check(model, *feeds)


def test_scores_that_are_never_negative_are_not_ranked() -> None:
    """Ranks cost two sorts; scores of a sigmoid, through any movement, need none."""
    nodes = [
        helper.make_node("Sigmoid", ["s"], ["t"]),
        helper.make_node("Split", ["t"], ["u", "v"], axis=0),
        helper.make_node("Mul", ["u", "v"], ["w"]),
        helper.make_node("Transpose", ["w"], ["r"], perm=[0, 2, 1]),
        helper.make_node("NonMaxSuppression", ["x", "r", "limit", "iou"], ["i"]),
        helper.make_node("Cast", ["i"], ["y"], to=1),
    ]
    inputs = {"x": [1, 20, 4], "s": [2, 20, 3]}
    model = graph_model(nodes, inputs, ["y"], limit=np.array([9]), iou=np.array([0.4], "float32"))
    logits = RNG.normal(size=(2, 20, 3)).astype("float32")
    saturated = np.full_like(logits, -200.0)  # sigmoids that are exactly 0, which ONNX chooses
    mod = check(model, (BOXES, logits), (BOXES, saturated))
    assert "argsort" not in mod.script()
    assert "argsort" in from_onnx(nms(SIGNED, 20, 0.5)).script()


@pytest.mark.parametrize("batches", [1, 2])
def test_the_limit_may_be_computed(batches: int) -> None:
    nodes = [
        helper.make_node("Cast", ["n"], ["k"], to=7),
        helper.make_node("NonMaxSuppression", ["x", "s", "k", "iou"], ["i"], name="/nms"),
        helper.make_node("Cast", ["i"], ["y"], to=1),
    ]
    inputs = {"x": [batches, 20, 4], "s": [batches, 3, 20], "n": [1]}
    model = graph_model(nodes, inputs, ["y"], iou=np.array([0.3], "float32"))
    boxes, scores = (np.concatenate([a, a[:, ::-1]])[:batches] for a in (BOXES, SIGNED))
    check(model, *[(boxes, scores, np.array([limit], "float32")) for limit in (0, 1, 4, 99)])


def test_boxes_without_bound_need_a_limit() -> None:
    node = helper.make_node("NonMaxSuppression", ["x", "s", "k", "iou"], ["i"], name="/nms")
    cast = helper.make_node("Cast", ["i"], ["y"], to=1)
    inputs = {"x": [1, "n", 4], "s": [1, 3, "n"]}
    iou = np.array([0.4], "float32")
    check(
        graph_model([node, cast], inputs, ["y"], k=np.array([7]), iou=iou),
        (BOXES, SIGNED),
        (BOXES[:, :5], SIGNED[..., :5]),
    )
    with pytest.raises(ModelImportError, match=r"/nms.*no upper bound.*, n,.*the limit is 4611686018427387904"):
        from_onnx(graph_model([node, cast], inputs, ["y"], k=np.array([2**62]), iou=iou))


# -- TopK ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("largest", [0, 1])
def test_a_k_that_is_an_input(axis: int, largest: int) -> None:
    x = RNG.normal(size=(8, 8)).astype("float32")
    model = one_node("TopK", [x, np.array([3])], outputs=2, axis=axis, largest=largest)
    check(model, *[(x, np.array([k])) for k in (0, 1, 8)])


def test_a_k_that_follows_from_the_extents() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Slice", ["s", "one", "two", "zero"], ["n"]),
        helper.make_node("Concat", ["n", "five"], ["both"], axis=0),
        helper.make_node("ReduceMin", ["both"], ["k"], keepdims=1),
        helper.make_node("TopK", ["x", "k"], ["v", "i"], axis=1),
        helper.make_node("Cast", ["i"], ["j"], to=1),
    ]
    numbers = {name: np.array([value]) for name, value in (("zero", 0), ("one", 1), ("two", 2), ("five", 5))}
    model = graph_model(nodes, {"x": [3, "n"]}, ["v", "j"], **numbers)
    mod = check(model, *[(RNG.normal(size=(3, n)).astype("float32"),) for n in (3, 5, 9)])
    assert "min(n, 5)" in mod.script().replace("T.int64(5)", "5"), "the extent is known by the symbols of the input"


# -- what follows ----------------------------------------------------------------------------------------


def test_rows_are_filled_up_to_a_fixed_number() -> None:
    """The end of an exported YOLO: what one mask finds in several tensors, cut to the best four and padded to four."""
    nodes = [helper.make_node("Greater", ["s", "least"], ["mask"])]
    for name in ("x", "s"):  # exporters write the indices of a mask anew for each tensor
        nodes.append(helper.make_node("NonZero", ["mask"], [f"{name}_found"]))
        nodes.append(helper.make_node("Transpose", [f"{name}_found"], [f"{name}_at"], perm=[1, 0]))
        nodes.append(helper.make_node("GatherND", [name, f"{name}_at"], [f"{name}_kept"]))
    nodes += [
        helper.make_node("Unsqueeze", ["s_kept", "one"], ["column"]),
        helper.make_node("Mul", ["x_kept", "column"], ["rows"]),
        helper.make_node("Slice", ["rows", "zero", "four", "zero"], ["best"]),
        helper.make_node("Shape", ["best"], ["size"]),
        helper.make_node("Slice", ["size", "zero", "one"], ["n"]),
        helper.make_node("Sub", ["four", "n"], ["missing"]),
        helper.make_node("Concat", ["zeros", "missing", "zero"], ["pads"], axis=0),
        helper.make_node("Pad", ["best", "pads"], ["y"]),
    ]
    numbers = {name: np.array([k]) for name, k in (("zero", 0), ("one", 1), ("four", 4))} | {"zeros": np.array([0, 0])}
    model = graph_model(nodes, {"x": [6, 4], "s": [6]}, ["y"], least=np.float32(0.5), **numbers)
    mod = check(model, *[(BOXES[0, :6], np.linspace(0, most, 6).astype("float32")) for most in (9.0, 0.7, 0.4)])
    assert [int(e) for e in mod["main"].ret_ty.shape.values] == [4, 4]


def test_rows_found_are_sorted_limited_and_suppressed() -> None:
    """The end of an SSD: filter by score, the best k of what is left, suppression over all classes."""
    nodes, boxes, best, labels = [], [], [], []

    def add(op: str, inputs: list[str], outputs: list[str], **attrs: object) -> str:
        nodes.append(helper.make_node(op, inputs, outputs, name=f"/{outputs[0]}", **attrs))
        return outputs[0]

    add("Softmax", ["s"], ["p"], axis=-1)
    for c in ("c1", "c2"):
        add("Gather", ["p", c], [f"{c}_p"], axis=1)
        add("Greater", [f"{c}_p", "least"], [f"{c}_keep"])
        add("NonZero", [f"{c}_keep"], [f"{c}_found"])
        add("Reshape", [f"{c}_found", "all"], [f"{c}_i"])
        add("Gather", [f"{c}_p", f"{c}_i"], [f"{c}_kept"], axis=0)
        add("Shape", [f"{c}_kept"], [f"{c}_n"])
        add("Concat", [f"{c}_n", "ten"], [f"{c}_both"], axis=0)
        add("ReduceMin", [f"{c}_both"], [f"{c}_k"])
        best.append(add("TopK", [f"{c}_kept", f"{c}_k"], [f"{c}_best", f"{c}_at"]))
        add("Gather", ["x", f"{c}_i"], [f"{c}_rows"], axis=0)
        boxes.append(add("Gather", [f"{c}_rows", f"{c}_at"], [f"{c}_boxes"], axis=0))
        add("Unsqueeze", [c, "zero"], [f"{c}_1"])
        add("Shape", [f"{c}_best"], [f"{c}_count"])
        labels.append(add("Expand", [f"{c}_1", f"{c}_count"], [f"{c}_labels"]))
    for name, parts in (("boxes", boxes), ("scores", best), ("labels", labels)):
        add("Concat", parts, [name], axis=0)
    add("Cast", ["labels"], ["apart"], to=1)
    add("Unsqueeze", ["apart", "one"], ["offsets"])
    add("Mul", ["offsets", "four"], ["far"])
    add("Add", ["boxes", "far"], ["moved"])
    add("Unsqueeze", ["moved", "zero"], ["nms_boxes"])
    add("Unsqueeze", ["scores", "two"], ["nms_scores"])
    add("NonMaxSuppression", ["nms_boxes", "nms_scores", "many", "iou"], ["chosen"])
    add("Gather", ["chosen", "column"], ["which"], axis=1)
    add("Slice", ["which", "zero", "fifteen", "zero"], ["keep"])
    results = [add("Gather", [name, "keep"], [f"out_{name}"], axis=0) for name in ("boxes", "scores")]
    integers = {"c1": 1, "c2": 2, "column": 2}
    lists = {"zero": [0], "one": [1], "two": [0, 1], "all": [-1], "ten": [10], "fifteen": [15], "many": [2**62]}
    floats = {"least": 0.4, "four": 4.0, "iou": [0.45]}
    constants = {name: np.array(value) for name, value in (integers | lists).items()}
    constants |= {name: np.array(value, "float32") for name, value in floats.items()}
    model = graph_model(nodes, {"x": [20, 4], "s": [20, 3]}, results, **constants)
    logits = RNG.normal(size=(20, 3)).astype("float32") * 3
    nothing = np.tile(np.array([9, 0, 0], "float32"), (20, 1))
    mod = check(model, (BOXES[0], logits), (BOXES[0], nothing))
    assert len(relax_glue.explain(mod).regions) == 1, "what comes before the rows are found"
