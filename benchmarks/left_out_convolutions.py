"""The pairs of `left_out` that stand around convolutions.

Each function builds one of a pair: as importers write it, or with `new` as the rule would leave it.
"""

from __future__ import annotations

import numpy as np
from left_out_net import Array, Net, shape_of
from tvm import relax
from tvm.relax import op

# -- slices ------------------------------------------------------------------------------------------------


def dead_channels(net: Net, x: relax.Var, new: bool, to: str, blocks: int = 6) -> relax.Expr:
    """Half of the channels of an activated convolution are cut off: before the activation, or out of the weights."""
    for k in range(blocks):
        width = shape_of(x)[1]
        weight, bias = net.weight(f"w{k}", 2 * width, width, 3, 3), net.weight(f"b{k}", 2 * width)
        if new and to == "weights":
            x = net.silu(net.conv(x, weight[:width], bias[:width]))
        elif new:
            x = net.silu(net.cut(net.conv(x, weight, bias), 1, 0, width))
        else:
            x = net.cut(net.silu(net.conv(x, weight, bias)), 1, 0, width)
    return x


def crop(net: Net, x: relax.Var, new: bool, skip: bool, blocks: int = 6) -> relax.Expr:
    """Crop an activated convolution, or its sum with a shortcut: before the activation, or before the sum."""

    def cropped(y: relax.Var) -> relax.Var:
        height, width = shape_of(y)[2:]
        return net.emit(op.strided_slice(y, [2, 3], [1, 1], [height - 1, width - 1]))

    for k in range(blocks):
        width = shape_of(x)[1]
        y = net.named_conv(f"c{k}", x, width)
        if skip:
            left, right = net.silu(y), net.named_conv(f"s{k}", x, width, 1)
            x = net.add(cropped(left), cropped(right)) if new else cropped(net.add(left, right))
        else:
            x = net.silu(cropped(y)) if new else cropped(net.silu(y))
    return x


def strided_shortcut(net: Net, x: relax.Var, new: bool, blocks: int = 4) -> relax.Expr:
    """Every second pixel goes through a 1x1 convolution: that has a stride."""
    for k in range(blocks):
        maps = min(2 * shape_of(x)[1], 512)
        main = net.relu(net.named_conv(f"main{k}", x, maps, strides=[2, 2]))
        if new:
            short = net.named_conv(f"short{k}", x, maps, 1, strides=[2, 2])
        else:
            extents = list(shape_of(x)[2:])
            short = net.named_conv(f"short{k}", net.emit(op.strided_slice(x, [2, 3], [0, 0], extents, [2, 2])), maps, 1)
        x = net.relu(net.add(main, short))
    return x


# -- concatenations ----------------------------------------------------------------------------------------


