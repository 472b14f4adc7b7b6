"""ONNX to Relax: read, fix the input shapes, fold the shape arithmetic, import."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import tvm

from relax_glue.errors import ModelImportError

from .input_shapes import InputShapes, bind_onnx_inputs, free_extents, free_inputs
from .onnx_file import expand_functions, read_onnx
from .onnx_fold import fold_shape_arithmetic
from .symbolic.ranges import Ranges, checked_ranges, with_ranges

if TYPE_CHECKING:
    import onnx


def from_onnx(
    model_or_path: str | os.PathLike[str] | bytes | onnx.ModelProto,
    input_shapes: InputShapes | None = None,
    ranges: Ranges | None = None,
) -> tvm.IRModule:
    """Import an ONNX model as a Relax module with its weights inside.

    The shapes named are written into the model, shape arithmetic that follows from them is computed, branches
    whose condition is then known are taken, and TVM's importer sees the rest. Axes that stay free become symbolic
    variables, and shape arithmetic on them becomes expressions of these. Where the model joins two tensors whose
    extents are equal for some sizes only (a height that has to be a multiple of 32), `main` checks that at its entry
    and raises RuntimeError for the others, as ONNX Runtime does; the ExecutionError of `relax_glue.compile` is one.

    Parameters
    ----------
    model_or_path : str, os.PathLike, bytes or onnx.ModelProto
        A ``.onnx`` or ``.onnx.gz`` file, the content of one, or a model in memory, which is not changed.
    input_shapes : mapping of str to tuple of int, str or None, or one such tuple, optional
        The shape of each input that is to be fixed: ``{"images": (1, 3, 640, 640)}``, or the bare tuple for a model
        with one input. None in place of an extent leaves that axis as it is in the file. A string names an axis that
        stays free: ``("n", 3, "h", "w")``; one name is one variable, on however many axes it stands.
    ranges : mapping of str to (int or None, int or None), optional
        The least and the largest value of free axes by their names, both included:
        ``{"n": (1, 16), "h": (320, 1280)}``; None leaves an end open. TVM plans memory by them, TensorRT's optimisation
        profiles take them over, and a size outside raises RuntimeError when `main` is called. Free axes are 1 or more.

    Returns
    -------
    tvm.IRModule
        A module with the function `main`, whose variables are named after the nodes of the model.

    Raises
    ------
    ModelImportError
        The file cannot be read, is no ONNX model, or has a node that cannot be converted; the node is named.
    InputShapeError
        A shape does not fit the model: unknown input, another rank, another extent than the fixed one. A range is none,
        names an axis that is not there or not free, or holds no size that the model can take.
    """
    model = read_onnx(model_or_path)
    bind_onnx_inputs(model.graph, input_shapes)
    bounds = checked_ranges(ranges, free_extents(model.graph))
    from .onnx_importer import import_graph, is_known

    fold_shape_arithmetic(model)
    expanded = expand_functions(model, is_known)
    if expanded is not model:
        fold_shape_arithmetic(expanded)
        model = expanded
    try:
        return with_ranges(import_graph(model, bounds), ranges)
    except ModelImportError as error:
        free = free_inputs(model.graph)
        if not free:
            raise
        listed = "; ".join(f"{name} ({', '.join(map(str, shape))})" for name, shape in free.items())
        raise ModelImportError(
            f"{error}. These inputs have free axes: {listed}. Fix them through input_shapes={{name: shape}} and "
            "the shapes inside follow"
        ) from error
