"""The networks of the papers on pictures, layer by layer, as torchgpipe numbers them.

Each function returns the costs of the layers of an ``nn.Sequential`` of
github.com/kakaobrain/torchgpipe, benchmarks/models, so that its numbers of layers in a partition
apply.
"""

from __future__ import annotations

from collections.abc import Sequence

from papers import layers
from papers.layers import Image, Layers, Op

from stagecraft.trainer_module.models.costs import StageCost


def resnet(
    blocks: Sequence[int],
    size: int = 224,
    classes: int = 1000,
    width: int = 4,
    fuses: str = layers.NOTHING,
) -> list[StageCost]:
    """A ResNet of bottlenecks (He et al. 2016) with the stride in the 3 x 3 convolution.

    ``blocks``: of each group; 3, 4, 23 and 3 are ResNet-101, with 370 layers.
    """
    net = Layers(Image(size, size, 3), width, fuses)
    net.add("conv1", [layers.conv(net.output, 64, (7, 7), 2)])
    net.add("norm1", [layers.norm(net.output)])
    net.add("relu1", [layers.elementwise(net.output)])
    net.add("pool1", [layers.pool(net.output, 2, 3)])
    for group, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if group and not block else 1
            _bottleneck(net, f"group{group}_block{block}", 64 * 2**group, stride)
    net.add("pool", [layers.average(net.output)])
    net.add("flat", [])
    net.add("classes", [layers.dense(net.output, classes)])
    return net.costs


def _bottleneck(net: Layers, name: str, channels: int, stride: int) -> None:
    skip = net.output
    net.add(f"{name}_skip", [], [skip])
    for number, (kernel, step, width) in enumerate(
        [((1, 1), 1, channels), ((3, 3), stride, channels), ((1, 1), 1, 4 * channels)]
    ):
        net.add(f"{name}_conv{number}", [layers.conv(net.output, width, kernel, step)], [skip])
        net.add(f"{name}_norm{number}", [layers.norm(net.output)], [skip])
        if number < 2:
            net.add(f"{name}_relu{number}", [layers.elementwise(net.output)], [skip])
    ops = []
    if skip != net.output:
        shortcut = layers.conv(skip, 4 * channels, (1, 1), stride)
        ops = [shortcut, layers.norm(shortcut.output)]
    net.add(f"{name}_add", [*ops, layers.add(net.output)])
    net.add(f"{name}_relu", [layers.elementwise(net.output)])


