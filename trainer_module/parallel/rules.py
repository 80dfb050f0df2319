"""What goes together in the parallel settings, and what does not.

Every refusal names the field, its value, and a value that would work. What only the
machine can tell (are there so many GPUs?) is in ``topology``, what only the model can
tell (is there such a layer?) in ``partition``.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence

if typing.TYPE_CHECKING:
    from stagecraft.trainer_module.parallel.settings import ParallelSettings

TAKES_ALL = ("multi_worker_mirrored", "parameter_server")
"""Strategies whose workers take all GPUs that they see, or their first CPU."""

OVER_WORKERS = (*TAKES_ALL, "grid")
"""Strategies of several processes."""

ALL_REDUCES = {
    "mirrored": ("auto", "nccl", "hierarchical_copy", "one_device"),
    "multi_worker_mirrored": ("auto", "ring", "nccl"),
    "grid": ("auto", "ring", "nccl"),
}
"""What a strategy takes; the others choose by themselves."""


def check(parallel: ParallelSettings) -> None:
    """Refuses what cannot be.

    Raises:
        ValueError: names the field, its value and one that would work.
    """
    for rule in (
        _stages,
        _microbatches,
        _cuts,
        _replicas,
        _workers,
        _devices,
        _device_types,
        _virtual_devices,
        _all_reduce,
        _precision,
        _jit,
        _memory,
        _timeline,
        _profile,
    ):
        rule(parallel)


def check_batch_size(batch_size: int, parallel: ParallelSettings) -> None:
    """Refuses a global batch that cannot be split into equal parts.

    Raises:
        ValueError: names the field, its value and one that would work.
    """
    if batch_size % parallel.parts == 0:
        return
    names = ["replicas", "accumulate", "microbatches"]
    if parallel.strategy != "parameter_server":
        names.insert(0, "workers")
    degrees = [(name, getattr(parallel, name)) for name in names if getattr(parallel, name) > 1]
    product = " × ".join(f"parallel.{name}: {degree}" for name, degree in degrees)
    total = f" = {parallel.parts}" if len(degrees) > 1 else ""
    fits = batch_size - batch_size % parallel.parts or parallel.parts
    raise ValueError(
        f"train.batch_size: {batch_size} is not divided by {product}{total}; "
        f"use train.batch_size: {fits}"
    )


def check_watched(steps: int, parallel: ParallelSettings) -> None:
    """Refuses to watch steps that a training does not have.

    Raises:
        ValueError: names the field, its value and one that would work.
    """
    if parallel.timeline_step > steps:
        raise ValueError(
            f"parallel.timeline_step: {parallel.timeline_step} is behind the last step: the "
            f"training has {steps:,}; use parallel.timeline_step: {steps} or less"
        )
    first, _, last = parallel.profile_steps.partition(":")
    if first and int(last) > steps:
        raise ValueError(
            f"parallel.profile_steps: {parallel.profile_steps} end behind the last step: the "
            f"training has {steps:,}; use parallel.profile_steps: {min(int(first), steps)}:{steps}"
        )


def _stages(parallel: ParallelSettings) -> None:
    if parallel.stages > 1 and parallel.strategy != "grid":
        raise ValueError(
            f"stages: {parallel.stages} needs strategy: grid ({parallel.strategy} keeps the whole "
            "model on each device); use strategy: grid"
        )


def _microbatches(parallel: ParallelSettings) -> None:
    if parallel.microbatches > 1 and parallel.strategy != "grid":
        raise ValueError(
            f"microbatches: {parallel.microbatches} needs strategy: grid ({parallel.strategy} has "
            f"one stage, which they would pass one after the other); "
            f"use microbatches: 1 with accumulate: {parallel.accumulate * parallel.microbatches}"
        )


def _cuts(parallel: ParallelSettings) -> None:
    names, wanted = parallel.cut_names, parallel.stages - 1
    if names and not wanted:
        if parallel.strategy == "grid":
            fits = f"stages: {len(names) + 1}, or cuts: auto"
        else:
            fits = "cuts: auto"
        raise ValueError(
            f"cuts: {parallel.cuts} needs stages, and stages: 1 is the whole model; use {fits}"
        )
    _refuse_duplicates("cuts", names)
    if names and len(names) != wanted:
        raise ValueError(
            f"cuts: {parallel.cuts} makes {len(names) + 1} stages, not stages: {parallel.stages}; "
            f"use stages: {len(names) + 1}, name {wanted} "
            f"layer{'s' if wanted > 1 else ''}, or use cuts: auto"
        )


def _replicas(parallel: ParallelSettings) -> None:
    if parallel.replicas == 1:
        return
    if parallel.strategy == "one_device":
        raise ValueError(
            f"replicas: {parallel.replicas} needs several devices; use strategy: mirrored, "
            "or replicas: 1 with one_device"
        )
    if parallel.strategy == "parameter_server":
        raise ValueError(
            f"replicas: {parallel.replicas} is for replicas in step, and parameter_server trains "
            f"one model by many workers; use replicas: 1 with "
            f"workers: {parallel.workers * parallel.replicas}"
        )
    on_cpus = parallel.virtual_devices or any(n.startswith("CPU") for n in parallel.device_names)
    if parallel.strategy == "multi_worker_mirrored" and on_cpus:
        # collective_all_reduce_strategy.py, _initialize_local_devices: all GPUs, or one CPU.
        raise ValueError(
            f"replicas: {parallel.replicas} on CPUs: multi_worker_mirrored takes all of a worker's "
            "GPUs, or one CPU; use replicas: 1 with "
            f"workers: {parallel.workers * parallel.replicas}"
            + (" and devices: CPU:0" if parallel.device_names else "")
        )


def _workers(parallel: ParallelSettings) -> None:
    if parallel.workers == 1 or parallel.strategy in OVER_WORKERS:
        return
    raise ValueError(
        f"workers: {parallel.workers}: {parallel.strategy} trains in one process; use strategy: "
        f"multi_worker_mirrored or grid with workers: {parallel.workers}, or workers: 1"
    )


def _devices(parallel: ParallelSettings) -> None:
    names, wanted = parallel.device_names, parallel.replicas * parallel.stages
    if not names:
        return
    if parallel.strategy == "tpu":
        raise ValueError(
            f"devices: {parallel.devices} is not for tpu, which takes all of its cores; "
            "use devices: auto"
        )
    _refuse_duplicates("devices", names)
    if len(names) != wanted:
        raise ValueError(
            f"devices: {parallel.devices} are {len(names)}, but replicas: {parallel.replicas} × "
            f"stages: {parallel.stages} need {wanted}; name {wanted}, or use devices: auto"
        )
    gpus = [name for name in names if name.startswith("GPU")]
    if gpus and parallel.virtual_devices:
        raise ValueError(
            f"virtual_devices: {parallel.virtual_devices} makes logical CPUs, but devices: "
            f"{parallel.devices} names GPUs; use virtual_devices: 0"
        )
    highest = max((int(name[4:]) for name in names if name.startswith("CPU")), default=0)
    if highest and parallel.strategy in TAKES_ALL:
        raise ValueError(
            f"devices: {parallel.devices} is another CPU than the one that a worker of "
            f"{parallel.strategy} takes; use devices: CPU:0"
        )
    if highest >= max(parallel.virtual_devices, 1):
        raise ValueError(
            f"devices: {parallel.devices} names CPU:{highest}, but virtual_devices: "
            f"{parallel.virtual_devices} gives CPU:0"
            + (f" to CPU:{parallel.virtual_devices - 1}" if parallel.virtual_devices > 1 else "")
            + f" only; use virtual_devices: {highest + 1}"
        )


def _device_types(parallel: ParallelSettings) -> None:
    """A collective is of one type of device: mirrored's over all, grid's over each stage's."""
    names = parallel.device_names
    if parallel.strategy in ("mirrored", "multi_worker_mirrored"):
        groups, what = [names], "of " + parallel.strategy
    elif parallel.strategy == "grid":
        groups = [names[stage :: parallel.stages] for stage in range(parallel.stages)]
        what = "of the replicas of a stage"
    else:
        return
    if any(len({name[:3] for name in group}) > 1 for group in groups):
        raise ValueError(
            f"devices: {parallel.devices} mixes CPUs and GPUs, but those {what} add up gradients "
            "between devices of one type; use devices: auto"
        )


