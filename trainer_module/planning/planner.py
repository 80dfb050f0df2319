"""Before a training: what a topology costs, and where the model is best cut for it.

The cuts are those for which the slowest stage takes the least time, for a pipeline goes at its
pace; among those, the largest stage by parameters is the smallest. No stage takes more memory than
a device has. A step is then the schedule, run with the stages' times.

Times are, in this order of trust: measured on the device; from the peak figures of an accelerator,
operations and bytes moved each at their peak rate; or floating-point operations, which tell how
parts of a model compare, not how long they take, and know nothing of copies between devices. A
backward pass that was not measured takes twice as long as the forward pass, and with remat three
times.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.planning import costs, functional, measure, partition, schedule
from stagecraft.trainer_module.planning.accelerators import Accelerator
from stagecraft.trainer_module.planning.costs import StageCost, Times
from stagecraft.trainer_module.planning.plan import Plan, StagePlan, Suggestion
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings

WORTH_SAYING = 1.05
"""How many times as fast another topology has to be to be suggested."""

ENOUGH_MICROBATCHES = 4
"""For each stage: more make the bubble hardly smaller (GPipe, section 2.3), and the work in smaller
pieces."""


def make_plan(
    model: keras.Model,
    settings: TrainingSettings,
    devices: Sequence[str],
    *,
    available: int = 0,
    accelerator: Accelerator | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Plan:
    """Cuts a model, and predicts a step of its training.

    Args:
        model: built.
        settings: of the training.
        devices: of one worker, replica by replica, its stages in order.
        available: how many devices a worker has, to choose a suggestion by.
        accelerator: what the devices are, to take times and memory from; None: times are what
            ``parallel.costs`` says, measured on the first device.
        on_progress: called with parts measured and parts to be measured.

    Raises:
        UserError: the model cannot be cut so, or a stage does not fit into its device's memory.
    """
    parallel = settings.parallel
    named = parallel.cuts != "auto"
    chosen = partition.named_cuts(model, parallel.stages, parallel.cuts) if named else []
    names = partition.all_cuts(model, parallel.stages)
    pieces = partition.split(model, names)
    found = costs.stage_costs(pieces, functional.input_of(model))
    factor = 3 if parallel.remat else 2
    if accelerator:
        unit = "peak"
        times = [_peak(cost, accelerator, parallel.precision, factor) for cost in found]
    elif parallel.costs == "measured":
        unit = "measured"
        times = measure.piece_times(
            pieces,
            found,
            examples=settings.train.batch_size // parallel.parts,
            device=devices[0],
            jit=parallel.jit,
            remat=parallel.remat,
            on_progress=on_progress,
        )
    else:
        unit = "flops"
        times = [Times(cost.flops, factor * cost.flops) for cost in found]
    work = _Work(found, times, settings, accelerator)
    starts: list[int] | None = [names.index(name) + 1 for name in chosen]
    if not named:
        starts = work.cut(parallel.stages, parallel.microbatches)
    if starts is None or not work.fits(starts, parallel.microbatches):
        raise UserError(work.refusal(starts))
    step = work.step(starts, parallel.microbatches)
    in_seconds = unit != "flops"
    stages = work.stages(starts, in_seconds=in_seconds)
    return Plan(
        model=model.name,
        strategy=parallel.strategy,
        workers=parallel.workers,
        devices=[list(row) for row in zip(*[iter(devices)] * parallel.stages, strict=True)],
        batch_size=settings.train.batch_size,
        accumulate=parallel.accumulate,
        microbatches=parallel.microbatches,
        microbatch_size=settings.train.batch_size // parallel.parts,
        schedule=parallel.schedule,
        times=unit,
        cuts=[names[start - 1] for start in starts],
        stages=stages,
        bubble=schedule.bubble(parallel.microbatches, parallel.stages),
        idle=schedule.idle(step.slots),
        step_seconds=step.length if in_seconds else None,
        all_reduce_seconds=step.all_reduce if accelerator else None,
        speedup=step.speedup,
        speedup_over_naive=step.over_naive,
        ideal_speedup=parallel.workers * parallel.replicas * parallel.stages,
        limit=_limit(parallel, [stage.share for stage in stages], step),
        suggestion=work.suggestion(step.speedup, available),
    )


def _peak(cost: StageCost, accelerator: Accelerator, precision: str, factor: int) -> Times:
    """Seconds: operations at the peak rate, and each activation written and read once."""
    compute = cost.flops / accelerator.flops_per_second(precision)
    memory = 2 * cost.activation_bytes / (accelerator.memory_gb_per_second * 1e9)
    return Times(compute + memory, factor * (compute + memory))


def _limit(parallel: ParallelSettings, shares: Sequence[float], step: _Step) -> str:
    """What takes the most of what the devices could do."""
    stages, microbatches, slowest = parallel.stages, parallel.microbatches, max(shares)
    bubble = schedule.bubble(microbatches, stages)
    losses = {
        f"the bubble, with parallel.microbatches: {microbatches} (a stage waits {bubble:.0%} of "
        "the time)": bubble,
        f"stage {shares.index(slowest)} (it takes {slowest:.0%} of the time; an equal part is "
        f"{1 / stages:.0%})": 1 - 1 / (stages * slowest),
        "the all-reduce of gradients": step.all_reduce / step.length,
    }
    what, loss = max(losses.items(), key=lambda pair: pair[1])
    return what if loss > 1 - 1 / WORTH_SAYING else "nothing much"


class _Step(NamedTuple):
    """What a topology comes to, in the unit of the times."""

    slots: list[schedule.Slot]
    """Of one turn of one replica."""
    all_reduce: float
    length: float
    speedup: float
    over_naive: float


class _Work:
    """The pieces of a model between all of its cut points, and what they take."""

    def __init__(
        self,
        pieces: Sequence[StageCost],
        times: Sequence[Times],
        settings: TrainingSettings,
        accelerator: Accelerator | None,
    ):
        self._pieces = pieces
        self._times = times
        self._settings = settings
        self._accelerator = accelerator
        parallel = settings.parallel
        self._turn = settings.train.batch_size * parallel.microbatches // parallel.parts
        """Examples that go through a replica at once."""
        self._memory = parallel.memory_mb * 1e6 or math.inf
        self._whose = "parallel.memory_mb"
        if accelerator and not parallel.memory_mb:
            self._memory, self._whose = accelerator.memory_gb * 1e9, accelerator.name

    # --- cutting ---

    def cut(self, stages: int, microbatches: int) -> list[int] | None:
        """Where the stages but the first begin; None: no cuts fit into memory."""
        weighed = [
            (sum(times), piece.parameters)
            for times, piece in zip(self._times, self._pieces, strict=True)
        ]

        def fits(stage: int, begin: int, end: int) -> bool:
            if self._memory == math.inf:
                return True
            return self._bytes(begin, end, stage, stages, microbatches) <= self._memory

        return costs.balance(weighed, stages, fits)

    def fits(self, starts: Sequence[int], microbatches: int) -> bool:
        """Whether every stage fits into its device's memory."""
        return max(self._sizes(starts, microbatches)) <= self._memory

    def refusal(self, starts: Sequence[int] | None) -> str:
        """Why a model does not fit into memory, and what would.

        Args:
            starts: of the stages, where they were given by name.
        """
        parallel = self._settings.parallel
        problem = f"{self._whose}: {self._memory / 1e6:,.0f} MB is less than a stage takes with "
        if parallel.cuts != "auto" and starts is not None:
            problem += f"parallel.cuts: {parallel.cuts}"
            largest = max(self._sizes(starts, parallel.microbatches))
            problem += f" ({largest / 1e6:,.0f} MB)"
        else:
            problem += f"parallel.stages: {parallel.stages}, wherever the model is cut"
        for stages in range(parallel.stages, len(self._pieces) + 1):
            if self.cut(stages, parallel.microbatches) is not None:
                grid = "" if parallel.strategy == "grid" else "parallel.strategy: grid, "
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

    def _sizes(self, starts: Sequence[int], microbatches: int) -> list[float]:
        bounds = self._bounds(starts)
        return [
            self._bytes(begin, end, stage, len(bounds), microbatches)
            for stage, (begin, end) in enumerate(bounds)
        ]

    def _bytes(self, begin: int, end: int, stage: int, stages: int, microbatches: int) -> float:
        """What the pieces from ``begin`` to before ``end`` take on their device, as a stage."""
        train, parallel = self._settings.train, self._settings.parallel
        pieces = self._pieces[begin:end]
        # Weights, gradients, the sum of gradients, slots, averages; 16 bits: a copy of the weights.
        copies = 2.0 + (parallel.accumulate * microbatches > 1)
        copies += {"sgd": 1, "adamw": 2}[train.optimizer] + bool(train.ema_decay)
        copies += 0.5 if parallel.precision.startswith("mixed") else 0
        width = 8 if parallel.precision == "float64" else 4
        weights = width * copies * sum(piece.parameters for piece in pieces)
        order = schedule.passes(parallel.schedule, microbatches, stages)[stage]
        examples = self._turn / microbatches
        held = schedule.held(order) * examples
        coming = held * pieces[0].input_bytes
        activations = sum(piece.activation_bytes for piece in pieces)
        if not parallel.remat:
            return weights + coming + held * activations
        # Of about sqrt(n) segments, what goes in is kept, and of one at a time all of it.
        segments = math.isqrt(len(pieces)) or 1
        kept = sum(piece.output_bytes for piece in pieces) / segments
        return weights + coming + held * kept + examples * activations / segments

    # --- time ---

    def step(self, starts: Sequence[int], microbatches: int) -> _Step:
        """What a step comes to with stages that begin at ``starts``."""
        parallel, size = self._settings.parallel, self._turn / microbatches
        bounds = self._bounds(starts)
        forward = [size * sum(t.forward for t in self._times[a:b]) for a, b in bounds]
        backward = [size * sum(t.backward for t in self._times[a:b]) for a, b in bounds]
        link = self._accelerator.link_gb_per_second * 1e9 if self._accelerator else math.inf
        copies = [size * self._pieces[end - 1].output_bytes / link for _, end in bounds[:-1]]
        orders = schedule.passes(parallel.schedule, microbatches, len(bounds))
        slots = schedule.timetable(orders, forward, backward, copies)
        ring = 2 * (parallel.replicas - 1) / parallel.replicas  # Patarasuk and Yuan 2009
        width = 8 if parallel.precision == "float64" else 4
        most = max(sum(piece.parameters for piece in self._pieces[a:b]) for a, b in bounds)
        all_reduce = ring * width * most / link
        length = parallel.accumulate * schedule.span(slots) + all_reduce
        work = parallel.accumulate * microbatches * (sum(forward) + sum(backward))
        # One after the other: each microbatch through all stages and back, and copied in between.
        naive = work + parallel.accumulate * microbatches * 2 * sum(copies) + all_reduce
        copies_of_model = parallel.replicas * parallel.workers
        return _Step(slots, all_reduce, length, copies_of_model * work / length, naive / length)

    # --- what is told ---

    def stages(self, starts: Sequence[int], *, in_seconds: bool) -> list[StagePlan]:
        """The stages, with what each takes."""
        microbatches = self._settings.parallel.microbatches
        size = self._turn / microbatches
        total = sum(sum(times) for times in self._times)
        found = []
        for (begin, end), memory in zip(
            self._bounds(starts), self._sizes(starts, microbatches), strict=True
        ):
            pieces, times = self._pieces[begin:end], self._times[begin:end]
            forward = sum(each.forward for each in times)
            backward = sum(each.backward for each in times)
            found.append(
                StagePlan(
                    first=pieces[0].first,
                    last=pieces[-1].last,
                    layers=sum(piece.layers for piece in pieces),
                    parameters=sum(piece.parameters for piece in pieces),
                    flops=sum(piece.flops for piece in pieces),
                    activation_bytes=sum(piece.activation_bytes for piece in pieces),
                    output_bytes=pieces[-1].output_bytes,
                    memory_bytes=round(memory),
                    share=(forward + backward) / total,
                    forward_seconds=size * forward if in_seconds else None,
                    backward_seconds=size * backward if in_seconds else None,
                )
            )
        return found

    def suggestion(self, speedup: float, available: int) -> Suggestion | None:
        """The fastest with other stages or microbatches, where it is worth saying."""
        parallel = self._settings.parallel
        if parallel.strategy != "grid":
            return None
        most = min(max(available // parallel.replicas, parallel.stages), len(self._pieces))
        best = None
        for stages in range(1 if parallel.cuts == "auto" else parallel.stages, most + 1):
            for microbatches in range(1, ENOUGH_MICROBATCHES * stages + 1):
                if self._turn % microbatches:
                    continue
                starts = self.cut(stages, microbatches)
                if starts is None:
                    continue
                found = self.step(starts, microbatches).speedup
                if found > (best.speedup if best else speedup) * WORTH_SAYING:
                    best = Suggestion(stages=stages, microbatches=microbatches, speedup=found)
        return best
