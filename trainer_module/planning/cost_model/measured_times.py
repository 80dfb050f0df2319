"""Predicts the seconds of measured pieces in microbatches of other sizes. Imports no TensorFlow.

A pass takes a time that does not depend on the examples, for its kernels to start, and a time for
each example. Measurements with few and with many examples give both. Activations of few examples
may stay in the processor's cache, so that each one takes less time. A search needs times that more
examples never lengthen; then the fixed time is 0, and all sizes take the time of many examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stagecraft.trainer_module.models.stages.costs import StageCost, Times
from stagecraft.trainer_module.planning.cost_model import shards


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
            own = shards.divide(piece, count).flops / piece.flops if piece.flops else 1.0
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
