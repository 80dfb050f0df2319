"""Pipeline schedules: which stage processes which microbatch when. Pure Python.

Two schedules, here with 3 stages and 4 microbatches; a backward pass takes twice as long as a
forward pass. In both, stages wait equally long. They differ in the number of microbatches whose
activations a stage holds, between their forward and their backward pass.

gpipe (Huang et al. 2019, "GPipe: Efficient training of giant neural networks using pipeline
parallelism", figure 2c): all forward, then all backward. Each stage holds all microbatches.

    stage 0  F0 F1 F2 F3                   B3--- B2--- B1--- B0---
    stage 1     F0 F1 F2 F3          B3--- B2--- B1--- B0---
    stage 2        F0 F1 F2 F3 B3--- B2--- B1--- B0---

1f1b, one forward, one backward (Narayanan et al. 2021, "Efficient large-scale language model
training on GPU clusters using Megatron-LM", section 2.2.1; PipeDream-Flush): after its first
backward pass, each stage alternates. The k-th of K stages, from 0, holds at most K - k
microbatches.

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
    """A forward or backward pass of a microbatch through a stage."""

    direction: str
    """``FORWARD`` or ``BACKWARD``."""
    stage: int
    microbatch: int


class Slot(NamedTuple):
    """A pass and its time."""

    done: Pass
    begin: float
    end: float
    """End, in the unit of ``begin``: seconds by default."""


def passes(name: str, microbatches: int, stages: int) -> list[list[Pass]]:
    """The passes of each stage, in order; ``name`` is one of ``SCHEDULES``."""
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
    """The time of each pass, if each begins as soon as its stage is free and its inputs are there.

    ``forward`` and ``backward``: per stage, the duration of a microbatch's pass; ``copies``, and
    ``copies_back`` of gradients: per stage but the last, to the next stage (None: as ``copies``).
    """
    copies = copies or [0.0] * (len(orders) - 1)
    durations = {FORWARD: copies, BACKWARD: copies if copies_back is None else copies_back}
    ends: dict[Pass, float] = {}
    slots = []
    free = [0.0] * len(orders)
    waiting = [list(reversed(order)) for order in orders]
    while any(waiting):
        for stage, rest in enumerate(waiting):
            while rest and (ready := _ready(rest[-1], ends, durations, len(orders))) is not None:
                now = rest.pop()
                begin = max(free[stage], ready)
                took = forward[stage] if now.direction == FORWARD else backward[stage]
                free[stage] = ends[now] = begin + took
                slots.append(Slot(now, begin, free[stage]))
    return sorted(slots, key=lambda slot: (slot.begin, slot.end))


def _ready(
    wanted: Pass, ends: dict[Pass, float], copies: dict[str, Sequence[float]], stages: int
) -> float | None:
    """When the input of a pass arrives from another stage; None: not known yet."""
    direction, stage, microbatch = wanted
    other = stage - 1 if direction == FORWARD else stage + 1
    if not 0 <= other < stages:
        return 0.0
    end = ends.get(Pass(direction, other, microbatch))
    return None if end is None else end + copies[direction][min(stage, other)]


def in_order(name: str, microbatches: int, stages: int) -> list[Pass]:
    """All passes of all stages, each after the passes that it needs."""
    orders = passes(name, microbatches, stages)
    return [slot.done for slot in timetable(orders, [1.0] * stages, [2.0] * stages)]


def held(order: Iterable[Pass]) -> int:
    """The most microbatches that a stage holds between forward and backward pass."""
    most = now = 0
    for done in order:
        now += 1 if done.direction == FORWARD else -1
        most = max(most, now)
    return most


def span(slots: Sequence[Slot]) -> float:
    """Time from the beginning of the first pass to the end of the last."""
    return max(slot.end for slot in slots) - min(slot.begin for slot in slots)


def idle(slots: Sequence[Slot]) -> float:
    """The measured bubble: the share of the time in which the stages of a replica are idle."""
    stages = len({slot.done.stage for slot in slots})
    return 1 - sum(slot.end - slot.begin for slot in slots) / (stages * span(slots))


def bubble(microbatches: int, stages: int) -> float:
    """The share of the time in which a stage waits: ``(K - 1) / (M + K - 1)``.

    This is GPipe's "bubble overhead" (section 2.3), for stages that take equally long and copies
    that take no time. It holds for both schedules.
    """
    return (stages - 1) / (microbatches + stages - 1)


def speedup(microbatches: int, stages: int) -> float:
    """The highest speedup over one device: ``M * K / (M + K - 1)``."""
    return microbatches * stages / (microbatches + stages - 1)


def picture(slots: Sequence[Slot]) -> str:
    """Draws the passes, a line for each stage, as above; a unit of time is three characters."""
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
