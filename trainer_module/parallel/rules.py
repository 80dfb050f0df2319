"""Which parallel settings go together, whatever the strategy; each strategy adds its own rules.

Every refusal names the field, its value, and a value that works. ``topology`` checks what only the
machine can tell, ``partition`` what only the model can tell.
"""

from __future__ import annotations

from collections.abc import Sequence

from stagecraft.common.errors import SettingError
from stagecraft.common.registry import Entry
from stagecraft.trainer_module.parallel.settings import ParallelSettings


def check(parallel: ParallelSettings, strategy: Capabilities) -> None:
    """Refuses settings that do not go together, by a SettingError."""
    _stages(parallel, strategy)
    _cuts(parallel, strategy)
    if not strategy.resolves:  # otherwise the other degrees are still free
        _virtual_stages(parallel)
        _shards(parallel, strategy)
        _zero(parallel, strategy)
    _precision(parallel, strategy)
    strategy.refuse(parallel)
    _workers(parallel, strategy)
    _devices(parallel, strategy)
    _virtual_devices(parallel)
    _all_reduce(parallel, strategy)
    _profile(parallel)


def check_batch_size(batch_size: int, parallel: ParallelSettings) -> None:
    """Refuses a global batch that cannot be split into equal parts, by a SettingError."""
    if batch_size % parallel.parts == 0:
        return
    names = ["replicas", "accumulate", "microbatches"]
    if parallel.found.in_step:
        names.insert(0, "workers")
    degrees = [(name, getattr(parallel, name)) for name in names if getattr(parallel, name) > 1]
    product = " × ".join(f"parallel.{name}: {degree}" for name, degree in degrees)
    total = f" = {parallel.parts}" if len(degrees) > 1 else ""
    fits = batch_size - batch_size % parallel.parts or parallel.parts
    raise SettingError(
        "train.batch_size",
        batch_size,
        f"is not a multiple of {product}{total}",
        f"train.batch_size: {fits}",
    )


def check_watched(steps: int, parallel: ParallelSettings) -> None:
    """Refuses to watch steps that a training does not have, by a SettingError."""
    if parallel.timeline_step > steps:
        raise SettingError(
            "parallel.timeline_step",
            parallel.timeline_step,
            f"is after the last step: the training run has {steps:,} steps",
            f"parallel.timeline_step: {steps} or less",
        )
    first, _, last = parallel.profile_steps.partition(":")
    if first and int(last) > steps:
        raise SettingError(
            "parallel.profile_steps",
            parallel.profile_steps,
            f"ends after the last step: the training run has {steps:,} steps",
            f"parallel.profile_steps: {min(int(first), steps)}:{steps}",
        )


def _stages(parallel: ParallelSettings, strategy: Capabilities) -> None:
    """Refuses settings that need several stages."""
    if strategy.cuts_model:
        return
    name = strategy.name
    if parallel.stages > 1:
        raise SettingError(
            "parallel.stages",
            parallel.stages,
            f"needs parallel.strategy: grid ({name} keeps the whole model on each device)",
            "parallel.strategy: grid",
        )
    if parallel.microbatches > 1:
        raise SettingError(
            "parallel.microbatches",
            parallel.microbatches,
            f"needs parallel.strategy: grid ({name} has one stage, so microbatches cannot overlap)",
            "parallel.microbatches: 1 with parallel.accumulate: "
            f"{parallel.accumulate * parallel.microbatches}",
        )
    if parallel.memory_mb:
        raise SettingError(
            "parallel.memory_mb",
            parallel.memory_mb,
            f"limits the memory of stages, but {name} does not cut the model",
            "parallel.strategy: grid, or parallel.memory_mb: 0",
        )
    if parallel.timeline_step:
        raise SettingError(
            "parallel.timeline_step",
            parallel.timeline_step,
            f"records the passes of stages, but {name} has no stages",
            "parallel.strategy: grid, or parallel.timeline_step: 0",
        )


def _virtual_stages(parallel: ParallelSettings) -> None:
    """Refuses what the interleaved schedule cannot order."""
    virtual, stages = parallel.virtual_stages, parallel.stages
    if virtual == 1:
        return
    if stages == 1:
        raise SettingError(
            "parallel.virtual_stages",
            virtual,
            "needs several stages, whose devices then take turns",
            "parallel.strategy: grid with parallel.stages: 2, or parallel.virtual_stages: 1",
        )
    if parallel.microbatch_schedule != "1f1b":
        raise SettingError(
            "parallel.microbatch_schedule",
            parallel.microbatch_schedule,
            f"does not support parallel.virtual_stages: {virtual}",
            "parallel.microbatch_schedule: 1f1b",
        )
    if parallel.microbatches % stages:
        raise SettingError(
            "parallel.microbatches",
            parallel.microbatches,
            f"is not divisible by parallel.stages: {stages}, as parallel.virtual_stages: {virtual} "
            "needs it",
            f"parallel.microbatches: {-(-parallel.microbatches // stages) * stages}",
        )


