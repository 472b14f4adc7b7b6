"""Joins of free extents, what is asked of them at the entry, their ranges, and control flow that is known."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import tvm
from dynamic_case import Graph, Machines, arrays_for, check_sizes
from onnx import TensorProto, helper

import relax_glue
from relax_glue.errors import InputShapeError, ModelImportError
from relax_glue.frontend.symbolic.ranges import check_bounds

IMAGE = ("n", 4, "h", "w")


def down(g: Graph, x: str) -> str:
    return g("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])


def up(g: Graph, x: str) -> str:
    scales = np.array([1, 1, 2, 2], np.float32)
    return g("Resize", x, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def pyramid(g: Graph) -> str:
    """Three levels, joined on the way up by Concat and on the way down by Add, as detectors have them."""
    first = down(g, "x")
    second = down(g, first)
    middle = g("Concat", up(g, down(g, second)), second, axis=1)
    wide = g("Concat", up(g, middle), first, axis=1)
    return g("Add", g("Concat", down(g, wide), second, axis=1), g("Concat", middle, second, second, axis=1))


def refused(machines: Machines, sizes: dict[str, int], model: onnx.ModelProto) -> str:
    """Ask that both refuse a size; return what relax_glue says."""
    feeds = arrays_for(model, sizes)
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        machines.reference(feeds)
    with pytest.raises(RuntimeError) as error:
        machines.run(feeds)
    return str(error.value)


def test_maps_that_went_down_and_up_are_joined() -> None:
    g = Graph(x=IMAGE)
    model = g.model(pyramid(g))
    # 15 is no multiple of 8, and fits all the same: halves are rounded up
    machines = check_sizes(model, [{"n": 1, "h": 8, "w": 16}, {"n": 2, "h": 15, "w": 7}, {"n": 3, "h": 32, "w": 8}])
    said = refused(machines, {"n": 1, "h": 8, "w": 12}, model)
    assert "node 'Concat_4' of main needs (w - 1) // 8 * 2 + 2 and (w - 1) // 4 + 1 to be equal" in said, said
    assert "they are 4 and 3 with w = 12 (axis 3 of input 'x')" in said, said


def test_a_join_does_not_cut_the_region() -> None:
    g = Graph(x=IMAGE)
    mod = relax_glue.from_onnx(g.model(pyramid(g)))
    report = relax_glue.explain(mod)
    assert len(report.regions) == 1, str(report)
    assert not report.outside, str(report)


def test_a_join_asks_once_for_one_pair_of_extents() -> None:
    g = Graph(x=IMAGE)
    mod = relax_glue.from_onnx(g.model(pyramid(g)))
    casts = [b for b in mod["main"].body.blocks[0].bindings if isinstance(b, tvm.relax.MatchCast)]
    assert len({(str(c.value), str(c.ty)) for c in casts}) == len(casts)


def test_two_free_axes_that_are_added_are_equal() -> None:
    g = Graph(x=("n", 3), y=("m", 3))
    model = g.model(g("Add", "x", "y"))
    machines = check_sizes(model, [{"n": 2, "m": 2}, {"n": 5, "m": 5}])
    feeds = arrays_for(model, {"n": 2, "m": 3})
    with pytest.raises(RuntimeError, match="Add_0.*n = 2 .axis 0 of input 'x'., m = 3 .axis 0 of input 'y'"):
        machines.run(feeds)


def test_an_extent_that_values_decide_is_asked_for_in_its_place() -> None:
    g = Graph(x=("n", 3))
    column = g("Gather", "x", np.array(0), axis=1)
    found = g("Squeeze", g("NonZero", g("Greater", column, np.float32(0))), np.array([0]))
    model = g.model(g("Add", column, g("Cast", found, to=TensorProto.FLOAT)))
    machines = Machines(model)
    machines.check({"x": np.ones((4, 3), np.float32)})
    with pytest.raises(RuntimeError, match="match_cast"):
        machines.run({"x": np.array([[1, 0, 0], [-1, 0, 0], [1, 0, 0]], np.float32)})


def test_a_free_axis_meets_a_fixed_one() -> None:
    g = Graph(x=("n", "k"), y=("k2", 5))
    product = g("MatMul", "x", g("Reshape", "y", np.array([-1, 5])))
    model = g.model(g("Add", product, g("MatMul", "x", np.ones((4, 5), np.float32))))
    machines = check_sizes(model, [{"n": 2, "k": 4, "k2": 4}])
    refused(machines, {"n": 2, "k": 3, "k2": 3}, model)


def test_a_reshape_asks_for_the_number_of_elements() -> None:
    g = Graph(x=("n", "k"))
    model = g.model(g("Reshape", "x", np.array([-1, 6])))
    machines = check_sizes(model, [{"n": 2, "k": 3}, {"n": 6, "k": 1}])
    refused(machines, {"n": 2, "k": 4}, model)


@pytest.mark.parametrize("index", [2, -3, [0, -3], [2, 1]])
def test_an_index_that_a_size_does_not_have_is_refused(index: object) -> None:
    g = Graph(x=("n", "k"))
    model = g.model(g("Gather", "x", np.array(index), axis=1))
    machines = check_sizes(model, [{"n": 1, "k": 3}, {"n": 2, "k": 5}])
    refused(machines, {"n": 1, "k": 2}, model)


def test_an_image_too_small_for_a_window_is_refused() -> None:
    g = Graph(x=IMAGE)
    model = g.model(g("MaxPool", g("Conv", "x", np.ones((4, 4, 3, 3), np.float32)), kernel_shape=[2, 2]))
    machines = check_sizes(model, [{"n": 1, "h": 4, "w": 5}])
    refused(machines, {"n": 1, "h": 1, "w": 5}, model)


def test_a_name_is_one_variable() -> None:
    g = Graph(x=("a", 3), y=("b", 3))
    mod = relax_glue.from_onnx(g.model(g("Add", "x", "y")), {"x": ("n", 3), "y": ("n", 3)})
    assert [str(param.ty.shape.values[0]) for param in mod["main"].params] == ["n", "n"]
    assert len(mod["main"].body.blocks) == 1  # nothing is left to ask


def test_a_name_given_once_holds_for_all_axes_of_that_name_in_the_file() -> None:
    g = Graph(x=("a", 3), y=("a", 3))
    mod = relax_glue.from_onnx(g.model(g("Add", "x", "y")), {"x": ("n", 3)})
    assert [str(param.ty.shape.values[0]) for param in mod["main"].params] == ["n", "n"]


RANGES = {"n": (1, 3), "h": (8, 32)}


def ranged() -> tuple[onnx.ModelProto, Machines]:
    g = Graph(x=IMAGE)
    model = g.model(pyramid(g))
    return model, Machines(model, relax_glue.from_onnx(model, ranges=RANGES))


def test_a_range_holds_at_both_ends_and_is_refused_outside() -> None:
    model, machines = ranged()
    for sizes in ({"n": 1, "h": 8, "w": 8}, {"n": 3, "h": 32, "w": 64}, {"n": 2, "h": 16, "w": 8}):
        machines.check(arrays_for(model, sizes))
    for name, size, told in (("h", 40, "h = 40.* 8 to 32"), ("h", 7, "h = 7.* 8 to 32"), ("n", 4, "n = 4.* 1 to 3")):
        feeds = arrays_for(model, {"n": 1, "h": 8, "w": 8, name: size})
        with pytest.raises(RuntimeError, match=told):
            machines.run(feeds)


def test_ranges_are_attributes_that_the_pipeline_keeps() -> None:
    _, machines = ranged()
    for mod in (machines.mod, relax_glue.optimize(machines.mod)):
        attrs = mod["main"].attrs
        assert {key: int(value) for key, value in attrs["tir_var_lower_bound"].items()} == {"n": 1, "h": 8}
        assert {key: int(value) for key, value in attrs["tir_var_upper_bound"].items()} == {"n": 3, "h": 32}


def test_a_range_decides_what_is_open_without_it() -> None:
    g = Graph(x=("n", "k"))
    model = g.model(g("Slice", "x", np.array([0]), np.array([4]), np.array([1])))
    assert str(relax_glue.from_onnx(model)["main"].ret_ty.shape.values[1]) == "T.min(T.int64(4), k)"
    assert int(relax_glue.from_onnx(model, ranges={"k": (4, None)})["main"].ret_ty.shape.values[1]) == 4


@pytest.mark.parametrize(
    ("ranges", "told"),
    [
        ({"b": (1, 2)}, "the free extents are n, h, w"),
        ({"n": (2, 1)}, "must run upwards"),
        ({"n": (0, 1)}, "must run upwards from 1"),
        ({"n": (1, 2, 4)}, "must be \\(least, largest\\)"),
        ({"n": "1"}, "must be \\(least, largest\\)"),
        ({"n": (1, 2.5)}, "no integer"),
        ([("n", 1)], "must map"),
    ],
)
def test_a_range_that_is_none_is_refused(ranges: object, told: str) -> None:
    g = Graph(x=IMAGE)
    with pytest.raises(InputShapeError, match=told):
        relax_glue.from_onnx(g.model(g("Relu", "x")), ranges=ranges)


def test_a_fixed_axis_cannot_be_named() -> None:
    g = Graph(x=(1, "k"))
    with pytest.raises(InputShapeError, match="Export the model with that axis free"):
        relax_glue.from_onnx(g.model(g("Relu", "x")), ("n", None))


@pytest.mark.parametrize("name", ["32*k", "", "1", "a b"])
def test_a_name_is_a_word(name: str) -> None:
    g = Graph(x=("n", "k"))
    with pytest.raises(InputShapeError, match="no name for a free extent"):
        relax_glue.from_onnx(g.model(g("Relu", "x")), (name, None))


def test_bounds_that_a_module_carries_are_checked() -> None:
    """What TVM's importer of exported programs leaves: bounds as attributes, and nothing that asks for them."""
    g = Graph(x=("s0", 3))
    model = g.model(g("Relu", "x"))
    mod = relax_glue.from_onnx(model)
    mod["main"] = mod["main"].with_attrs({"tir_var_lower_bound": {"s0": 2}, "tir_var_upper_bound": {"s0": 4}})
    machines = Machines(model, check_bounds(mod))
    machines.check(arrays_for(model, {"s0": 2}))
    machines.check(arrays_for(model, {"s0": 4}))
    for size in (1, 5):
        with pytest.raises(RuntimeError, match=f"s0 = {size}.* 2 to 4"):
            machines.run(arrays_for(model, {"s0": size}))


