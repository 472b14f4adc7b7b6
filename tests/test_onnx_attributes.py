"""Attributes of ONNX operators that TVM's importer reads otherwise, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_case import one_node, run_onnx, run_relax

from relax_glue.errors import ModelImportError
from relax_glue.frontend import from_onnx

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


@pytest.mark.parametrize("opset, mode", [(16, None), (16, "half_pixel"), (16, "output_half_pixel"), (10, None)])
@pytest.mark.parametrize("scale", [1.0, 0.5, 0.125])
def test_boxes_of_roi_align_are_scaled_before_half_a_pixel_is_taken_off(
    opset: int, mode: str | None, scale: float
) -> None:
    boxes = np.array([[0, 0, 5, 5], [1.5, 2, 7, 6.2], [-1, -1, 3, 3]], "float32") / np.float32(scale)
    attrs = {"coordinate_transformation_mode": mode} if mode else {}
    for sampling_ratio in (0, 2):
        inputs = [normal(2, 3, 8, 9), boxes]
        model = one_node(
            "RoiAlign",
            inputs,
            [np.array([0, 1, 0])],
            opset,
            output_height=2,
            output_width=3,
            spatial_scale=scale,
            sampling_ratio=sampling_ratio,
            **attrs,
        )
        (found,), (wanted,) = run_relax(from_onnx(model), inputs), run_onnx(model, inputs)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("momentum", [0.9, 0.3])
def test_running_statistics_of_training_keep_the_share_that_momentum_says(momentum: float) -> None:
    inputs = [normal(2, 4, 5, 5)]
    statistics = [normal(4), normal(4), normal(4), np.abs(normal(4))]
    model = one_node("BatchNormalization", inputs, statistics, 15, outputs=3, training_mode=1, momentum=momentum)
    for found, wanted in zip(run_relax(from_onnx(model), inputs), run_onnx(model, inputs), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


def test_training_of_old_operator_sets_is_refused() -> None:
    statistics = [normal(4), normal(4), normal(4), np.abs(normal(4))]
    model = one_node("BatchNormalization", [normal(2, 4, 5, 5)], statistics, 9, outputs=5)
    with pytest.raises(ModelImportError, match=r"node 'n' \(BatchNormalization\).*its result 'y1' is not computed"):
        from_onnx(model)
