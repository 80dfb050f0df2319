"""Records the costs of a network's layers, from formulas; one layer is one possible stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stagecraft.trainer_module.models.costs import Operation, StageCost

NOTHING, KERNELS, ALL = "nothing", "kernels", "all"
"""What XLA fuses: on a GPU the kernels that it makes itself, but no convolutions and matrix
products, which are calls of a library (github.com/EnzymeAD/Reactant.jl, issue 1420); on a TPU those
as well (cloud.google.com/tpu/docs/tensorflow-performance-guide, "tf.matmul")."""


class Image(NamedTuple):
    """Shape of an activation, without the batch."""

    height: int
    width: int
    channels: int

    @property
    def size(self) -> int:
        return self.height * self.width * self.channels


class Op(NamedTuple):
    """An operation with its output."""

    output: Image
    flops: int
    read: int
    """Elements of activations."""
    weights: int = 0
    winograd: bool = False
    fused_by: tuple[str, ...] = ()
    """The values of ``fuses`` with which XLA fuses it with the operation before."""
    others: int = 0
    """Of ``read``, the elements that an operation makes with which it is not fused."""

    def cost(self, width: int, fuses: str = NOTHING) -> Operation:
        """Its costs with values of ``width`` bytes; fused, it only reads its other inputs."""
        if fuses in self.fused_by:
            return Operation(0.0, width * self.others)
        moved = width * (self.read + self.output.size)
        return Operation(self.flops, moved, width * self.weights, self.winograd)


def conv(given: Image, channels: int, kernel: tuple[int, int] = (1, 1), stride: int = 1) -> Op:
    """A convolution with padding; a multiplication with addition counts as two operations."""
    height, width = -(-given.height // stride), -(-given.width // stride)
    output = Image(height, width, channels)
    taps = kernel[0] * kernel[1] * given.channels
    return Op(
        output,
        2 * taps * output.size,
        given.size,
        taps * channels,
        kernel == (3, 3) and stride == 1,
    )


def dense(given: Image, units: int) -> Op:
    output = Image(1, 1, units)
    return Op(output, 2 * given.size * units, given.size, (given.size + 1) * units)


def norm(given: Image, *, weights: bool = True) -> Op:
    """A normalization in training: one pass for the moments, one for the values.

    A compiler that fuses into convolutions computes the moments with the values that it normalizes,
    and normalizes what the next operation reads. On a GPU, XLA makes both passes.
    """
    weighed = 2 * given.channels * weights
    return Op(given, 2 * given.size, 2 * given.size, weighed, fused_by=(ALL,))


def elementwise(given: Image) -> Op:
    """An activation function, or dropout; after an operation that is no convolution."""
    return Op(given, given.size, given.size, fused_by=(KERNELS, ALL))


def add(given: Image) -> Op:
    return Op(given, given.size, 2 * given.size, fused_by=(KERNELS, ALL), others=given.size)


def pool(given: Image, stride: int = 2, size: int = 2) -> Op:
    output = Image(-(-given.height // stride), -(-given.width // stride), given.channels)
    return Op(output, size * size * output.size, given.size)


def average(given: Image) -> Op:
    """Global average pooling."""
    return Op(Image(1, 1, given.channels), given.size, given.size)


def upsample(given: Image) -> Op:
    output = Image(2 * given.height, 2 * given.width, given.channels)
    return Op(output, 0, given.size)


def concatenate(given: Sequence[Image]) -> Op:
    output = given[0]._replace(channels=sum(each.channels for each in given))
    return Op(output, 0, output.size)


class Layers:
    """The layers of a network, in order, with their costs for one example.

    ``width``: bytes of a value; ``fuses``: what XLA fuses.
    """

    def __init__(self, given: Image, width: int, fuses: str = NOTHING):
        self.costs: list[StageCost] = []
        self.output = given
        self._sent, self._width, self._fuses = [given], width, fuses

    def add(self, name: str, ops: Sequence[Op], skips: Sequence[Image] = ()) -> Image:
        """Adds a layer that consists of ``ops``, the last of which makes its output.

        ``skips``: other activations that later layers need.
        """
        output = ops[-1].output if ops else self.output
        sent = [output, *skips]
        weights = sum(op.weights for op in ops)
        operations = tuple(op.cost(self._width, self._fuses) for op in ops)
        self.costs.append(
            StageCost(
                first=name,
                last=name,
                layers=1,
                parameters=weights,
                trainable=weights,
                frozen=0,
                flops=sum(op.flops for op in ops),
                input_bytes=self._width * sum(each.size for each in self._sent),
                activation_bytes=self._width * sum(op.output.size for op in ops),
                output_bytes=self._width * sum(each.size for each in sent),
                output_tensors=len(sent),
                tied=(),
                kind=name,
                operations=operations,
            )
        )
        self.output, self._sent = output, sent
        return output
