"""Whether a training can go on from a checkpoint: which settings have to be what they were.

All that decide which numbers are computed. Not those of where and how they are
computed: a training can go on with fewer or more devices, or less memory.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from stagecraft.trainer_module import registries

Flat = Mapping[str, Any]
"""``TrainingSettings.flat()``, or a part of it."""

FREE = frozenset(
    {
        "train_checkpoint_every",
        "train_eval_batch_size",
        "train_initial_weights",  # what they hold is part of the checkpoint folder's name
        "train_eval_every",  # which steps can be the best one, and not what they are
        "train_keep",
        "train_memory_limit_mb",
        "train_resume_id",
    }
)
"""Settings of ``train:`` that can always change."""

BOUND = frozenset({"parallel_precision"})
"""Settings of ``parallel:`` that cannot; all others can."""


class Change(NamedTuple):
    """A setting that is not what it was; None: it was, or is, not set."""

    name: str
    before: Any
    now: Any


def resolved(settings: Flat, total: int) -> dict[str, Any]:
    """The settings as they are kept: ``train_steps`` is ``total``, however that was asked for."""
    return {k: v for k, v in settings.items() if k != "train_epochs"} | {"train_steps": total}


def changes(before: Flat, now: Flat, done: int) -> list[Change]:
    """What keeps a training from going on; nothing: it can.

    Args:
        before: :func:`resolved`, as the checkpoint has it.
        now: :func:`resolved`, as the training is asked for.
        done: steps that the checkpoint has.
    """
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
        return schedule.depends_on_length or now[name] < done
    if name == "train_shuffle":  # auto takes what fits
        return "auto" not in (before.get(name), now.get(name))
    if name == "train_shuffle_buffer":
        return "stream" == before.get("train_shuffle") == now.get("train_shuffle")
    return name not in FREE


def told(changed: list[Change]) -> str:
    """The changes for people, by the names that stand in files of settings."""
    return ", ".join(
        f"{_TOLD.get(name, name.replace('_', '.', 1))} was {before}, is {now}"
        for name, before, now in changed
    )


def refusal(root: pathlib.Path, step: int, changed: list[Change]) -> str:
    """What to say of a training that is not finished and cannot go on."""
    return (
        f"{root}: this training stopped after step {step} and cannot go on with other settings: "
        f"{told(changed)}. Restore what was, or start over with `stagecraft run --fresh`, or keep "
        "both apart with another train.resume_id"
    )


_TOLD = {"train_steps": "train.steps (or what train.epochs comes to)"}
