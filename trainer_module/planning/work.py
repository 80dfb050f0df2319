"""Predicts memory and time of stages from the pieces between all cut points of a model.

Frozen weights have no gradients and no optimizer slots, and the all-reduce skips them. Before the
first piece with trained weights there is no backward pass, and no activation is kept for one.
After it, a piece without trained weights still passes on the gradient of its activations.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.models.stages.costs import StageCost, Tied, Times
from stagecraft.trainer_module.models.stages.partition import balance
from stagecraft.trainer_module.parallel.capabilities import capabilities
from stagecraft.trainer_module.planning import schedule
from stagecraft.trainer_module.planning.cost_model.collectives import (
    Links,
    copy_seconds,
    exchange_seconds,
)
from stagecraft.trainer_module.planning.plan import StagePlan, TiedWeight
from stagecraft.trainer_module.settings import TrainingSettings


class Step(NamedTuple):
    """The costs of a step, in the unit of the times."""

    slots: list[schedule.Slot]
    all_reduce: float
    length: float
    speedup: float
    over_naive: float


def first_trained(pieces: Sequence[StageCost]) -> int:
    """Index of the first piece with trained weights; the pieces before have no backward pass."""
    trained = (index for index, piece in enumerate(pieces) if piece.trainable)
    return next(trained, len(pieces))


def backward(pieces: Sequence[StageCost], *, remat: bool) -> list[float]:
    """Estimated ratio of backward to forward time of each piece.

    The gradient of the activations takes as many operations as the forward pass, and so does that
    of trained weights; remat repeats the forward pass.
    """
    first, factors = first_trained(pieces), []
    for index, piece in enumerate(pieces):
        weights = piece.frozen + piece.trainable
        of_weights = 1 - piece.frozen / weights if weights else 1.0
        factors.append((1 + of_weights + remat) if index >= first else 0.0)
    return factors


class Work:
    """The pieces under the settings of a training, with the times of each for one example.

    The links are in bytes by the unit of the times, the memory in bytes; infinite: not known.
    """

    def __init__(
        self,
        pieces: Sequence[StageCost],
        times: Sequence[Times],
        settings: TrainingSettings,
        links: Links,
        memory: float,
    ):
        self.settings = settings
        self._pieces, self._links, self._memory = pieces, links, memory
        self._first = first_trained(pieces)
        self._times = [
            each if index >= self._first else Times(each.forward, 0.0)
            for index, each in enumerate(times)
        ]
        parallel = settings.parallel
        self._examples = settings.train.batch_size * parallel.microbatches // parallel.parts
        """Examples that pass through a replica in one accumulation step."""
        self._has_tied = any(piece.tied for piece in pieces)
        self._free: dict[int, list[int] | None] = {}
        """Number of stages -> the best cuts for unlimited memory, which depend on no setting."""

    def under(self, settings: TrainingSettings) -> Work:
        """The same pieces under other settings."""
        other = Work(self._pieces, self._times, settings, self._links, self._memory)
        other._free = self._free
        return other

    def cut(self, parts: int) -> list[int] | None:
        """First pieces of all parts of the model but the first; None: no cuts fit into memory."""
        weighed = [
            (sum(times), piece.parameters)
            for times, piece in zip(self._times, self._pieces, strict=True)
        ]

        # The parts of a device divide its memory evenly.
        most = self._memory / self.settings.parallel.virtual_stages

        def fits(part: int, begin: int, end: int) -> bool:
            return self._bytes(begin, end, part, parts) <= most

        sending: list[float] = []
        if any(piece.output_tensors > 1 for piece in self._pieces[:-1]):
            # Without a known link, a byte counts as one operation.
            link = self._links.devices if self._links.devices < math.inf else 1.0
            sending = [piece.output_bytes / link for piece in self._pieces[:-1]]
        if parts not in self._free:
            self._free[parts] = balance(weighed, parts, sending=sending)
        free = self._free[parts]
        if free is None or self.fits(free):
            return free
        return balance(weighed, parts, fits, sending)

    def fits(self, starts: Sequence[int]) -> bool:
        """Whether the parts on every device fit into its memory."""
        sizes, stages = self.sizes(starts), self._devices(len(starts) + 1)
        return max(sum(sizes[device::stages]) for device in range(stages)) <= self._memory

    def _devices(self, parts: int) -> int:
        """Number of devices that hold the parts of a replica."""
        return parts // self.settings.parallel.virtual_stages

    def refusal(self, starts: Sequence[int] | None, source: str) -> UserError:
        """The error for a model that does not fit into memory, which ``source`` defines."""
        parallel = self.settings.parallel
        problem = f"{self._memory / 1e6:,.0f} MB is too little: with "
        if parallel.cuts != "auto" and starts is not None:
            problem += f"parallel.cuts: {parallel.cuts}, a stage needs "
            problem += f"{max(self.sizes(starts)) / 1e6:,.0f} MB"
        else:
            problem += f"parallel.stages: {parallel.stages}, no cut makes each stage small enough"
        remat = "" if parallel.remat else "parallel.remat: true, or "
        use = f"{remat}a smaller train.batch_size, or a larger parallel.accumulate"
        for stages in range(parallel.stages, len(self._pieces) // parallel.virtual_stages + 1):
            if self.cut(stages * parallel.virtual_stages) is not None:
                cuts = capabilities(parallel.strategy).cuts_model
                grid = "" if cuts else "parallel.strategy: grid, "
                auto = "" if parallel.cuts == "auto" else ", parallel.cuts: auto"
                use = f"{grid}parallel.stages: {stages}{auto}"
                break
        else:
            problem += ", and more stages do not help"
        return UserError(
            f"{source}: {problem}; use {use}",
            setting=source,
            value=self._memory / 1e6,
            suggestion=use,
        )

    def _bounds(self, starts: Sequence[int]) -> list[tuple[int, int]]:
        return list(itertools.pairwise([0, *starts, len(self._pieces)]))

    def sizes(self, starts: Sequence[int]) -> list[float]:
        """Bytes that each part takes on its device."""
        bounds = self._bounds(starts)
        return [
            self._bytes(begin, end, stage, len(bounds)) for stage, (begin, end) in enumerate(bounds)
        ]

    def _bytes(self, begin: int, end: int, stage: int, stages: int) -> float:
        """Bytes of a stage that consists of the pieces from ``begin`` to ``end``, exclusive."""
        train, parallel = self.settings.train, self.settings.parallel
        pieces = self._pieces[begin:end]
        # All weights, with a copy in 16 bits if mixed; for trained weights: gradients, the sum of
        # gradients, slots, averages.
        half = 0.5 if parallel.precision.startswith("mixed") else 0
        slots = registries.OPTIMIZERS.get(train.optimizer).slots_with(train)
        if parallel.zero:  # with a slice of each weight
            slots = (slots + 1) / parallel.replicas
        copies = 1 + (parallel.accumulate * parallel.microbatches > 1)
        copies += slots + bool(train.ema_decay)
        weights = self._width * (
            (1 + half) * self._parameters(begin, end)
            + copies * self._parameters(begin, end, trained=True)
        )
        microbatches = parallel.microbatches
        examples = self._examples / microbatches
        # Activations without a backward pass exist for one microbatch, and one piece, at a time.
        frozen = pieces[: max(self._first - begin, 0)]
        passing = max((piece.input_bytes + piece.activation_bytes for piece in frozen), default=0)
        weights += examples * passing
        trained = pieces[len(frozen) :]
        if not trained:
            return weights
        devices, virtual = self._devices(stages), parallel.virtual_stages
        held = _held(parallel.schedule, microbatches, devices, virtual)[stage] * examples
        incoming = held * trained[0].input_bytes
        activations = sum(piece.activation_bytes for piece in trained)
        if not parallel.remat:
            return weights + incoming + held * activations
        # Remat keeps the inputs of about sqrt(n) segments, and all activations of one segment.
        segments = math.isqrt(len(trained)) or 1
        kept = sum(piece.output_bytes for piece in trained) / segments
        return weights + incoming + held * kept + examples * activations / segments

    def _parameters(
        self, begin: int, end: int, *, trained: bool = False, held: bool = False
    ) -> int:
        """Number of parameters of pieces; a weight that several of them use counts once.

        ``trained``: those alone that training changes; ``held``: without tied weights that a piece
        before uses.
        """
        pieces = self._pieces[begin:end]
        count = sum(piece.trainable if trained else piece.parameters for piece in pieces)
        if not self._has_tied:
            return count
        known = {tied for piece in self._pieces[: begin if held else 0] for tied in piece.tied}
        for tied in (tied for piece in pieces for tied in piece.tied):
            if tied in known and (tied.trained or not trained):
                count -= tied.parameters
            known.add(tied)
        return count

    def tied(self, starts: Sequence[int]) -> list[TiedWeight]:
        """The weights that several stages use."""
        uses: dict[Tied, list[int]] = {}
        for stage, (begin, end) in enumerate(self._bounds(starts)):
            for weight in {tied: 0 for piece in self._pieces[begin:end] for tied in piece.tied}:
                uses.setdefault(weight, []).append(stage)
        return [
            TiedWeight(
                path=weight.path,
                stages=stages,
                bytes=(1 + weight.trained) * self._width * weight.parameters * (len(stages) - 1),
            )
            for weight, stages in uses.items()
            if len(stages) > 1
        ]

    @property
    def _width(self) -> int:
        """Bytes of a weight."""
        return 8 if self.settings.parallel.precision == "float64" else 4

    def step(self, starts: Sequence[int]) -> Step:
        """The costs of a step with stages that begin at ``starts``."""
        parallel = self.settings.parallel
        size, microbatches = self._examples / parallel.microbatches, parallel.microbatches
        bounds = self._bounds(starts)
        forward = [size * sum(t.forward for t in self._times[a:b]) for a, b in bounds]
        backward = [size * sum(t.backward for t in self._times[a:b]) for a, b in bounds]
        link = self._links.inside
        copies = [
            copy_seconds(size * self._pieces[end - 1].output_bytes, link) for _, end in bounds[:-1]
        ]
        trained = [end > self._first for _, end in bounds[:-1]]
        back = [each if wanted else 0.0 for each, wanted in zip(copies, trained, strict=True)]
        devices, virtual = self._devices(len(bounds)), parallel.virtual_stages
        orders = schedule.passes(parallel.schedule, microbatches, devices, virtual)
        slots = schedule.timetable(orders, forward, backward, copies, back)
        of_parts = [self._width * self._parameters(*b, trained=True, held=True) for b in bounds]
        gradients = [sum(of_parts[device::devices]) for device in range(devices)]
        weights = self._width * self._parameters(0, len(self._pieces))
        all_reduce = exchange_seconds(parallel, gradients, weights, self._links)
        tied = sum(copy_seconds(weight.bytes, link) for weight in self.tied(starts))
        length = parallel.accumulate * schedule.span(slots) + all_reduce + tied
        passes = parallel.accumulate * microbatches
        work = passes * (sum(forward) + sum(backward))
        # Naive: each microbatch passes through all stages and back, with copies between.
        naive = work + passes * (sum(copies) + sum(back)) + all_reduce + tied
        copies_of_model = parallel.replicas * parallel.workers
        return Step(slots, all_reduce, length, copies_of_model * work / length, naive / length)

    def stages(self, starts: Sequence[int], *, in_seconds: bool) -> list[StagePlan]:
        """The stages with their costs."""
        size = self._examples / self.settings.parallel.microbatches
        total = sum(sum(times) for times in self._times)
        plans = []
        for (begin, end), memory in zip(self._bounds(starts), self.sizes(starts), strict=True):
            pieces, times = self._pieces[begin:end], self._times[begin:end]
            forward = sum(each.forward for each in times)
            backward = sum(each.backward for each in times)
            plans.append(
                StagePlan(
                    first=pieces[0].first,
                    last=pieces[-1].last,
                    layers=sum(piece.layers for piece in pieces),
                    parameters=self._parameters(begin, end),
                    trainable_parameters=self._parameters(begin, end, trained=True),
                    flops=sum(piece.flops for piece in pieces),
                    activation_bytes=sum(piece.activation_bytes for piece in pieces),
                    output_bytes=pieces[-1].output_bytes,
                    memory_bytes=round(memory),
                    share=(forward + backward) / total,
                    backward_share=backward / ((forward + backward) or 1),
                    forward_seconds=size * forward if in_seconds else None,
                    backward_seconds=size * backward if in_seconds else None,
                )
            )
        return plans


@functools.cache
def _held(name: str, microbatches: int, stages: int, virtual: int) -> list[int]:
    """The most microbatches whose activations each part of the model holds at once."""
    orders = schedule.passes(name, microbatches, stages, virtual)
    return [
        schedule.held(now for now in orders[part % stages] if now.stage == part)
        for part in range(stages * virtual)
    ]
