"""ONNX models read from a path, from bytes or from memory, and refused in words when they are no models.

What is read here is only trusted to be a protobuf message; the checks in this file are those without which the
next steps would fail far from the cause: a file cut short, weights kept beside the file and missing, a node
that uses a value nobody computes, two nodes that compute the same value.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from relax_glue.errors import ModelImportError

if TYPE_CHECKING:
    import onnx

MIN_IR_VERSION = 3  # older files list weights among the inputs and carry no operator set
DEFAULT_DOMAINS = ("", "ai.onnx")


def require_onnx() -> None:
    """Raise ModelImportError where the package `onnx` is not installed."""
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise ModelImportError(
            "reading an ONNX model needs the package onnx: pip install 'relax-glue[onnx]'"
        ) from error


def read_onnx(source: str | os.PathLike[str] | bytes | onnx.ModelProto) -> onnx.ModelProto:
    """Read an ONNX model into a message of its own, so that the caller's is never changed.

    Parameters
    ----------
    source : str, os.PathLike, bytes or onnx.ModelProto
        A file (gzipped if its name ends with ``.gz``), the content of a file, or a model in memory.

    Returns
    -------
    onnx.ModelProto
        The model, with its weights inside and a name on every node.

    Raises
    ------
    ModelImportError
        The file is missing, cut short or no ONNX model, or its graph does not hang together.
    """
    require_onnx()
    import onnx

    if isinstance(source, onnx.ModelProto):
        model = onnx.ModelProto()
        model.CopyFrom(source)
        where = "the ONNX model given"
        folder = None
    elif isinstance(source, bytes):
        model, where, folder = _parse(source, "the bytes given"), "the ONNX model given", None
    elif isinstance(source, (str, os.PathLike)):
        path = Path(source)
        where = str(path)
        model, folder = _parse(_read_bytes(path), where), path.parent
    else:
        raise ModelImportError(f"from_onnx takes a path, bytes or an onnx.ModelProto, not {type(source).__name__}")
    _check_is_model(model, where)
    _load_external_data(model, folder, where)
    _name_nodes(model.graph)
    _check_graph(model.graph, where)
    return model


def _read_bytes(path: Path) -> bytes:
    if path.is_dir():
        raise ModelImportError(f"{path} is a folder; give the .onnx file in it")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelImportError(f"{path} cannot be read: {error.strerror or error}") from error
    if path.suffix != ".gz":
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise ModelImportError(
            f"{path} is no gzip file, or it is cut short ({error}); copy or download it again"
        ) from error


def _parse(data: bytes, where: str) -> onnx.ModelProto:
    import onnx
    from google.protobuf.message import DecodeError

    if not data:
        raise ModelImportError(f"{where}: empty; an ONNX model was expected")
    if data.startswith(b"version https://git-lfs"):
        raise ModelImportError(f"{where} is a Git LFS pointer, not the model; run git lfs pull")
    try:
        return onnx.load_model_from_string(data)
    except DecodeError as error:
        raise ModelImportError(
            f"{where} is no ONNX model, or it is cut short: its {len(data)} bytes are no whole protobuf "
            "message; copy or export it again"
        ) from error


def _check_is_model(model: onnx.ModelProto, where: str) -> None:
    # Foreign bytes can pass for an empty message, since protobuf skips the fields that it does not know.
    if not model.graph.output:
        raise ModelImportError(f"{where} holds no graph with an output, so it is no ONNX model")
    if model.ir_version < MIN_IR_VERSION:
        raise ModelImportError(
            f"{where} has IR version {model.ir_version}; the oldest that can be read is {MIN_IR_VERSION}. "
            "Export it again, or bring it up with onnx.version_converter"
        )
    if not any(entry.domain in DEFAULT_DOMAINS for entry in model.opset_import):
        raise ModelImportError(f"{where} names no version of the ONNX operator set, so its nodes have no meaning")


def opset_of(model: onnx.ModelProto) -> int:
    """Return the version of the default operator set that `model` is written in."""
    return next(int(entry.version) for entry in model.opset_import if entry.domain in DEFAULT_DOMAINS)


def _load_external_data(model: onnx.ModelProto, folder: Path | None, where: str) -> None:
    import onnx
    from onnx import external_data_helper

    external = [tensor for tensor in tensors(model.graph) if external_data_helper.uses_external_data(tensor)]
    if not external:
        return
    if folder is None:
        raise ModelImportError(
            f"{where} keeps the weight '{external[0].name}' in a file beside it; give the path of the model, "
            "or load it with onnx.load, which brings the weights in"
        )
    for tensor in external:
        try:
            external_data_helper.load_external_data_for_tensor(tensor, str(folder))
            onnx.numpy_helper.to_array(tensor)
        except (OSError, ValueError, onnx.checker.ValidationError) as error:
            location = {entry.key: entry.value for entry in tensor.external_data}.get("location", "?")
            raise ModelImportError(
                f"{where}: the weight '{tensor.name}' is kept in '{location}', which is missing beside the "
                f"model or too short ({error}); put the file that was exported with the model next to it"
            ) from error
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def expand_functions(model: onnx.ModelProto, is_known: Callable[[onnx.NodeProto], bool]) -> onnx.ModelProto:
    """Replace nodes that stand for a function by the body of the function.

    Parameters
    ----------
    model : onnx.ModelProto
        A model, perhaps with functions of its own.
    is_known : Callable
        Tells whether an operator can be converted as it is. Of those that cannot, the ones that ONNX defines as
        functions of other operators (Attention, Celu, Swish, CenterCropPad, ...) are expanded too.

    Returns
    -------
    onnx.ModelProto
        The model given, or an expanded copy, in which every node has a name.
    """
    import onnx
    import onnx.inliner

    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    tried: set[tuple[str, str]] = set()
    while True:
        wanted = {(node.domain, node.op_type): node for node in nodes(model.graph) if not is_known(node)}
        names = [name for name in sorted(set(wanted) - tried) if _function_schema(wanted[name], model) is not None]
        if not names:
            break
        tried.update(names)
        _write_defaults(model, names)
        try:
            model = onnx.inliner.inline_selected_functions(model, names, inline_schema_functions=True)
        except (RuntimeError, ValueError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
            # The inliner does without types at some nodes, and gives up on optional operands left out. The operator
            # then stays, and the import refuses it by name.
            continue
    _name_nodes(model.graph)
    return model


def _function_schema(node: onnx.NodeProto, model: onnx.ModelProto) -> onnx.defs.OpSchema | None:
    """Return the definition of an operator that ONNX defines as a function, None for any other."""
    import onnx

    version = next((entry.version for entry in model.opset_import if entry.domain == node.domain), 1)
    try:
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return None
    return schema if schema.has_function or schema.has_context_dependent_function else None


def _write_defaults(model: onnx.ModelProto, names: Sequence[tuple[str, str]]) -> None:
    """Write out the attributes left at their defaults, which the inliner would leave empty in the body."""
    for node in nodes(model.graph):
        schema = _function_schema(node, model) if (node.domain, node.op_type) in names else None
        present = {attribute.name for attribute in node.attribute}
        for name, attribute in schema.attributes.items() if schema is not None else ():
            if name not in present and attribute.default_value.name:
                node.attribute.append(attribute.default_value)


def nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield every node of a graph and of the bodies in it."""
    for node in graph.node:
        yield node
        for body in subgraphs(node):
            yield from nodes(body)


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the bodies of a node with control flow: the branches of If, the body of Loop and Scan."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Yield every tensor that is written out in `graph` and in the bodies of its nodes."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
        for body in subgraphs(node):
            yield from tensors(body)


def names_read(graph: onnx.GraphProto) -> set[str]:
    """Return every value that something reads: nodes, the bodies in them, and the outputs of the graph."""
    found = {value.name for value in graph.output}
    for node in graph.node:
        found.update(node.input)
        for body in subgraphs(node):
            found |= names_read(body)
    return found


def _name_nodes(graph: onnx.GraphProto) -> None:
    """Give a name to each node that has none: errors and Relax variables are named after nodes."""
    for index, node in enumerate(graph.node):
        if not node.name:
            node.name = f"{node.op_type}_{index}"
        for body in subgraphs(node):
            _name_nodes(body)


def _check_graph(graph: onnx.GraphProto, where: str) -> None:
    known = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        for name in node.input:
            if name and name not in known:
                raise ModelImportError(
                    f"{where}: node '{node.name}' ({node.op_type}) uses the value '{name}', which no node "
                    "before it computes; the graph is not in order, or a part of it was cut away"
                )
        for name in node.output:
            if name and name in known:
                raise ModelImportError(
                    f"{where}: node '{node.name}' ({node.op_type}) computes the value '{name}' a second time"
                )
            known.add(name)
    for value in graph.output:
        if value.name not in known:
            raise ModelImportError(f"{where}: no node computes the output '{value.name}'")
