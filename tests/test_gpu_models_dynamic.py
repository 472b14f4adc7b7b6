"""Real models with free sizes as one engine each, on a GPU: ONNX Runtime's numbers at several sizes of one engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tvm
from onnx_case import zoo_model
from test_models_dynamic import MODELS, Size, free_batch, image
from tvm import relax

import relax_glue
import relax_glue.tensorrt as trt

pytestmark = pytest.mark.gpu


def check(data: bytes, mod: tvm.IRModule, sizes: Sequence[Size]) -> Any:
    """Compare one engine with ONNX Runtime at all sizes, twice: calls may replay CUDA graphs then. Return `main`."""
    optimised = relax_glue.optimize(mod, require_full_offload=True)
    options = trt.BuildOptions(cache=False, keep_region=False)
    compiled = relax_glue.compile(optimised, "cuda", build=options, require_engines=True)
    main = relax.VirtualMachine(compiled, tvm.cuda())["main"]
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    for size in [*sizes, *sizes]:
        got = main(tvm.runtime.tensor(image(size), tvm.cuda())).numpy()
        (wanted,) = session.run(None, {session.get_inputs()[0].name: image(size)})
        # a picture of noise holds no text, so the largest value of the detector may be next to nothing
        error = float(np.abs(got - wanted).max() / max(1.0, np.abs(wanted).max()))
        print(size, "error as a share of the largest value, or of 1:", error)
        assert got.shape == wanted.shape
        assert error <= 1e-3
    return main


@pytest.mark.parametrize("name", MODELS)
def test_one_engine_for_all_sizes(name: str) -> None:
    model = MODELS[name]
    path = zoo_model(name)
    main = check(path.read_bytes(), relax_glue.from_onnx(path, model.shape, model.ranges), model.sizes)
    for size, told in model.outside:
        with pytest.raises(RuntimeError, match=told):
            main(tvm.runtime.tensor(image(size), tvm.cuda()))


def test_one_engine_for_all_batches(shared: Path) -> None:
    import onnxfile

    model = free_batch(onnxfile.load(str(shared / "onnx" / "yolo11n.onnx.gz")))
    mod = relax_glue.from_onnx(model, ranges={"n": (1, 8)})
    main = check(model.SerializeToString(), mod, [(1, 3, 640, 640), (8, 3, 640, 640), (3, 3, 640, 640)])
    with pytest.raises(RuntimeError, match="n = 9 on axis 0, and the range of n is 1 to 8"):
        main(tvm.runtime.tensor(image((9, 3, 640, 640)), tvm.cuda()))
