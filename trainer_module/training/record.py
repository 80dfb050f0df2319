"""The record of a training: what it was, and what came of it, with measured numbers."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import logging
import os
import pathlib
import platform
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # who only reads a record needs no TensorFlow
    from stagecraft.trainer_module.checkpointing.evaluations import Evaluation
    from stagecraft.trainer_module.models.initial_weights.loading import Loaded
    from stagecraft.trainer_module.parallel.topology import Topology
    from stagecraft.trainer_module.planning.plan import Plan
    from stagecraft.trainer_module.settings import TrainingSettings
    from stagecraft.trainer_module.training.loop import Outcome

FILE_NAME = "record.json"

ENTRIES = frozenset(
    {
        *("steps", "best", "evaluations", "images_per_second", "resumed_from"),
        *("examples", "plan", "settings", "topology", "versions"),
    }
)
"""Those that a report is made of."""

FIGURES = frozenset({"steps", "best", "images_per_second"})
"""Those that are noted on the model."""

_log = logging.getLogger(__name__)


def write(
    folder: str | os.PathLike[str],
    *,
    settings: TrainingSettings,
    topology: Topology,
    outcome: Outcome,
    examples: dict[str, int],
    plan: Plan | None = None,
    loaded: Loaded | None = None,
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
        loaded: what ``train.initial_weights`` gave; None: nothing.
        seconds: of each phase of the last attempt: train, evaluate, save, export.
    """
    versions = {name: importlib.metadata.version(name) for name in ("tensorflow", "keras", "tfx")}
    record = {
        **dataclasses.asdict(outcome),
        "examples": examples,
        "plan": dataclasses.asdict(plan) if plan else None,
        "initial_weights": loaded._asdict() if loaded else None,
        "seconds": seconds or {},
        "settings": settings.flat(),
        "topology": dataclasses.asdict(topology),
        "versions": {"python": platform.python_version(), **versions},
    }
    pathlib.Path(folder, FILE_NAME).write_text(json.dumps(record, indent=1))


def write_for(
    fn_args: Any,
    *,
    steps: int,
    images_per_second: float,
    evaluations: Sequence[Evaluation] = (),
) -> None:
    """Writes the record of a training that a ``run_fn`` of your own has done.

    The Trainer takes its figures from it, and TrainingReport its curves, tables and topology.
    Without one, a model is published all the same.

    Args:
        fn_args: as the ``run_fn`` was given them.
        steps: optimizer steps that were taken.
        images_per_second: measured in training.
        evaluations: ``Evaluation(step, loss, accuracy)`` on the val split, in the order of the
            steps. The one with the highest accuracy counts as that of the exported model.

    Raises:
        UserError: the devices that ``parallel`` asks for are not here.
    """
    from stagecraft.trainer_module.data import input_data
    from stagecraft.trainer_module.parallel import topology
    from stagecraft.trainer_module.settings import TrainingSettings
    from stagecraft.trainer_module.training.loop import Outcome

    settings = TrainingSettings.from_flat(fn_args.custom_config["settings"])
    os.makedirs(fn_args.model_run_dir, exist_ok=True)
    write(
        fn_args.model_run_dir,
        settings=settings,
        topology=topology.resolve(settings.parallel),
        outcome=Outcome(
            steps=steps,
            best=max(evaluations, key=lambda each: each.accuracy, default=None),
            evaluations=list(evaluations),
            images_per_second=images_per_second,
            resumed_from=0,
            batches=steps,
            repeated=0,
        ),
        examples={
            "train": input_data.count_examples(fn_args.train_files),
            "val": input_data.count_examples(fn_args.eval_files),
        },
    )


def parse(text: str, where: str, needs: Collection[str] = ENTRIES) -> dict[str, Any] | None:
    """What a record says; None, and a warning, where it does not say what is needed.

    Args:
        text: the file's.
        where: the file, for the warning.
        needs: names of entries.
    """
    try:
        record = json.loads(text)
    except ValueError as error:
        _log.warning("%s: not used as a training's record: not JSON: %s", where, error)
        return None
    lacks = sorted(set(needs) - set(record) if isinstance(record, dict) else needs)
    if lacks:
        _log.warning("%s: not used as a training's record: it lacks %s", where, ", ".join(lacks))
        return None
    found: dict[str, Any] = record
    return found


def find(folder: str | os.PathLike[str], needs: Collection[str] = ENTRIES) -> dict[str, Any] | None:
    """The record of a training; None where its ``run_fn`` wrote none, or one that is of no use.

    Args:
        folder: TFX's ``model_run_dir``.
        needs: names of entries that it has to have.
    """
    path = pathlib.Path(folder, FILE_NAME)
    try:
        return parse(path.read_text(), str(path), needs)
    except (OSError, UnicodeDecodeError):
        return None


def read(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """What :func:`write` wrote.

    Raises:
        FileNotFoundError: there is none.
    """
    record: dict[str, Any] = json.loads(pathlib.Path(folder, FILE_NAME).read_text())
    return record
