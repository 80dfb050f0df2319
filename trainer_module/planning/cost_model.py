"""Predicts memory and time of stages from the pieces between all cut points of a model.

Frozen weights have no gradients and no optimizer slots, and the all-reduce skips them. Before the
first piece with trained weights there is no backward pass, and no activation is kept for one.
After it, a piece without trained weights still passes on the gradient of its activations.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from stagecraft.trainer_module import registries
from stagecraft.trainer_module.models.costs import StageCost, Times
from stagecraft.trainer_module.parallel import strategy
from stagecraft.trainer_module.pipeline_parallel import schedule
from stagecraft.trainer_module.pipeline_parallel.partition import Balance, balance
from stagecraft.trainer_module.planning import collective_costs, device_times
from stagecraft.trainer_module.planning.collective_costs import Links
from stagecraft.trainer_module.planning.plan import (
    LEAST_WHOLE,
    StagePlan,
    TiedWeight,
    WholeLayer,
)
from stagecraft.trainer_module.planning.range_costs import Durations, Sums, first_trained, segments
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings

_OF_SEGMENT = 1.7
"""Bytes that the backward pass of a segment takes, by those of its activations."""

_OF_ACTIVATIONS = 0.5
"""Bytes of gradients in the backward pass of a stage, by those of its activations."""


class CostModel:
    """The pieces of a model under the settings of a training, with their times for one example.

    The links are in bytes by the unit of the times, the memory in bytes; infinite: not known.
    """

    def __init__(
        self,
        pieces: Sequence[StageCost],
        times: Sequence[Times],
        settings: TrainingSettings,
        links: Links,
        memory: float,
        times_at: Callable[[float, int], Sequence[Times]] | None = None,
        update_rate: float = math.inf,
    ):
        """Prepares predictions.

        Args:
            times: of the pieces in a microbatch of the whole batch; they recompute activations if
                the settings do. They decide the cuts.
            times_at: the times in a microbatch of so many examples on the first of so many shards,
                without recomputation and copies; more examples never take longer for each, and a
                shard takes at least its part of the whole. None: ``times`` for any number, divided
                among the shards.
            update_rate: bytes that an update of weights reads and writes by the unit of the times;
                infinite: not known, and updates take no time.
        """
        self.settings = settings
        self.pieces, self.links, self.memory = pieces, links, memory
        self.degrees = Degrees.of(settings.parallel)
        """Degrees of the settings."""
        remat, first = settings.parallel.remat, first_trained(pieces)
        self._times = [
            Times(each.forward, each.backward - remat * each.forward if index >= first else 0.0)
            for index, each in enumerate(times)
        ]
        self._batch_size = settings.train.batch_size
        self._times_at, self._update_rate = times_at, update_rate
        self._sums: dict[int, Sums] = {}
        self._durations: dict[tuple[int, float | None], Durations] = {}
        self._balances: dict[tuple[int, bool], Balance] = {}
        self._balanced: dict[tuple[int, bool, int], list[int] | None] = {}
        """(Shards, remat, parts) -> the best cuts for unlimited memory."""
        train = settings.train
        self._slots = registries.OPTIMIZERS.get(train.optimizer).slots_with(train)
        # Without those of moving statistics, which are few.
        self._averages = bool(train.ema_decay or train.lookahead)

    def copy(self) -> CostModel:
        """The same pieces, without any prediction in caches."""
        again = self.settings.parallel.remat
        times = [Times(f, b + again * f if b else b) for f, b in self._times]
        rates = self._times_at, self._update_rate
        return CostModel(self.pieces, times, self.settings, self.links, self.memory, *rates)

    def sums(self, shards: int) -> Sums:
        """The costs of ranges of pieces, without times."""
        if shards not in self._sums:
            self._sums[shards] = Sums(self.pieces, shards=shards)
        return self._sums[shards]

    def durations(self, shards: int, rows: float | None = None) -> Durations:
        """The times of ranges of pieces in a microbatch of ``rows``; None: of the whole batch."""
        key = shards, rows if self._times_at else None
        if key not in self._durations:
            times, divided = self._times, False
            if self._times_at is not None and (shards > 1 or rows is not None):
                times, divided = list(self._times_at(rows or self._batch_size, shards)), True
            link = min(self.links.devices, self.links.shards)
            self._durations[key] = Durations(
                self.pieces, times, shards=shards, link=link, divided=divided
            )
        return self._durations[key]

    def rows(self, degrees: Degrees) -> float:
        """Examples of a microbatch."""
        workers = degrees.workers if strategy.find(degrees.strategy).in_step else 1
        parts = workers * degrees.replicas * degrees.accumulate * degrees.microbatches
        return self._batch_size / parts

    # --- cuts ---

    def cut(self, degrees: Degrees) -> list[int] | None:
        """First pieces of all parts of the model but the first; None: no cuts fit into memory."""
        starts = self.balanced(degrees)
        if starts is None or self.fits(degrees, starts):
            return starts
        return self.moved(degrees)

    def balanced(self, degrees: Degrees) -> list[int] | None:
        """The best cuts for unlimited memory; None: there are too few pieces."""
        shards, remat, parts = degrees.shards, degrees.remat, degrees.parts
        if parts > len(self.pieces):
            return None
        key = shards, remat, parts
        if key not in self._balanced:
            if key[:2] not in self._balances:
                weighed = self._weighed(shards, remat)
                self._balances[key[:2]] = Balance(weighed, sending=self._sending)
            self._balanced[key] = self._balances[key[:2]].starts(parts)
        return self._balanced[key]

    def moved(self, degrees: Degrees) -> list[int] | None:
        """The best cuts whose parts fit into memory; None: there are none."""
        count, parts = len(self.pieces), degrees.parts
        if parts > count:
            return None
        begins, ends = np.arange(count)[:, None], np.arange(count + 1)[None, :]
        fixed, each = self._bytes(degrees, begins, np.maximum(ends, begins))
        held = self._held(degrees)
        # The parts of a device divide its memory evenly.
        most = self.memory / degrees.virtual_stages
        if not degrees.remat and not self._may_fit(degrees, fixed, each, most):
            return None

        fixed, each = fixed.T.copy(), each.T.copy()  # by end, for Balance

        def fits(part: int) -> np.ndarray:
            found: np.ndarray = fixed + held[part] * each <= most
            return found

        weighed = self._weighed(degrees.shards, degrees.remat)
        return balance(weighed, parts, fits, self._sending)

    def _may_fit(self, degrees: Degrees, fixed: np.ndarray, each: np.ndarray, most: float) -> bool:
        """Whether parts as long as possible reach the last piece, but for what they receive.

        Without that, a range never takes less than one inside it. So longer parts are never worse.
        """
        sums, held = self.sums(degrees.shards), self._held(degrees)
        shared = self.rows(degrees) * sums.shared
        reached = 0
        for part in range(degrees.parts):
            received = shared[max(reached, sums.first)]
            sizes = fixed[reached] + held[part] * np.maximum(each[reached] - received, 0)
            reached = int(np.flatnonzero(sizes <= most)[-1])
            if reached == len(self.pieces):
                return True
        return False

    def _weighed(self, shards: int, remat: bool) -> list[tuple[float, int]]:
        forward, back = self.durations(shards).pieces[remat]
        times = zip(forward, back, self.pieces, strict=True)
        return [(one + other, piece.parameters) for one, other, piece in times]

    @functools.cached_property
    def _sending(self) -> list[float]:
        """Time of the outputs of each piece, if cuts differ by it."""
        if all(piece.output_tensors == 1 for piece in self.pieces[:-1]):
            return []
        # Without a known link, a byte counts as one operation.
        link = self.links.devices if self.links.devices < math.inf else 1.0
        return [piece.output_bytes / link for piece in self.pieces[:-1]]

    def _bounds(self, starts: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """The first piece of each part, and the piece after each."""
        return np.array([0, *starts]), np.array([*starts, len(self.pieces)])

    # --- memory ---

    def fits(self, degrees: Degrees, starts: Sequence[int]) -> bool:
        """Whether the parts on every device fit into its memory."""
        return self.device_bytes(degrees, starts) <= self.memory

    def device_bytes(self, degrees: Degrees, starts: Sequence[int]) -> float:
        """Bytes on the device that needs the most."""
        sizes, stages = self.sizes(degrees, starts), degrees.stages
        return max(sum(sizes[device::stages]) for device in range(stages))

    def sizes(self, degrees: Degrees, starts: Sequence[int]) -> list[float]:
        """Bytes that each part takes on its device."""
        fixed, each = self._bytes(degrees, *self._bounds(starts))
        found: list[float] = (fixed + np.array(self._held(degrees)) * each).tolist()
        return found

    def pass_bytes(self, degrees: Degrees, starts: Sequence[int]) -> list[float]:
        """Bytes of :meth:`sizes` that a backward pass of each part takes for itself."""
        begins, ends = self._bounds(starts)
        found: list[float] = self._of_pass(degrees, begins, ends).tolist()
        return found

    def _held(self, degrees: Degrees) -> tuple[int, ...]:
        """Microbatches that each part holds."""
        order, microbatches = degrees.microbatch_schedule, degrees.microbatches
        return schedule.held(order, microbatches, degrees.stages, degrees.virtual_stages)

    def weight_bytes(self, degrees: Degrees, begin: Any, end: Any) -> np.ndarray:
        """Bytes of weights, and of everything that training keeps for each."""
        # All weights, with a copy in 16 bits if mixed; for trained weights: gradients, sums of
        # gradients before and after an addition, slots, averages.
        sums = self.sums(degrees.shards)
        half = 0.5 if self.settings.parallel.precision.startswith("mixed") else 0
        slots = float(self._slots)
        if degrees.zero:  # with a slice of each weight
            slots = (slots + 1) / degrees.replicas
        parts = degrees.accumulate * degrees.microbatches
        copies = 1.0 + 2 * (parts > 1)
        copies += slots + self._averages
        return self._width * (
            (1 + half) * sums.parameters(begin, end)
            + copies * sums.parameters(begin, end, trained=True)
        )

    def _bytes(
        self, degrees: Degrees, begin: np.ndarray, end: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Bytes of stages of these pieces; and more bytes for each microbatch that they hold."""
        sums, rows = self.sums(degrees.shards), self.rows(degrees)
        # Activations without a backward pass exist for one microbatch, and one piece, at a time.
        fixed = self.weight_bytes(degrees, begin, end) + rows * sums.passing(begin, end)
        fixed = fixed + self._of_pass(degrees, begin, end)
        trains = end > sums.first
        begin = np.minimum(np.maximum(begin, sums.first), end)
        if not degrees.remat:
            activations = sums.shared[begin] + sums.activations(begin, end)
            return fixed, rows * trains * activations
        # Remat keeps the inputs of the segments.
        kept = sums.output_bytes(begin, end) / segments(end - begin)
        return fixed, rows * trains * (sums.inputs[begin] + kept)

    def _of_pass(self, degrees: Degrees, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Bytes that a backward pass of stages of these pieces takes, besides what is held.

        That is a segment with remat, and gradients that wait for those of the weights. The factors
        are measured (``benchmarks/planning/memory.py``).
        """
        sums, rows = self.sums(degrees.shards), self.rows(degrees)
        begin = np.minimum(np.maximum(begin, sums.first), end)
        activations = rows * sums.activations(begin, end)
        if degrees.remat:
            return _OF_SEGMENT * activations / segments(end - begin)
        # One pass of the whole batch gives back activations while it goes.
        parts = degrees.accumulate * degrees.microbatches
        return (_OF_ACTIVATIONS if parts > 1 else 0.0) * activations

    @property
    def _width(self) -> int:
        """Bytes of a weight."""
        return 8 if self.settings.parallel.precision == "float64" else 4

    # --- time ---

    def passes(self, degrees: Degrees, starts: Sequence[int]) -> Passes:
        """Times of a microbatch in each part, and between them."""
        sums, rows = self.sums(degrees.shards), self.rows(degrees)
        times = self.durations(degrees.shards, rows)
        begins, ends = self._bounds(starts)
        forward = rows * times.forward(begins, ends)
        back = rows * times.backward(begins, ends, remat=degrees.remat)
        sizes = rows * sums.outputs[ends[:-1] - 1]
        copies = sizes / self.links.devices + self.links.device_latency * (sizes > 0)
        returned = copies * (ends[:-1] > sums.first)
        return Passes(forward.tolist(), back.tolist(), copies.tolist(), returned.tolist())

    def exchange(self, degrees: Degrees, starts: Sequence[int]) -> Exchange:
        """The time after the passes of a step."""
        sums, stages = self.sums(degrees.shards), degrees.stages
        of_parts = self._width * sums.parameters(*self._bounds(starts), trained=True, held=True)
        gradients = [float(of_parts[device::stages].sum()) for device in range(stages)]
        inside = self.links.inside
        tied = sum(
            collective_costs.copy_seconds(weight.bytes, inside) for weight in self.tied(starts)
        )
        return Exchange(self.all_reduce(degrees, gradients), tied, self.update(degrees, gradients))

    def all_reduce(self, degrees: Degrees, gradients: Sequence[float]) -> float:
        """The time of the all-reduce of these bytes of each stage."""
        return collective_costs.exchange_seconds(
            self._parallel(degrees), gradients, self._weights(degrees.shards), self.links
        )

    def update(self, degrees: Degrees, gradients: Sequence[float]) -> float:
        """The time of the optimizer's update, with these bytes of gradients on each device."""
        if self._update_rate == math.inf or not strategy.find(degrees.strategy).in_step:
            return 0.0  # outside of a step, servers update the weights
        moved = device_times.moved_bytes(
            max(gradients) / self._width,
            self._slots + self._averages,
            width=self._width,
            gradient_width=self._width,
        )
        return moved / self._update_rate

    def alone(self, rows: float, *, remat: bool) -> float:
        """The time of a step on one device with ``rows`` examples."""
        times, bounds = self.durations(1, rows), (0, len(self.pieces))
        each = times.forward(*bounds) + times.backward(*bounds, remat=remat)
        return rows * float(each) + self.update(Degrees(), [self.gradient_bytes(1)])

    def gradient_bytes(self, shards: int) -> float:
        """Bytes of the gradients of all stages, on the first shards."""
        return float(self._width * self.sums(shards).parameters(0, len(self.pieces), trained=True))

    def traffic(self, degrees: Degrees, starts: Sequence[int]) -> float:
        """Bytes that the busiest device of a replica sends in a step."""
        sums, stages = self.sums(degrees.shards), degrees.stages
        begins, ends = self._bounds(starts)
        examples = self.rows(degrees) * degrees.microbatches * degrees.accumulate
        out = np.append(sums.outputs[ends[:-1] - 1], 0.0)
        back = np.insert(out[:-1] * (ends[:-1] > sums.first), 0, 0.0)
        trained = ends > sums.first
        shards = sums.shard_bytes(begins, ends) * (1 + trained * (1 + degrees.remat))
        of_parts = self._width * sums.parameters(begins, ends, trained=True, held=True)
        gradients = [float(of_parts[device::stages].sum()) for device in range(stages)]
        activations = examples * (out + back + shards)
        of_stages = max(float(activations[device::stages].sum()) for device in range(stages))
        used = strategy.find(degrees.strategy)
        sent = used.traffic(self._parallel(degrees), gradients, self._weights(degrees.shards))
        return of_stages + max(sent.devices, sent.hosts)

    def _weights(self, shards: int) -> float:
        """Bytes of all variables on the first shards."""
        return float(self._width * self.sums(shards).parameters(0, len(self.pieces)))

    def _parallel(self, degrees: Degrees) -> ParallelSettings:
        """Settings with these degrees, without checks."""
        return self.settings.parallel.model_copy(update=degrees._asdict())

    def length(self, degrees: Degrees, starts: Sequence[int]) -> float:
        """The time of a step, as :meth:`step` computes it."""
        passes, exchange = self.passes(degrees, starts), self.exchange(degrees, starts)
        span = schedule.finish(
            degrees.microbatch_schedule,
            degrees.microbatches,
            degrees.stages,
            degrees.virtual_stages,
            *passes,
        )
        return degrees.accumulate * span + sum(exchange)

    def step(self, degrees: Degrees, starts: Sequence[int]) -> Step:
        """The costs of a step with stages that begin at ``starts``."""
        microbatches, stages = degrees.microbatches, degrees.stages
        times, exchange = self.passes(degrees, starts), self.exchange(degrees, starts)
        orders = schedule.passes(
            degrees.microbatch_schedule, microbatches, stages, degrees.virtual_stages
        )
        slots = schedule.timetable(orders, *times)
        length = degrees.accumulate * schedule.span(slots) + sum(exchange)
        passes = degrees.accumulate * microbatches
        # Naive: each microbatch passes through all stages and back, with copies between.
        naive = passes * (times.work + sum(times.copies) + sum(times.back)) + sum(exchange)
        examples = degrees.replicas * degrees.workers * passes * self.rows(degrees)
        speedup = self.alone(examples, remat=degrees.remat) / length
        return Step(slots, exchange.all_reduce, exchange.update, length, speedup, naive / length)

    def tied(self, starts: Sequence[int]) -> list[TiedWeight]:
        """The weights that several stages use."""
        return [
            TiedWeight(
                path=weight.path,
                stages=stages,
                bytes=(1 + weight.trained) * self._width * weight.parameters * (len(stages) - 1),
            )
            for weight, stages in self.sums(1).tied(*self._bounds(starts)).items()
        ]

    def whole(self, shards: int) -> list[WholeLayer]:
        """The layers with most of the parameters that shards do not divide."""
        if shards == 1:
            return []
        found = [each for piece in self.pieces for each in piece.whole]
        least = LEAST_WHOLE * sum(piece.parameters for piece in self.pieces)
        found = [each for each in found if each.parameters >= least]
        found.sort(key=lambda each: each.parameters, reverse=True)
        return [WholeLayer(**each._asdict()) for each in found]

    def _split_parameters(self, degrees: Degrees, begin: int, end: int) -> int:
        if degrees.shards == 1:
            return 0
        whole, first = (int(self.sums(n).parameters(begin, end)) for n in (1, degrees.shards))
        return round((whole - first) * degrees.shards / (degrees.shards - 1))

    def stages(
        self, degrees: Degrees, starts: Sequence[int], *, in_seconds: bool
    ) -> list[StagePlan]:
        """The stages with their costs."""
        times, sums = self.passes(degrees, starts), self.sums(1)
        plans = []
        bounds = itertools.pairwise([0, *starts, len(self.pieces)])
        sizes, own = self.sizes(degrees, starts), self.pass_bytes(degrees, starts)
        for (begin, end), memory, of_pass, forward, back in zip(
            bounds, sizes, own, times.forward, times.backward, strict=True
        ):
            pieces = self.pieces[begin:end]
            plans.append(
                StagePlan(
                    first=pieces[0].first,
                    last=pieces[-1].last,
                    layers=sum(piece.layers for piece in pieces),
                    parameters=int(sums.parameters(begin, end)),
                    trainable_parameters=int(sums.parameters(begin, end, trained=True)),
                    flops=sum(piece.flops for piece in pieces),
                    activation_bytes=sum(piece.activation_bytes for piece in pieces),
                    output_bytes=pieces[-1].output_bytes,
                    split_parameters=self._split_parameters(degrees, begin, end),
                    shard_bytes=sum(p.shard_bytes for p in pieces) if degrees.shards > 1 else 0,
                    memory_bytes=round(memory),
                    pass_bytes=round(of_pass),
                    share=(forward + back) / times.work,
                    backward_share=back / ((forward + back) or 1),
                    forward_seconds=forward if in_seconds else None,
                    backward_seconds=back if in_seconds else None,
                )
            )
        return plans


class Passes(NamedTuple):
    """Times of a microbatch in the parts of a model, and between them."""

    forward: list[float]
    backward: list[float]
    copies: list[float]
    """To the next part, for each part but the last."""
    back: list[float]
    """The same of gradients."""

    @property
    def work(self) -> float:
        """All passes."""
        return sum(self.forward) + sum(self.backward)


class Exchange(NamedTuple):
    """The exchange that follows the passes of a step."""

    all_reduce: float
    tied: float
    """Copies of tied weights, and their gradients."""
    update: float = 0.0
    """The optimizer's update on the device with the most weights; 0: not known."""


class Step(NamedTuple):
    """The costs of a step, in the unit of the times."""

    slots: list[schedule.Slot]
    all_reduce: float
    update: float
    length: float
    speedup: float
    over_naive: float


class Degrees(NamedTuple):
    """Values of ``parallel:`` by their names; a search compares thousands of them."""

    strategy: str = ParallelSettings.model_fields["strategy"].default
    workers: int = 1
    replicas: int = 1
    stages: int = 1
    virtual_stages: int = 1
    shards: int = 1
    microbatches: int = 1
    accumulate: int = 1
    microbatch_schedule: str = "1f1b"
    remat: bool = False
    zero: int = 0

    @classmethod
    def of(cls, parallel: ParallelSettings) -> Degrees:
        """The degrees of some settings."""
        return cls(**{name: getattr(parallel, name) for name in cls._fields})

    @property
    def parts(self) -> int:
        """Number of parts that the model is cut into."""
        return self.stages * self.virtual_stages

    @property
    def devices(self) -> int:
        """Number of devices of one worker."""
        return self.replicas * self.stages * self.shards
