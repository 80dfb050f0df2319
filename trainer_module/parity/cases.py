"""The topologies that are held against one device, by name. Imports no TensorFlow."""

from __future__ import annotations

import dataclasses
import difflib
from typing import Any

from pydantic import ValidationError

from stagecraft.schemas.errors import UserError
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings, TrainSettings

CONFIGURED = "configured"
"""Name of the settings' own topology."""

SMALL_LEARNING_RATE = 1e-3
"""Of the trajectory in float64, where the settings have a larger one."""

_GRID: dict[str, Any] = {"strategy": "grid"}

NAMED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "mirrored-2": ("two replicas", {"strategy": "mirrored", "replicas": 2}, {}),
    "mirrored-4": ("four replicas", {"strategy": "mirrored", "replicas": 4}, {}),
    "central_storage-2": (
        "two replicas, variables on the host",
        {"strategy": "central_storage", "replicas": 2},
        {},
    ),
    "stages-2": ("the model in two stages", {**_GRID, "stages": 2}, {}),
    "stages-3": ("in three stages", {**_GRID, "stages": 3}, {}),
    "stages-4": ("in four stages", {**_GRID, "stages": 4}, {}),
    "grid-2x2": (
        "two replicas of two stages, two microbatches",
        {**_GRID, "replicas": 2, "stages": 2, "microbatches": 2},
        {},
    ),
    "grid-2x3": (
        "two replicas of three stages, two microbatches, in two turns",
        {**_GRID, "replicas": 2, "stages": 3, "microbatches": 2, "accumulate": 2},
        {},
    ),
    "grid-2x1x2": (
        "two processes, each of two stages, two microbatches",
        {**_GRID, "workers": 2, "stages": 2, "microbatches": 2},
        {},
    ),
    "grid-2x2x2": (
        "two processes, each of two replicas of two stages, two microbatches",
        {**_GRID, "workers": 2, "replicas": 2, "stages": 2, "microbatches": 2},
        {},
    ),
    "microbatches-2": ("two stages", {**_GRID, "stages": 2, "microbatches": 2}, {}),
    "microbatches-4": ("two stages", {**_GRID, "stages": 2, "microbatches": 4}, {}),
    "microbatches-8": ("two stages", {**_GRID, "stages": 2, "microbatches": 8}, {}),
    "accumulate-4": ("one device, in four turns", {"accumulate": 4}, {}),
    "workers-2": (
        "two processes in step",
        {"strategy": "multi_worker_mirrored", "workers": 2},
        {},
    ),
    "parameter_server-1": (
        "a chief, a worker and a parameter server, each a process",
        {"strategy": "parameter_server", "workers": 1},
        {},
    ),
    "remat": (
        "two stages, two microbatches, activations computed again",
        {**_GRID, "stages": 2, "microbatches": 2, "remat": True},
        {},
    ),
    "clip": (
        "two replicas of two stages, clipped in every step",
        {**_GRID, "replicas": 2, "stages": 2},
        {"clip_norm": 0.1},
    ),
    "bfloat16": (
        "two stages, two microbatches, mixed_bfloat16",
        {**_GRID, "stages": 2, "microbatches": 2, "precision": "mixed_bfloat16"},
        {},
    ),
}
"""Name -> (what it is, parallel settings, train settings)."""

_KEPT = ("precision", "remat", "jit")
"""Parallel settings that a named topology leaves as they are."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A topology, and the training on it."""

    name: str
    settings: TrainingSettings

    @property
    def parts(self) -> int:
        """Parts that each batch is split into."""
        return self.settings.parallel.parts

    def reference(self, *, same_parts: bool) -> TrainingSettings:
        """The same training on one device.

        Args:
            same_parts: whether it computes the batch in the same parts, one after the other: a
                model with batch statistics has those of a part, and in 16 bits a part's result
                is rounded.
        """
        parallel = self.settings.parallel
        # On the same kind of device.
        on_cpus = parallel.virtual_devices or parallel.device_names[:1] == ("CPU:0",)
        one_device = ParallelSettings(
            precision=parallel.precision,
            accumulate=self.parts if same_parts else 1,
            virtual_devices=1 if on_cpus else 0,
        )
        return TrainingSettings(train=self.settings.train, parallel=one_device)


def in_float64(settings: TrainingSettings) -> TrainingSettings:
    """The same training in float64, at a constant, small learning rate."""
    rate = min(settings.train.learning_rate, SMALL_LEARNING_RATE)
    return TrainingSettings(
        train=changed(settings.train, learning_rate=rate, schedule="constant", warmup_steps=0),
        parallel=changed_parallel(settings.parallel, precision="float64"),
    )