def unet(
    convolutions: int = 5,
    channels: int = 64,
    size: int = 192,
    width: int = 4,
    fuses: str = layers.NOTHING,
) -> list[StageCost]:
    """torchgpipe's simplified U-Net (convolutions, channels) with 3 channels in and 1 out."""
    depth = 5
    net = Layers(Image(size, size, 3), width, fuses)
    skips: list[Image] = []
    for level in range(depth):
        _stack(net, f"down{level}", [channels * 2**level] * convolutions, skips)
        skips.append(net.output)
        net.add(f"down{level}_skip", [], [*skips[:-1], net.output])
        net.add(f"down{level}_pool", [layers.pool(net.output)], skips)
    widest = channels * 2**depth
    _stack(net, "bottom", [widest] * (convolutions - 1) + [widest // 2], skips)
    for level in reversed(range(depth)):
        net.add(f"up{level}_size", [layers.upsample(net.output)], skips)
        skip = skips.pop()
        net.add(f"up{level}_join", [layers.concatenate([skip, net.output])], skips)
        _stack(net, f"up{level}", [channels * 2**level // 2] * convolutions, skips)
    net.add("mask", [layers.conv(net.output, 1)])
    return net.costs


def _stack(net: Layers, name: str, widths: list[int], skips: list[Image]) -> None:
    for number, width in enumerate(widths):
        net.add(f"{name}_conv{number}", [layers.conv(net.output, width, (3, 3))], skips)
        net.add(f"{name}_dropout{number}", [layers.elementwise(net.output)], skips)
        net.add(f"{name}_norm{number}", [layers.norm(net.output, weights=False)], skips)
        net.add(f"{name}_relu{number}", [layers.elementwise(net.output)], skips)


def amoebanet_d(
    cells: int = 18,
    filters: int = 256,
    size: int = 224,
    classes: int = 1000,
    width: int = 4,
    fuses: str = layers.NOTHING,
) -> list[StageCost]:
    """AmoebaNet-D (cells, filters) (Real et al. 2019); a cell is one layer, 24 for 18 cells."""
    net = Layers(Image(size, size, 3), width, fuses)
    channels = filters // 4
    stem = layers.conv(net.output, channels, (3, 3), 2)
    net.add("stem", [layers.elementwise(net.output), stem, layers.norm(stem.output)])
    before = net.output
    reduced = False
    order = [True, True]
    for group in range(3):
        order += [True] * (group > 0) + [False] * (cells // 3)
    for number, reduction in enumerate(order):
        channels *= 1 + reduction
        cell = _Cell(channels, 2 if reduction else 1)
        given = net.output
        first = cell.mixed(given)
        if reduced:
            second = cell.factorized(before)
        else:
            second = cell.mixed(before) if before.channels != channels else before
        output = cell.reduction(first, second) if reduction else cell.normal(first, second)
        cell.ops.append(output)
        net.add(f"cell{number}", cell.ops, [given])
        before, reduced = given, reduction
    pooled = layers.average(net.output)
    net.add("classes", [pooled, layers.dense(pooled.output, classes)])
    return net.costs


class _Cell:
    """The operations of a cell; its pairs of operations are those of AmoebaNet-D."""

    def __init__(self, channels: int, stride: int):
        self.ops: list[Op] = []
        self._channels, self._stride = channels, stride

    def _do(self, op: Op) -> Image:
        self.ops.append(op)
        return op.output

    def mixed(
        self, given: Image, kernel: tuple[int, int] = (1, 1), stride: int = 1, channels: int = 0
    ) -> Image:
        """An activation, a convolution, a normalization."""
        active = self._do(layers.elementwise(given))
        mixed = self._do(layers.conv(active, channels or self._channels, kernel, stride))
        return self._do(layers.norm(mixed))

    def factorized(self, given: Image) -> Image:
        """Two convolutions with stride 2, side by side."""
        active = self._do(layers.elementwise(given))
        halves = [self._do(layers.conv(active, self._channels // 2, (1, 1), 2)) for _ in range(2)]
        return self._do(layers.norm(self._do(layers.concatenate(halves))))

    def bottleneck(self, given: Image, kernels: list[tuple[int, int]], stride: int = 1) -> Image:
        """Convolutions with a quarter of the channels."""
        values = self.mixed(given, channels=self._channels // 4)
        for kernel in kernels:
            step = stride if kernel == kernels[0] else 1
            values = self.mixed(values, kernel, step, self._channels // 4)
        return self.mixed(values)

    def pool(self, given: Image, size: int = 3, stride: int = 1) -> Image:
        return self._do(layers.pool(given, stride, size))

    def plus(self, one: Image, other: Image) -> Image:
        return self._do(layers.add(one))

    def normal(self, first: Image, second: Image) -> Op:
        third = self.plus(self.mixed(second), self.pool(second))
        fourth = self.plus(second, self.bottleneck(first, [(1, 7), (7, 1)]))
        fifth = self.plus(self.mixed(first), self.bottleneck(first, [(1, 7), (7, 1)]))
        sixth = self.plus(self.pool(third), third)
        seventh = self.plus(self.pool(second), self.mixed(sixth))
        return layers.concatenate([first, fourth, fifth, seventh])

    def reduction(self, first: Image, second: Image) -> Op:
        third = self.plus(self.pool(first, 2, 2), self.pool(first, 3, 2))
        fourth = self.plus(third, self.bottleneck(second, [(3, 3)], 2))
        fifth = self.plus(self.bottleneck(third, [(1, 7), (7, 1)]), self.pool(third))
        sixth = self.plus(fourth, self.pool(second, 2, 2))
        seventh = self.plus(self.pool(third), self.mixed(fourth))
        return layers.concatenate([fifth, sixth, seventh])
