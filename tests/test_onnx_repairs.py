"""Each fault of TVM's ONNX importer that relax_glue mends, as the case that shows it, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_case import one_node, op_names, run_onnx, run_relax

import relax_glue
from relax_glue.errors import ModelImportError
from relax_glue.frontend import from_onnx

RNG = np.random.default_rng(0)


def normal(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def ints(*values: int) -> np.ndarray:
    return np.array(values, "int64")


def check(ops: Sequence[str] | None, op: str, inputs: Sequence[np.ndarray], *args: object, **kwargs: object) -> None:
    """Import one node, compare it with ONNX Runtime, and see which operators it became."""
    model = one_node(op, inputs, *args, **kwargs)
    mod = from_onnx(model)
    if ops is not None:
        assert op_names(mod) == list(ops)
    assert "call_tir" not in op_names(mod)
    for found, wanted in zip(run_relax(mod, inputs), run_onnx(model, inputs), strict=True):
        assert found.dtype == wanted.dtype
        tolerance = 1e-2 if wanted.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int64", "int32", "int8", "uint8"])
@pytest.mark.parametrize(("low", "high"), [(3, 20), (20, 3), (3, None), (None, 20)])
def test_clip_is_one_operator(dtype: str, low: int | None, high: int | None) -> None:
    bounds = [None if bound is None else np.array(bound, dtype) for bound in (low, high)]
    expected = "clip" if None not in (low, high) else ("minimum" if low is None else "maximum")
    check([expected], "Clip", [np.abs(normal(8) * 20).astype(dtype)], bounds, 13)


def test_clip_bounds_that_bound_nothing() -> None:
    check(["minimum"], "Clip", [normal(6)], [np.float32(np.nan), np.float32(0.5)], 13)
    check([], "Clip", [normal(6)], [], 13)
    check(["clip"], "Clip", [normal(6)], [], 6, min=-0.5, max=0.5)
    check(["maximum"], "Clip", [normal(6)], [], 6, min=0.0)


def test_clip_beyond_what_the_attributes_of_relax_clip_hold() -> None:
    values = np.array([2**62 + 5, -(2**63), 7])
    check(["maximum", "minimum"], "Clip", [values], [np.array(-(2**63)), np.array(2**62 + 3)], 13)


def test_clip_with_computed_bounds() -> None:
    bounds = [np.array(-0.5, "float32"), np.array(0.5, "float32")]
    check(None, "Clip", [normal(6), *bounds], [], 13)


@pytest.mark.parametrize(("op", "relax_op"), [("Max", "maximum"), ("Min", "minimum"), ("Sum", "add")])
def test_variadic_operators_are_chains(op: str, relax_op: str) -> None:
    check([], op, [normal(2, 3)], [], 13)
    check([relax_op], op, [normal(2, 3), normal(3)], [], 13)
    check([relax_op] * 2, op, [normal(2, 3), normal(3), normal(2, 1)], [], 13)


def test_mean_is_a_chain() -> None:
    check(["add", "divide"], "Mean", [normal(2, 3), normal(3)], [], 13)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize(
    "attrs",
    [
        {"ceil_mode": 1},
        {"ceil_mode": 1, "pads": [1, 1, 1, 1]},
        {"ceil_mode": 1, "pads": [0, 1, 1, 0], "dilations": [2, 1]},
        {"auto_pad": "SAME_UPPER"},
        {"auto_pad": "SAME_LOWER"},
    ],
)
def test_lp_pool_sums_what_is_there(attrs: dict[str, object], p: int) -> None:
    wide = {"kernel_shape": [2, 3], "strides": [3, 2], "p": p, **attrs}
    for shape in ((1, 2, 7, 8), (1, 2, 8, 9)):
        check(None, "LpPool", [normal(*shape)], [], 18, **wide)


LEGACY = {
    "Add": np.add,
    "And": np.logical_and,
    "Div": np.divide,
    "Equal": np.equal,
    "Greater": np.greater,
    "Less": np.less,
    "Mul": np.multiply,
    "Or": np.logical_or,
    "Pow": np.power,
    "PRelu": lambda x, slope: np.where(x < 0, x * slope, x),
    "Sub": np.subtract,
    "Xor": np.logical_xor,
}


@pytest.mark.parametrize("op", LEGACY)
def test_operands_begin_at_an_axis_up_to_opset_6(op: str) -> None:
    """ONNX Runtime does not run these any more. With 3 elements in the last axis too, TVM gives other numbers."""
    x, y = np.abs(normal(2, 3, 4, 3)), np.abs(normal(3))
    if op in ("And", "Or", "Xor"):
        x, y = x > 0.5, y > 0.5
    elif op == "Equal":
        x, y = np.round(x).astype("int64"), np.round(y).astype("int64")
    elif op == "PRelu":
        x = x - 0.5
    attrs = {} if op == "PRelu" else {"axis": 1, "broadcast": 1}
    for axis in (1, -3) if attrs else (1,):
        model = one_node(op, [x], [y], 6, **({**attrs, "axis": axis} if attrs else {}))
        np.testing.assert_allclose(run_relax(from_onnx(model), [x])[0], LEGACY[op](x, y.reshape(3, 1, 1)), rtol=1e-5)


def test_operands_end_with_the_last_axis_where_none_is_named() -> None:
    x, y = normal(2, 3, 3), normal(3)
    found = run_relax(from_onnx(one_node("Add", [x], [y], 6, broadcast=1)), [x])[0]
    np.testing.assert_allclose(found, x + y, rtol=1e-6)
    many = normal(3, 4)
    found = run_relax(
        from_onnx(one_node("Add", [np.ones((2, 3, 4), "float32")], [many], 6, axis=1, broadcast=1)),
        [np.ones((2, 3, 4), "float32")],
    )[0]
    np.testing.assert_allclose(found, np.ones((2, 3, 4)) + many, rtol=1e-6)


def test_slopes_that_fit_no_axis_are_refused() -> None:
    check(None, "PRelu", [normal(2, 3, 4)], [normal(3, 1)], 16)
    check(None, "PRelu", [normal(2, 3, 4)], [normal(3, 4)], 16)
    for shape in ((3,), (2, 1), (1, 2, 3, 4)):
        with pytest.raises(
            ModelImportError, match=r"node 'n' \(PRelu\).*cannot be broadcast to data of shape \(2, 3, 4\)"
        ):
            from_onnx(one_node("PRelu", [normal(2, 3, 4)], [normal(*shape)], 16))


@st.composite
def pads(draw: st.DrawFn) -> tuple[str, tuple[int, ...], list[int]]:
    """A mode, a shape and amounts that ONNX Runtime takes: no mirror image beyond one repetition, none on a crop."""
    mode = draw(st.sampled_from(["constant", "edge", "reflect", "wrap"]))
    shape = tuple(draw(st.lists(st.integers(3, 5), min_size=1, max_size=4)))
    amounts = [draw(st.integers(-1 if mode == "constant" else 0, 2)) for _ in range(2 * len(shape))]
    return mode, shape, amounts


@given(pads())
@settings(max_examples=15, deadline=None, derandomize=True)
def test_pad_in_every_mode(case: tuple[str, tuple[int, ...], list[int]]) -> None:
    mode, shape, amounts = case
    check(None, "Pad", [normal(*shape)], [ints(*amounts)], 19, mode=mode)


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_pad_crops_first(mode: str) -> None:
    check(["strided_slice", "nn.pad"], "Pad", [normal(4, 5)], [ints(-1, 1, 1, -2)], 19, mode=mode)


def test_pad_spellings() -> None:
    check(["nn.pad"], "Pad", [RNG.integers(0, 9, (2, 3))], [ints(1, 0, 0, 1), np.array(7, "int64")], 13)
    check(["nn.pad"], "Pad", [normal(2, 3)], [ints(1, 2), np.float32(3), ints(-1)], 18)
    check(["nn.pad"], "Pad", [normal(2, 3)], [], 2, pads=[1, 0, 0, 2], value=1.5)
    check(["nn.pad"], "Pad", [normal(3)], [ints(1, 1), np.float32(-np.inf)], 13)
    check([], "Pad", [normal(3)], [ints(0, 0)], 13)


def test_pad_beyond_one_repetition_is_refused() -> None:
    with pytest.raises(ModelImportError, match=r"node 'n' \(Pad\).*'wrap' by 5 on axis 0 of extent 3"):
        from_onnx(one_node("Pad", [normal(3)], [ints(4, 5)], 19, mode="wrap"))


def test_pad_by_computed_amounts_is_refused() -> None:
    with pytest.raises(ModelImportError, match="amounts are computed"):
        from_onnx(one_node("Pad", [normal(3), ints(1, 1)], [], 13))


@given(st.data())
@settings(max_examples=15, deadline=None, derandomize=True)
def test_slice_as_numpy_cuts(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    bound = st.one_of(st.integers(-7, 7), st.sampled_from([2**63 - 1, -(2**63), 2**31 - 1]))
    step = st.sampled_from([1, 1, 2, -1, -2])
    axes = data.draw(st.permutations(range(len(shape))))[: data.draw(st.integers(1, len(shape)))]
    starts, ends, steps = ([data.draw(kind) for _ in axes] for kind in (bound, bound, step))
    inputs = [normal(*shape)]
    model = one_node("Slice", inputs, [ints(*starts), ints(*ends), ints(*axes), ints(*steps)], 13)
    wanted = inputs[0][tuple(_cut(shape, starts, ends, list(axes), steps))]
    found = run_relax(from_onnx(model), inputs)[0]
    np.testing.assert_array_equal(found, wanted)


def _cut(shape: Sequence[int], starts: list[int], ends: list[int], axes: list[int], steps: list[int]) -> list[slice]:
    cuts = [slice(None)] * len(shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        cuts[axis] = slice(start, end, step)
    return cuts


def test_slice_with_attributes() -> None:
    check(["strided_slice"], "Slice", [normal(4, 5)], [], 9, starts=[1, -3], ends=[3, 1000], axes=[0, 1])


def test_slice_to_the_end_of_a_free_axis_is_nothing() -> None:
    model = one_node("Slice", [normal(4, 5)], [ints(0), ints(2**63 - 1), ints(0)], 13)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    assert op_names(from_onnx(model)) == []


@pytest.mark.parametrize("index", [np.array(-1), np.array(0), np.array([0, -1]), np.array([[2, 0], [-2, 1]])])
def test_gather_by_known_indices_is_one_take(index: np.ndarray) -> None:
    check(["take"], "Gather", [normal(3, 4)], [index], 13, axis=1)


def test_gather_outside_the_axis_is_refused() -> None:
    with pytest.raises(ModelImportError, match="an index is outside axis 0, which has extent 3"):
        from_onnx(one_node("Gather", [normal(3, 4)], [ints(3)], 13))


def test_tile_and_einsum_are_operators() -> None:
    check(["tile"], "Tile", [normal(2, 3)], [ints(2, 1)], 13)
    check(["einsum"], "Einsum", [normal(2, 3), normal(3, 4)], [], 12, equation="ij, jk -> ik")
    check(["einsum"], "Einsum", [normal(2, 3, 4), normal(2, 4, 5)], [], 12, equation="bij,bjk")
    check(["einsum"], "Einsum", [normal(2, 3), normal(3, 4)], [], 12, equation="Ij,jK->IK")


def test_split_with_an_empty_part() -> None:
    check(["strided_slice"] * 3, "Split", [normal(4, 6)], [ints(0, 2, 4)], 13, outputs=3, axis=1)


@pytest.mark.parametrize("target", [2, 3, 6, 7])
def test_cast_to_integers_is_one_operator(target: int) -> None:
    check(["astype"], "Cast", [np.abs(normal(9)) * 30], [], 13, to=target)


def test_power_of_mixed_types() -> None:
    check(["astype", "power"], "Pow", [np.abs(normal(5)), ints(1, 2, 3, 2, 1)], [], 13)
    check(["multiply"] * 2, "Pow", [ints(-3, 2, 5)], [np.array(3)], 13)
    check(None, "Pow", [ints(3, 2, 5), ints(0, 9, 2)], [], 13)


def test_is_inf_of_one_sign() -> None:
    values = np.float32([np.inf, -np.inf, 1, np.nan])
    for name in ("detect_negative", "detect_positive"):
        model = one_node("IsInf", [values], [], 10, **{name: 0})
        np.testing.assert_array_equal(run_relax(from_onnx(model), [values])[0], run_onnx(model, [values])[0])


@pytest.mark.parametrize("op", ["Elu", "Selu", "ThresholdedRelu"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_activations_in_every_float_type(op: str, dtype: str) -> None:
    check(None, op, [normal(2, 5, dtype=dtype)], [], 10)


def test_thresholded_relu_of_minus_infinity_is_zero() -> None:
    values = np.float32([-np.inf, 3])
    assert run_relax(from_onnx(one_node("ThresholdedRelu", [values], [], 10)), [values])[0].tolist() == [0, 3]


def test_lp_normalization() -> None:
    values = np.vstack([normal(2, 4), np.zeros((1, 4), "float32")])
    for order in (1, 2):
        check(None, "LpNormalization", [values], [], 1, p=order, axis=1)


def test_one_hot_has_the_type_of_its_values() -> None:
    check(None, "OneHot", [ints(0, -1, 2)], [np.array(4), np.float32([0.5, 2])], 11)
    check(None, "OneHot", [ints(0, -1, 2)], [np.array(4), np.array([1, 7])], 11, axis=0)


def test_top_k_of_opset_10_and_unsorted() -> None:
    check(["topk"], "TopK", [normal(2, 6)], [ints(3)], 10, outputs=2)
    assert op_names(from_onnx(one_node("TopK", [normal(2, 6)], [ints(3)], 11, outputs=2, sorted=0))) == ["topk"]


@pytest.mark.parametrize("same", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("extent", [5, 6])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pool_with_automatic_padding(op: str, extent: int, same: str) -> None:
    check(None, op, [normal(1, 2, extent, extent)], [], 11, kernel_shape=[3, 3], strides=[2, 2], auto_pad=same)


@pytest.mark.parametrize("size", [[8, 8], [7, 9], [9, 9], [10, 9]])
def test_conv_transpose_to_a_size(size: list[int]) -> None:
    weight = normal(2, 3, 3, 3)
    check(None, "ConvTranspose", [normal(1, 2, 4, 4)], [weight], 11, strides=[2, 2], output_shape=size)


@pytest.mark.parametrize("op", ["LayerNormalization", "Dropout"])
def test_results_that_tvm_does_not_compute_are_refused(op: str) -> None:
    constants = [normal(4), normal(4)] if op == "LayerNormalization" else []
    with pytest.raises(ModelImportError, match="its result 'y1' is not computed"):
        from_onnx(one_node(op, [normal(2, 4)], constants, 17, outputs=2))


def test_roi_align_of_maxima_is_refused() -> None:
    with pytest.raises(ModelImportError, match=r"node 'n' \(RoiAlign\).*mode 'max'"):
        from_onnx(one_node("RoiAlign", [normal(1, 1, 6, 6)], [np.float32([[0, 0, 4, 4]]), ints(0)], 16, mode="max"))


def test_non_max_suppression_returns_as_many_rows_as_boxes() -> None:
    corners = RNG.random((1, 30, 2)).astype("float32")
    boxes = np.concatenate([corners, corners + 0.3], axis=2)
    inputs = [boxes, RNG.random((1, 2, 30)).astype("float32")]
    # The limit is what exporters write for "all", and no int32.
    constants = [ints(2**63 - 1), np.float32([0.4]), np.float32([0.2])]
    check(None, "NonMaxSuppression", inputs, constants, 11)


@pytest.mark.parametrize(("opset", "constants"), [(7, []), (9, [np.float32([1, 1, 2, 3])])])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample(opset: int, constants: list[np.ndarray], mode: str) -> None:
    attrs = {"scales": [1.0, 1.0, 2.0, 3.0]} if opset == 7 else {}
    check(["image.resize2d"], "Upsample", [normal(1, 2, 3, 4)], constants, opset, mode=mode, **attrs)


@pytest.mark.parametrize("rounding", ["floor", "round_prefer_floor", "ceil"])
def test_resize_in_the_coordinates_of_tensorflow(rounding: str) -> None:
    empty = np.zeros(0, np.float32)
    attrs = {"mode": "nearest", "coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": rounding}
    check(None, "Resize", [normal(1, 2, 5, 4)], [empty, np.float32([1, 1, 2, 3])], 11, **attrs)
    check(None, "Resize", [normal(1, 2, 5, 4)], [empty, np.float32([1, 1, 0.6, 0.5])], 11, **attrs)


def test_resize_of_opset_10() -> None:
    check(["image.resize2d"], "Resize", [normal(1, 2, 4, 4)], [np.float32([1, 1, 2, 2])], 10, mode="linear")


def test_resize_with_empty_operands() -> None:
    empty = np.zeros(0, "float32")
    check(["image.resize2d"], "Resize", [normal(1, 2, 4, 4)], [empty, empty, ints(1, 2, 8, 6)], 13)


def test_resize_that_changes_nothing() -> None:
    check([], "Resize", [normal(1, 2, 4, 4)], [None, np.float32([1, 1, 1, 1])], 13)


@given(st.data())
@settings(max_examples=20, deadline=None, derandomize=True)
def test_resize_by_any_scale(data: st.DataObject) -> None:
    shape = (1, 2, *data.draw(st.lists(st.integers(2, 5), min_size=1, max_size=2)))
    scales = [1.0, 1.0, *(data.draw(st.sampled_from([0.6, 0.8, 1.0, 1.5, 2.0, 2.5])) for _ in shape[2:])]
    mode = data.draw(st.sampled_from(["nearest", "linear", "cubic"] if len(shape) == 4 else ["nearest", "linear"]))
    coordinates = data.draw(st.sampled_from(["half_pixel", "asymmetric", "pytorch_half_pixel", "align_corners"]))
    rounding = data.draw(st.sampled_from(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]))
    attrs = {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
    check(None, "Resize", [normal(*shape)], [None, np.float32(scales)], 13, **attrs)


def test_antialias_when_scaling_down_is_refused() -> None:
    model = one_node(
        "Resize", [normal(1, 1, 4, 4)], [None, np.float32([1, 1, 0.5, 0.5])], 18, mode="linear", antialias=1
    )
    with pytest.raises(ModelImportError, match="antialias"):
        from_onnx(model)


def test_operators_that_onnx_defines_as_functions_are_expanded() -> None:
    check(None, "Celu", [normal(5)], [], 12, alpha=2.0)
    values = normal(5)
    found = run_relax(from_onnx(one_node("Swish", [values], [], 24)), [values])[0]
    np.testing.assert_allclose(found, values / (1 + np.exp(-values)), rtol=1e-5)


def test_cum_sum_of_booleans_counts() -> None:
    mask = np.array([[True, False, True], [True, True, True]])
    (counts,) = run_relax(from_onnx(one_node("CumSum", [mask], [np.array(1)])), [mask])
    np.testing.assert_array_equal(counts, mask.cumsum(1))
    assert counts.dtype == np.int64


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("axis", [0, -1])
def test_a_running_sum_from_the_end_is_no_kernel(axis: int, exclusive: int) -> None:
    options = {"reverse": 1, "exclusive": exclusive}
    check(["flip", "cumsum", "flip"], "CumSum", [normal(3, 4)], [np.array(axis)], 14, **options)
    check(["flip", "cumsum", "flip"], "CumSum", [RNG.integers(-9, 9, (3, 4))], [np.array([axis])], 11, **options)
    model = one_node("CumSum", [normal(3, 4)], [np.array(axis)], 14, **options)
    assert not relax_glue.explain(from_onnx(model)).outside


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_blocks_become_channels_in_both_modes(mode: str) -> None:
    """ONNX Runtime has no SpaceToDepth with a mode yet; DepthToSpace in the same mode undoes it."""
    x = normal(2, 3, 4, 6)
    (channels,) = run_relax(from_onnx(one_node("SpaceToDepth", [x], [], 28, blocksize=2, mode=mode)), [x])
    assert channels.shape == (2, 12, 2, 3)
    (back,) = run_onnx(one_node("DepthToSpace", [channels], [], 13, blocksize=2, mode=mode), [channels])
    np.testing.assert_array_equal(back, x)
