"""Real models with free sizes as one engine each, on a GPU: ONNX Runtime's numbers at several sizes of one engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tvm
from tvm import relax

import relax_glue
import relax_glue.tensorrt as trt
from relax_glue import zoo
from relax_glue.demo import text_image
from relax_glue.region_function import region_functions

pytestmark = pytest.mark.gpu

# name: the input's shape, the ranges of its names, the sizes to run (both ends among them), the tolerance as a share
# of the largest value; the text detector ends in a steep sigmoid
MODELS: dict[str, tuple[tuple[Any, ...], dict[str, tuple[int, int]], list[tuple[int, ...]], float]] = {
    "nudenet": (
        ("n", 3, "h", "w"),
        {"n": (1, 4), "h": (64, 640), "w": (64, 640)},
        [(1, 3, 64, 64), (4, 3, 640, 640), (2, 3, 320, 256), (1, 3, 64, 640), (1, 3, 320, 320)],
        1e-3,
    ),
    "ppocr_det": (
        (1, 3, "h", "w"),
        {"h": (64, 960), "w": (64, 960)},
        [(1, 3, 64, 64), (1, 3, 960, 960), (1, 3, 640, 320), (1, 3, 320, 640)],
        2e-3,
    ),
    "ppocr_rec": (
        ("n", 3, 48, "w"),
        {"n": (1, 8), "w": (32, 640)},
        [(1, 3, 48, 32), (8, 3, 48, 640), (3, 3, 48, 320), (1, 3, 48, 100)],
        1e-3,
    ),
}


def session_of(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def picture(shape: tuple[int, ...], name: str) -> np.ndarray:
    if name == "ppocr_det":
        return np.ascontiguousarray(text_image((1, 3, 960, 960))[:, :, : shape[2], : shape[3]])
    return np.random.default_rng(0).random(shape, "float32")


@pytest.mark.parametrize("name", MODELS)
def test_one_engine_for_all_sizes(name: str) -> None:
    try:
        path = zoo.fetch(name)
    except zoo.ModelUnavailableError as error:
        pytest.skip(str(error))
    shape, ranges, sizes, tolerance = MODELS[name]
    optimised = relax_glue.optimize(relax_glue.from_onnx(path, shape, ranges))
    assert len(region_functions(optimised)) == 1
    assert not relax_glue.explain(optimised).outside
    options = trt.BuildOptions(cache=False, keep_region=False)
    compiled = relax_glue.compile(optimised, "cuda", build=options, require_engines=True)
    main = relax.VirtualMachine(compiled, tvm.cuda())["main"]
    session = session_of(path)
    for size in [*sizes, *sizes]:  # the second time round, calls may replay CUDA graphs
        given = picture(size, name)
        got = main(tvm.runtime.tensor(given, tvm.cuda())).numpy()
        (wanted,) = session.run(None, {session.get_inputs()[0].name: given})
        error = float(np.abs(got - wanted).max() / np.abs(wanted).max())
        print(name, size, "error as a share of the largest value:", error)
        assert got.shape == wanted.shape
        assert error <= tolerance
    outside = tuple(2000 if isinstance(extent, str) else extent for extent in shape)
    with pytest.raises(RuntimeError, match="2000"):
        main(tvm.runtime.tensor(np.zeros(outside, "float32"), tvm.cuda()))
