"""Predicts the cost of a topology before a training, and chooses the best cuts of the model.

The best cuts give the slowest stage the least time, since it sets the pace of a pipeline. Among
equal cuts, the largest stage has the fewest parameters. Every stage fits into its device's memory.

Where several tensors cross a cut (a U-Net's skips), the time of a stage includes that of sending
them.

Times have one of three sources: measurements on the device; an accelerator's peak rates of
operations and memory; or numbers of floating-point operations. The last compare parts of a model,
but give no seconds, and ignore copies between devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
from pydantic import ValidationError

from stagecraft.trainer_module.models.stages import costs, inputs, partition
from stagecraft.trainer_module.models.stages.costs import StageCost, Times
from stagecraft.trainer_module.parallel import strategy
from stagecraft.trainer_module.planning import measure, schedule, work
from stagecraft.trainer_module.planning.accelerators import Accelerator
from stagecraft.trainer_module.planning.plan import Plan, Suggestion
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings

WORTH_SAYING = 1.05
"""The least speedup of a suggestion over the plan."""

ENOUGH_MICROBATCHES = 4
"""Per stage: more hardly shrink the bubble (GPipe, section 2.3), but split the work further."""


def make_plan(
    model: keras.Model,
    settings: TrainingSettings,
    devices: Sequence[str],
    *,
    available: int = 0,
    accelerator: Accelerator | None = None,
    network_gbit: float | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Plan:
    """Cuts a model, and predicts a step of its training.

    Args:
        devices: of one worker, replica by replica, its stages in order.
        available: number of devices of a worker, for the suggestion.
        accelerator: the devices, with peak rates and memory; None: ``parallel.costs`` decides, and
            measures on the first device.
        network_gbit: Gbit/s of each worker's host to the others, in one direction; None: not known,
            and the network takes no time.
        on_progress: called with the number of parts measured, and of all parts.

    Raises:
        UserError: these cuts are not possible, or a stage exceeds its device's memory.
    """
    settings = settings.definite
    parallel = settings.parallel
    named = parallel.cuts != "auto"
    parts = parallel.model_parts
    chosen = partition.named_cuts(model, parts, parallel.cuts) if named else []
    for names in partition.all_cuts(model, parts, chosen, parallel.virtual_stages):
        pieces = partition.split(model, names)
        stage_costs = costs.stage_costs(pieces, inputs.of(model))
        if partition.is_even([cost.flops for cost in stage_costs], max(2, parts)):
            break
    factors = work.backward(stage_costs, remat=parallel.remat)
    unit, links = "flops", work.Links()
    between_hosts = (network_gbit or math.inf) * 1e9 / 8
    if accelerator:
        unit, links = "peak", work.Links(accelerator.link_gb_per_second * 1e9, between_hosts)
        times = [
            _peak(cost, accelerator, parallel.precision, factor)
            for cost, factor in zip(stage_costs, factors, strict=True)
        ]
    elif parallel.costs == "measured":
        unit, links = "measured", work.Links(hosts=between_hosts)
        times = measure.piece_times(
            pieces,
            stage_costs,
            examples=settings.train.batch_size // parallel.parts,
            device=devices[0],
            jit=parallel.jit,
            remat=parallel.remat,
            on_progress=on_progress,
        )
    else:
        times = [
            Times(cost.flops, factor * cost.flops)
            for cost, factor in zip(stage_costs, factors, strict=True)
        ]
    memory, source = parallel.memory_mb * 1e6 or math.inf, "parallel.memory_mb"
    if accelerator and not parallel.memory_mb:
        memory, source = accelerator.memory_gb * 1e9, accelerator.name
    planned = work.Work(stage_costs, times, settings, links, memory)
    named_starts = [names.index(name) + 1 for name in chosen]
    starts = named_starts if named else planned.cut(parts)
    if starts is None or not planned.fits(starts):
        raise planned.refusal(starts, source)
    step = planned.step(starts)
    in_seconds = unit != "flops"
    stages = planned.stages(starts, in_seconds=in_seconds)
    known = work.is_known(parallel, links)
    crosses = in_seconds and work.crosses_hosts(parallel)
    return Plan(
        model=model.name,
        strategy=parallel.strategy,
        workers=parallel.workers,
        devices=[list(row) for row in zip(*[iter(devices)] * parallel.stages, strict=True)],
        virtual_stages=parallel.virtual_stages,
        batch_size=settings.train.batch_size,
        accumulate=parallel.accumulate,
        microbatches=parallel.microbatches,
        microbatch_size=settings.train.batch_size // parallel.parts,
        schedule=parallel.schedule,
        times=unit,
        cuts=[names[start - 1] for start in starts],
        cuts_asked=parallel.cuts,
        stages=stages,
        tied=planned.tied(starts),
        bubble=schedule.bubble(parallel.microbatches, parallel.stages, parallel.virtual_stages),
        idle=schedule.idle(step.slots, parallel.stages),
        step_seconds=step.length if in_seconds else None,
        all_reduce_seconds=step.all_reduce if in_seconds and known else None,
        network_gbit=network_gbit if crosses else None,
        speedup=step.speedup,
        speedup_over_naive=step.over_naive,
        ideal_speedup=parallel.workers * parallel.replicas * parallel.stages,
        limit=_limit(parallel, [stage.share for stage in stages], step, network_gbit),
        suggestion=_faster(planned, len(stage_costs), step.speedup, available),
    )


def _peak(cost: StageCost, accelerator: Accelerator, precision: str, backward: float) -> Times:
    """Seconds: operations at the peak rate, plus one write and read of each activation."""
    compute = cost.flops / accelerator.flops_per_second(precision)
    memory = 2 * cost.activation_bytes / (accelerator.memory_gb_per_second * 1e9)
    return Times(compute + memory, backward * (compute + memory))


def _limit(
    parallel: ParallelSettings, shares: Sequence[float], step: work.Step, network: float | None
) -> str:
    """The main reason why the speedup is not ideal."""
    stages, microbatches = parallel.stages, parallel.microbatches
    of_devices = [sum(shares[device::stages]) for device in range(stages)]
    slowest = max(of_devices)
    bubble = schedule.bubble(microbatches, stages, parallel.virtual_stages)
    exchanged = strategy.find(parallel.strategy).traffic_description
    if work.crosses_hosts(parallel):
        exchanged += f", at {network or 0:g} Gbit/s between hosts"
    losses = {
        f"the bubble, with parallel.microbatches: {microbatches} (a stage waits {bubble:.0%} of "
        "the time)": bubble,
        f"stage {of_devices.index(slowest)} (it takes {slowest:.0%} of the time; equal stages take "
        f"{1 / stages:.0%} each)": 1 - 1 / (stages * slowest),
        exchanged: step.all_reduce / step.length,
    }
    reason, loss = max(losses.items(), key=lambda pair: pair[1])
    return reason if loss > 1 - 1 / WORTH_SAYING else "nothing much"


def _faster(planned: work.Work, pieces: int, speedup: float, available: int) -> Suggestion | None:
    """The fastest topology with other replicas, stages or microbatches; None: no clear gain.

    ``pieces``: the most stages that the model can be cut into; ``available``: devices of a worker.
    """
    parallel = planned.settings.parallel
    if strategy.find(parallel.strategy).alternative(parallel.replicas, parallel.stages) is None:
        return None
    devices = max(available, parallel.replicas * parallel.stages)
    best = None
    for settings in _others(planned.settings, devices, pieces):
        other, changed = planned.under(settings), settings.parallel
        beaten = (best.speedup if best else speedup) * WORTH_SAYING
        if changed.workers * changed.replicas * changed.stages <= beaten:
            continue  # even a perfect speedup would not do
        starts = other.cut(changed.stages)
        if starts is None or (gain := other.step(starts).speedup) <= beaten:
            continue
        best = Suggestion(
            strategy=changed.strategy,
            replicas=changed.replicas,
            stages=changed.stages,
            microbatches=changed.microbatches,
            virtual_stages=changed.virtual_stages,
            cuts=changed.cuts,
            memory_bytes=round(max(other.sizes(starts))),
            speedup=gain,
        )
    return best


def _others(settings: TrainingSettings, devices: int, pieces: int) -> Iterator[TrainingSettings]:
    """Settings that the rules allow, fewer stages first."""
    found = strategy.find(settings.parallel.strategy)
    for stages in range(1, min(devices, pieces) + 1):
        for replicas in range(1, devices // stages + 1):
            most = ENOUGH_MICROBATCHES * stages if stages > 1 else 1
            for microbatches in range(1, most + 1):
                changes: dict[str, Any] = {
                    "strategy": found.alternative(replicas, stages),
                    "replicas": replicas,
                    "stages": stages,
                    "microbatches": microbatches,
                    "virtual_stages": 1,
                    "cuts": "auto",
                }
                parallel = settings.parallel.model_dump() | changes
                try:
                    yield TrainingSettings.model_validate(
                        {"train": settings.train.model_dump(), "parallel": parallel}
                    )
                except ValidationError:  # such as a batch size that is not divisible
                    continue
