"""Convolutions, pools and resizes in the layout that TensorRT computes in: channels before the spatial axes.

    conv(x: NHWC, W: HWIO)  ->  permute_dims(conv(permute_dims(x): NCHW, W': OIHW)),  W' = permute_dims(W), folded

TensorFlow and TFLite keep channels last, TensorRT channels first, so each such layer stood between two shuffles of
its own. Written as permutes they are seen: `SinkPermuteDims` brings the permutes of neighbours together, where
they cancel. The strides, pads, dilations and groups name spatial axes by their order, D H W in every layout, and stay.

A convolution sums the same products in another order, so its last bits may differ; a pool visits the same windows
in the same order, and a resize computes each element alone. A kernel that is computed stays as it is: it would need
a permute of its own. (rules.md T17, T22 to T24.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tvm import relax

from relax_glue.ir import Graph, Node, Value
from relax_glue.rewrite import FLOAT_REASSOC, Decline, Replacement, RuleSet, rule

from .axis_order import permute_once
from .base import family
from .batch_norm import CONVOLUTIONS, TRANSPOSED
from .resize import RESIZES

POOLS = tuple(f"relax.nn.{kind}_pool{n}d" for kind in ("max", "avg") for n in (1, 2, 3))
ADAPTIVE = tuple(f"relax.nn.adaptive_avg_pool{n}d" for n in (1, 2, 3))
SPATIAL = "DHW"

FIRST = Decline("its channels come first already")
NOT_PLAIN = Decline("a layout is no order of plain axes, or a shape is unknown")


def reorder(source: str, target: str) -> tuple[int, ...] | None:
    """Return the axes of the permute that brings layout `source` to layout `target`, or None for other letters."""
    if sorted(source) != sorted(target) or len(set(source)) != len(source):
        return None
    return tuple(source.index(letter) for letter in target)


def _permuted(graph: Graph, value: Value, axes: tuple[int, ...]) -> Value:
    """Return a value with its axes reordered: a constant where it is one; two layers share a permute."""
    if value.array is not None:
        return graph.constant(value.array.transpose(axes))
    return permute_once(graph, value, axes)


def _layouts(node: Node, layout: str) -> tuple[str, str] | None:
    """Return the layouts of a node's operand and result, or None where they are not plain or known."""
    out = str(getattr(node.attrs, "out_layout", "") or layout)
    rank = len(layout)
    if node.inputs[0].shape is None or node.value.shape is None or node.inputs[0].ndim != rank:
        return None
    return None if reorder(out, channels_first(rank)) is None or reorder(layout, out) is None else (layout, out)


def channels_first(rank: int) -> str:
    """Return "NCW", "NCHW" or "NCDHW"."""
    return "NC" + SPATIAL[5 - rank :]


def _dtype(attrs: Any) -> str | None:
    """Return the result's dtype that the attributes ask for; None leaves it to the operands."""
    given = str(attrs.out_dtype or "")
    return None if given in ("", "void", "None") else given


@rule(
    "conv-to-channels-first",
    *CONVOLUTIONS,
    *TRANSPOSED,
    equation="conv(x: NHWC, W: HWIO) -> permute_dims(conv(permute_dims(x): NCHW, permute_dims(W): OIHW))",
    soundness=FLOAT_REASSOC,
    source="T22, T24",
)
def conv_to_channels_first(node: Node, graph: Graph) -> Replacement | Decline:
    """Convolve channels first, with the weights permuted once."""
    attrs, (x, kernel) = node.attrs, node.inputs
    layouts = _layouts(node, str(attrs.data_layout))
    if layouts is None:
        return NOT_PLAIN
    target, transposed = channels_first(x.ndim), node.op in TRANSPOSED
    kernel_target = ("IO" if transposed else "OI") + target[2:]
    kernel_axes = reorder(str(attrs.kernel_layout), kernel_target)
    if kernel_axes is None:
        return NOT_PLAIN
    if layouts == (target, target) and str(attrs.kernel_layout) == kernel_target:
        return FIRST
    if kernel.array is None:
        return Decline("the kernel is not constant")
    options = {"output_padding": list(attrs.output_padding)} if transposed else {}
    make = getattr(relax.op.nn, node.op.removeprefix("relax.nn."))
    found = graph.emit(
        lambda e, w: make(
            e, w, list(attrs.strides), list(attrs.padding), dilation=list(attrs.dilation), groups=int(attrs.groups),
            data_layout=target, kernel_layout=kernel_target, out_dtype=_dtype(attrs), **options,
        ),
        _permuted(graph, x, reorder(layouts[0], target) or ()),
        _permuted(graph, kernel, kernel_axes),
    )  # fmt: skip
    return _permuted(graph, found, reorder(target, layouts[1]) or ())


