"""The clock of a pipeline: which stage works on which microbatch when.

GPipe's schedule (Huang et al. 2019, "GPipe: Efficient training of giant neural networks using
pipeline parallelism", section 2.3), counted in clock cycles as torchgpipe does (Kim et al. 2020,
section 3.1): all microbatches forward, then all of them backward.
"""

from __future__ import annotations

from collections.abc import Iterator

Cell = tuple[int, int]
"""``(microbatch, stage)``, both from 0."""


def forward(microbatches: int, stages: int) -> Iterator[list[Cell]]:
    """The cells of each clock cycle, on the way forward.

    Cells of one cycle depend on cells of earlier cycles alone: those to be computed at the same
    time, each on its stage's device.

    Args:
        microbatches: 1 or more.
        stages: 1 or more.

    Yields:
        ``microbatches + stages - 1`` lists; the cells of each by stage.
    """
    # Three stages, four microbatches; in the table, the microbatch:
    #
    #     cycle    0  1  2  3  4  5
    #     stage 0  0  1  2  3
    #     stage 1     0  1  2  3
    #     stage 2        0  1  2  3
    #
    # Down a column stage and microbatch add up to the cycle.
    for cycle in range(microbatches + stages - 1):
        first, last = max(0, cycle - microbatches + 1), min(cycle, stages - 1)
        yield [(cycle - stage, stage) for stage in range(first, last + 1)]


def backward(microbatches: int, stages: int) -> Iterator[list[Cell]]:
    """The cells of each clock cycle, on the way back: the mirror image of ``forward``.

    The last microbatch comes first, because it is the last stage's latest; arguments and cycles
    are those of ``forward``.
    """
    #     cycle    0  1  2  3  4  5
    #     stage 0        3  2  1  0
    #     stage 1     3  2  1  0
    #     stage 2  3  2  1  0
    for cells in reversed(list(forward(microbatches, stages))):
        yield cells[::-1]


def bubble(microbatches: int, stages: int) -> float:
    """The part of the time in which a stage waits: ``(K - 1) / (M + K - 1)``.

    GPipe's "bubble overhead", for stages that take equally long and copies that take no time.
    """
    return (stages - 1) / (microbatches + stages - 1)


def speedup(microbatches: int, stages: int) -> float:
    """How many times as fast as one device: ``M * K / (M + K - 1)``, at most.

    Under the same assumptions as ``bubble``: what the stages could do together, less their waiting.
    """
    return microbatches * stages / (microbatches + stages - 1)
