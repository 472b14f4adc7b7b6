"""The numpy definitions of layers that move and sample data, on networks written by hand.

What is expected stands here as numbers or as one line of numpy, from TensorRT's description of the layer.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from relax_glue.errors import ConversionError
from relax_glue.tensorrt.provider import get_provider
from relax_glue.tensorrt.reference import LAYERS, evaluate
from relax_glue.tensorrt.reference.table import Layer, merged


class Net:
    """A network under test, with its constants kept alive."""

    def __init__(self) -> None:
        self.builder = get_provider().builder()
        self.trt = self.builder.provider.trt
        self.net = self.builder.network()
        self.kept: list[np.ndarray] = []

    def input(self, *shape: int, dtype: str = "float32", name: str = "x"):
        return self.net.add_input(name, getattr(self.trt, dtype), shape)

    def constant(self, array):
        array = np.asarray(array)
        self.kept.append(array)
        weights = self.trt.Weights(getattr(self.trt, str(array.dtype)), array.ctypes.data, array.size)
        return self.net.add_constant(array.shape, weights).get_output(0)

    def result(self, layer, *inputs: np.ndarray) -> np.ndarray:
        self.net.mark_output(layer.get_output(0))
        got = evaluate(SimpleNamespace(trt=self.trt, net=self.net, shapes=[]), inputs)[0]
        assert got.shape == tuple(layer.get_output(0).shape), "TensorRT derives another shape"
        return got


X = np.arange(5, dtype=np.float32)


class TestSlice:
    @pytest.mark.parametrize(
        ("mode", "start", "stride", "wanted"),
        [
            ("STRICT_BOUNDS", 1, 2, [1, 3]),
            ("STRICT_BOUNDS", 4, -2, [4, 2]),
            ("STRICT_BOUNDS", 3, 0, [3, 3, 3]),
            ("WRAP", -2, 1, [3, 4, 0, 1, 2, 3, 4, 0]),
            ("CLAMP", -2, 1, [0, 0, 0, 1, 2, 3, 4, 4, 4]),
            ("REFLECT", -3, 1, [3, 2, 1, 0, 1, 2, 3, 4, 3, 2]),
            ("FILL", -1, 2, [9, 1, 3, 9]),
        ],
    )
    def test_modes(self, mode, start, stride, wanted):
        net = Net()
        layer = net.net.add_slice(net.input(5), (start,), (len(wanted),), (stride,))
        layer.mode = getattr(net.trt.SampleMode, mode)
        if mode == "FILL":
            layer.set_input(4, net.constant(np.float32(9)))
        np.testing.assert_array_equal(net.result(layer, X), wanted)

    def test_fill_is_zero_by_default_and_reaches_every_axis(self):
        net = Net()
        layer = net.net.add_slice(net.input(2, 2), (-1, 0), (3, 3), (1, 1))
        layer.mode = net.trt.SampleMode.FILL
        x = np.ones((2, 2), np.float32)
        np.testing.assert_array_equal(net.result(layer, x), [[0, 0, 0], [1, 1, 0], [1, 1, 0]])

    def test_leaving_the_input_is_an_error_when_strict(self):
        net = Net()
        layer = net.net.add_slice(net.input(-1), (1,), (5,), (1,))
        net.net.mark_output(layer.get_output(0))
        with pytest.raises(IndexError, match="leaves its input at axis 0"):
            evaluate(SimpleNamespace(trt=net.trt, net=net.net, shapes=[]), [X])

    def test_axes_and_run_time_sizes(self):
        net = Net()
        layer = net.net.add_slice(net.input(2, 5), (1,), (3,), (1,))
        layer.axes = (1,)
        layer.set_input(2, net.constant(np.array([2], np.int64)))
        x = np.arange(10, dtype=np.float32).reshape(2, 5)
        net.net.mark_output(layer.get_output(0))
        got = evaluate(SimpleNamespace(trt=net.trt, net=net.net, shapes=[]), [x])[0]
        np.testing.assert_array_equal(got, x[:, 1:3])


class TestShuffle:
    def test_transpose_reshape_transpose(self):
        net = Net()
        layer = net.net.add_shuffle(net.input(2, 3, 4))
        layer.first_transpose, layer.reshape_dims, layer.second_transpose = (2, 0, 1), (4, 6), (1, 0)
        x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
        np.testing.assert_array_equal(net.result(layer, x), x.transpose(2, 0, 1).reshape(4, 6).T)

    def test_zero_is_the_extent_of_the_input(self):
        net = Net()
        layer = net.net.add_shuffle(net.input(2, 3, 4))
        layer.reshape_dims = (0, -1)
        x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
        np.testing.assert_array_equal(net.result(layer, x), x.reshape(2, 12))

    def test_squeeze_and_unsqueeze(self):
        net = Net()
        wide = net.net.add_unsqueeze(net.input(2, 3), net.constant(np.array([0, 2], np.int64)))
        layer = net.net.add_squeeze(wide.get_output(0), net.constant(np.array([0], np.int64)))
        x = np.ones((2, 3), np.float32)
        assert net.result(layer, x).shape == (2, 1, 3)


class TestIndexing:
    def test_gather_takes_along_an_axis(self):
        net = Net()
        layer = net.net.add_gather(net.input(2, 3), net.constant(np.array([[2, 0]], np.int32)), 1)
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        np.testing.assert_array_equal(net.result(layer, x), [[[2, 0]], [[5, 3]]])

    def test_gather_by_elements(self):
        net = Net()
        layer = net.net.add_gather_v2(
            net.input(2, 3), net.constant(np.array([[2, 0], [1, 1]], np.int32)), net.trt.GatherMode.ELEMENT
        )
        layer.axis = 1
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        np.testing.assert_array_equal(net.result(layer, x), [[2, 0], [4, 4]])

    def test_gather_by_coordinates_in_a_batch(self):
        net = Net()
        layer = net.net.add_gather_v2(
            net.input(2, 2, 2), net.constant(np.array([[[1]], [[0]]], np.int32)), net.trt.GatherMode.ND
        )
        layer.num_elementwise_dims = 1
        x = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
        np.testing.assert_array_equal(net.result(layer, x), [[[2, 3]], [[4, 5]]])

    def test_scatter_in_both_modes(self):
        for mode, indices, updates, wanted in [
            ("ELEMENT", [[1, 0]], [[7, 8]], [[0, 8], [7, 3]]),
            ("ND", [[1]], [[7, 8]], [[0, 1], [7, 8]]),
        ]:
            net = Net()
            layer = net.net.add_scatter(
                net.input(2, 2),
                net.constant(np.array(indices, np.int32)),
                net.constant(np.array(updates, np.float32)),
                getattr(net.trt.ScatterMode, mode),
            )
            layer.axis = 0
            np.testing.assert_array_equal(net.result(layer, np.arange(4, dtype=np.float32).reshape(2, 2)), wanted)

    @pytest.mark.parametrize("index", [-1, 5])
    def test_an_index_out_of_bounds_is_an_error(self, index):
        net = Net()
        layer = net.net.add_gather(net.input(5), net.input(1, dtype="int32", name="i"), 0)
        net.net.mark_output(layer.get_output(0))
        with pytest.raises(IndexError, match="outside 0:5"):
            evaluate(SimpleNamespace(trt=net.trt, net=net.net, shapes=[]), [X, np.array([index], np.int32)])

    def test_one_hot(self):
        net = Net()
        layer = net.net.add_one_hot(
            net.input(2, dtype="int32"),
            net.constant(np.array([0.5, 2], np.float32)),
            net.constant(np.array(3, np.int32)),
            0,
        )
        got = net.result(layer, np.array([2, 0], np.int32))
        np.testing.assert_array_equal(got, [[0.5, 2], [0.5, 0.5], [2, 0.5]])


class TestSampling:
    @pytest.mark.parametrize(
        ("coordinates", "rounding", "after", "wanted"),
        [
            ("ASYMMETRIC", "FLOOR", 6, [0, 0, 1, 1, 2, 2]),
            ("ASYMMETRIC", "CEIL", 6, [0, 1, 1, 2, 2, 2]),
            ("ASYMMETRIC", "HALF_UP", 6, [0, 1, 1, 2, 2, 2]),
            ("ASYMMETRIC", "HALF_DOWN", 6, [0, 0, 1, 1, 2, 2]),
            ("HALF_PIXEL", "HALF_DOWN", 6, [0, 0, 1, 1, 2, 2]),
            ("ALIGN_CORNERS", "HALF_DOWN", 5, [0, 0, 1, 1, 2]),
        ],
    )
    def test_nearest(self, coordinates, rounding, after, wanted):
        net = Net()
        layer = net.net.add_resize(net.input(1, 1, 3))
        layer.shape = (1, 1, after)
        layer.coordinate_transformation = getattr(net.trt.ResizeCoordinateTransformation, coordinates)
        layer.nearest_rounding = getattr(net.trt.ResizeRoundMode, rounding)
        got = net.result(layer, np.arange(3, dtype=np.float32).reshape(1, 1, 3))
        np.testing.assert_array_equal(got[0, 0], wanted)

    @pytest.mark.parametrize(
        ("coordinates", "after", "wanted"),
        [
            ("HALF_PIXEL", 4, [0, 2.5, 7.5, 10]),
            ("ALIGN_CORNERS", 3, [0, 5, 10]),
            ("ASYMMETRIC", 4, [0, 5, 10, 10]),
            ("HALF_PIXEL", 1, [5]),
        ],
    )
    def test_linear(self, coordinates, after, wanted):
        net = Net()
        layer = net.net.add_resize(net.input(1, 1, 2))
        layer.shape = (1, 1, after)
        layer.resize_mode = net.trt.InterpolationMode.LINEAR
        layer.coordinate_transformation = getattr(net.trt.ResizeCoordinateTransformation, coordinates)
        got = net.result(layer, np.array([[[0, 10]]], np.float32))
        np.testing.assert_allclose(got[0, 0], wanted)

    def test_a_single_pixel_can_be_the_first(self):
        net = Net()
        layer = net.net.add_resize(net.input(1, 1, 2))
        layer.scales = (1.0, 1.0, 0.5)
        layer.resize_mode = net.trt.InterpolationMode.LINEAR
        layer.coordinate_transformation = net.trt.ResizeCoordinateTransformation.HALF_PIXEL
        layer.selector_for_single_pixel = net.trt.ResizeSelector.UPPER
        assert net.result(layer, np.array([[[3, 10]]], np.float32)).item() == 3

    @pytest.mark.parametrize("exclude", [False, True])
    def test_cubic_keeps_a_constant_picture(self, exclude):
        net = Net()
        layer = net.net.add_resize(net.input(1, 1, 3, 4))
        layer.shape = (1, 1, 7, 9)
        layer.resize_mode = net.trt.InterpolationMode.CUBIC
        layer.exclude_outside = exclude
        layer.coordinate_transformation = net.trt.ResizeCoordinateTransformation.HALF_PIXEL
        np.testing.assert_allclose(net.result(layer, np.full((1, 1, 3, 4), 2, np.float32)), 2, rtol=1e-6)

    @pytest.mark.parametrize(
        ("mode", "place", "wanted"),
        [
            ("FILL", -1.5, 0.75),
            ("FILL", -3, 0),
            ("CLAMP", -1.5, 1),
            ("REFLECT", -2, 1.5),
            ("FILL", 0.0, 1.5),
            ("FILL", 1.0, 2),
        ],
    )
    def test_grid_sample(self, mode, place, wanted):
        net = Net()
        layer = net.net.add_grid_sample(net.input(1, 1, 1, 2), net.input(1, 1, 1, 2, name="grid"))
        layer.align_corners = True
        layer.sample_mode = getattr(net.trt.SampleMode, mode)
        grid = np.array([[[[place, 0]]]], np.float32)
        got = net.result(layer, np.array([[[[1, 2]]]], np.float32), grid)
        np.testing.assert_allclose(got.item(), wanted)


class TestEvaluate:
    def test_layers_may_stand_in_any_order(self):
        net = Net()
        late = net.net.add_shuffle(net.input(2, 3))
        late.set_input(1, net.constant(np.array([3, 2], np.int64)))
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        np.testing.assert_array_equal(net.result(late, x), x.reshape(3, 2))

    def test_every_tensor(self):
        net = Net()
        first = net.net.add_identity(net.input(5))
        first.get_output(0).name = "first"
        second = net.net.add_concatenation([first.get_output(0)] * 2)
        second.get_output(0).name = "second"
        net.net.mark_output(second.get_output(0))
        values = evaluate(SimpleNamespace(trt=net.trt, net=net.net, shapes=[]), {"x": X}, every_tensor=True)
        assert set(values) == {"x", "first", "second"}
        np.testing.assert_array_equal(values["second"], [*X, *X])

    @pytest.mark.parametrize(
        ("inputs", "message"),
        [
            ([], "takes 1 inputs, not 0"),
            ([X[:4]], r"float32 of shape \(5,\); got a float32 of shape \(4,\)"),
            ([X.astype("float16")], "got a float16"),
        ],
    )
    def test_inputs_that_do_not_fit(self, inputs, message):
        net = Net()
        with pytest.raises(ConversionError, match=message):
            net.result(net.net.add_identity(net.input(5)), *inputs)

    def test_an_unknown_layer_is_named(self):
        net = Net()
        layer = net.net.add_non_zero(net.input(5), net.trt.int64)
        layer.name = "where"
        net.net.mark_output(layer.get_output(0))
        assert "NON_ZERO" not in LAYERS
        with pytest.raises(ConversionError, match="layer where is a NON_ZERO"):
            evaluate(SimpleNamespace(trt=net.trt, net=net.net, shapes=[]), [X])

    def test_the_table_has_no_layer_twice_and_names_real_classes(self):
        trt = get_provider().trt
        for kind, layer in LAYERS.items():
            assert kind in trt.LayerType.__members__
            assert hasattr(trt, layer.reader)
        one = {"SLICE": Layer("ISliceLayer", lambda layer, inputs: inputs)}
        with pytest.raises(ValueError, match="two definitions of SLICE"):
            merged(one, one)
