"""Where a microbatch's pass ends and the one that needs it begins. Pure Python.

An executor runs an op as soon as it has what that op needs, so that the ops of two passes, one of
which needs the other, are mixed. Of the later pass, some are early: the derivative of an activation
asks for no gradient that comes in. Of the earlier one, some are late: nothing waits for moving
statistics. Both are few and short. The first op of the one or the last op of the other therefore
says little; where the least work is on the wrong side says more.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Protocol


class Interval(Protocol):
    """From one time to another."""

    @property
    def begin(self) -> float:
        """Seconds, and"""

    @property
    def end(self) -> float:
        """likewise."""


def windows(passes: Sequence[Sequence[Interval]]) -> list[tuple[float, float]]:
    """Begin and end of passes each of which needs the one before it.

    Args:
        passes: the ops of each, one or more, in any order.

    Returns:
        For each, a begin and an end not before it; no begin is before the end of the one before.
        A pass whose ops are all on the wrong side takes no time.
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

    Of several, the latest: what is done before the other pass has ended is not counted.
    """
    # As time goes on, an op of the first ceases to be on the wrong side, one of the second becomes.
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
