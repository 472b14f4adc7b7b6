"""Pads: into the convolution or pooling that follows, else one `nn.pad` at most.

    conv(pad(x, 0, on spatial axes), p)          ->  conv(x, p + pad)
    avg_pool(pad(x, 0)), which counts the pad    ->  avg_pool(x, p + pad, count_include_pad=True)
    max_pool(pad(x, lowest or -inf))             ->  max_pool(x, p + pad)
    relu(pad(x, 0)) before one of these          ->  pad(relu(x), 0)
    pad(pad(x)) with the same value              ->  pad(x)
    pad(x) of widths <= 0                        ->  strided_slice(x)

TVM's TensorRT table has no nn.pad. A 0 before a max_pool is another value than what the pooling itself pads
with (max_pool(pad([-1], 0)) holds zeros), and a pad before a transposed convolution is worth `stride` cells of
its result, not one; both stay. (rules.md P01 to P07, P11.)
"""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from relax_glue.ir import Graph, Node, Value, is_static
from relax_glue.ir.views import emit_movement
from relax_glue.movement import Pad, Slice
from relax_glue.rewrite import FOLD, Decline, Replacement, RuleSet, rule

from .base import family
from .batch_norm import CONVOLUTIONS
from .concat_into_conv import zeros_into_conv
from .convolution import emit_convolution, joint_padding, plain

PAD = "relax.nn.pad"
AVERAGE_POOLS = ("relax.nn.avg_pool1d", "relax.nn.avg_pool2d", "relax.nn.avg_pool3d")
MAX_POOLS = ("relax.nn.max_pool1d", "relax.nn.max_pool2d", "relax.nn.max_pool3d")
KEEP_ZERO = tuple(
    f"relax.{name}"
    for name in ("nn.relu", "nn.leakyrelu", "nn.silu", "nn.gelu", "nn.gelu_tanh", "tanh", "abs", "sqrt", "clip")
)
NO_VIEW = Decline("the widths, the mode or the shape are not known")


@rule("nop-pad", PAD, equation="pad(x, 0) -> x", kind=FOLD, source="P01")
def nop_pad(node: Node, graph: Graph) -> Replacement | Decline:
    """Drop a pad of no width, in every mode."""
    if not isinstance(node.view, Pad):
        return NO_VIEW
    return Decline("it has width") if any((*node.view.before, *node.view.after)) else node.inputs[0]


def _same_value(a: float, b: float, dtype: str | None) -> bool:
    """Return whether two pad values are the same bits in a dtype."""
    if a == b and math.copysign(1, a) == math.copysign(1, b):
        return True
    if dtype not in ("float16", "float32", "float64"):
        return False
    with np.errstate(over="ignore"):
        return np.array(a, dtype).tobytes() == np.array(b, dtype).tobytes()


@rule("pad-of-pad", PAD, equation="pad(pad(x, v), v) -> pad(x, v)", producers=(PAD,), single_use=(0,), source="P02")
def pad_of_pad(node: Node, graph: Graph) -> Replacement | Decline:
    """Pad once with one value. Reflections of reflections do not add up, and stay."""
    outer, inner = node.view, node.inputs[0].node.view
    if not isinstance(outer, Pad) or not isinstance(inner, Pad):
        return NO_VIEW
    if (inner.mode, outer.mode) != ("constant", "constant"):
        return Decline("a mode is not constant")
    if not _same_value(inner.value, outer.value, node.value.dtype):
        return Decline("the values differ")
    if min(*inner.before, *inner.after, *outer.before, *outer.after) < 0:
        return Decline("a width is negative")  # pad(pad(x, -1), 1) loses an element of x
    before = tuple(a + b for a, b in zip(inner.before, outer.before, strict=True))
    after = tuple(a + b for a, b in zip(inner.after, outer.after, strict=True))
    return emit_movement(graph, Pad(before, after, "constant", inner.value), node.inputs[0].node.inputs[0])


@rule("pad-to-slice", PAD, equation="pad(x, widths <= 0) -> strided_slice(x)", source="P11")
def pad_to_slice(node: Node, graph: Graph) -> Replacement | Decline:
    """Spell a pad that only cuts as a slice."""
    view, shape = node.view, node.inputs[0].shape
    if not isinstance(view, Pad) or view.mode != "constant" or not is_static(shape):
        return NO_VIEW
    if max(*view.before, *view.after) > 0:
        return Decline("it adds elements")
    begin = tuple(-b for b in view.before)
    return emit_movement(graph, Slice(begin, node.value.shape or (), (1,) * len(begin)), node.inputs[0])


def _is_positive_zero(value: float) -> bool:
    return value == 0 and math.copysign(1, value) > 0


NOT_SPATIAL = Decline("the pad is not constant, cuts, or touches other than spatial axes")


@rule(
    "pad-into-conv",
    *CONVOLUTIONS,
    equation="conv(pad(x, 0), w, p) -> conv(x, w, p + pad)",
    producers=(PAD,),
    source="P03",
)
def pad_into_conv(node: Node, graph: Graph) -> Replacement | Decline:
    """Let the convolution pad, which it does with 0."""
    pad, attrs = node.inputs[0].node.view, node.attrs
    if not isinstance(pad, Pad):
        return NO_VIEW
    padding = joint_padding(pad, str(attrs.data_layout), attrs.padding)
    if padding is None:
        return NOT_SPATIAL
    if not _is_positive_zero(pad.value):
        return Decline("the value is not 0")
    return emit_convolution(graph, node, node.inputs[0].node.inputs[0], padding=padding)