def loop(g: Graph, count: object, body: list[onnx.NodeProto], collected: int = 0, condition: str = "") -> list[str]:
    """Add a loop over `state`, which starts as x; the body computes `state_out`, `cond_out` and `kept`."""
    graph = helper.make_graph(
        body,
        "body",
        [
            helper.make_tensor_value_info("round", TensorProto.INT64, []),
            helper.make_tensor_value_info("cond_in", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("cond_out", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state_out", TensorProto.FLOAT, None),
            *[helper.make_tensor_value_info("kept", TensorProto.FLOAT, None)] * collected,
        ],
    )
    results = g("Loop", count, condition, "x", outputs=1 + collected, body=graph)
    return results if collected else [results]


ROUND = [
    helper.make_node("Identity", ["cond_in"], ["cond_out"]),
    helper.make_node("Cast", ["round"], ["round_f"], to=TensorProto.FLOAT),
    helper.make_node("Add", ["state", "round_f"], ["state_out"]),
]


def test_a_loop_of_known_length_is_written_out() -> None:
    g = Graph(x=("n", 3))
    keep = helper.make_node("Mul", ["state_out", "state_out"], ["kept"])
    model = g.model(*loop(g, np.array(4), [*ROUND, keep], collected=1))
    check_sizes(model, [{"n": 1}, {"n": 5}])


def test_a_loop_over_a_fixed_axis_is_written_out() -> None:
    g = Graph(x=("n", 3))
    model = g.model(*loop(g, g.extent("x", 1), ROUND))
    check_sizes(model, [{"n": 2}])


def test_a_loop_ends_by_a_condition_that_is_known() -> None:
    g = Graph(x=("n", 3))
    two = helper.make_node("Constant", [], ["two"], value=onnx.numpy_helper.from_array(np.array(2)))
    body = [two, helper.make_node("Less", ["round", "two"], ["cond_out"]), *ROUND[1:]]
    model = g.model(*loop(g, np.array(10), body))
    check_sizes(model, [{"n": 2}])


@pytest.mark.parametrize("over", ["free axis", "value"])
def test_a_loop_of_unknown_length_is_refused(over: str) -> None:
    g = Graph(x=("n", 3))
    rounds = (
        g.extent("x", 0) if over == "free axis" else g("Cast", g("ReduceMax", "x", keepdims=0), to=TensorProto.INT64)
    )
    model = g.model(*loop(g, rounds, ROUND))
    with pytest.raises(ModelImportError, match=r"'Loop_\d' \(Loop\) .* number of its rounds is not known"):
        relax_glue.from_onnx(model)


def test_a_branch_is_chosen_by_what_follows_from_free_extents() -> None:
    """A rank and an extent of -1 decide nothing at import of fixed shapes only: n is never below 0."""
    g = Graph(x=("n", 3))
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(op, ["x"], [f"{name}_y"])],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)],
        )
        for name, op in (("then", "Neg"), ("else", "Relu"))
    }
    model = g.model(g("If", g("Less", g.extent("x", 0), np.array(0)), **branches))
    machines = check_sizes(model, [{"n": 2}, {"n": 4}])
    assert len(relax_glue.explain(machines.mod).regions) == 1


