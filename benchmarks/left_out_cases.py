"""What docs/catalogue.md leaves out, as pairs of small networks: as importers write it, and as the rule would leave it.

The layers around an idiom are those that such a model has there, and it stands several times, so that what it costs is
large beside what a call costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from left_out_convolutions import (
    activation_after_resize,
    bgr,
    channel_shuffle,
    crop,
    dead_channels,
    detection_head,
    fire,
    flat_channels_last,
    focus,
    groups,
    pad_then_relu,
    strided_shortcut,
    upsampling,
    zero_channels,
    zero_rows,
)
from left_out_hard_swish import WITH_LAYER, hard_swish
from left_out_transformers import axial_attention, first_token, qkv
from tvm import relax

from relax_glue.tensorrt.registry import Registry

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A pair of networks.

    Attributes
    ----------
    rule : str
        The numbers of the catalogue.
    name : str
        What kind of model it is cut out of.
    make : Callable
        `make(net, *parameters, new=..., **options)` builds one of the pair.
    x : tuple of int
        The shape of each parameter.
    small : tuple of int
        A smaller one, at which LLVM checks the pair.
    count : int
        The number of parameters.
    dtype : str
        Of parameters and weights.
    options : dict
        Of `make`.
    registry : Registry, optional
        The converters for the rewritten network, where they are others.
    built : str
        The rule that was built since, without which the networks are optimised; empty where none was.
    """

    rule: str
    name: str
    make: Callable[..., relax.Expr]
    x: Shape
    small: Shape
    count: int = 1
    dtype: str = "float32"
    options: dict[str, Any] = field(default_factory=dict)
    registry: Registry | None = None
    built: str = ""


def _attention(tokens: int, width: int, dtype: str, one_permute: bool = False) -> Case:
    """Return blocks of attention in heads of 64, fewer of them where the weights are large."""
    heads, cut = width // 64, "one permute" if one_permute else "split"
    options = {"heads": heads, "one_permute": one_permute, "blocks": 2 if width > 400 else 4}
    return Case("S24", f"QKV by {cut}", qkv, (1, tokens, width), (1, 7, 8 * heads), 1, dtype, options)


CASES = (
    Case(
        "S15, P12",
        "zeros after rows, then a convolution",
        zero_rows,
        (1, 64, 56, 56),
        (1, 4, 5, 6),
        built="zeros-into-conv",
    ),
    Case("S15, P12", "zeros after channels", zero_channels, (1, 64, 56, 56), (1, 4, 5, 6)),
    Case(
        "S20",
        "half the channels of conv, silu",
        dead_channels,
        (1, 64, 80, 80),
        (1, 4, 5, 6),
        options={"to": "silu"},
        built="slice-before-layers",
    ),
    Case("S20", "crop of conv, silu", crop, (1, 64, 92, 92), (1, 4, 16, 15), options={"skip": False}),
    Case("S21", "crop of a sum", crop, (1, 64, 92, 92), (1, 4, 16, 15), options={"skip": True}),
    Case(
        "S20, S21",
        "first token, 197 of 384",
        first_token,
        (1, 197, 384),
        (1, 7, 48),
        options={"heads": 6},
        built="slice-before-layers",
    ),
    Case(
        "S20, S21",
        "first token, 128 of 768",
        first_token,
        (1, 128, 768),
        (1, 7, 96),
        1,
        "float16",
        {"heads": 12},
        built="slice-before-layers",
    ),
    Case("S22", "fire", fire, (1, 128, 55, 55), (1, 16, 5, 6)),
    Case("S22", "detection head", detection_head, (1, 64, 80, 80), (1, 4, 8, 8)),
    _attention(197, 192, "float32"),
    _attention(197, 384, "float16"),
    _attention(50, 768, "float16"),
    _attention(197, 768, "float32"),
    _attention(577, 768, "float16"),
    _attention(197, 192, "float32", one_permute=True),
    _attention(577, 768, "float16", one_permute=True),
    Case(
        "S25",
        "half the channels of conv, silu",
        dead_channels,
        (1, 64, 80, 80),
        (1, 4, 5, 6),
        options={"to": "weights"},
        built="slice-before-layers",
    ),
    Case("S28", "2 groups of 64, 5x5", groups, (1, 128, 27, 27), (1, 4, 5, 6), options={"parts": 2, "kernel": 5}),
    Case("S28", "4 groups of 64", groups, (1, 256, 28, 28), (1, 8, 5, 6), options={"parts": 4}),
    Case("S28", "32 groups of 4", groups, (1, 128, 56, 56), (1, 64, 5, 6), options={"parts": 32, "blocks": 2}),
    Case("S29", "BGR", bgr, (1, 3, 640, 640), (1, 3, 8, 10), 4, built="channel-order-into-weight"),
    Case(
        "S29",
        "shuffle before a convolution",
        channel_shuffle,
        (1, 256, 28, 28),
        (1, 8, 5, 6),
        options={"into": "next"},
        built="channel-order-into-weight",
    ),
    Case(
        "G06", "shuffle after a convolution", channel_shuffle, (1, 256, 28, 28), (1, 8, 5, 6), options={"into": "last"}
    ),
    Case("S35", "strided shortcut", strided_shortcut, (1, 64, 112, 112), (1, 4, 17, 20), built="slice-into-conv"),
    Case(
        "T20",
        "batch axes, one product",
        axial_attention,
        (8, 197, 384),
        (2, 5, 48),
        options={"heads": 6, "back": False},
    ),
    Case("T20", "batch axes, there and back", axial_attention, (8, 197, 384), (2, 5, 48), options={"heads": 6}),
    Case("B21", "hard swish", hard_swish, (1, 64, 56, 56), (1, 4, 5, 6), registry=WITH_LAYER),
    Case("P07", "pad, relu, convolution", pad_then_relu, (1, 64, 56, 56), (1, 4, 5, 6), built="pad-after-activation"),
    Case("Q05", "broadcast between reshapes", upsampling, (1, 256, 10, 10), (1, 16, 2, 3)),
    Case("Q12", "silu after a resize", activation_after_resize, (1, 256, 10, 10), (1, 16, 2, 3)),
    Case("X05", "focus, 32 maps", focus, (1, 3, 640, 640), (1, 3, 8, 12), 4),
    Case("X05", "focus, 32 maps", focus, (1, 3, 640, 640), (1, 3, 8, 12), 4, "float16"),
    Case("X05", "focus, 16 maps", focus, (1, 3, 416, 416), (1, 3, 8, 12), 4, "float32", {"maps": 16}),
    Case(
        "X13", "flatten of NHWC", flat_channels_last, (1, 128, 14, 14), (1, 8, 6, 8), built="channel-order-into-weight"
    ),
)