def _same_attributes(attrs: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return the attributes of a window as arguments."""
    found = {name: getattr(attrs, name) for name in names}
    return {name: v if isinstance(v, (bool, int)) else [int(i) for i in v] for name, v in found.items()}


@rule(
    "pool-to-channels-first",
    *POOLS,
    *ADAPTIVE,
    equation="pool(x: NHWC) -> permute_dims(pool(permute_dims(x): NCHW))",
    source="T23",
)
def pool_to_channels_first(node: Node, graph: Graph) -> Replacement | Decline:
    """Pool channels first."""
    attrs, x = node.attrs, node.inputs[0]
    layouts = _layouts(node, str(attrs.layout))
    if layouts is None:
        return NOT_PLAIN
    target = channels_first(x.ndim)
    if layouts == (target, target):
        return FIRST
    make = getattr(relax.op.nn, node.op.removeprefix("relax.nn."))
    if node.op in ADAPTIVE:
        options = {"output_size": None if attrs.output_size is None else [int(n) for n in attrs.output_size]}
    else:
        windows = ("pool_size", "strides", "padding", "dilation", "ceil_mode", "count_include_pad")
        options = _same_attributes(attrs, windows)
    first = _permuted(graph, x, reorder(layouts[0], target) or ())
    found = graph.emit(lambda e: make(e, layout=target, **options), first)
    return _permuted(graph, found, reorder(target, layouts[1]) or ())


@rule(
    "resize-to-channels-first",
    *RESIZES,
    equation="resize(x: NHWC) -> permute_dims(resize(permute_dims(x): NCHW))",
    source="T17",
)
def resize_to_channels_first(node: Node, graph: Graph) -> Replacement | Decline:
    """Resize channels first."""
    attrs, x = node.attrs, node.inputs[0]
    layouts = _layouts(node, str(attrs.layout))
    if layouts is None:
        return NOT_PLAIN
    target = channels_first(x.ndim)
    if layouts == (target, target):
        return FIRST
    if str(attrs.coordinate_transformation_mode) == "tf_crop_and_resize":
        return Decline("it crops, and the crop names its axes by their order")
    names = (
        "method", "coordinate_transformation_mode", "rounding_method", "cubic_alpha", "cubic_exclude",
        "extrapolation_value",
    )  # fmt: skip
    options = {name: getattr(attrs, name) for name in names}
    size = relax.ShapeExpr([(node.value.shape or ())[layouts[1].index(letter)] for letter in target[2:]])
    make = getattr(relax.op.image, node.op.removeprefix("relax.image."))
    found = graph.emit(
        lambda e: make(e, size, layout=target, out_dtype=_dtype(attrs), **options),
        _permuted(graph, x, reorder(layouts[0], target) or ()),
    )
    return _permuted(graph, found, reorder(target, layouts[1]) or ())


RULES = RuleSet.of(conv_to_channels_first, pool_to_channels_first, resize_to_channels_first)


ConvertLayout = family(
    "ConvertLayout", RULES, "Let convolutions, pools and resizes have their channels first, between permutes."
)
