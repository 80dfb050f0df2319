"""Times of a piece on a device, from published rates or from measurements.

Predicts the seconds of measured pieces in microbatches of other sizes.

A pass takes a time that does not depend on the examples, for its kernels to start, and a time for
each example. Measurements with few and with many examples give both. Activations of few examples
may stay in the processor's cache, so that each one takes less time. A search needs times that more
examples never lengthen; then the fixed time is 0, and all sizes take the time of many examples.

Predicts the seconds of operations on an accelerator, by the roofline model.

The roofline model (Williams, Waterman and Patterson 2009, "Roofline: an insightful visual
performance model for multicore architectures"): an operation takes as long as its computation or as
its reads and writes, whichever is longer. Both run at a fixed share of their peak rates. Each
operation takes a fixed time more, so that small operations reach a smaller share of the peak rate.
With the peak rate P, the largest share e and the fixed time t, an operation that computes w
floating-point operations reaches the share ``e w / (w + e P t)``.

Predicts the seconds of the optimizer's update from the memory bandwidth.

An update computes little for each byte (Kingma and Ba 2015, "Adam: a method for stochastic
optimization", algorithm 1): it reads the gradient, and reads and writes the weight and each slot.
In float32, SGD with momentum moves 20 bytes for each weight, Adam and RMSProp with momentum 28.

With ``parallel.zero``, a replica updates a slice of each weight, and so moves fewer bytes. But it
first cuts all gradients into slices, and then joins the slices of all weights
(``engines.stage_replica``): 16 bytes more for each weight. With two replicas and Adam, that is 30
bytes in place of 28. So the time is the same here with and without.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from stagecraft.trainer_module.models.costs import Operation, StageCost, Times
from stagecraft.trainer_module.planning.accelerators import Accelerator
from stagecraft.trainer_module.planning.range_costs import backward

WINOGRAD = 2.25
"""Factor by which ``F(2 x 2, 3 x 3)`` reduces the multiplications of a 3 x 3 convolution (Lavin and
Gray 2016, "Fast algorithms for convolutional neural networks", section 4.1). cuDNN uses it where
there are no matrix units."""


def times(
    cost: StageCost, accelerator: Accelerator, precision: str, backward: float, examples: float = 1
) -> Times:
    """Seconds of one example through a part of a model, forward and backward.

    Args:
        precision: a value of ``parallel.precision``.
        backward: ratio of backward to forward time.
        examples: of a microbatch, which divide its fixed times among them.
    """
    seconds = sum(
        operation_seconds(each, accelerator, precision, examples) for each in operations(cost)
    )
    return Times(seconds / examples, backward * seconds / examples)


def operations(cost: StageCost) -> Sequence[Operation]:
    """The operations of a stage; if they are not known, one that computes and one that copies.

    The copy writes and reads all activations once.
    """
    known = Operation(cost.flops, 0.0), Operation(0.0, 2 * cost.activation_bytes)
    return cost.operations or known


def operation_seconds(
    operation: Operation, accelerator: Accelerator, precision: str, examples: float
) -> float:
    """Seconds of an operation for all examples of a microbatch."""
    flops = operation.flops
    if operation.winograd and accelerator.uses_winograd(precision):
        flops /= WINOGRAD
    compute = examples * flops / (accelerator.efficiency * accelerator.flops_per_second(precision))
    moved = examples * operation.moved_bytes + operation.weight_bytes
    memory = moved / (accelerator.memory_efficiency * accelerator.memory_gb_per_second * 1e9)
    if not compute and not memory:
        return 0.0
    return max(compute, memory) + accelerator.operation_seconds


def divide(cost: StageCost, shards: int) -> StageCost:
    """The costs of one shard; whole where ``parallel.shards`` divides nothing.

    If no operation is marked as divided, each one is divided by the shares of all: of the
    operations, of the bytes of activations, and of the parameters. No operation becomes smaller
    than a part of ``shards``.
    """
    if shards == 1 or (cost.most_shards is not None and shards > cost.most_shards):
        return cost
    rest = 1 - 1 / shards
    if any(each.split for each in cost.operations):
        operations = tuple(each.divided(shards) for each in cost.operations)
    else:
        operations = _evenly(cost, rest)
    return dataclasses.replace(
        cost,
        parameters=round(cost.parameters - rest * cost.split_parameters),
        trainable=round(cost.trainable - rest * cost.split_trainable),
        flops=round(cost.flops - rest * cost.split_flops),
        activation_bytes=round(cost.activation_bytes - rest * cost.split_activation_bytes),
        operations=operations,
        split_parameters=0,
        split_trainable=0,
        split_flops=0,
        split_activation_bytes=0,
    )


def _evenly(cost: StageCost, rest: float) -> tuple[Operation, ...]:
    """The operations without the ``rest`` of what shards divide."""
    flops = 1 - rest * _share(cost.split_flops, cost.flops)
    moved = 1 - rest * _share(cost.split_activation_bytes, cost.activation_bytes)
    weights = 1 - rest * _share(cost.split_parameters, cost.parameters)
    return tuple(
        each._replace(
            flops=flops * each.flops,
            moved_bytes=moved * each.moved_bytes,
            weight_bytes=weights * each.weight_bytes,
        )
        for each in cost.operations
    )


def _share(part: float, whole: float) -> float:
    return min(part / whole, 1.0) if whole else 0.0


class PieceTimes:
    """Times of the pieces of a model, without recomputation.

    Shards first divide the costs of a piece, and then the roofline model times them: the fixed time
    of an operation stays whole. So a shard takes at least a part of ``shards`` of the whole piece.
    Pieces with equal costs take equally long, and a search asks for many microbatches.
    """

    def __init__(self, pieces: Sequence[StageCost], accelerator: Accelerator, precision: str):
        """Prepares the predictions.

        Args:
            precision: a value of ``parallel.precision``.
        """
        self._accelerator, self._precision = accelerator, precision
        numbers: dict[Any, int] = {}
        self._different: list[tuple[StageCost, float]] = []
        """Pieces, with their ratios of backward to forward time."""
        self._which: list[int] = []
        """Of each piece, its number among the different ones."""
        for cost, factor in zip(pieces, backward(pieces, remat=False), strict=True):
            key = _key(cost), factor
            if key not in numbers:
                numbers[key] = len(numbers)
                self._different.append((cost, factor))
            self._which.append(numbers[key])
        self._divided: dict[int, list[StageCost]] = {}

    def __call__(self, examples: float, count: int) -> list[Times]:
        """Seconds of one example on the first shard of each piece, forward and backward.

        Copies between shards are not included.

        Args:
            examples: of a microbatch.
            count: shards of each stage.
        """
        if count not in self._divided:
            self._divided[count] = [divide(cost, count) for cost, _ in self._different]
        found = [
            times(cost, self._accelerator, self._precision, factor, examples)
            for cost, (_, factor) in zip(self._divided[count], self._different, strict=True)
        ]
        return [found[number] for number in self._which]


def _key(cost: StageCost) -> tuple[Any, ...]:
    """The key on which the times depend."""
    sums = cost.parameters, cost.flops, cost.activation_bytes
    split = cost.split_parameters, cost.split_flops, cost.split_activation_bytes, cost.most_shards
    return cost.operations, sums, split


class Measured(NamedTuple):
    """Measurements of all pieces in microbatches of one size."""

    examples: int
    times: Sequence[Times]
    """Seconds of one example through each piece."""


class MeasuredTimes:
    """Times of the pieces of a model, without recomputation."""

    def __init__(self, pieces: Sequence[StageCost], few: Measured, many: Measured, *, remat: bool):
        """Finds the fixed times and those of an example.

        Args:
            few: with fewer examples than ``many``.
            remat: whether the measured backward passes recompute activations.
        """
        self._pieces, self._examples = pieces, many.examples
        self._large = [_without(times, remat) for times in many.times]
        pairs = zip((_without(times, remat) for times in few.times), self._large, strict=True)
        self._fixed = [
            Times(*(_fixed(*both, few.examples, many.examples) for both in zip(*pair, strict=True)))
            for pair in pairs
        ]

    def __call__(self, examples: float, count: int) -> list[Times]:
        """Seconds of one example on the first shard of each piece, forward and backward.

        Copies between shards are not included. Shards divide the time of the examples, not the
        fixed time.

        Args:
            examples: of a microbatch.
            count: shards of each stage.
        """
        found = []
        for piece, large, fixed in zip(self._pieces, self._large, self._fixed, strict=True):
            own = divide(piece, count).flops / piece.flops if piece.flops else 1.0
            found.append(
                Times(
                    *(
                        own * (whole - start / self._examples) + start / examples
                        for whole, start in zip(large, fixed, strict=True)
                    )
                )
            )
        return found


def _fixed(few: float, many: float, few_examples: int, many_examples: int) -> float:
    """Seconds of a pass besides those of its examples, from the seconds of one example each."""
    found = (few - many) / (1 / few_examples - 1 / many_examples)
    return min(max(found, 0.0), many * many_examples)


def _without(times: Times, remat: bool) -> Times:
    """The times without recomputation."""
    return Times(times.forward, max(times.backward - remat * times.forward, 0.0))


def moved_bytes(
    trained: float, slots: float, *, width: float = 4, gradient_width: float = 4
) -> float:
    """Bytes that a device reads and writes in an update.

    Args:
        trained: weights that the device updates.
        slots: variables that the optimizer keeps for each weight.
        width: bytes of a weight, and of a slot.
        gradient_width: bytes of a gradient.
    """
    return trained * (gradient_width + 2 * width * (1 + slots))


def bytes_per_second(accelerator: Accelerator) -> float:
    """The memory bandwidth that an update reaches."""
    return accelerator.memory_efficiency * accelerator.memory_gb_per_second * 1e9
