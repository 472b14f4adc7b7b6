"""ONNX to Relax: read, fix the input shapes, fold the shape arithmetic, import."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import tvm

from relax_glue.errors import ModelImportError

from .input_shapes import InputShapes, bind_onnx_inputs, free_inputs
from .onnx_file import expand_functions, read_onnx
from .onnx_fold import fold_shape_arithmetic

if TYPE_CHECKING:
    import onnx


def from_onnx(
    model_or_path: str | os.PathLike[str] | bytes | onnx.ModelProto, input_shapes: InputShapes | None = None
) -> tvm.IRModule:
    """Import an ONNX model as a Relax module with its weights inside.

    The shapes named are written into the model, shape arithmetic that follows from them is computed, branches
    whose condition is then known are taken, and TVM's importer sees the rest. Axes that stay free become symbolic
    variables.

    Parameters
    ----------
    model_or_path : str, os.PathLike, bytes or onnx.ModelProto
        A ``.onnx`` or ``.onnx.gz`` file, the content of one, or a model in memory, which is not changed.
    input_shapes : mapping of str to tuple of int, or tuple of int, optional
        The shape of each input that is to be fixed: ``{"images": (1, 3, 640, 640)}``, or the bare tuple for a model
        with one input. None in place of an extent leaves that axis as it is in the file.

    Returns
    -------
    tvm.IRModule
        A module with the function `main`, whose variables are named after the nodes of the model.

    Raises
    ------
    ModelImportError
        The file cannot be read, is no ONNX model, or has a node that cannot be converted; the node is named.
    InputShapeError
        A shape does not fit the model: unknown input, another rank, another extent than the fixed one.
    """
    model = read_onnx(model_or_path)
    bind_onnx_inputs(model.graph, input_shapes)
    from .onnx_importer import import_graph, is_known

    fold_shape_arithmetic(model)
    expanded = expand_functions(model, is_known)
    if expanded is not model:
        fold_shape_arithmetic(expanded)
        model = expanded
    try:
        return import_graph(model)
    except ModelImportError as error:
        free = free_inputs(model.graph)
        if not free:
            raise
        listed = "; ".join(f"{name} ({', '.join(map(str, shape))})" for name, shape in free.items())
        raise ModelImportError(
            f"{error}. These inputs have free axes: {listed}. Fix them through input_shapes={{name: shape}} and "
            "the shapes inside follow"
        ) from error
