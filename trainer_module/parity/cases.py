"""The topologies that are compared with one device, by name. Imports no TensorFlow."""

from __future__ import annotations

import dataclasses
from typing import Any

from pydantic import ValidationError

from stagecraft.common.errors import UserError, nearest
from stagecraft.common.registry import UnknownNameError
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.parallel.strategy import ParityCase, Strategy
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings, TrainSettings

CONFIGURED = "configured"
"""Name of the settings' own topology."""

SMALL_LEARNING_RATE = 1e-3
"""Upper bound of the learning rate in the float64 trajectory."""


def named() -> dict[str, tuple[Strategy, ParityCase]]:
    """The named topologies of all strategies."""
    return {
        name: (each, case)
        for each in registries.STRATEGIES.entries()
        for name, case in each.parity_cases.items()
    }


_KEPT = ("precision", "remat", "jit")
"""Parallel settings that a named topology leaves as they are."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A topology, and the training on it."""

    name: str
    settings: TrainingSettings

    def reference(self, *, same_parts: bool) -> TrainingSettings:
        """The same training on one device.

        ``same_parts``: whether it computes the batch in the same parts, one after the other: a
        model with batch statistics has those of a part, and in 16 bits a part is rounded.
        """
        parallel = self.settings.parallel
        # On the same kind of device.
        on_cpus = parallel.virtual_devices or parallel.device_names[:1] == ("CPU:0",)
        one_device = ParallelSettings(
            precision=parallel.precision,
            accumulate=self.settings.parallel.parts if same_parts else 1,
            virtual_devices=1 if on_cpus else 0,
        )
        return _training_of(self.settings, self.settings.train, one_device)


def in_float64(settings: TrainingSettings) -> TrainingSettings:
    """The same training in float64, at a constant, small learning rate."""
    rate = min(settings.train.learning_rate, SMALL_LEARNING_RATE)
    return _training_of(
        settings,
        changed(
            settings.train,
            learning_rate=rate,
            schedule="constant",
            schedule_args={},
            warmup_steps=0,
        ),
        changed_parallel(settings.parallel, precision="float64"),
    )


def whole_batches(settings: TrainingSettings) -> TrainingSettings:
    """The same training on one device, without accumulation."""
    parallel = changed_parallel(settings.parallel, accumulate=1)
    return _training_of(settings, settings.train, parallel)


def select(names: str, settings: TrainingSettings, *, steps: int, batch_size: int) -> list[Case]:
    """The cases of comma-separated names; ``all``: those that fit the settings' precision and jit.

    The batch size is rounded up to what a topology divides.

    Raises:
        UserError: there is no such name, nothing is configured, or a named topology does not go
            together with the settings.
    """
    settings = settings.definite
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    own = not _is_reference(settings.parallel)
    if "all" in wanted:
        wanted = [name for name in named() if not _refusal(name, settings, steps, batch_size)]
        wanted += [CONFIGURED] if own else []
    if not wanted:
        raise UserError(
            "--topologies: names no topology; use all, or names such as mirrored-2,stages-2"
        )
    cases = [_case(name, settings, steps, batch_size, own) for name in dict.fromkeys(wanted)]
    return [
        case
        for index, case in enumerate(cases)
        if all(case.settings != other.settings for other in cases[:index])
    ]


def description(case: Case) -> str:
    """A topology in words."""
    if case.name != CONFIGURED:
        return named()[case.name][1].description
    return f"the settings' own: parallel.strategy {case.settings.parallel.strategy}"


def configured(settings: TrainingSettings, *, steps: int, batch_size: int) -> Case | None:
    """The settings' own topology; None where it is one device that takes each batch at once."""
    settings = settings.definite
    if _is_reference(settings.parallel):
        return None
    return _case(CONFIGURED, settings, steps, batch_size, True)


def _case(name: str, settings: TrainingSettings, steps: int, batch_size: int, own: bool) -> Case:
    if name == CONFIGURED:
        if not own:
            raise UserError(
                "--topologies: 'configured' compares the configured topology with one device, "
                "but the settings configure one device; set a topology, such as "
                "--set parallel.strategy=mirrored, or name a topology in --topologies"
            )
        return Case(name, _training(settings, settings.parallel, {}, steps, batch_size))
    known = named()
    if name not in known:
        use = nearest(name, [*known, CONFIGURED], f"one of {', '.join(known)}, or all")
        raise UnknownNameError("--topologies", name, "does not exist", use)
    if refusal := _refusal(name, settings, steps, batch_size):
        raise UserError(
            f"--topologies: {name} does not work with these settings. {refusal}",
            setting="--topologies",
            value=name,
        )
    return Case(name, _named(name, settings, steps, batch_size))


def _is_reference(parallel: ParallelSettings) -> bool:
    return parallel.found.is_reference and parallel.parts == 1


def _parallel(name: str, settings: TrainingSettings) -> ParallelSettings:
    owner, case = named()[name]
    kept = {field: getattr(settings.parallel, field) for field in _KEPT}
    asked = {**kept, "strategy": owner.name, **case.parallel}
    devices = ParallelSettings(**asked).devices_per_worker
    return ParallelSettings(**{**asked, "virtual_devices": devices})


def _named(name: str, settings: TrainingSettings, steps: int, batch_size: int) -> TrainingSettings:
    """The training on a named topology. Raises pydantic's ValidationError."""
    train = dict(named()[name][1].train)
    return _training(settings, _parallel(name, settings), train, steps, batch_size)


def _refusal(name: str, settings: TrainingSettings, steps: int, batch_size: int) -> str:
    """Why a named topology does not go together with the settings; empty if it does."""
    try:
        _named(name, settings, steps, batch_size)
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
        "augment": (),
        "shuffle": "auto",
        # The setting is for a longer training; here the warm-up could take all steps, and no pull
        # might follow any.
        "warmup_steps": min(settings.train.warmup_steps, steps // 4),
        "lookahead": min(settings.train.lookahead or 0, steps // 2),
    }
    return _training_of(
        settings,
        changed(settings.train, **{**train, **fixed}),
        # They number other steps.
        changed_parallel(parallel, timeline_step=0, profile_steps=""),
    )


def _training_of(
    settings: TrainingSettings, train: TrainSettings, parallel: ParallelSettings
) -> TrainingSettings:
    """The same task with another training."""
    return TrainingSettings(task=settings.task, train=train, parallel=parallel)


def changed(train: TrainSettings, **values: Any) -> TrainSettings:
    """A checked copy with other values."""
    return TrainSettings(**{**train.model_dump(), **values})


def changed_parallel(parallel: ParallelSettings, **values: Any) -> ParallelSettings:
    """A checked copy with other values."""
    return ParallelSettings(**{**parallel.model_dump(), **values})
