"""The clock of a pipeline: which stage works on which microbatch when. Pure Python.

Two schedules, here of 3 stages and 4 microbatches, a backward pass twice as long as a forward
pass. In both, stages wait equally long; they differ in how many microbatches a stage has passed
forward and not yet back, whose activations it holds.

gpipe (Huang et al. 2019, "GPipe: Efficient training of giant neural networks using pipeline
parallelism", figure 2c): all forward, then all backward. Each stage comes to hold all of them.

    stage 0  F0 F1 F2 F3                   B3--- B2--- B1--- B0---
    stage 1     F0 F1 F2 F3          B3--- B2--- B1--- B0---
    stage 2        F0 F1 F2 F3 B3--- B2--- B1--- B0---

1f1b, one forward, one backward (Narayanan et al. 2021, "Efficient large-scale language model
training on GPU clusters using Megatron-LM", section 2.2.1; PipeDream-Flush): as soon as the first
microbatch is through, each stage goes back with one before it takes the next. The k-th of K stages
holds K - k microbatches at most, k from 0.

    stage 0  F0 F1 F2             B0--- F3 B1---    B2---    B3---
    stage 1     F0 F1       B0--- F2 B1--- F3 B2---    B3---
    stage 2        F0 B0--- F1 B1--- F2 B2--- F3 B3---
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

FORWARD, BACKWARD = "forward", "backward"

SCHEDULES = ("gpipe", "1f1b")


class Pass(NamedTuple):
    """A microbatch's way through a stage."""

    direction: str
    """``FORWARD`` or ``BACKWARD``."""
    stage: int
    microbatch: int


class Slot(NamedTuple):
    """When a pass is made."""

    done: Pass
    begin: float
    end: float
    """In the unit of ``begin``: seconds, where nothing else is said."""


def passes(name: str, microbatches: int, stages: int) -> list[list[Pass]]:
    """What each stage does, in order.

    Args:
        name: one of ``SCHEDULES``.
        microbatches: M, 1 or more.
        stages: K, 1 or more.
    """
    result = []
    for stage in range(stages):
        forward = [Pass(FORWARD, stage, m) for m in range(microbatches)]
        backward = [Pass(BACKWARD, stage, m) for m in range(microbatches)]
        if name == "gpipe":
            result.append(forward + backward[::-1])
            continue
        ahead = min(stages - stage, microbatches)
        order = forward[:ahead]
        for m in range(microbatches):
            order += [backward[m], *forward[ahead + m : ahead + m + 1]]
        result.append(order)
    return result


def timetable(
    orders: Sequence[Sequence[Pass]],
    forward: Sequence[float],
    backward: Sequence[float],
    copies: Sequence[float] = (),
    copies_back: Sequence[float] | None = None,
) -> list[Slot]:
    """When each pass is made, if each begins as soon as its stage and what it needs are there.

    Args:
        orders: of :func:`passes`.
        forward: per stage, how long a microbatch takes forward, and
        backward: backward.
        copies: per stage but the last, how long what it gives is on its way to the next one;
            nothing in particular: no time.
        copies_back: how long the gradient of it is on its way back; None: as long.

    Returns:
        By ``begin``; each after all that it needs.
    """
    copies = copies or [0.0] * (len(orders) - 1)
    ways = {FORWARD: copies, BACKWARD: copies if copies_back is None else copies_back}
    ends: dict[Pass, float] = {}
    slots = []
    free = [0.0] * len(orders)
    waiting = [list(reversed(order)) for order in orders]
    while any(waiting):
        for stage, rest in enumerate(waiting):
            while rest and (ready := _ready(rest[-1], ends, ways, len(orders))) is not None:
                now = rest.pop()
                begin = max(free[stage], ready)
                took = forward[stage] if now.direction == FORWARD else backward[stage]
                free[stage] = ends[now] = begin + took
                slots.append(Slot(now, begin, free[stage]))
    return sorted(slots, key=lambda slot: (slot.begin, slot.end))


def _ready(
    wanted: Pass, ends: dict[Pass, float], copies: dict[str, Sequence[float]], stages: int
) -> float | None:
    """When there is all that a pass needs from another stage; None: that is not known yet."""
    direction, stage, microbatch = wanted
    other = stage - 1 if direction == FORWARD else stage + 1
    if not 0 <= other < stages:
        return 0.0
    end = ends.get(Pass(direction, other, microbatch))
    return None if end is None else end + copies[direction][min(stage, other)]


def in_order(name: str, microbatches: int, stages: int) -> list[Pass]:
    """All passes of all stages, each after those that it needs."""
    orders = passes(name, microbatches, stages)
    return [slot.done for slot in timetable(orders, [1.0] * stages, [2.0] * stages)]


def held(order: Iterable[Pass]) -> int:
    """The most microbatches that a stage has passed forward and not yet back."""
    most = now = 0
    for done in order:
        now += 1 if done.direction == FORWARD else -1
        most = max(most, now)
    return most


def span(slots: Sequence[Slot]) -> float:
    """From the first pass's begin to the last one's end."""
    return max(slot.end for slot in slots) - min(slot.begin for slot in slots)


def idle(slots: Sequence[Slot]) -> float:
    """The part of the time in which a stage makes no pass, over all stages: the bubble, as it is.

    Args:
        slots: of one replica; in no stage two at once.
    """
    stages = len({slot.done.stage for slot in slots})
    return 1 - sum(slot.end - slot.begin for slot in slots) / (stages * span(slots))


def bubble(microbatches: int, stages: int) -> float:
    """The part of the time in which a stage waits: ``(K - 1) / (M + K - 1)``.

    GPipe's "bubble overhead" (section 2.3), for stages that take equally long and copies that take
    no time; of both schedules.
    """
    return (stages - 1) / (microbatches + stages - 1)


def speedup(microbatches: int, stages: int) -> float:
    """How many times as fast as one device: ``M * K / (M + K - 1)``, at most.

    Under the same assumptions as ``bubble``: what the stages could do together, less their waiting.
    """
    return microbatches * stages / (microbatches + stages - 1)


def picture(slots: Sequence[Slot]) -> str:
    """The passes on a line for each stage, as above; times in units of three characters."""
    lines = []
    for stage in sorted({slot.done.stage for slot in slots}):
        line = ""
        for done, begin, end in slots:
            if done.stage == stage:
                width = round(end - begin) * 3 - 1
                text = f"{done.direction[0].upper()}{done.microbatch}"
                line = line.ljust(round(begin) * 3) + text.ljust(width, "-")[:width] + " "
        lines.append(f"stage {stage}  {line.rstrip()}")
    return "\n".join(lines)
