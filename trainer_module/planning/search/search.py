"""Finds the fastest topologies for a global batch size, by the same prediction as a plan.

The search is exact if memory is unlimited. It takes divisions in the order of a lower bound of
their step, and stops where the bound is above the tenth-best step so far. In each division, it
predicts the groups that a bound does not exclude. The cuts of all numbers of stages come from one
dynamic program.

A group has the least levers, accumulation steps before ZeRO, with which its balanced cuts fit into
memory. If they fit with none, the group takes no levers or all of them, and its cuts move. With the
rates of an accelerator, small microbatches take longer for each example. Then the search may miss
moved cuts with fewer levers, which are faster.

Of two equally fast topologies, the search prefers fewer devices, then fewer shards, stages,
workers, virtual stages; no recomputation; no ZeRO; fewer accumulation steps, fewer microbatches;
1f1b. Times are equal if their first ten digits are. So a question has the same answer everywhere.

Lower bounds of the time of a step, for a search to skip what cannot be the fastest.

They hold because a device does its passes one after the other, in the order of its schedule, and
because a microbatch passes through all parts of the model and back. Times are in the unit of
:class:`CostModel`; an even all-reduce, and an even update, take the least time.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from pydantic import ValidationError

from stagecraft.trainer_module.planning.cost_model import CostModel, Degrees, Passes
from stagecraft.trainer_module.planning.search.result import Candidate, Losses
from stagecraft.trainer_module.planning.search.space import Division, Space
from stagecraft.trainer_module.settings import TrainingSettings
from stagecraft.trainer_module.tensor_parallel.model_shards import MOST_WHOLE

SHOWN = 10
"""Topologies that a search returns."""

_CLEAR = 1e-3
"""The least share of a step that is a reason."""

Key = tuple[float, ...]


class Priced(NamedTuple):
    """A topology and its predicted step."""

    key: Key
    degrees: Degrees
    starts: list[int]

    @property
    def step(self) -> float:
        """Time of a step."""
        return self.key[0]


class Ranking(NamedTuple):
    """The best topology of each of the best divisions, and counts."""

    best: list[Priced]
    divisions: int
    too_large: int
    priced: int


class Search:
    """One search; its caches live as long as it does."""

    def __init__(
        self,
        work: CostModel,
        space: Space,
        named: Sequence[int] | None = None,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ):
        """Prepares the search.

        Args:
            named: first pieces of the stages, if ``parallel.cuts`` names them.
            on_progress: called with the number of divisions done, and of all divisions.
        """
        self._work, self._space, self._on_progress = work, space, on_progress
        self._named = None if named is None else list(named)
        self._least: dict[tuple[int, float, bool], Least] = {}
        self._priced = 0

    def run(self, keep: int = SHOWN) -> Ranking:
        """The best topologies, at most ``keep``, the fastest first."""
        work, space = self._work, self._space
        every = list(space.divisions())
        ahead: list[tuple[float, Division]] = []
        too_large = 0
        for division in every:
            if self._weights_fit(division):
                ahead.append((self._bound(division), division))
            else:
                too_large += 1
        best: list[Priced] = []
        for done, (bound, division) in enumerate(sorted(ahead)):
            limit = best[keep - 1].step if len(best) == keep else math.inf
            if bound > limit:
                break
            self._on_progress(done, len(ahead))
            found, fits = self._best_of(division, limit)
            too_large += not fits and work.memory < math.inf
            if found is not None and self._is_valid(found.degrees):
                bisect.insort(best, found)
                del best[keep:]
        return Ranking(best, len(every), too_large, self._priced)

    def _is_valid(self, degrees: Degrees) -> bool:
        """Whether the rules of all settings allow a topology."""
        try:
            settings_with(self._work.settings, degrees, keeps_cuts=self._named is not None)
        except ValidationError:  # such as named devices of another number
            return False
        return True

    def _any_group(self, division: Division) -> Degrees:
        workers, replicas, stages, shards = division
        return Degrees(workers=workers, replicas=replicas, stages=stages, shards=shards)

    def _weights_fit(self, division: Division) -> bool:
        """Whether weights alone fit, if all devices have equally many, and replicas divide."""
        if self._work.memory == math.inf:
            return True
        zero = int(division.replicas > 1)
        frugal = self._any_group(division)._replace(zero=zero)
        whole = self._work.weight_bytes(frugal, 0, len(self._work.pieces))
        return float(whole) / division.stages <= self._work.memory

    def _examples(self, degrees: Degrees | Division) -> float:
        """Examples of a replica in a step."""
        return self._work.settings.train.batch_size / (degrees.workers * degrees.replicas)

    def _least_of(self, shards: int, rows: float, remat: bool) -> Least:
        key = shards, rows, remat
        if key not in self._least:
            self._least[key] = Least.of(self._work, shards, rows, remat=remat)
        return self._least[key]

    def _even_exchange(self, division: Division) -> float:
        """Lower bound of what follows the passes, of all topologies of a division."""
        group = self._any_group(division)
        names = self._space.strategies(division.replicas, division.stages)
        every = [group._replace(strategy=name) for name in names]
        return min(even_exchange(self._work, each) for each in every)

    def _bound(self, division: Division) -> float:
        """Lower bound of the step of all topologies of a division."""
        examples = self._examples(division)
        # An example takes the least time in the largest microbatch.
        least = self._least_of(division.shards, examples, False)
        passes = examples * least.slowest(division.stages) * ROUNDING
        return passes + self._even_exchange(division)

    def _best_of(self, division: Division, limit: float) -> tuple[Priced | None, bool]:
        """The best topology up to a limit; and whether any may fit into memory."""
        work, examples = self._work, self._examples(division)
        after_all = self._even_exchange(division)
        best, fits = None, False
        for group in self._space.groups(division):
            least = self._least_of(group.shards, work.rows(group), group.remat)
            if of_any_cuts(group, least, examples) + after_all > limit:
                fits = True  # perhaps: its memory does not matter
                continue
            for degrees, starts in self._fitting(group):
                fits = True
                if not self._shares(degrees, starts):
                    continue
                passes = work.passes(degrees, starts)
                after = sum(work.exchange(degrees, starts))
                if degrees.accumulate * of_cuts(degrees, passes) + after > limit:
                    continue
                self._priced += 1
                priced = Priced(key(degrees, work.length(degrees, starts)), degrees, starts)
                if priced.step <= limit and (best is None or priced < best):
                    best, limit = priced, priced.step
        return best, fits

    def _fitting(self, group: Degrees) -> Iterator[tuple[Degrees, list[int]]]:
        """The group with its levers and cuts, if it fits into memory."""
        levers = self._space.levers(group)
        if not levers:
            return
        work, starts = self._work, self._named
        if starts is None:
            starts = work.balanced(group)
        if starts is None:
            return
        for degrees in levers:
            if work.memory == math.inf or work.fits(degrees, starts):
                yield degrees, starts
                return
        if self._named is not None:
            return
        # The last takes the fewest activations, the first the fewest sums of gradients.
        for degrees in dict.fromkeys((levers[0], levers[-1])):
            if (moved := work.moved(degrees)) is not None:
                yield degrees, moved
                return

    def _shares(self, degrees: Degrees, starts: Sequence[int]) -> bool:
        """Whether the engine surely accepts the shards, see ``model_shards.MOST_WHOLE``.

        It refuses a layer that stays whole and has most parameters of the largest stage.
        """
        if degrees.shards == 1:
            return True
        begins, ends = np.array([0, *starts]), np.array([*starts, len(self._work.pieces)])
        every = self._work.sums(1).parameters(begins, ends)
        first = self._work.sums(degrees.shards).parameters(begins, ends)
        # first = whole + (every - whole) / shards
        whole = (degrees.shards * first - every) / (degrees.shards - 1)
        return bool(whole.max() <= MOST_WHOLE * every.max())


def key(degrees: Degrees, length: float) -> Key:
    """The key that a search minimizes: the time; among equal times, see the module's docstring."""
    return (
        float(f"{length:.9e}"),
        degrees.workers * degrees.devices,
        degrees.shards,
        degrees.stages,
        degrees.workers,
        degrees.virtual_stages,
        degrees.remat,
        degrees.zero,
        degrees.accumulate,
        degrees.microbatches,
        degrees.microbatch_schedule != "1f1b",
    )