def _shards(parallel: ParallelSettings, strategy: Capabilities) -> None:
    """Refuses shards where the model cannot be divided."""
    if parallel.shards > 1 and not strategy.cuts_model:
        raise SettingError(
            "parallel.shards",
            parallel.shards,
            f"needs parallel.strategy: grid ({strategy.name} keeps the whole model on each device)",
            "parallel.strategy: grid",
        )


def _zero(parallel: ParallelSettings, strategy: Capabilities) -> None:
    """Refuses to divide slots where there are no replicas of stages in this process."""
    if not parallel.zero:
        return
    if not strategy.cuts_model:
        raise SettingError(
            "parallel.zero",
            parallel.zero,
            f"needs parallel.strategy: grid ({strategy.name} keeps all slots on each device)",
            "parallel.strategy: grid with the same parallel.replicas, or parallel.zero: 0",
        )
    if parallel.workers > 1:
        raise SettingError(
            "parallel.zero",
            parallel.zero,
            "divides the slots among the replicas of one process, but there are several workers",
            "parallel.workers: 1, or parallel.zero: 0",
        )
    if parallel.replicas == 1:
        raise SettingError(
            "parallel.zero",
            parallel.zero,
            "divides the slots among replicas, but there is one",
            "parallel.replicas: 2, or parallel.zero: 0",
        )


def _precision(parallel: ParallelSettings, strategy: Capabilities) -> None:
    """Refuses a precision that several processes, each on its device, could choose differently."""
    if parallel.precision != "auto":
        return
    if parallel.evaluator:
        several = "parallel.evaluator: true"
    elif parallel.workers > 1:
        several = f"parallel.workers: {parallel.workers}"
    elif strategy.several_processes and not strategy.in_step:
        several = f"parallel.strategy: {strategy.name}"
    else:
        return
    raise SettingError(
        "parallel.precision",
        "auto",
        f"is the choice of one process, but {several} makes several",
        "parallel.precision: mixed_bfloat16 or float32",
    )


def _cuts(parallel: ParallelSettings, strategy: Capabilities) -> None:
    names, wanted = parallel.cut_names, parallel.model_parts - 1
    if not names:
        return
    given = ",".join(names)
    if not wanted:
        stages = f"parallel.stages: {len(names) + 1}, or " if strategy.cuts_model else ""
        raise SettingError(
            "parallel.cuts",
            given,
            "needs several stages, but parallel.stages: 1 is the whole model",
            f"{stages}parallel.cuts: auto",
            shown=repr(given),
        )
    _refuse_duplicates("parallel.cuts", "layer", names)
    if len(names) == wanted:
        return
    noun, stages = "stages", f"parallel.stages: {len(names) + 1}, "
    counts = f"parallel.stages is {parallel.stages}"
    if parallel.virtual_stages > 1:
        noun, stages = "parts", ""
        counts += f" and parallel.virtual_stages is {parallel.virtual_stages}"
    raise SettingError(
        "parallel.cuts",
        given,
        f"makes {len(names) + 1} {noun}, but {counts}",
        f"{stages}name {wanted} layer{'s' if wanted > 1 else ''}, or use parallel.cuts: auto",
        shown=repr(given),
    )


def _workers(parallel: ParallelSettings, strategy: Capabilities) -> None:
    if parallel.workers > 1 and not strategy.several_processes:
        raise SettingError(
            "parallel.workers",
            parallel.workers,
            f"needs several processes, but {strategy.name} trains in one process",
            "parallel.workers: 1, parallel.strategy: multi_worker_mirrored, or "
            "parallel.strategy: grid",
        )


def _devices(parallel: ParallelSettings, strategy: Capabilities) -> None:
    names, wanted = parallel.device_names, parallel.devices_per_worker
    if not names:
        return
    _refuse_duplicates("parallel.devices", "device", names)
    if len(names) < wanted or (len(names) > wanted and not strategy.resolves):
        raise SettingError(
            "parallel.devices",
            parallel.devices,
            f"names {len(names)} devices, but {_degrees(parallel, 'replicas', 'stages')} "
            f"need {wanted}",
            f"{wanted} name{'s' if wanted > 1 else ''}, or parallel.devices: auto",
        )
    if parallel.virtual_devices and any(name.startswith("GPU") for name in names):
        raise SettingError(
            "parallel.virtual_devices",
            parallel.virtual_devices,
            f"creates logical CPUs, but parallel.devices: {','.join(names)} names GPUs",
            "parallel.virtual_devices: 0",
        )
    highest = max((int(name[4:]) for name in names if name.startswith("CPU")), default=0)
    if highest and strategy.takes_all_gpus:
        raise SettingError(
            "parallel.devices",
            parallel.devices,
            f"is not the CPU that a worker of {strategy.name} uses",
            "parallel.devices: CPU:0",
        )
    if highest >= max(parallel.virtual_devices, 1):
        last = f" to CPU:{parallel.virtual_devices - 1}" if parallel.virtual_devices > 1 else ""
        raise SettingError(
            "parallel.devices",
            parallel.devices,
            f"names CPU:{highest}, but parallel.virtual_devices: {parallel.virtual_devices} "
            f"creates only CPU:0{last}",
            f"parallel.virtual_devices: {highest + 1}",
        )
    if any(len({name[:3] for name in group}) > 1 for group in strategy.device_groups(parallel)):
        whose = "the replicas of a stage" if strategy.cuts_model else strategy.name
        raise SettingError(
            "parallel.devices",
            parallel.devices,
            f"mixes CPUs and GPUs, but {whose} can sum gradients only between devices of one type",
            "parallel.devices: auto",
        )


