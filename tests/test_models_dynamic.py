"""Real models with free sizes: imported once, one region, and ONNX Runtime's numbers at every size of a range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from dynamic_case import Machines
from onnx import numpy_helper
from onnx_case import zoo_model

import relax_glue
from relax_glue.region_function import region_functions
from relax_glue.tensorrt.network import build_network

Size = tuple[int, ...]


@dataclass(frozen=True)
class Model:
    """A model of the zoo, the axes that stay free in it, and what it is called with.

    Attributes
    ----------
    shape : tuple
        The shape of its input.
    ranges : dict
        The ranges of the free axes.
    sizes : sequence of tuple
        Shapes within the ranges; the least and the largest are among them.
    outside : sequence of (tuple, str)
        Shapes that are refused, and what the message names.
    """

    shape: tuple[int | str, ...]
    ranges: dict[str, tuple[int, int]]
    sizes: Sequence[Size]
    outside: Sequence[tuple[Size, str]]


MODELS = {
    "nudenet": Model(
        ("n", 3, "h", "w"),
        {"n": (1, 2), "h": (32, 320), "w": (64, 320)},
        # 63 is no multiple of 32, and fits all the same: the model rounds halves up
        [(1, 3, 32, 64), (2, 3, 320, 320), (1, 3, 96, 160), (1, 3, 63, 128)],
        [((1, 3, 70, 64), "with h = 70"), ((3, 3, 64, 64), "n = 3.*1 to 2"), ((1, 3, 64, 352), "w = 352.*64 to 320")],
    ),
    "ppocr_det": Model(
        (1, 3, "h", "w"),
        {"h": (32, 320), "w": (64, 256)},
        [(1, 3, 32, 64), (1, 3, 320, 256), (1, 3, 64, 160), (1, 3, 63, 128)],
        [
            ((1, 3, 70, 64), "with h = 70"),
            ((1, 3, 352, 64), "h = 352.*32 to 320"),
            ((1, 3, 64, 32), "w = 32.*64 to 256"),
        ],
    ),
    "ppocr_rec": Model(
        ("n", 3, 48, "w"),
        {"n": (1, 2), "w": (8, 320)},
        [(1, 3, 48, 8), (2, 3, 48, 320), (1, 3, 48, 101)],
        [((1, 3, 48, 321), "w = 321.*8 to 320"), ((3, 3, 48, 64), "n = 3.*1 to 2")],
    ),
    "ppocr_cls": Model(
        ("n", 3, 48, "w"),
        {"n": (1, 4), "w": (64, 192)},
        [(1, 3, 48, 64), (4, 3, 48, 192), (2, 3, 48, 101)],
        [((1, 3, 48, 200), "w = 200.*64 to 192")],
    ),
}


def check_region(machines: Machines) -> None:
    """Everything is in one region, and the region is a network."""
    report = relax_glue.explain(machines.mod)
    assert not report.outside, str(report)
    assert len(report.regions) == 1, str(report)
    (region,) = region_functions(relax_glue.optimize(machines.mod, require_full_offload=True)).values()
    assert len(build_network(region).inputs) == 1


def image(shape: Size) -> np.ndarray:
    return np.random.default_rng(0).random(shape, np.float32)


@pytest.mark.parametrize("name", MODELS)
def test_free_sizes(name: str) -> None:
    wanted = MODELS[name]
    path = zoo_model(name)
    mod = relax_glue.from_onnx(path, wanted.shape, wanted.ranges)
    machines = Machines(path.read_bytes(), mod)
    check_region(machines)
    (param,) = (str(param.name) for param in mod["main"].params)
    for size in wanted.sizes:
        machines.check({param: image(size)})
    for size, told in wanted.outside:
        with pytest.raises(RuntimeError, match=told):
            machines.run({param: image(size)})


def free_batch(model: onnx.ModelProto) -> onnx.ModelProto:
    """Free the batch of an export for one image: of its inputs and outputs, and in the shapes that it reshapes to."""
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    del model.graph.value_info[:]
    targets = {node.input[1] for node in model.graph.node if node.op_type == "Reshape"}
    for node in (node for node in model.graph.node if node.op_type == "Constant" and node.output[0] in targets):
        shape = numpy_helper.to_array(node.attribute[0].t).copy()
        assert shape[0] == 1
        shape[0] = 0  # the extent that is there
        node.attribute[0].t.CopyFrom(numpy_helper.from_array(shape))
    return model


def test_free_batch_of_a_detector(shared: Path) -> None:
    import onnxfile

    model = free_batch(onnxfile.load(str(shared / "onnx" / "yolo11n.onnx.gz")))
    mod = relax_glue.from_onnx(model, ranges={"n": (1, 3)})
    machines = Machines(model, mod)
    check_region(machines)
    for batch in (1, 3):
        machines.check({"images": image((batch, 3, 640, 640))})
    with pytest.raises(RuntimeError, match="n = 4 on axis 0, and the range of n is 1 to 3"):
        machines.run({"images": image((4, 3, 640, 640))})
