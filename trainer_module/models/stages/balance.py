"""Divides a sequence of costs into contiguous parts, as evenly as possible. Pure Python."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

Fits = Callable[[int, int, int], bool]
"""Whether the part of this number may have the items from ``begin`` to before ``end``."""


def balance(
    costs: Sequence[Sequence[float]], parts: int, fits: Fits = lambda part, begin, end: True
) -> list[int] | None:
    """Divides a sequence into contiguous parts with the least maximal cost.

    Exact, by dynamic programming, in ``O(parts * len(costs) ** 2)``. Returns the first item of
    each part but the first; None: no division fits.

    Args:
        costs: of each item. The first cost decides; among the best divisions by that, the second
            one does, and so on.
        parts: from 1 to ``len(costs)``.
    """
    limits: list[tuple[list[float], float]] = []

    def may(part: int, begin: int, end: int) -> bool:
        cheap = all(sums[end] - sums[begin] <= most for sums, most in limits)
        return cheap and fits(part, begin, end)

    starts: list[int] = []
    for column in zip(*costs, strict=True):
        sums = [0.0, *itertools.accumulate(column)]
        most, starts = _least_maximum(sums, parts, may)
        if most == math.inf:
            return None
        limits.append((sums, most))
    return starts


def _least_maximum(sums: list[float], parts: int, may: Fits) -> tuple[float, list[int]]:
    """The least maximal cost, and the first items of the parts."""
    ends = range(1, len(sums))
    best = {(1, end): (sums[end] if may(0, 0, end) else math.inf, 0) for end in ends}
    for part in range(2, parts + 1):
        for end in range(part, len(sums)):
            best[part, end] = min(
                (
                    max(best[part - 1, begin][0], sums[end] - sums[begin])
                    if may(part - 1, begin, end)
                    else math.inf,
                    begin,
                )
                for begin in range(part - 1, end)
            )
    starts: list[int] = []
    end = len(sums) - 1
    for part in range(parts, 1, -1):
        end = best[part, end][1]
        starts.insert(0, end)
    return best[parts, len(sums) - 1][0], starts
