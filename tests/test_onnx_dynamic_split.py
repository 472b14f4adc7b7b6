"""Split of a free axis: parts that make it up, and no call in which they do not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from dynamic_case import Graph, Machines, arrays_for

import relax_glue
from relax_glue.errors import ModelImportError


def halves(g: Graph) -> list[str]:
    half = g("Div", g.extent("x", 1), np.array(2))
    return g("Split", "x", g.vector(half, g("Sub", g.extent("x", 1), half)), outputs=2, axis=1)


def half_and_three(g: Graph) -> list[str]:
    return g("Split", "x", g.vector(g("Div", g.extent("x", 1), np.array(2)), 3), outputs=2, axis=-1)


# the parts, the opset, extents that they make up, others that they do not, and what is told of the last of those
CASES: dict[str, tuple[Callable[[Graph], list[str]], int, list[int], list[int], str]] = {
    "numbers": (
        lambda g: g("Split", "x", np.array([2, 3]), outputs=2, axis=1), 17, [5], [6, 4, 1], "k to be 5, and it is 1",
    ),
    "numbers as an attribute": (
        lambda g: g("Split", "x", split=[2, 3], outputs=2, axis=1), 11, [5], [6, 1], "needs k to be 5, and it is 1",
    ),
    "an empty part": (
        lambda g: g("Split", "x", np.array([0, 3]), outputs=2, axis=1), 17, [3], [2, 4], "needs k to be 3, and it is 4",
    ),
    "one part": (
        lambda g: [g("Split", "x", np.array([3]), outputs=1, axis=1)], 17, [3], [4], "needs k to be 3, and it is 4",
    ),
    "equal parts": (
        lambda g: g("Split", "x", outputs=2, axis=1), 17, [2, 8], [1, 5], "k to be a multiple of 2, and it is 5",
    ),
    "the last one smaller": (
        lambda g: g("Split", "x", outputs=4, axis=1, num_outputs=4), 18, [4, 6, 7, 8], [5], "at least 0, and it is -1",
    ),
    "expressions": (halves, 17, [1, 2, 5], [], ""),
    "an expression and a number": (half_and_three, 17, [5, 6], [2, 4], "they are 4 and 5 with k = 4"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_split(name: str) -> None:
    build, opset, right, wrong, told = CASES[name]
    g = Graph(x=("n", "k"))
    model = g.model(*build(g), opset=opset)
    machines = Machines(model)
    for k in right:
        machines.check(arrays_for(model, {"n": 2, "k": k}))
    for k in wrong:
        feeds = arrays_for(model, {"n": 2, "k": k})
        with pytest.raises(Exception, match="ONNXRuntimeError"):
            machines.reference(feeds)
        with pytest.raises(RuntimeError, match=told if k == wrong[-1] else "node 'Split_"):
            machines.run(feeds)


def test_parts_of_known_size_have_it() -> None:
    g = Graph(x=("n", "k"))
    mod = relax_glue.from_onnx(g.model(*g("Split", "x", np.array([2, 3]), outputs=2, axis=1)))
    assert [[str(extent) for extent in ty.shape.values] for ty in mod["main"].ret_ty.fields] == [
        ["n", "T.int64(2)"],
        ["n", "T.int64(3)"],
    ]
    assert not relax_glue.explain(mod).outside


def test_parts_that_do_not_make_up_a_fixed_axis_are_refused() -> None:
    g = Graph(x=("n", 4))
    with pytest.raises(ModelImportError, match="'Split_0' .Split. cannot be converted: it needs 4 and 5 to be equal"):
        relax_glue.from_onnx(g.model(*g("Split", "x", np.array([2, 3]), outputs=2, axis=1)))