def _degrees(parallel: ParallelSettings, *always: str) -> str:
    """The settings whose product is the number of devices; those of 1 only in ``always``."""
    degrees = {name: getattr(parallel, name) for name in ("replicas", "stages", "shards")}
    shown = {name: n for name, n in degrees.items() if n > 1 or name in always}
    return " × ".join(f"parallel.{name}: {n}" for name, n in shown.items())


def _virtual_devices(parallel: ParallelSettings) -> None:
    needed = parallel.devices_per_worker
    if 0 < parallel.virtual_devices < needed:
        raise SettingError(
            "parallel.virtual_devices",
            parallel.virtual_devices,
            f"is fewer than {_degrees(parallel, 'replicas')}",
            f"parallel.virtual_devices: {needed}",
        )


def _all_reduce(parallel: ParallelSettings, strategy: Capabilities) -> None:
    if parallel.all_reduce not in strategy.all_reduces:
        raise SettingError(
            "parallel.all_reduce",
            parallel.all_reduce,
            f"is not supported by {strategy.name}",
            f"parallel.all_reduce: {' or '.join(strategy.all_reduces)}",
        )
    if parallel.all_reduce != "nccl":
        return
    if any(name.startswith("CPU") for name in parallel.device_names):
        cpus = f"parallel.devices: {parallel.devices} names CPUs"
    elif parallel.virtual_devices:
        cpus = f"parallel.virtual_devices: {parallel.virtual_devices} means CPUs"
    else:
        return
    raise SettingError(
        "parallel.all_reduce", "nccl", f"needs GPUs, but {cpus}", "parallel.all_reduce: auto"
    )


def _profile(parallel: ParallelSettings) -> None:
    if not parallel.profile_steps:
        return
    first, last = map(int, parallel.profile_steps.split(":"))
    if first > last:
        raise SettingError(
            "parallel.profile_steps",
            parallel.profile_steps,
            "ends before it begins",
            f"parallel.profile_steps: {last}:{first}",
        )
    after = parallel.timeline_step + 1
    if first < after <= last + 1:
        raise SettingError(
            "parallel.timeline_step",
            parallel.timeline_step,
            f"is one of parallel.profile_steps: {parallel.profile_steps}, but TensorFlow has only "
            "one profiler",
            f"parallel.profile_steps: {after}:{max(after, last)}, or parallel.timeline_step: 0",
        )


def _refuse_duplicates(setting: str, kind: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise SettingError(
                setting,
                ",".join(names),
                f"names the {kind} {name!r} {names.count(name)} times",
                f"each name once, or {setting}: auto",
                shown=repr(",".join(names)),
            )


class Capabilities(Entry):
    """Base of :class:`~stagecraft.trainer_module.parallel.strategy.Strategy`: what rules ask."""

    all_reduces: tuple[str, ...] = ("auto",)
    """Values of ``parallel.all_reduce`` that it supports."""

    several_processes = False
    """Whether ``parallel.workers`` may be more than 1."""

    in_step = True
    """Whether all workers take each step together, each with its part of the global batch."""

    cuts_model = False
    """Whether ``parallel.stages`` may be more than 1."""

    takes_all_gpus = False
    """Whether a worker takes all GPUs that it sees, or its first CPU."""

    remote_devices = False
    """Whether only a connection shows the devices; their graphs are compiled elsewhere."""

    resolves = False
    """Whether it stands for another strategy, which a search chooses for the model and devices."""

    keras_replicas = True
    """Whether Keras's layers see the replicas of a ``tf.distribute`` strategy."""

    divides_calls = False
    """Whether ``stagecraft.parallelize`` can divide a model's calls as the strategy would."""

    def refuse(self, parallel: ParallelSettings) -> None:
        """Refuses what this strategy alone cannot do.

        Raises:
            SettingError: names the setting in full, such as ``parallel.replicas``.
        """

    def homes(self, parallel: ParallelSettings) -> Sequence[str]:
        """Devices of the variables of ``stagecraft.parallelize``; (): those of the stages."""
        return ()

    def device_groups(self, parallel: ParallelSettings) -> Sequence[Sequence[str]]:
        """Named devices that add up gradients with each other, which takes one type of device."""
        return ()
