"""The pieces of a model between all of its cut points: what stages of them take, and how long.

Weights that are not trained have no gradients and no slots, and nothing is summed for them. In
front of the first piece with weights to train there is no backward pass at all, and no activation
is kept for one; behind it, a piece without such weights passes the gradient of activations on.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from stagecraft.trainer_module import registries
from stagecraft.trainer_module.models.stages import costs
from stagecraft.trainer_module.models.stages.costs import StageCost, Times
from stagecraft.trainer_module.parallel.capabilities import capabilities
from stagecraft.trainer_module.planning import exchange, schedule
from stagecraft.trainer_module.planning.exchange import Links
from stagecraft.trainer_module.planning.plan import StagePlan
from stagecraft.trainer_module.settings import TrainingSettings


class Step(NamedTuple):
    """What a topology comes to, in the unit of the times."""

    slots: list[schedule.Slot]
    """Of one turn of one replica."""
    all_reduce: float
    length: float
    speedup: float
    over_naive: float


def first_trained(pieces: Sequence[StageCost]) -> int:
    """The number of the first piece with weights to train: those before have no backward pass."""
    trained = (index for index, piece in enumerate(pieces) if piece.trainable)
    return next(trained, len(pieces))


def backward(pieces: Sequence[StageCost], *, remat: bool) -> list[float]:
    """How many times as long as forward each piece takes backward, where nobody has measured it.

    The gradient of the activations takes as many operations as the forward pass, and so does that
    of the weights, of which frozen ones have none; remat computes forward once more.
    """
    first, factors = first_trained(pieces), []
    for index, piece in enumerate(pieces):
        weights = piece.frozen + piece.trainable
        of_weights = 1 - piece.frozen / weights if weights else 1.0
        factors.append((1 + of_weights + remat) if index >= first else 0.0)
    return factors


class Work:
    """The pieces under the settings of a training."""

    def __init__(
        self,
        pieces: Sequence[StageCost],
        times: Sequence[Times],
        settings: TrainingSettings,
        links: Links,
        memory: float,
    ):
        """Prepares.

        Args:
            pieces: that follow one another.
            times: theirs, of one example.
            settings: of the training.
            links: between devices and hosts, in bytes by the unit of the times.
            memory: bytes of a device; infinite: not known.
        """
        self.settings = settings
        self._pieces, self._links, self._memory = pieces, links, memory
        self._first = first_trained(pieces)
        self._times = [
            each if index >= self._first else Times(each.forward, 0.0)
            for index, each in enumerate(times)
        ]
        parallel = settings.parallel
        self._turn = settings.train.batch_size * parallel.microbatches // parallel.parts
        """Examples that go through a replica at once."""
        self._free: dict[int, list[int] | None] = {}
        """By stages: the cuts if memory were no matter, which depend on no setting."""

    def under(self, settings: TrainingSettings) -> Work:
        """The same pieces under other settings."""
        other = Work(self._pieces, self._times, settings, self._links, self._memory)
        other._free = self._free
        return other

    # --- cutting ---

    def cut(self, stages: int) -> list[int] | None:
        """Where the stages but the first begin; None: no cuts fit into memory."""
        weighed = [
            (sum(times), piece.parameters)
            for times, piece in zip(self._times, self._pieces, strict=True)
        ]

        def fits(stage: int, begin: int, end: int) -> bool:
            return self._bytes(begin, end, stage, stages) <= self._memory

        if stages not in self._free:
            self._free[stages] = costs.balance(weighed, stages)
        free = self._free[stages]
        if free is None or self.fits(free):
            return free

        return costs.balance(weighed, stages, fits)

    def fits(self, starts: Sequence[int]) -> bool:
        """Whether every stage fits into its device's memory."""
        return max(self.sizes(starts)) <= self._memory

    def refusal(self, starts: Sequence[int] | None, whose: str) -> str:
        """Why a model does not fit into memory, and what would.

        Args:
            starts: of the stages, where they were given by name.
            whose: the setting or the device that the memory is of.
        """
        parallel = self.settings.parallel
        problem = f"{whose}: {self._memory / 1e6:,.0f} MB is less than a stage takes with "
        if parallel.cuts != "auto" and starts is not None:
            problem += f"parallel.cuts: {parallel.cuts}"
            problem += f" ({max(self.sizes(starts)) / 1e6:,.0f} MB)"
        else:
            problem += f"parallel.stages: {parallel.stages}, wherever the model is cut"
        for stages in range(parallel.stages, len(self._pieces) + 1):
            if self.cut(stages) is not None:
                cuts = capabilities(parallel.strategy).cuts_model
                grid = "" if cuts else "parallel.strategy: grid, "
                auto = "" if parallel.cuts == "auto" else ", parallel.cuts: auto"
                return f"{problem}; use {grid}parallel.stages: {stages}{auto}"
        remat = "" if parallel.remat else "parallel.remat: true, or "
        return (
            f"{problem}, and no number of stages fits; use {remat}a smaller train.batch_size, or a "
            "larger parallel.accumulate"
        )

    def _bounds(self, starts: Sequence[int]) -> list[tuple[int, int]]:
        return list(itertools.pairwise([0, *starts, len(self._pieces)]))

    # --- memory ---

    def sizes(self, starts: Sequence[int]) -> list[float]:
        """Bytes of each stage's device."""
        bounds = self._bounds(starts)
        return [
            self._bytes(begin, end, stage, len(bounds)) for stage, (begin, end) in enumerate(bounds)
        ]

    def _bytes(self, begin: int, end: int, stage: int, stages: int) -> float:
        """What the pieces from ``begin`` to before ``end`` take on their device, as a stage."""
        train, parallel = self.settings.train, self.settings.parallel
        pieces = self._pieces[begin:end]
        # The weights, and for 16 bits a copy; of those that are trained: gradients, the sum of
        # gradients, slots, averages.
        half = 0.5 if parallel.precision.startswith("mixed") else 0
        copies = 1 + (parallel.accumulate * parallel.microbatches > 1)
        copies += registries.OPTIMIZERS.get(train.optimizer).slots + bool(train.ema_decay)
        weights = self._width * (
            (1 + half) * sum(piece.parameters for piece in pieces)
            + copies * sum(piece.trainable for piece in pieces)
        )
        microbatches = parallel.microbatches
        examples = self._turn / microbatches
        # What no backward pass waits for is there for one microbatch, and one piece, at a time.
        frozen = pieces[: max(self._first - begin, 0)]
        passing = max((piece.input_bytes + piece.activation_bytes for piece in frozen), default=0)
        weights += examples * passing
        trained = pieces[len(frozen) :]
        if not trained:
            return weights
        held = _held(parallel.schedule, microbatches, stages)[stage] * examples
        coming = held * trained[0].input_bytes
        activations = sum(piece.activation_bytes for piece in trained)
        if not parallel.remat:
            return weights + coming + held * activations
        # Of about sqrt(n) segments, what goes in is kept, and of one at a time all of it.
        segments = math.isqrt(len(trained)) or 1
        kept = sum(piece.output_bytes for piece in trained) / segments
        return weights + coming + held * kept + examples * activations / segments

    @property
    def _width(self) -> int:
        """Bytes of a weight."""
        return 8 if self.settings.parallel.precision == "float64" else 4

    # --- time ---

    def step(self, starts: Sequence[int]) -> Step:
        """What a step comes to with stages that begin at ``starts``."""
        parallel = self.settings.parallel
        size, microbatches = self._turn / parallel.microbatches, parallel.microbatches
        bounds = self._bounds(starts)
        forward = [size * sum(t.forward for t in self._times[a:b]) for a, b in bounds]
        backward = [size * sum(t.backward for t in self._times[a:b]) for a, b in bounds]
        link = self._links.devices
        copies = [size * self._pieces[end - 1].output_bytes / link for _, end in bounds[:-1]]
        trained = [end > self._first for _, end in bounds[:-1]]
        back = [each if wanted else 0.0 for each, wanted in zip(copies, trained, strict=True)]
        orders = schedule.passes(parallel.schedule, microbatches, len(bounds))
        slots = schedule.timetable(orders, forward, backward, copies, back)
        gradients = [self._width * sum(p.trainable for p in self._pieces[a:b]) for a, b in bounds]
        weights = self._width * sum(piece.parameters for piece in self._pieces)
        all_reduce = exchange.seconds(parallel, gradients, weights, self._links)
        length = parallel.accumulate * schedule.span(slots) + all_reduce
        passes = parallel.accumulate * microbatches
        work = passes * (sum(forward) + sum(backward))
        # One after the other: each microbatch through all stages and back, and copied in between.
        naive = work + passes * (sum(copies) + sum(back)) + all_reduce
        copies_of_model = parallel.replicas * parallel.workers
        return Step(slots, all_reduce, length, copies_of_model * work / length, naive / length)

    # --- what is told ---

    def stages(self, starts: Sequence[int], *, in_seconds: bool) -> list[StagePlan]:
        """The stages, with what each takes."""
        size = self._turn / self.settings.parallel.microbatches
        total = sum(sum(times) for times in self._times)
        found = []
        for (begin, end), memory in zip(self._bounds(starts), self.sizes(starts), strict=True):
            pieces, times = self._pieces[begin:end], self._times[begin:end]
            forward = sum(each.forward for each in times)
            backward = sum(each.backward for each in times)
            found.append(
                StagePlan(
                    first=pieces[0].first,
                    last=pieces[-1].last,
                    layers=sum(piece.layers for piece in pieces),
                    parameters=sum(piece.parameters for piece in pieces),
                    trainable_parameters=sum(piece.trainable for piece in pieces),
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
        return found


@functools.cache
def _held(name: str, microbatches: int, stages: int) -> list[int]:
    """Microbatches whose activations each stage holds at once."""
    return [schedule.held(order) for order in schedule.passes(name, microbatches, stages)]
