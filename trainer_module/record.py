"""The record of a training: what it was, and what came of it, with measured numbers."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import pathlib
import platform
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # who only reads a record needs no TensorFlow
    from stagecraft.trainer_module.loop import Outcome
    from stagecraft.trainer_module.planning.plan import Plan
    from stagecraft.trainer_module.settings import TrainingSettings
    from stagecraft.trainer_module.topology import Topology

FILE_NAME = "record.json"


def write(
    folder: str | os.PathLike[str],
    *,
    settings: TrainingSettings,
    topology: Topology,
    outcome: Outcome,
    examples: dict[str, int],
    plan: Plan | None = None,
    seconds: dict[str, float] | None = None,
) -> None:
    """Writes ``folder/record.json``.

    Args:
        folder: TFX's ``model_run_dir``.
        settings: as they were asked for.
        topology: as it was resolved.
        outcome: steps, best evaluation, all evaluations, images per second.
        examples: split -> number of examples.
        plan: what was predicted, of a model in stages.
        seconds: of each phase of the last attempt: train, evaluate, save, export.
    """
    versions = {name: importlib.metadata.version(name) for name in ("tensorflow", "keras", "tfx")}
    record = {
        **dataclasses.asdict(outcome),
        "examples": examples,
        "plan": dataclasses.asdict(plan) if plan else None,
        "seconds": seconds or {},
        "settings": settings.flat(),
        "topology": dataclasses.asdict(topology),
        "versions": {"python": platform.python_version(), **versions},
    }
    pathlib.Path(folder, FILE_NAME).write_text(json.dumps(record, indent=1))


def read(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """What :func:`write` wrote.

    Raises:
        FileNotFoundError: there is none.
    """
    record: dict[str, Any] = json.loads(pathlib.Path(folder, FILE_NAME).read_text())
    return record