def _virtual_devices(parallel: ParallelSettings) -> None:
    if not parallel.virtual_devices:
        return
    if parallel.strategy == "tpu":
        raise ValueError(
            f"virtual_devices: {parallel.virtual_devices} makes logical CPUs, and tpu trains on "
            "none; use virtual_devices: 0"
        )
    needed = parallel.replicas * parallel.stages
    if parallel.virtual_devices < needed:
        stages = f" × stages: {parallel.stages}" if parallel.stages > 1 else ""
        raise ValueError(
            f"virtual_devices: {parallel.virtual_devices} is fewer than replicas: "
            f"{parallel.replicas}{stages}; use virtual_devices: {needed}"
        )


def _all_reduce(parallel: ParallelSettings) -> None:
    takes = ALL_REDUCES.get(parallel.strategy, ("auto",))
    if parallel.all_reduce not in takes:
        also = f" (it also takes {', '.join(takes[1:])})" if takes[1:] else ""
        raise ValueError(
            f"all_reduce: {parallel.all_reduce} is nothing that {parallel.strategy} takes; "
            f"use all_reduce: auto{also}"
        )
    if parallel.all_reduce != "nccl":
        return
    on_cpus = [name for name in parallel.device_names if name.startswith("CPU")]
    if parallel.virtual_devices or on_cpus:
        raise ValueError(
            "all_reduce: nccl is between GPUs, and "
            + (
                f"devices: {parallel.devices} names CPUs"
                if on_cpus
                else f"virtual_devices: {parallel.virtual_devices} means CPUs"
            )
            + "; use all_reduce: auto"
        )