def fire(net: Net, x: relax.Var, new: bool, blocks: int = 8) -> relax.Expr:
    """SqueezeNet: two activated convolutions are concatenated, or two convolutions and then activated."""
    for k in range(blocks):
        width = shape_of(x)[1]
        squeezed = net.relu(net.named_conv(f"s{k}", x, width // 4, 1))
        parts = [net.named_conv(f"e{kernel}{k}", squeezed, width // 2, kernel) for kernel in (1, 3)]
        x = net.relu(net.concat(parts, 1)) if new else net.concat([net.relu(p) for p in parts], 1)
    return x


def detection_head(net: Net, x: relax.Var, new: bool, heads: int = 6) -> relax.Expr:
    """YOLO: sigmoids of three scales are concatenated, or the scales and then their sigmoid."""
    scales = [x]
    for k in range(2):
        scales.append(net.silu(net.named_conv(f"down{k}", scales[-1], shape_of(x)[1], strides=[2, 2])))
    found = []
    for h in range(heads):
        maps = [net.named_conv(f"head{h}{k}", scale, 85, 1) for k, scale in enumerate(scales)]
        flat = [net.reshape(m, 1, 85, int(np.prod(shape_of(m)[2:]))) for m in maps]
        if new:
            found.append(net.emit(op.sigmoid(net.concat(flat, 2))))
        else:
            found.append(net.concat([net.emit(op.sigmoid(f)) for f in flat], 2))
    return net.concat(found, 1)


def groups(net: Net, x: relax.Var, new: bool, parts: int, kernel: int = 3, blocks: int = 6) -> relax.Expr:
    """A convolution of each part of the channels: one grouped convolution."""
    for k in range(blocks):
        width = shape_of(x)[1] // parts
        weights = [net.weight(f"w{k}.{g}", width, width, kernel, kernel) for g in range(parts)]
        biases = [net.weight(f"b{k}.{g}", width) for g in range(parts)]
        if new:
            y = net.conv(x, np.concatenate(weights), np.concatenate(biases), groups=parts)
        else:
            pieces = zip(net.split(x, parts, 1), weights, biases, strict=True)
            y = net.concat([net.conv(*piece) for piece in pieces], 1)
        x = net.relu(y)
    return x


def zero_rows(net: Net, x: relax.Var, new: bool, blocks: int = 6) -> relax.Expr:
    """A row and a column of zeros are put at the end before a convolution: a pad, which goes into it."""
    for k in range(blocks):
        batch, width, height, length = shape_of(x)
        if new:
            padded = net.emit(op.nn.pad(x, [0, 0, 0, 0, 0, 1, 0, 1]))
        else:
            row = net.const(np.zeros((batch, width, 1, length)))
            padded = net.concat([x, row], 2)
            padded = net.concat([padded, net.const(np.zeros((batch, width, height + 1, 1)))], 3)
        x = net.relu(net.named_conv(f"c{k}", padded, width, padding=[1, 1, 0, 0]))
    return x


def zero_channels(net: Net, x: relax.Var, new: bool, blocks: int = 6) -> relax.Expr:
    """ResNet's shortcut of option A: channels of zeros are concatenated, or padded."""
    for k in range(blocks):
        batch, width, *extents = shape_of(x)
        y = net.relu(net.named_conv(f"a{k}", x, 2 * width))
        zeros = net.const(np.zeros((batch, width, *extents)))
        short = net.emit(op.nn.pad(x, [0, 0, 0, width, 0, 0, 0, 0])) if new else net.concat([x, zeros], 1)
        x = net.relu(net.named_conv(f"b{k}", net.relu(net.add(y, short)), width, 1))
    return x


# -- the order of channels ---------------------------------------------------------------------------------


def bgr(net: Net, *images: relax.Var, new: bool) -> relax.Expr:
    """The channels of a picture are reversed before the first convolution: its weights are."""
    found = []
    for k, image in enumerate(images):
        weight, bias = net.weight(f"w{k}", 32, 3, 3, 3), net.weight(f"b{k}", 32)
        if new:
            y = net.conv(image, np.ascontiguousarray(weight[:, ::-1]), bias, strides=[2, 2])
        else:
            order = relax.const(np.array([2, 1, 0], "int64"))
            y = net.conv(net.emit(op.take(image, order, axis=1)), weight, bias, strides=[2, 2])
        found.append(net.silu(net.named_conv(f"c{k}", net.silu(y), 64, strides=[2, 2])))
    return net.concat(found, 1)


def channel_shuffle(net: Net, x: relax.Var, new: bool, into: str, parts: int = 4, blocks: int = 6) -> relax.Expr:
    """ShuffleNet: the channels are dealt out between a grouped and a plain 1x1 convolution, or their weights are."""
    for k in range(blocks):
        width = shape_of(x)[1]
        dealt = np.arange(width).reshape(parts, width // parts).T.ravel()
        weight, bias = net.weight(f"w{k}", width, width, 1, 1), net.weight(f"b{k}", width)
        if into == "next":
            y = net.relu(net.named_conv(f"g{k}", x, width, 1, groups=parts))
            order = np.argsort(dealt)
            x = net.relu(net.conv(y if new else _shuffled(net, y, parts), weight[:, order] if new else weight, bias))
        else:
            y = net.conv(x, weight[dealt] if new else weight, bias[dealt] if new else bias)
            y = net.relu(y) if new else _shuffled(net, net.relu(y), parts)
            x = net.relu(net.named_conv(f"g{k}", y, width, 3, groups=parts))
    return x


def _shuffled(net: Net, x: relax.Var, parts: int) -> relax.Var:
    batch, width, height, length = shape_of(x)
    grouped = net.reshape(x, batch, parts, width // parts, height, length)
    return net.reshape(net.permute(grouped, 0, 2, 1, 3, 4), batch, width, height, length)


def flat_channels_last(net: Net, x: relax.Var, new: bool, heads: int = 6) -> relax.Expr:
    """A classifier that was trained on NHWC: a permute before the flatten, or the weights in another order."""
    found = []
    for k in range(heads):
        y = net.relu(net.named_conv(f"c{k}", x, shape_of(x)[1], strides=[2, 2]))
        _, maps, height, width = shape_of(y)
        weight, bias = net.weight(f"w{k}", 512, height * width * maps), net.weight(f"b{k}", 512)
        if new:
            weight = weight.reshape(512, height, width, maps).transpose(0, 3, 1, 2).reshape(512, -1)
        else:
            y = net.permute(y, 0, 2, 3, 1)
        hidden = net.relu(net.linear(net.reshape(y, 1, height * width * maps), weight, bias))
        found.append(net.named_linear(f"l{k}", hidden, 10))
    return net.concat(found, 1)


# -- pads, resizes, focus ----------------------------------------------------------------------------------


def pad_then_relu(net: Net, x: relax.Var, new: bool, blocks: int = 8) -> relax.Expr:
    """An activation between a pad and the convolution that could have padded."""
    for k in range(blocks):
        if new:
            y = net.emit(op.nn.pad(net.relu(x), [0, 0, 0, 0, 1, 1, 1, 1]))
        else:
            y = net.relu(net.emit(op.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1])))
        x = net.named_conv(f"c{k}", y, shape_of(x)[1], padding=[0, 0])
    return x


def upsampling(net: Net, x: relax.Var, new: bool, levels: int = 4) -> relax.Expr:
    """Pixels are repeated by a broadcast between two reshapes, or by a resize."""
    for k in range(levels):
        width = shape_of(x)[1]
        y = net.silu(net.named_conv(f"a{k}", x, width))
        if new:
            y = net.upsample(y)
        else:
            _, _, height, length = shape_of(y)
            apart = net.reshape(y, 1, width, height, 1, length, 1)
            wide = net.emit(op.broadcast_to(apart, (1, width, height, 2, length, 2)))
            y = net.reshape(wide, 1, width, 2 * height, 2 * length)
        x = net.silu(net.named_conv(f"b{k}", y, max(width // 2, 8)))
    return x


def activation_after_resize(net: Net, x: relax.Var, new: bool, levels: int = 4) -> relax.Expr:
    """An activation after a nearest resize, or before it."""
    for k in range(levels):
        width = shape_of(x)[1]
        y = net.named_conv(f"a{k}", x, width)
        y = net.upsample(net.silu(y)) if new else net.silu(net.upsample(y))
        x = net.silu(net.named_conv(f"b{k}", y, max(width // 2, 8)))
    return x


PHASES = ((0, 0), (1, 0), (0, 1), (1, 1))  # the rows and columns that YOLOX's focus begins at, in its order


def focus(net: Net, *images: relax.Var, new: bool, maps: int = 32) -> relax.Expr:
    """YOLOX's stem: four phases of the picture and a 3x3 convolution, or one of 6x6 with stride 2."""
    found = []
    for k, image in enumerate(images):
        channels, height, width = shape_of(image)[1:]
        weight, bias = net.weight(f"w{k}", maps, 4 * channels, 3, 3), net.weight(f"b{k}", maps)
        if new:
            y = net.conv(image, _of_whole_picture(weight, channels), bias, strides=[2, 2], padding=[2, 2])
        else:
            cuts = [op.strided_slice(image, [2, 3], list(p), [height, width], [2, 2]) for p in PHASES]
            y = net.conv(net.concat([net.emit(c) for c in cuts], 1), weight, bias)
        found.append(net.silu(net.named_conv(f"c{k}", net.silu(y), 2 * maps, strides=[2, 2])))
    return net.concat(found, 1)


def _of_whole_picture(weight: Array, channels: int) -> Array:
    """Return the weights of a convolution of phases as those of one of the picture itself."""
    found = np.empty((len(weight), channels, 6, 6), weight.dtype)
    for k, (row, column) in enumerate(PHASES):
        found[:, :, row::2, column::2] = weight[:, k * channels : (k + 1) * channels]
    return found
