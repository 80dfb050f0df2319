"""Decides whether a training can resume from a checkpoint made with other settings.

Settings that decide which numbers are computed have to be equal. Settings of where and how they
are computed may differ: a training can resume with fewer or more devices, or less memory.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from stagecraft.common.errors import UserError
from stagecraft.trainer_module import registries

Flat = Mapping[str, Any]
"""``TrainingSettings.flat()``, or a part of it."""

FREE = frozenset(
    {
        "train_callbacks",
        "train_checkpoint_every",
        "train_early_stopping_patience",  # changes when the training ends, not its steps
        "train_eval_batch_size",
        "train_initial_weights",  # their digest is part of the checkpoint folder's name
        "train_export_keras",
        "train_eval_every",  # changes which steps can be the best one, not the steps themselves
        "train_keep",
        "train_memory_limit_mb",
        "train_resume_id",
        "train_test_time_augment",  # of the export alone
        "train_warm_start",  # its values replace those of other settings
    }
)
"""Settings of ``train:`` that can always change."""

BOUND = frozenset({"parallel_precision"})
"""Settings of ``parallel:`` that cannot change; all others can."""


class Change(NamedTuple):
    """A setting that changed; None: it was, or is, not set."""

    name: str
    before: Any
    now: Any


def resolved(settings: Flat, total: int) -> dict[str, Any]:
    """The settings as checkpoints store them: ``train_steps`` replaces ``train_epochs``."""
    return {k: v for k, v in settings.items() if k != "train_epochs"} | {"train_steps": total}


def changes(before: Flat, now: Flat, done: int) -> list[Change]:
    """The changed :func:`resolved` settings that prevent a resume after ``done`` steps."""
    return [
        Change(name, before.get(name), now.get(name))
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name) and _is_bound(name, before, now, done)
    ]


def _is_bound(name: str, before: Flat, now: Flat, done: int) -> bool:
    if name.startswith("parallel_"):
        return name in BOUND
    if name == "train_steps":
        schedule = registries.SCHEDULES.get(now["train_schedule"])
        # The decay of lookahead and the shares of freeze_after depend on the length, too.
        others = ("train_lookahead", "train_freeze_after")
        by_length = schedule.depends_on_length or any(map(now.get, others))
        return by_length or now[name] < done
    if name == "train_shuffle":  # auto adopts the other value
        return "auto" not in (before.get(name), now.get(name))
    if name == "train_shuffle_buffer":
        return "stream" == before.get("train_shuffle") == now.get("train_shuffle")
    return name not in FREE


def describe(changed: list[Change]) -> str:
    """The changes for people, by the settings' names in YAML files."""
    return ", ".join(
        f"{_LABELS.get(name, name.replace('_', '.', 1))} was {before} and is now {now}"
        for name, before, now in changed
    )


_ADVICE = (
    "Restore the old settings, or start from the beginning with `stagecraft run --fresh`. To keep "
    "both training runs, set another train.resume_id"
)


class OtherTrainingError(UserError):
    """A checkpoint folder holds another training, which stays as it is."""

    def __init__(self, root: pathlib.Path, step: int, changed: list[Change]):
        super().__init__(
            f"{root}: this training run stopped after step {step}, and cannot resume with other "
            f"settings: {describe(changed)}. {_ADVICE}",
            setting=changed[0].name.replace("_", ".", 1),
            value=changed[0].now,
            suggestion="stagecraft run --fresh",
            file=str(root),
        )
        self.step = step
        self.changes = tuple(changed)


_LABELS = {"train_steps": "the number of steps (train.steps or train.epochs)"}