@rule(
    "pad-after-activation",
    *KEEP_ZERO,
    equation="f(pad(x, 0)) -> pad(f(x), 0) before a convolution or an average pooling, f(0) = 0",
    producers=(PAD,),
    single_use=(0,),
    source="P07",
)
def pad_after_activation(node: Node, graph: Graph) -> Replacement | Decline:
    """Bring a pad next to the layer that can do it; what the activation makes of the padding is 0 again."""
    pad = node.inputs[0].node.view
    if not isinstance(pad, Pad):
        return NO_VIEW
    if pad.mode != "constant" or not _is_positive_zero(pad.value) or min(*pad.before, *pad.after) < 0:
        return Decline("the pad is not of 0, or cuts")
    if not node.users or graph.is_output(node) or any(u.op not in CONVOLUTIONS + AVERAGE_POOLS for u in node.users):
        return Decline("other operators read it than convolutions and average poolings")
    if not _keeps_zero(node):
        return Decline("it does not give 0 for 0")
    return emit_movement(graph, pad, graph.rebuild(node, [node.inputs[0].node.inputs[0]]))


def _keeps_zero(node: Node) -> bool:
    """Return whether an activation, one of `KEEP_ZERO`, gives 0 for 0, and not -0."""
    if node.op == "relax.nn.leakyrelu":
        return bool(node.attrs.alpha >= 0)
    if node.op != "relax.clip":
        return True
    low, high = (getattr(bound, "value", None) for bound in list(node.expr.args)[1:3])
    if low is None or high is None:
        return False  # a symbolic bound
    return (low < 0 or _is_positive_zero(low)) and (high > 0 or _is_positive_zero(high))


def _pool(graph: Graph, node: Node, x: Value, padding: list[int], count_include_pad: bool) -> Value:
    """Add the pooling of `node` with other padding."""
    make = getattr(relax.op.nn, node.op.removeprefix("relax.nn."))
    names = ("pool_size", "strides", "dilation", "ceil_mode", "layout", "out_layout")
    given = {name: plain(getattr(node.attrs, name)) for name in names}
    return graph.emit(lambda e: make(e, padding=padding, count_include_pad=count_include_pad, **given), x)


def _pool_padding(node: Node) -> list[int] | Decline:
    """Return the joint padding of a pooling and the pad before it, or why there is none."""
    pad, attrs = node.inputs[0].node.view, node.attrs
    if not isinstance(pad, Pad):
        return NO_VIEW
    if attrs.ceil_mode:
        return Decline("ceil_mode: the windows would end elsewhere")
    padding = joint_padding(pad, str(attrs.layout), attrs.padding)
    if padding is None:
        return NOT_SPATIAL
    kernel = [(int(k) - 1) * int(d) + 1 for k, d in zip(attrs.pool_size, attrs.dilation, strict=True)]
    if any(p >= k for p, k in zip(padding, [*kernel, *kernel], strict=True)):
        return Decline("a window would hold nothing but padding")
    return padding


@rule(
    "pad-into-avg-pool",
    *AVERAGE_POOLS,
    equation="avg_pool(pad(x, 0), p) -> avg_pool(x, p + pad, count_include_pad=True)",
    producers=(PAD,),
    source="P05",
)
def pad_into_avg_pool(node: Node, graph: Graph) -> Replacement | Decline:
    """Let the pooling pad, where it counts all its padding or has none of its own."""
    padding = _pool_padding(node)
    if isinstance(padding, Decline):
        return padding
    if not _is_positive_zero(node.inputs[0].node.view.value):
        return Decline("the value is not 0")
    if not node.attrs.count_include_pad and any(int(p) for p in node.attrs.padding):
        return Decline("the pooling does not count its own padding")
    return _pool(graph, node, node.inputs[0].node.inputs[0], padding, True)


@rule(
    "pad-into-max-pool",
    *MAX_POOLS,
    equation="max_pool(pad(x, lowest), p) -> max_pool(x, p + pad)",
    producers=(PAD,),
    source="P06",
)
def pad_into_max_pool(node: Node, graph: Graph) -> Replacement | Decline:
    """Let the pooling pad, which it does with the lowest finite number: no window's maximum is below that."""
    padding = _pool_padding(node)
    if isinstance(padding, Decline):
        return padding
    dtype = str(node.value.dtype)
    if dtype not in ("float16", "float32", "float64"):
        return Decline("the dtype is no float")
    if node.inputs[0].node.view.value > float(np.finfo(dtype).min):
        return Decline("the value is not the lowest")
    return _pool(graph, node, node.inputs[0].node.inputs[0], padding, bool(node.attrs.count_include_pad))


RULES = RuleSet.of(
    nop_pad,
    pad_of_pad,
    pad_to_slice,
    pad_into_conv,
    zeros_into_conv,
    pad_into_avg_pool,
    pad_into_max_pool,
    pad_after_activation,
)


CanonicalizePad = family(
    "CanonicalizePad", RULES, "Move pads into convolutions and poolings, and merge what is left of them."
)