def settings_with(
    settings: TrainingSettings, degrees: Degrees, *, keeps_cuts: bool
) -> TrainingSettings:
    """The settings with these degrees, checked; raises pydantic's ValidationError.

    ``keeps_cuts``: whether the cuts stay that the settings name.
    """
    parallel = settings.parallel.model_dump() | degrees._asdict()
    if not keeps_cuts:
        parallel["cuts"] = "auto"
    if settings.parallel.found.resolves and parallel["devices"] != "auto":
        parallel["devices"] = settings.parallel.device_names[: degrees.devices]
    dumped = settings.model_dump(include=set(TrainingSettings.model_fields))
    return TrainingSettings.model_validate(dumped | {"parallel": parallel})


def candidates(work: CostModel, best: Sequence[Priced]) -> list[Candidate]:
    """Topologies that the search found, and why the others are slower than the first."""
    found = [_candidate(work, *priced) for priced in best]
    return [dataclasses.replace(each, reason=_reason(each, found[0])) for each in found]


def _candidate(work: CostModel, chosen: Key, degrees: Degrees, starts: list[int]) -> Candidate:
    losses = _losses(work, degrees, starts)
    batch_size = work.settings.train.batch_size
    return Candidate(
        settings=degrees._asdict(),
        devices=degrees.workers * degrees.devices,
        step=losses.step,
        speedup=work.alone(batch_size, remat=False) / losses.step,
        memory_bytes=round(work.device_bytes(degrees, starts)),
        bubble=losses.bubble / losses.step,
        traffic_bytes=round(work.traffic(degrees, starts)),
        losses=losses,
    )