def _precision(parallel: ParallelSettings) -> None:
    if parallel.strategy == "parameter_server" and parallel.precision == "mixed_float16":
        raise ValueError(
            "precision: mixed_float16 scales the loss, which all workers decide on together, and "
            "those of parameter_server are not in step; use precision: mixed_bfloat16"
        )
    if parallel.strategy == "tpu" and parallel.precision in ("float64", "mixed_float16"):
        fits = "float32" if parallel.precision == "float64" else "mixed_bfloat16"
        raise ValueError(
            f"precision: {parallel.precision} is nothing that tpu computes in; "
            f"use precision: {fits}"
        )


def _jit(parallel: ParallelSettings) -> None:
    if parallel.jit and parallel.strategy == "tpu":
        raise ValueError("jit: true is always so on tpu, all of the step at once; use jit: false")


def _memory(parallel: ParallelSettings) -> None:
    if parallel.memory_mb and parallel.strategy != "grid":
        raise ValueError(
            f"memory_mb: {parallel.memory_mb} decides where a model is cut, and "
            f"{parallel.strategy} does not cut it; use strategy: grid, or memory_mb: 0"
        )


def _timeline(parallel: ParallelSettings) -> None:
    if parallel.timeline_step and parallel.strategy != "grid":
        raise ValueError(
            f"timeline_step: {parallel.timeline_step} is of the passes of stages, and "
            f"{parallel.strategy} has none; use strategy: grid, or timeline_step: 0"
        )


def _profile(parallel: ParallelSettings) -> None:
    if not parallel.profile_steps:
        return
    first, last = map(int, parallel.profile_steps.split(":"))
    if first > last:
        raise ValueError(
            f"profile_steps: {parallel.profile_steps} ends before it begins; use "
            f"profile_steps: {last}:{first}"
        )
    after = parallel.timeline_step + 1
    if first < after <= last + 1:
        raise ValueError(
            f"timeline_step: {parallel.timeline_step} is one of profile_steps: "
            f"{parallel.profile_steps}, and there is one profiler; use "
            f"profile_steps: {after}:{max(after, last)}, or timeline_step: 0"
        )


def _refuse_duplicates(field: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"{field}: {','.join(names)} has {name} {names.count(name)} times; "
                f"name each once, or use {field}: auto"
            )