def test_what_a_branch_needs_is_asked_where_it_is_taken() -> None:
    g = Graph(x=("n", 3), y=("m", 3), z=(1,))
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(op, operands, [f"{name}_out"])],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, None)],
        )
        for name, op, operands in (("then", "Add", ["x", "y"]), ("else", "Relu", ["x"]))
    }
    model = g.model(g("If", g("Greater", g("Squeeze", "z"), np.float32(0)), **branches))
    machines = Machines(model)
    x, y = np.ones((2, 3), np.float32), np.ones((4, 3), np.float32)
    machines.check({"x": x, "y": x, "z": np.array([1], np.float32)})
    machines.check({"x": x, "y": y, "z": np.array([-1], np.float32)})
    with pytest.raises(RuntimeError, match="match_cast"):
        machines.run({"x": x, "y": y, "z": np.array([1], np.float32)})


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda g: g("Reshape", "x", g("Cast", "y", to=TensorProto.INT64)), r"'Reshape_1' \(Reshape\).*from values"),
        (lambda g: g("Expand", "x", g("Cast", "y", to=TensorProto.INT64)), r"'Expand_1' \(Expand\).*from values"),
        (lambda g: g("Tile", "x", g("Cast", "y", to=TensorProto.INT64)), r"'Tile_1' \(Tile\).*from values"),
        (lambda g: g("Reshape", "x", np.array([7, 0, -1, -1])), "more than one extent open"),
        (
            lambda g: g("AveragePool", "x", kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"),
            r"'AveragePool_0' \(AveragePool\).*export it with pads",
        ),
        (
            lambda g: g("Pad", "x", g.vector(*[0] * 7, g.extent("x", 2))),
            r"\(Pad\).*give the range of the free extents",
        ),
        (
            lambda g: g("Pad", "x", g.vector(*[0] * 7, g("Mod", g.extent("x", 2), np.array(2))), mode="reflect"),
            r"\(Pad\).*mode 'reflect'",
        ),
    ],
)
def test_errors_name_the_node_and_the_way_out(build: object, told: str) -> None:
    g = Graph(x=IMAGE, y=(4,))
    model = g.model(build(g))
    with pytest.raises(ModelImportError, match=told):
        relax_glue.from_onnx(model)


def test_an_amount_that_a_range_bounds_can_be_padded() -> None:
    g = Graph(x=IMAGE)
    rest = g("Sub", np.array(16), g.extent("x", 3))
    model = g.model(g("Pad", "x", g.vector(*[0] * 7, rest)))
    check_sizes(model, [{"n": 1, "h": 2, "w": 3}, {"n": 2, "h": 1, "w": 16}, {"n": 2, "h": 1, "w": 20}])
