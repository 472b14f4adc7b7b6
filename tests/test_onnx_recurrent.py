"""LSTM and GRU of known length, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from dynamic_case import Graph, check_sizes

import relax_glue
from relax_glue.errors import ModelImportError

GATES = {"LSTM": 4, "GRU": 3}
SIZES = ({"n": 1}, {"n": 3})


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32) / 2


def operands(op: str, directions: int, biased: bool = True, started: bool = False) -> list[object]:
    rows = GATES[op] * 5
    listed: list[object] = [weights(directions, rows, 3), weights(directions, rows, 5)]
    listed.append(weights(directions, 2 * rows) if biased else "")
    if started:
        listed += ["", weights(directions, 2, 5)] + ([weights(directions, 2, 5) * 2] if op == "LSTM" else [])
    return listed


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_directions(op: str, direction: str) -> None:
    g = Graph(x=(4, "n", 3))
    directions = 2 if direction == "bidirectional" else 1
    outputs = 3 if op == "LSTM" else 2
    results = g(op, "x", *operands(op, directions), outputs=outputs, hidden_size=5, direction=direction)
    check_sizes(g.model(*results), SIZES)


@pytest.mark.parametrize("op", GATES)
def test_initial_states_and_no_bias(op: str) -> None:
    g = Graph(x=(3, 2, 3))
    listed = operands(op, 1, biased=False, started=True)
    check_sizes(g.model(g(op, "x", *listed, hidden_size=5, outputs=2)[0]), [{}])


def test_a_gru_that_resets_the_product() -> None:
    g = Graph(x=(3, "n", 3))
    results = g(
        "GRU", "x", *operands("GRU", 2), outputs=2, hidden_size=5, direction="bidirectional", linear_before_reset=1
    )
    check_sizes(g.model(*results), SIZES)


def test_one_step() -> None:
    g = Graph(x=(1, "n", 3))
    check_sizes(g.model(*g("LSTM", "x", *operands("LSTM", 1), outputs=2, hidden_size=5)), SIZES)


def test_text_recognition_is_one_region() -> None:
    """Columns of an image as a sequence, read in both directions, and classified."""
    g = Graph(x=("n", 3, 4, 6))
    columns = g("Squeeze", g("AveragePool", "x", kernel_shape=[4, 1]), np.array([2]))
    read = g("LSTM", g("Transpose", columns, perm=[2, 0, 1]), *operands("LSTM", 2), outputs=1, hidden_size=5,
             direction="bidirectional")  # fmt: skip
    rows = g("Reshape", g("Transpose", read, perm=[0, 2, 1, 3]), np.array([0, 0, -1]))
    machines = check_sizes(g.model(g("MatMul", rows, weights(10, 7))), SIZES)
    report = relax_glue.explain(machines.mod)
    assert not report.outside, str(report)
    assert len(report.regions) == 1, str(report)


@pytest.mark.parametrize(
    ("attrs", "told"),
    [
        ({"clip": 3.0}, "clip is not converted"),
        ({"activations": ["Relu", "Tanh", "Tanh"]}, "activations"),
        ({"input_forget": 1}, "input_forget"),
    ],
)
def test_forms_that_are_refused(attrs: dict[str, object], told: str) -> None:
    g = Graph(x=(3, "n", 3))
    model = g.model(g("LSTM", "x", *operands("LSTM", 1), outputs=1, hidden_size=5, **attrs))
    with pytest.raises(ModelImportError, match=rf"'LSTM_0' \(LSTM\).*{told}"):
        relax_glue.from_onnx(model)


def test_a_free_length_is_refused() -> None:
    g = Graph(x=("t", 2, 3))
    model = g.model(g("LSTM", "x", *operands("LSTM", 1), outputs=1, hidden_size=5))
    with pytest.raises(ModelImportError, match=r"'LSTM_0' \(LSTM\).*free length t"):
        relax_glue.from_onnx(model)
