"""Derives from executed ops when each stage of a grid made which pass of a step.

The ops are known by the name scopes in which the grid creates them
(:data:`stagecraft.trainer_module.engines.stage_replica.SCOPE`).
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from stagecraft.trainer_module.pipeline_parallel import schedule
from stagecraft.trainer_module.pipeline_parallel.schedule import Pass, Slot

_SCOPE = re.compile(r"replica(\d+)_stage(\d+)(?:_shard\d+)?/(forward|backward|reduce|update)(\d*)/")
_GRADIENT = "gradient_tape/"


class Op(NamedTuple):
    """An executed op; times in seconds."""

    name: str
    begin: float
    end: float


@dataclasses.dataclass(frozen=True, order=True)
class Span:
    """A piece of work of one stage of one replica, from its first op to its last one."""

    begin: float
    """Seconds since the first span of the step began."""
    end: float
    """Seconds since the first span of the step began."""
    replica: int
    stage: int
    kind: str
    """``forward``, ``backward``, ``reduce`` (gradients over the replicas) or ``update``."""
    microbatch: int | None
    """Microbatch of a pass; None for ``reduce`` and ``update``."""
    accumulation_step: int
    """Index below ``parallel.accumulate``, from 0."""


class _Key(NamedTuple):
    replica: int
    stage: int
    kind: str
    microbatch: int | None
    accumulation_step: int


def find_spans(ops: Iterable[Op], stages: int, accumulate: int = 1) -> list[Span]:
    """The spans of a step, by begin; only ops in the scopes of the grid count.

    ``stages``: devices of a replica; the device of a virtual stage is its number mod ``stages``.

    A pass begins when the pass that it needs has ended. Forward needs the stage before, backward
    the stage after; backward in the last stage needs its own forward pass.
    """
    ops_of = _by_key(ops, accumulate)
    chains: dict[tuple[int, int | None, int], list[_Key]] = collections.defaultdict(list)
    for key in ops_of:
        chains[key.replica, key.microbatch, key.accumulation_step].append(key)
    spans = []
    for (_, microbatch, _), keys in chains.items():
        ordered = [[key] for key in keys] if microbatch is None else [sorted(keys, key=_order)]
        for chain in ordered:
            times = windows([ops_of[key] for key in chain])
            spans += [
                Span(begin, end, *key) for (begin, end), key in zip(times, chain, strict=True)
            ]
    spans = _without_overlaps(spans, stages)
    first = min((span.begin for span in spans), default=0.0)
    return sorted(
        dataclasses.replace(span, begin=span.begin - first, end=span.end - first) for span in spans
    )


def _by_key(ops: Iterable[Op], accumulate: int) -> dict[_Key, list[Op]]:
    matched = [(op, match) for op in ops if (match := _SCOPE.search(op.name))]
    matched.sort(key=lambda pair: pair[0].begin)
    executions = collections.Counter(op.name for op, _ in matched)
    seen: dict[str, int] = collections.Counter()
    first_scope: str | None = None
    result: dict[_Key, list[Op]] = collections.defaultdict(list)
    for op, match in matched:
        scope = op.name[: match.start()]
        kind = "backward" if _GRADIENT in scope else match[3]
        microbatch, step = (int(match[4]), 0) if match[4] else (None, 0)
        if microbatch is not None:
            # A loop, which has a scope of its own, follows the first accumulation step.
            scope = scope.replace(_GRADIENT, "")
            first_scope = scope if first_scope is None else first_scope
            if scope != first_scope:
                step = 1 + seen[op.name] * (accumulate - 1) // executions[op.name]
            seen[op.name] += 1
        result[_Key(int(match[1]), int(match[2]), kind, microbatch, step)].append(op)
    return result


def _order(key: _Key) -> tuple[bool, int]:
    """Sorts the passes of a microbatch: forward through the stages, then backward."""
    backward = key.kind == schedule.BACKWARD
    return backward, -key.stage if backward else key.stage


def _without_overlaps(spans: Iterable[Span], stages: int) -> list[Span]:
    """Cuts the spans of each device so that each ends before the next one begins.

    Ops that no op waits for, such as those of moving statistics, may run late; some ops of
    ``reduce`` and ``update`` have no inputs, and run early.
    """
    devices: dict[tuple[int, int], list[Span]] = collections.defaultdict(list)
    for span in spans:
        devices[span.replica, span.stage % stages].append(span)
    result = []
    for own in devices.values():
        passes = sorted(span for span in own if span.microbatch is not None)
        for span, after in itertools.zip_longest(passes, passes[1:]):
            end = min(span.end, after.begin) if after else span.end
            result.append(dataclasses.replace(span, end=end))
        free = result[-1].end if passes else 0.0
        # By name, reduce before update: a late op of reduce does not delay the order.
        others = sorted((s for s in own if s.microbatch is None), key=lambda span: span.kind)
        for span in others:
            begin = max(span.begin, free)
            free = max(span.end, begin)
            result.append(dataclasses.replace(span, begin=begin, end=free))
    return result


def slots_of(spans: Iterable[Span], replica: int = 0) -> list[Slot]:
    """The passes of a replica."""
    return [
        Slot(Pass(span.kind, span.stage, span.microbatch), span.begin, span.end)
        for span in spans
        if span.replica == replica and span.microbatch is not None
    ]


def idle(spans: list[Span], stages: int) -> float:
    """The bubble: the share of the time, from first to last pass, in which devices are idle."""
    replicas = sorted({span.replica for span in spans})
    shares = [schedule.idle(slots_of(spans, replica), stages) for replica in replicas]
    return sum(shares) / len(shares) if shares else 0.0


def windows(passes: Sequence[Sequence[Op]]) -> list[tuple[float, float]]:
    """Begin and end of passes, each of which needs the one before it, by the ops of each.

    An executor runs an op as soon as its inputs are ready, so some ops run early, such as the
    derivative of an activation, some late, such as moving statistics. The boundary of two passes is
    the time with the least work on the wrong side. A pass with all of its work there takes no time.
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


def boundary(before: Sequence[Op], after: Sequence[Op]) -> float:
    """The time with the least work on its wrong side.

    Wrong are ops of ``before`` after this time, and ops of ``after`` before it.
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