def whole_batches(settings: TrainingSettings) -> TrainingSettings:
    """The same training on one device, in one turn a step."""
    parallel = changed_parallel(settings.parallel, accumulate=1)
    return TrainingSettings(train=settings.train, parallel=parallel)


def select(names: str, settings: TrainingSettings, *, steps: int, batch_size: int) -> list[Case]:
    """The cases of comma-separated names.

    Args:
        names: of :data:`NAMED`, ``configured``, or ``all`` for all of them that go together with
            the settings' precision and jit.
        settings: model, optimizer and so on; their topology is ``configured``.
        steps: of a trajectory.
        batch_size: least examples per step; rounded up to what a topology divides.

    Raises:
        UserError: there is no such name, nothing is configured, or a named topology does not go
            together with the settings.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    own = settings.parallel.strategy != "one_device" or settings.parallel.parts > 1
    if "all" in wanted:
        wanted = [name for name in NAMED if not _refusal(name, settings)]
        wanted += [CONFIGURED] if own else []
    if not wanted:
        raise UserError("--topologies: none was named; use all, or such as mirrored-2,stages-2")
    cases = [_case(name, settings, steps, batch_size, own) for name in dict.fromkeys(wanted)]
    return [
        case
        for index, case in enumerate(cases)
        if all(case.settings != other.settings for other in cases[:index])
    ]


def description(case: Case) -> str:
    """What a topology is, in words."""
    if case.name in NAMED:
        return NAMED[case.name][0]
    return f"the settings' own: parallel.strategy {case.settings.parallel.strategy}"


def configured(settings: TrainingSettings, *, steps: int, batch_size: int) -> Case | None:
    """The settings' own topology; None where it is one device that takes each batch at once."""
    if settings.parallel.strategy == "one_device" and settings.parallel.parts == 1:
        return None
    return _case(CONFIGURED, settings, steps, batch_size, True)


def _case(name: str, settings: TrainingSettings, steps: int, batch_size: int, own: bool) -> Case:
    if name == CONFIGURED:
        if not own:
            raise UserError(
                "--topologies: configured is the settings' own topology, and theirs is one "
                "device; give another such as --set parallel.strategy=mirrored, or name one"
            )
        return Case(name, _training(settings, settings.parallel, {}, steps, batch_size))
    if name not in NAMED:
        near = difflib.get_close_matches(name, [*NAMED, CONFIGURED], n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(NAMED)} and all"
        raise UserError(f"--topologies: there is no {name!r}; {hint}")
    if refusal := _refusal(name, settings):
        raise UserError(f"--topologies: {name} with these settings: {refusal}")
    train = NAMED[name][2]
    return Case(name, _training(settings, _parallel(name, settings), train, steps, batch_size))


def _parallel(name: str, settings: TrainingSettings) -> ParallelSettings:
    parallel = NAMED[name][1]
    kept = {field: getattr(settings.parallel, field) for field in _KEPT}
    devices = parallel.get("replicas", 1) * parallel.get("stages", 1)
    return ParallelSettings(**{**kept, **parallel, "virtual_devices": devices})


def _refusal(name: str, settings: TrainingSettings) -> str:
    """Why a named topology does not go together with the settings; empty if it does."""
    try:
        _parallel(name, settings)
    except ValidationError as error:
        return "; ".join(problem["msg"].removeprefix("Value error, ") for problem in error.errors())
    return ""


def _training(
    settings: TrainingSettings,
    parallel: ParallelSettings,
    train: dict[str, Any],
    steps: int,
    batch_size: int,
) -> TrainingSettings:
    parts = parallel.parts
    fixed = {
        "batch_size": -(-batch_size // parts) * parts,
        "steps": steps,
        "epochs": None,
        "augment": "none",
        "shuffle": "auto",
        # Made for a longer training; all of this one would be the warm-up.
        "warmup_steps": min(settings.train.warmup_steps, steps // 4),
    }
    return TrainingSettings(
        train=changed(settings.train, **{**train, **fixed}),
        parallel=changed_parallel(parallel, timeline_step=0, profile_steps=""),  # of the other one
    )


def changed(train: TrainSettings, **values: Any) -> TrainSettings:
    """A checked copy with other values."""
    return TrainSettings(**{**train.model_dump(), **values})


def changed_parallel(parallel: ParallelSettings, **values: Any) -> ParallelSettings:
    """A checked copy with other values."""
    return ParallelSettings(**{**parallel.model_dump(), **values})