def _losses(work: CostModel, degrees: Degrees, starts: list[int]) -> Losses:
    stages, rows = degrees.stages, work.rows(degrees)
    examples = rows * degrees.microbatches * degrees.accumulate
    passes, exchange = work.passes(degrees, starts), work.exchange(degrees, starts)
    of_devices = [
        sum(passes.forward[device::stages]) + sum(passes.backward[device::stages])
        for device in range(stages)
    ]
    count = degrees.accumulate * degrees.microbatches
    mean, slowest = count * passes.work / stages, count * max(of_devices)
    kept = examples * Least.of(work, degrees.shards, rows, remat=False).total / stages
    least = examples * Least.of(work, 1, rows, remat=False).total / (stages * degrees.shards)
    step = work.length(degrees, starts)
    return Losses(
        computation=least,
        bubble=max(step - slowest - sum(exchange), 0.0),
        all_reduce=exchange.all_reduce + exchange.tied,
        update=exchange.update,
        shards=kept - least,
        uneven=slowest - mean,
        recomputation=mean - kept,
    )


_REASONS = {
    "bubble": "bubble",
    "all_reduce": "all-reduce",
    "update": "the optimizer's update",
    "shards": "shards' copies, and what is not split",
    "uneven": "uneven stages",
    "recomputation": "recomputation",
}


def _reason(slower: Candidate, best: Candidate) -> str:
    """The loss that grows the most."""
    more = {
        name: getattr(slower.losses, name) - getattr(best.losses, name)
        for name in ("computation", *_REASONS)
    }
    name = max(more, key=lambda each: more[each])
    if more[name] < _CLEAR * best.step or slower.step <= best.step:
        return "" if slower.step <= best.step * (1 + _CLEAR) else "several small losses"
    label = _REASONS.get(name, "small microbatches")
    if name == "computation" and slower.devices < best.devices:
        label = f"{slower.devices:,} of {best.devices:,} devices"
    return f"{label}: +{more[name] / best.step:.1%} of the best step"


ROUNDING = 1 - 1e-9
"""Sums in another order than those of :class:`CostModel` differ by less."""


class Least(NamedTuple):
    """The least that one example takes, whatever the cuts."""

    total: float
    """Forward and backward pass of all pieces."""
    piece: float
    """The passes of the slowest piece."""
    forward_share: float
    """The largest share of the forward pass in the time of a piece."""

    @classmethod
    def of(cls, work: CostModel, shards: int, rows: float, *, remat: bool) -> Least:
        """The least of the pieces of a model in a microbatch of ``rows`` examples."""
        forward, backward = map(np.array, work.durations(shards, rows).pieces[remat])
        both = forward + backward
        share = np.divide(forward, both, out=np.zeros_like(both), where=both > 0)
        return cls(float(both.sum()), float(both.max()), float(share.max()))

    def slowest(self, stages: int) -> float:
        """The least time of the slowest device."""
        return max(self.total / stages, self.piece)


def even_exchange(work: CostModel, degrees: Degrees) -> float:
    """The all-reduce and the update of stages with equally many gradients."""
    even = [work.gradient_bytes(degrees.shards) / degrees.stages] * degrees.stages
    return (work.all_reduce(degrees, even) + work.update(degrees, even)) * ROUNDING


def of_any_cuts(degrees: Degrees, least: Least, examples: float) -> float:
    """Bound of all passes of a step, whatever the cuts.

    Args:
        examples: of a replica in a step.
    """
    microbatches, stages = degrees.microbatches, degrees.stages
    total, slowest = least.total, least.slowest(stages)
    span = max(total, microbatches * slowest)
    if degrees.virtual_stages == 1 and degrees.microbatch_schedule == "gpipe":
        span = max(span, total + (microbatches - 1) * slowest)
    elif degrees.virtual_stages == 1:
        # A stage waits for a whole round of a microbatch, but for the forward passes that it does
        # ahead. Stages of the best times finish together.
        ahead = np.minimum(stages - np.arange(stages), microbatches)
        passes = (microbatches - 1) - (ahead - 1) * least.forward_share
        if passes.min() > 0:
            span = max(span, total * (1 + 1 / float((1 / passes).sum())))
    return examples / microbatches * span * ROUNDING


def of_cuts(degrees: Degrees, passes: Passes) -> float:
    """Bound of the span of the schedule, for the cuts of these passes."""
    forward, backward = np.array(passes.forward), np.array(passes.backward)
    there, back = np.array([*passes.copies, 0.0]), np.array([*passes.back, 0.0])
    microbatches, stages = degrees.microbatches, degrees.stages
    fill, drain = _before(forward + there)[:stages], _before(backward + back)[:stages]
    of_devices = (forward + backward).reshape(-1, stages).sum(axis=0)
    span = fill + microbatches * of_devices + drain
    if degrees.virtual_stages == 1:
        both = forward + backward + there + back
        away = both.sum() - np.cumsum(both) + there + back
        ahead = np.minimum(stages - np.arange(stages), microbatches)
        if degrees.microbatch_schedule == "gpipe":
            ahead = np.full(stages, microbatches)
            first = microbatches * forward + away
        else:
            first = np.maximum(ahead * forward, forward + away)
        rest = microbatches * backward + (microbatches - ahead) * forward
        span = np.maximum(span, fill + first + rest + drain)
    return float(span.max()) * ROUNDING


def _before(values: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.cumsum(values) - values
    return found
