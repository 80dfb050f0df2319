"""Before a training: what a topology costs, and where the model is best cut for it.

The cuts are those for which the slowest stage takes the least time, for a pipeline goes at its
pace; among those, the largest stage by parameters is the smallest. No stage takes more memory than
a device has. A step is then the schedule, run with the stages' times.

Times are, in this order of trust: measured on the device; from the peak figures of an accelerator,
operations and bytes moved each at their peak rate; or floating-point operations, which tell how
parts of a model compare, not how long they take, and know nothing of copies between devices. A
backward pass that was not measured takes twice as long as the forward pass, and with remat three
times; less where weights are frozen (:mod:`stagecraft.trainer_module.planning.work`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import keras

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.models.stages import costs, functional, partition
from stagecraft.trainer_module.models.stages.costs import StageCost, Times
from stagecraft.trainer_module.parallel import strategy
from stagecraft.trainer_module.planning import exchange, measure, schedule, suggest, work
from stagecraft.trainer_module.planning.accelerators import Accelerator
from stagecraft.trainer_module.planning.exchange import Links
from stagecraft.trainer_module.planning.plan import Plan
from stagecraft.trainer_module.planning.suggest import WORTH_SAYING
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings


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
        model: built.
        settings: of the training.
        devices: of one worker, replica by replica, its stages in order.
        available: how many devices a worker has, to choose a suggestion by.
        accelerator: what the devices are, to take times and memory from; None: times are what
            ``parallel.costs`` says, measured on the first device.
        network_gbit: Gbit/s of each worker's host to the others, in one direction; None: not known,
            and what is sent there takes no time.
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
    factors = work.backward(found, remat=parallel.remat)
    unit, links = "flops", Links()
    between_hosts = (network_gbit or math.inf) * 1e9 / 8
    if accelerator:
        unit = "peak"
        links = Links(accelerator.link_gb_per_second * 1e9, between_hosts)
        times = [
            _peak(cost, accelerator, parallel.precision, factor)
            for cost, factor in zip(found, factors, strict=True)
        ]
    elif parallel.costs == "measured":
        unit = "measured"
        links = Links(hosts=between_hosts)
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
        times = [
            Times(cost.flops, factor * cost.flops)
            for cost, factor in zip(found, factors, strict=True)
        ]
    memory, whose = parallel.memory_mb * 1e6 or math.inf, "parallel.memory_mb"
    if accelerator and not parallel.memory_mb:
        memory, whose = accelerator.memory_gb * 1e9, accelerator.name
    planned = work.Work(found, times, settings, links, memory)
    starts: list[int] | None = [names.index(name) + 1 for name in chosen]
    if not named:
        starts = planned.cut(parallel.stages)
    if starts is None or not planned.fits(starts):
        raise UserError(planned.refusal(starts, whose))
    step = planned.step(starts)
    in_seconds = unit != "flops"
    stages = planned.stages(starts, in_seconds=in_seconds)
    known = exchange.is_known(parallel, links)
    crosses = in_seconds and exchange.crosses_hosts(parallel)
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
        cuts_asked=parallel.cuts,
        stages=stages,
        bubble=schedule.bubble(parallel.microbatches, parallel.stages),
        idle=schedule.idle(step.slots),
        step_seconds=step.length if in_seconds else None,
        all_reduce_seconds=step.all_reduce if in_seconds and known else None,
        network_gbit=network_gbit if crosses else None,
        speedup=step.speedup,
        speedup_over_naive=step.over_naive,
        ideal_speedup=parallel.workers * parallel.replicas * parallel.stages,
        limit=_limit(parallel, [stage.share for stage in stages], step, network_gbit),
        suggestion=suggest.faster(planned, len(found), step.speedup, available),
    )


def _peak(cost: StageCost, accelerator: Accelerator, precision: str, backward: float) -> Times:
    """Seconds: operations at the peak rate, and each activation written and read once."""
    compute = cost.flops / accelerator.flops_per_second(precision)
    memory = 2 * cost.activation_bytes / (accelerator.memory_gb_per_second * 1e9)
    return Times(compute + memory, backward * (compute + memory))


def _limit(
    parallel: ParallelSettings, shares: Sequence[float], step: work.Step, network: float | None
) -> str:
    """What takes the most of what the devices could do."""
    stages, microbatches, slowest = parallel.stages, parallel.microbatches, max(shares)
    bubble = schedule.bubble(microbatches, stages)
    exchanged = strategy.find(parallel.strategy).traffic_description
    if exchange.crosses_hosts(parallel):
        exchanged += f", at {network or 0:g} Gbit/s between hosts"
    losses = {
        f"the bubble, with parallel.microbatches: {microbatches} (a stage waits {bubble:.0%} of "
        "the time)": bubble,
        f"stage {shares.index(slowest)} (it takes {slowest:.0%} of the time; an equal part is "
        f"{1 / stages:.0%})": 1 - 1 / (stages * slowest),
        exchanged: step.all_reduce / step.length,
    }
    what, loss = max(losses.items(), key=lambda pair: pair[1])
    return what if loss > 1 - 1 / WORTH_SAYING else "nothing much"
