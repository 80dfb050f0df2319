"""Predicts the seconds of operations on an accelerator, by the roofline model.

The roofline model (Williams, Waterman and Patterson 2009, "Roofline: an insightful visual
performance model for multicore architectures"): an operation takes as long as its computation or as
its reads and writes, whichever is longer. Both run at a fixed share of their peak rates. Each
operation takes a fixed time more, so that small operations reach a smaller share of the peak rate.
With the peak rate P, the largest share e and the fixed time t, an operation that computes w
floating-point operations reaches the share ``e w / (w + e P t)``.
"""

from __future__ import annotations

from collections.abc import Sequence

from stagecraft.trainer_module.models.stages.costs import StageCost, Times
from stagecraft.trainer_module.models.stages.operations import Operation
from stagecraft.trainer_module.planning.accelerators import Accelerator

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
