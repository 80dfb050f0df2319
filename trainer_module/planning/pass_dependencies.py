"""Separates passes that depend on each other, by the times of their ops. Pure Python.

An executor runs an op as soon as its inputs are ready, so the ops of two passes overlap even where
one needs the other. Some ops of the later pass run early: the derivative of an activation needs
no incoming gradient. Some ops of the earlier pass run late: no op waits for moving statistics.
Both are few and short. So the first op of a pass, or the last, is a poor boundary; the time with
the least work on the wrong side is a better one.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Protocol


class Interval(Protocol):
    """A time interval, in seconds."""

    @property
    def begin(self) -> float:
        """Its first moment."""

    @property
    def end(self) -> float:
        """Its last moment."""


def windows(passes: Sequence[Sequence[Interval]]) -> list[tuple[float, float]]:
    """Begin and end of passes, each of which needs the one before it.

    ``passes``: the ops of each, at least one, in any order. No pass begins before the one before
    it ends. A pass whose ops are all on the wrong side takes no time.
    """
    every = [op for ops in passes for op in ops]
    first, last = min(op.begin for op in every), max(op.end for op in every)
    inner = (boundary(one, other) for one, other in itertools.pairwise(passes))
    times = [*itertools.accumulate([first, *inner], max), last]
    result = []
    for ops, (since, until) in zip(passes, itertools.pairwise(times), strict=True):
        inside = [op for op in ops if op.begin < until and op.end > since]
        begin = max(since, min((op.begin for op in inside), default=since))
        result.append((begin, min(until, max((op.end for op in inside), default=begin))))
    return result


def boundary(before: Sequence[Interval], after: Sequence[Interval]) -> float:
    """The time with the least work of ``before`` after it and of ``after`` before it.

    The latest of several: work done before the other pass has ended does not count.
    """
    # With time, ops of the first leave the wrong side, and ops of the second enter it.
    steps = [(op.begin, -1) for op in before] + [(op.end, 1) for op in before]
    steps += [(op.begin, 1) for op in after] + [(op.end, -1) for op in after]
    steps.sort()
    wrong, slope = 0.0, 0
    best, least = steps[0][0], 0.0
    for (time, change), (following, _) in itertools.pairwise(steps):
        slope += change
        wrong += slope * (following - time)
        if wrong <= least:
            best, least = following, wrong
    return best
