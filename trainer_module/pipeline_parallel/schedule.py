"""Pipeline schedules: which stage processes which microbatch when.

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

interleaved 1f1b (the same paper, section 2.2.2): the model has V times as many parts as there are
devices, its *virtual stages*. Part p is on device p mod K, so that a microbatch comes to each
device V times. Passes are V times shorter, and so is the bubble; copies are V times as many. Here
with 2 devices, V = 2 and 4 microbatches; the number in front is that of the part:

    device 0  0F0 0F1 2F0 2F1 0F2     2B0---- 0F3 2B1---- 2F2 0B0---- 2F3 0B1----     2B2---- …
    device 1      1F0 1F1 3F0 3B0---- 3F1 3B1---- 1F2 1B0---- 1F3 1B1---- 3F2 3B2---- 3F3 …
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

FORWARD, BACKWARD = "forward", "backward"

SCHEDULES = ("gpipe", "1f1b")


class Pass(NamedTuple):
    """A forward or backward pass of a microbatch through a stage."""

    direction: str
    """``FORWARD`` or ``BACKWARD``."""
    stage: int
    """Of the parts of the model, its number."""
    microbatch: int


class Slot(NamedTuple):
    """A pass and its time."""

    done: Pass
    begin: float
    end: float
    """End, in the unit of ``begin``: seconds by default."""


def passes(name: str, microbatches: int, stages: int, virtual: int = 1) -> list[list[Pass]]:
    """The passes of each device, in order.

    Args:
        name: one of ``SCHEDULES``.
        stages: number of devices.
        virtual: parts of the model on each device; more than 1 needs ``1f1b``, and a multiple of
            ``stages`` as ``microbatches``.
    """
    parts = stages * virtual
    size = microbatches * parts
    result = []
    for device in range(stages):
        order = []
        for code in codes(name, microbatches, stages, virtual, device).tolist():
            microbatch, part = divmod(code % size, parts)
            order.append(Pass(BACKWARD if code >= size else FORWARD, part, microbatch))
        result.append(order)
    return result


def codes(name: str, microbatches: int, stages: int, virtual: int, device: int) -> np.ndarray:
    """The passes of a device as numbers, in order: ``[2 * microbatches * virtual]``.

    A forward pass is its microbatch times all parts of the model, plus its part; a backward pass
    is as much, plus the number of all forward passes. Arguments are as those of :func:`passes`.
    """
    parts = stages * virtual
    count = microbatches * virtual
    index = np.arange(count)
    if virtual > 1:  # groups of a microbatch for each stage, through one part after another
        chunk, microbatch = index % parts // stages, index // parts * stages + index % stages
    else:
        chunk, microbatch = np.zeros(count, int), index
    ahead = _ahead(name, microbatches, stages, virtual, device)
    forward = microbatch * parts + chunk * stages + device
    backward = microbatch * parts + (virtual - 1 - chunk) * stages + device + count * stages
    if name == "gpipe":
        backward = backward[::-1]
    # The first forward passes; then a backward and a forward pass in turn; the last backward ones.
    order = np.empty(2 * count, int)
    order[:ahead] = forward[:ahead]
    order[ahead + index + np.minimum(index, count - ahead)] = backward
    order[ahead + 1 + 2 * np.arange(count - ahead)] = forward[ahead:]
    return order


def timetable(
    orders: Sequence[Sequence[Pass]],
    forward: Sequence[float],
    backward: Sequence[float],
    copies: Sequence[float] = (),
    copies_back: Sequence[float] | None = None,
    recompute: Sequence[float] | None = None,
) -> list[Slot]:
    """The time of each pass, if each begins as soon as its device is free and its inputs are there.

    Args:
        orders: of each device.
        forward: duration of a microbatch's pass, for each part of the model.
        backward: the same.
        copies: time to the next part, for each part but the last.
        copies_back: the same of gradients; None: as ``copies``.
        recompute: of each part of the model, time to compute its activations again before a
            backward pass. It needs no gradient, so that it begins as soon as the device is free
            (GPipe, section 2.3), and before the slot of the pass. None: ``backward`` includes it,
            and it waits for the gradient.
    """
    copies = copies or [0.0] * (len(forward) - 1)
    durations = {FORWARD: copies, BACKWARD: copies if copies_back is None else copies_back}
    ends: dict[Pass, float] = {}
    slots = []
    free = [0.0] * len(orders)
    waiting = [list(reversed(order)) for order in orders]
    while any(waiting):
        for device, rest in enumerate(waiting):
            while rest and (ready := _ready(rest[-1], ends, durations, len(forward))) is not None:
                now = rest.pop()
                ahead = recompute[now.stage] if recompute and now.direction == BACKWARD else 0.0
                begin = max(free[device] + ahead, ready)
                took = forward[now.stage] if now.direction == FORWARD else backward[now.stage]
                free[device] = ends[now] = begin + took
                slots.append(Slot(now, begin, free[device]))
    return sorted(slots, key=lambda slot: (slot.begin, slot.end))


def finish(
    name: str,
    microbatches: int,
    stages: int,
    virtual: int,
    forward: Sequence[float],
    backward: Sequence[float],
    copies: Sequence[float],
    copies_back: Sequence[float],
) -> float:
    """The end of the last pass: the :func:`span` of a :func:`timetable`, in a tenth of its time.

    Arguments are as those of :func:`passes` and :func:`timetable`.
    """
    took = [*forward, *backward]
    # The first part's inputs, and the last part's outputs, come from nowhere.
    after = [0.0, *copies, *copies_back, 0.0]
    orders = _compiled(name, microbatches, stages, virtual)
    ends: list[float | None] = [None] * (2 * microbatches * stages * virtual)
    ends.append(0.0)  # the beginning of the step
    free, done = [0.0] * stages, [0] * stages
    waiting = True
    while waiting:
        waiting = False
        for device, order in enumerate(orders):
            now, place = free[device], done[device]
            for own, needed, duration in order[place:] if place else order:
                end = ends[needed]
                if end is None:
                    waiting = True
                    break
                ready = end + after[duration]
                now = (now if now > ready else ready) + took[duration]
                ends[own] = now
                place += 1
            free[device], done[device] = now, place
    return max(free)


@functools.lru_cache(maxsize=64)
def _compiled(
    name: str, microbatches: int, stages: int, virtual: int
) -> list[list[tuple[int, int, int]]]:
    """The passes of each device: own code, that of the pass before it, and place of its times.

    The code after all others is the beginning of the step.
    """
    parts = stages * virtual
    size = microbatches * parts
    result = []
    for device in range(stages):
        own = codes(name, microbatches, stages, virtual, device)
        part, back = own % parts, own >= size
        needed = own + np.where(back, 1, -1)
        needed[part == np.where(back, parts - 1, 0)] = 2 * size
        duration = part + parts * back
        result.append(list(zip(own.tolist(), needed.tolist(), duration.tolist(), strict=True)))
    return result


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


def in_order(name: str, microbatches: int, stages: int, virtual: int = 1) -> list[Pass]:
    """All passes of all devices, each after the passes that it needs; see :func:`passes`."""
    orders, parts = passes(name, microbatches, stages, virtual), stages * virtual
    return [slot.done for slot in timetable(orders, [1.0] * parts, [2.0] * parts)]


@functools.lru_cache(maxsize=4096)
def held(name: str, microbatches: int, stages: int, virtual: int = 1) -> tuple[int, ...]:
    """The most microbatches that each part of the model holds between forward and backward pass.

    Arguments are as those of :func:`passes`.
    """
    count = microbatches * virtual
    chunk = np.arange(count) % (stages * virtual) // stages
    # Passes of each chunk among the first ones, forward and backward: [virtual, count + 1].
    forward = np.zeros((virtual, count + 1), int)
    np.cumsum(chunk == np.arange(virtual)[:, None], axis=1, out=forward[:, 1:])
    backward = forward[::-1]
    found = np.empty((virtual, stages), int)
    for device in range(stages):
        # As in the orders of codes(): after so many forward passes, a backward pass before each.
        ahead = _ahead(name, microbatches, stages, virtual, device)
        found[:, device] = (forward[:, ahead:] - backward[:, : count - ahead + 1]).max(axis=1)
    return tuple(found.ravel().tolist())


def _ahead(name: str, microbatches: int, stages: int, virtual: int, device: int) -> int:
    """Forward passes of a device before its first backward pass."""
    if virtual > 1:
        ahead = 2 * (stages - device - 1) + (virtual - 1) * stages + 1
    else:
        ahead = microbatches if name == "gpipe" else stages - device
    return min(ahead, microbatches * virtual)


def span(slots: Sequence[Slot]) -> float:
    """Time from the beginning of the first pass to the end of the last."""
    return max(slot.end for slot in slots) - min(slot.begin for slot in slots)


def idle(slots: Sequence[Slot], stages: int) -> float:
    """The measured bubble: the share of the time in which the devices of a replica are idle."""
    return 1 - sum(slot.end - slot.begin for slot in slots) / (stages * span(slots))


def bubble(microbatches: int, stages: int, virtual: int = 1) -> float:
    """The share of the time in which a device waits: ``(K - 1) / (V * M + K - 1)``.

    With V = 1, this is GPipe's "bubble overhead" (section 2.3), for stages that take equally long
    and copies that take no time. It holds for all schedules.
    """
    return (stages - 1) / (virtual * microbatches + stages - 1)


def speedup(microbatches: int, stages: int, virtual: int = 1) -> float:
    """The highest speedup over one device: ``K * (1 - bubble)``."""
    return stages * (1 - bubble(microbatches, stages, virtual))


def picture(slots: Sequence[Slot], stages: int) -> str:
    """Draws the passes, a line for each device, as above.

    A unit of time is three characters; with virtual stages it is four.
    """
    parts = 1 + max(slot.done.stage for slot in slots)
    noun, unit = ("stage", 3) if parts == stages else ("device", 4)
    lines = []
    for device in range(stages):
        line = ""
        for done, begin, end in slots:
            if done.stage % stages == device:
                width = round(end - begin) * unit - 1
                text = f"{done.direction[0].upper()}{done.microbatch}"
                text = text if parts == stages else f"{done.stage}{text}"
                line = line.ljust(round(begin) * unit) + text.ljust(width, "-")[:width] + " "
        lines.append(f"{noun} {device}  {line.rstrip()}")
    return "\n".join(lines)
