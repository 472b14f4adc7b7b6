"""Real models with free axes: one region, one network and engine for all sizes, and the numbers of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnxruntime
import pytest
from converter_case import serialise, shape_at

import relax_glue
from relax_glue import zoo
from relax_glue.demo import text_image
from relax_glue.region_function import region_functions
from relax_glue.tensorrt.network import build_network
from relax_glue.tensorrt.reference import evaluate

RTOL = 1e-4  # of the largest value of a result
MODELS: dict[str, tuple[Sequence[int | str], Sequence[Mapping[str, int]]]] = {
    "nudenet": (("n", 3, "h", "w"), ({"n": 1, "h": 32, "w": 64}, {"n": 2, "h": 96, "w": 32})),
    "ppocr_det": ((1, 3, "h", "w"), ({"h": 64, "w": 480}, {"h": 96, "w": 512})),
    "ppocr_rec": ((1, 3, 48, "w"), ({"w": 16}, {"w": 88})),
}


def picture(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return noise, or text for the detector of text, which finds nothing in noise."""
    return text_image(shape) if name == "ppocr_det" else np.random.default_rng(0).random(shape).astype(np.float32)


@pytest.mark.parametrize("name", MODELS)
def test_one_network_for_all_sizes(name: str) -> None:
    shape, every_size = MODELS[name]
    path = zoo.fetch(name)
    module = relax_glue.from_onnx(path, tuple(shape))
    (function,) = region_functions(relax_glue.optimize(module, require_full_offload=True)).values()
    network = build_network(function)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options)
    for sizes in every_size:
        x = picture(name, shape_at(network.inputs[0].ty, sizes))
        wanted = session.run(None, {session.get_inputs()[0].name: x})
        for one, other in zip(evaluate(network, [x]), wanted, strict=True):
            assert one.shape == other.shape
            np.testing.assert_allclose(one, other, rtol=0, atol=RTOL * float(np.abs(other).max()))
    assert serialise(network, every_size) > 0
