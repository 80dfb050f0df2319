"""Suggests a faster topology of the same devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from stagecraft.trainer_module.parallel import strategy
from stagecraft.trainer_module.planning.plan import Suggestion
from stagecraft.trainer_module.planning.work import Work
from stagecraft.trainer_module.settings import TrainingSettings

WORTH_SAYING = 1.05
"""The least speedup of a suggestion over the plan."""

ENOUGH_MICROBATCHES = 4
"""Per stage: more hardly shrink the bubble (GPipe, section 2.3), but split the work further."""


def faster(work: Work, pieces: int, speedup: float, available: int) -> Suggestion | None:
    """The fastest topology with other replicas, stages or microbatches; None: no clear gain.

    Replicas replace stages if the model, or a stage of it, fits into a device. If a device's memory
    is not known, compare the suggestion's ``memory_bytes``.

    Args:
        pieces: the most stages that the model can be cut into.
        available: devices of a worker; at least the devices in use count.
    """
    parallel = work.settings.parallel
    if strategy.find(parallel.strategy).alternative(parallel.replicas, parallel.stages) is None:
        return None
    devices = max(available, parallel.replicas * parallel.stages)
    best = None
    for settings in _others(work.settings, devices, pieces):
        other, changed = work.under(settings), settings.parallel
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
                    "cuts": "auto",
                }
                parallel = settings.parallel.model_dump() | changes
                try:
                    yield TrainingSettings.model_validate(
                        {"train": settings.train.model_dump(), "parallel": parallel}
                    )
                except ValidationError:  # such as a batch size that is not divisible
                    continue
