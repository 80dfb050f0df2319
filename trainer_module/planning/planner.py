"""Predicts the cost of a topology before a training, and chooses the best cuts of the model.

The best cuts give the slowest stage the least time, since it sets the pace of a pipeline. Among
equal cuts, the largest stage has the fewest parameters. Every stage fits into its device's memory.

Where several tensors cross a cut (a U-Net's skips), the time of a stage includes that of sending
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.parallel.topology import Topology
from stagecraft.trainer_module.pipeline_parallel import partition, schedule
from stagecraft.trainer_module.planning import collective_costs, model_pieces
from stagecraft.trainer_module.planning.accelerators import Accelerator
from stagecraft.trainer_module.planning.cost_model import CostModel, Step
from stagecraft.trainer_module.planning.plan import Plan, Suggestion
from stagecraft.trainer_module.planning.search.search import Search
from stagecraft.trainer_module.planning.search.space import Space
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings

WORTH_SAYING = 1.05
"""The least speedup of a suggestion over the plan."""


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
    ready = model_pieces.prepare(
        model,
        settings,
        devices[0],
        accelerator=accelerator,
        network_gbit=network_gbit,
        on_progress=on_progress,
    )
    planned, unit, parallel = ready.work, ready.times, settings.parallel
    links, names, starts = planned.links, ready.names, ready.named
    if starts is None:
        starts = planned.cut(planned.degrees)
    if starts is None or not planned.fits(planned.degrees, starts):
        raise _too_little_memory(planned, starts, ready.memory_source)
    step = planned.step(planned.degrees, starts)
    in_seconds = unit != "flops"
    stages = planned.stages(planned.degrees, starts, in_seconds=in_seconds)
    known = collective_costs.is_known(parallel, links)
    each = parallel.stages * parallel.shards
    crosses = in_seconds and parallel.found.crosses_hosts(parallel)
    return Plan(
        model=model.name,
        strategy=parallel.strategy,
        workers=parallel.workers,
        devices=[list(row) for row in zip(*[iter(devices)] * each, strict=True)],
        shards=parallel.shards,
        virtual_stages=parallel.virtual_stages,
        batch_size=settings.train.batch_size,
        accumulate=parallel.accumulate,
        microbatches=parallel.microbatches,
        microbatch_size=settings.train.batch_size // parallel.parts,
        microbatch_schedule=parallel.microbatch_schedule,
        times=unit,
        cuts=[names[start - 1] for start in starts],
        cuts_asked=",".join(parallel.cut_names) or "auto",
        stages=stages,
        tied=planned.tied(starts),
        whole=planned.whole(parallel.shards),
        bubble=schedule.bubble(parallel.microbatches, parallel.stages, parallel.virtual_stages),
        idle=schedule.idle(step.slots, parallel.stages),
        step_seconds=step.length if in_seconds else None,
        all_reduce_seconds=step.all_reduce if in_seconds and known else None,
        network_gbit=network_gbit if crosses else None,
        speedup=step.speedup,
        speedup_over_naive=step.over_naive,
        ideal_speedup=parallel.workers * parallel.devices_per_worker,
        limit=_limit(parallel, [stage.share for stage in stages], step, network_gbit),
        suggestion=_faster(planned, step.length, available),
    )


def make_plan_of_workers(
    model: keras.Model,
    settings: TrainingSettings,
    topology: Topology,
    from_chief: Callable[[Sequence[tf.Tensor]], list[tf.Tensor]],
) -> Plan:
    """The plan of a model's stages, cut on all workers as on the chief.

    Args:
        from_chief: gives each worker the chief's values; the others pass values of equal shapes.
    """
    parallel, devices = settings.parallel, topology.devices
    same = parallel.costs == "flops" or parallel.cut_names
    if topology.workers == 1 or same:
        return make_plan(model, settings, devices)
    # Measured times differ between workers, so the chief chooses the cuts.
    names = [point.layer for point in partition.cut_points(model)]
    if topology.worker == 0:
        plan = make_plan(model, settings, devices)
        from_chief([tf.constant([names.index(cut) for cut in plan.cuts], tf.int64)])
        return plan
    (chosen,) = from_chief([tf.zeros([parallel.model_parts - 1], tf.int64)])
    cuts = tuple(names[index] for index in chosen)
    known = parallel.model_copy(update={"cuts": cuts or "auto", "costs": "flops"})
    return make_plan(model, settings.model_copy(update={"parallel": known}), devices)


def _limit(
    parallel: ParallelSettings, shares: Sequence[float], step: Step, network: float | None
) -> str:
    """The main reason why the speedup is not ideal."""
    stages, microbatches = parallel.stages, parallel.microbatches
    of_devices = [sum(shares[device::stages]) for device in range(stages)]
    slowest = max(of_devices)
    bubble = schedule.bubble(microbatches, stages, parallel.virtual_stages)
    exchanged = parallel.found.traffic_description
    if parallel.found.crosses_hosts(parallel):
        exchanged += f", at {network or 0:g} Gbit/s between hosts"
    losses = {
        f"the bubble, with parallel.microbatches: {microbatches} (a stage waits {bubble:.0%} of "
        "the time)": bubble,
        f"stage {of_devices.index(slowest)} (it takes {slowest:.0%} of the time; equal stages take "
        f"{1 / stages:.0%} each)": 1 - 1 / (stages * slowest),
        exchanged: step.all_reduce / step.length,
        "the optimizer's update": step.update / step.length,
    }
    reason, loss = max(losses.items(), key=lambda pair: pair[1])
    return reason if loss > 1 - 1 / WORTH_SAYING else "nothing much"


def _faster(planned: CostModel, length: float, available: int) -> Suggestion | None:
    """The fastest topology with other replicas, stages or microbatches; None: no clear gain.

    ``length``: of the plan's step; ``available``: devices of a worker.
    """
    parallel, degrees = planned.settings.parallel, planned.degrees
    if parallel.found.alternative(degrees.replicas, degrees.stages) is None:
        return None
    kept = ("workers", "shards", "accumulate", "microbatch_schedule", "remat", "zero")
    fixed = {name: getattr(degrees, name) for name in kept} | {"virtual_stages": 1}
    space = Space(
        planned,
        hosts=degrees.workers,
        devices=max(available, degrees.devices),
        fixed=fixed,
    )
    for best in Search(planned, space).run(keep=1).best:
        step = planned.step(best.degrees, best.starts)
        if step.length * WORTH_SAYING > length:
            return None
        chosen = best.degrees
        return Suggestion(
            strategy=chosen.strategy,
            replicas=chosen.replicas,
            stages=chosen.stages,
            microbatches=chosen.microbatches,
            virtual_stages=chosen.virtual_stages,
            cuts="auto",
            memory_bytes=round(planned.device_bytes(chosen, best.starts)),
            speedup=step.speedup,
        )
    return None


def _too_little_memory(work: CostModel, starts: Sequence[int] | None, source: str) -> UserError:
    """The error for a model that does not fit into memory, which ``source`` defines."""
    parallel, degrees = work.settings.parallel, work.degrees
    problem = f"{work.memory / 1e6:,.0f} MB is too little: with "
    if parallel.cuts != "auto" and starts is not None:
        problem += f"parallel.cuts: {','.join(parallel.cut_names)}, a stage needs "
        problem += f"{max(work.sizes(degrees, starts)) / 1e6:,.0f} MB"
    else:
        problem += f"parallel.stages: {parallel.stages}, no cut makes each stage small enough"
    remat = "" if parallel.remat else "parallel.remat: true, or "
    use = f"{remat}a smaller train.batch_size, or a larger parallel.accumulate"
    for stages in range(parallel.stages, len(work.pieces) // parallel.virtual_stages + 1):
        if work.cut(degrees._replace(stages=stages)) is not None:
            cuts = parallel.found.cuts_model
            grid = "" if cuts else "parallel.strategy: grid, "
            auto = "" if parallel.cuts == "auto" else ", parallel.cuts: auto"
            use = f"{grid}parallel.stages: {stages}{auto}"
            break
    else:
        problem += ", and more stages do not help"
    return UserError(
        f"{source}: {problem}; use {use}",
        setting=source,
        value=work.memory / 1e6,
        suggestion=use,
    )
