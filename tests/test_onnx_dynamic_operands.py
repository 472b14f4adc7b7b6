"""Operators whose operands have to fit each other, or their attributes, on free axes: as ONNX Runtime takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from dynamic_case import Graph, Machines, Shape, arrays_for

import relax_glue
from relax_glue.errors import ModelImportError

IMAGE: dict[str, Shape] = {"x": ("n", "c", "h", "w")}
ROWS: dict[str, Shape] = {"x": ("n", "k")}
PAIR: dict[str, Shape] = {"x": ("n", "k"), "y": ("k2", "m")}
Sizes = Sequence[Mapping[str, int]]


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def sizes(n: int, c: int, h: int, w: int) -> dict[str, int]:
    return {"n": n, "c": c, "h": h, "w": w}


def rows(n: int, k: int) -> dict[str, int]:
    return {"n": n, "k": k}


def pair(n: int, k: int, k2: int, m: int) -> dict[str, int]:
    return {"n": n, "k": k, "k2": k2, "m": m}


CHANNELS = [sizes(1, 4, 4, 4), sizes(2, 4, 6, 5)], [sizes(1, 5, 4, 4), sizes(1, 8, 4, 4)]
FIVE = [rows(2, 5), rows(1, 5)], [rows(2, 4), rows(2, 6)]
AT_LEAST_FIVE = [rows(2, 5), rows(1, 6)], [rows(2, 4), rows(3, 1)]
PRODUCT = [pair(2, 3, 3, 4), pair(1, 1, 1, 2)], [pair(2, 3, 4, 4), pair(2, 4, 3, 4)]

Case = tuple[Mapping[str, Shape], Callable[[Graph], str], tuple[Sizes, Sizes]]
CASES: dict[str, Case] = {
    "conv": (IMAGE, lambda g: g("Conv", "x", weights(3, 4, 3, 3), weights(3), pads=[1, 1, 1, 1]), CHANNELS),
    "conv_of_groups": (IMAGE, lambda g: g("Conv", "x", weights(4, 2, 3, 3), pads=[1, 1, 1, 1], group=2), CHANNELS),
    "conv_with_a_computed_weight": (
        {"x": ("n", "c", "h"), "y": (3, "c2", 3)},
        lambda g: g("Conv", "x", "y"),
        ([{"n": 1, "c": 2, "h": 5, "c2": 2}], [{"n": 1, "c": 2, "h": 5, "c2": 3}]),
    ),
    "conv_transpose": (IMAGE, lambda g: g("ConvTranspose", "x", weights(4, 3, 2, 2), strides=[2, 2]), CHANNELS),
    "batch_norm": (
        IMAGE,
        lambda g: g("BatchNormalization", "x", weights(4), weights(4), weights(4), abs(weights(4))),
        CHANNELS,
    ),
    "instance_norm": (IMAGE, lambda g: g("InstanceNormalization", "x", weights(4), weights(4)), CHANNELS),
    "layer_norm": (ROWS, lambda g: g("LayerNormalization", "x", weights(5), weights(5)), FIVE),
    "gemm": (ROWS, lambda g: g("Gemm", "x", weights(5, 3), weights(3)), FIVE),
    "gemm_transposed": (ROWS, lambda g: g("Gemm", "x", weights(3, 5), transB=1), FIVE),
    "gemm_with_rows_to_add": (
        ROWS, lambda g: g("Gemm", "x", weights(5, 3), weights(2, 3)), ([rows(2, 5)], [rows(2, 4), rows(3, 5)]),
    ),
    "gemm_of_inputs": (PAIR, lambda g: g("Gemm", "x", "y"), PRODUCT),
    "einsum": (PAIR, lambda g: g("Einsum", "x", "y", equation="ij, jk -> ik"), ([PRODUCT[0][0]], PRODUCT[1])),
    "einsum_of_a_diagonal": (
        ROWS, lambda g: g("Einsum", "x", equation="ii->i"), ([rows(3, 3)], [rows(2, 3), rows(3, 2)]),
    ),
    "lstm": (
        {"x": (4, "n", "k")},
        lambda g: g("LSTM", "x", weights(1, 12, 5), weights(1, 12, 3), outputs=2, hidden_size=3)[1],
        FIVE,
    ),
    "gru": (
        {"x": (4, "n", "k")},
        lambda g: g("GRU", "x", weights(1, 9, 5), weights(1, 9, 3), outputs=2, hidden_size=3)[1],
        FIVE,
    ),
    "depth_to_space": (
        IMAGE,
        lambda g: g("DepthToSpace", "x", blocksize=2),
        ([sizes(1, 4, 3, 3), sizes(1, 8, 2, 2)], [sizes(1, 5, 4, 4), sizes(1, 2, 4, 4)]),
    ),
    "space_to_depth": (
        IMAGE,
        lambda g: g("SpaceToDepth", "x", blocksize=2),
        ([sizes(1, 3, 4, 6)], [sizes(1, 4, 5, 4), sizes(1, 4, 4, 3)]),
    ),
    "squeeze": (ROWS, lambda g: g("Squeeze", "x", np.array([0])), ([rows(1, 5), rows(1, 2)], [rows(2, 5)])),
    "top_k": (ROWS, lambda g: g("TopK", "x", np.array([5]), outputs=2)[0], AT_LEAST_FIVE),
    "gather_elements": (ROWS, lambda g: g("GatherElements", "x", np.array([[0, 4]]), axis=1), AT_LEAST_FIVE),
    "gather_nd": (ROWS, lambda g: g("GatherND", "x", np.array([[0, 4]])), AT_LEAST_FIVE),
    "scatter_nd": (ROWS, lambda g: g("ScatterND", "x", np.array([[0, 4]]), weights(1)), AT_LEAST_FIVE),
    "scatter_elements": (
        ROWS, lambda g: g("ScatterElements", "x", np.array([[0, 4]]), weights(1, 2), axis=1), AT_LEAST_FIVE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operands_that_fit_are_taken_and_no_others(name: str) -> None:
    inputs, build, (right, wrong) = CASES[name]
    g = Graph(**inputs)
    model = g.model(build(g))
    machines = Machines(model)
    for size in right:
        machines.check(arrays_for(model, size))
    for size in wrong:
        feeds = arrays_for(model, size)
        with pytest.raises(Exception, match="ONNXRuntimeError"):
            machines.reference(feeds)
        with pytest.raises(RuntimeError, match="node '.*' of main needs"):
            machines.run(feeds)


def test_channels_of_groups_are_a_multiple() -> None:
    """Scale and bias are one for each channel since operator set 21, one for each group before it."""
    g = Graph(**IMAGE)
    model = g.model(g("GroupNormalization", "x", weights(4), weights(4), num_groups=2), opset=21)
    machines = Machines(model)
    machines.check(arrays_for(model, sizes(1, 4, 3, 3)))
    with pytest.raises(RuntimeError, match="GroupNormalization_0.*c to be 4, and it is 6"):
        machines.run(arrays_for(model, sizes(1, 6, 3, 3)))


def test_what_is_then_known_is_offloaded() -> None:
    g = Graph(**IMAGE)
    hidden = g("BatchNormalization", "x", weights(4), weights(4), weights(4), abs(weights(4)))
    mod = relax_glue.from_onnx(g.model(g("Conv", hidden, weights(3, 4, 3, 3))))
    report = relax_glue.explain(mod)
    assert len(report.regions) == 1
    assert not report.outside


@pytest.mark.parametrize("op", ["GatherElements", "GatherND"])
def test_an_index_outside_of_a_fixed_axis_is_refused(op: str) -> None:
    g = Graph(x=(2, 4))
    with pytest.raises(ModelImportError, match=f"'{op}_0'.*an index is outside axis 1, which has extent 4"):
        relax_glue.from_onnx(g.model(g(op, "x", np.array([[0, 4]]), **({"axis": 1} if op == "GatherElements" else {}))))


def test_a_squeeze_of_whatever_is_1_is_refused() -> None:
    g = Graph(**ROWS)
    with pytest.raises(ModelImportError, match="it names no axes, and whether a free axis is 1 is known only when"):
        relax_glue.from_onnx(g.model(g("Squeeze", "x")))
