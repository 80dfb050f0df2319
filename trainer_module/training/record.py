"""The record of a training: settings, topology, results and measurements."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
import logging
import os
import pathlib
import platform
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from stagecraft.trainer_module.checkpointing.evaluations import Evaluation

if TYPE_CHECKING:  # reading a record needs no TensorFlow
    from stagecraft.trainer_module.models.initial_weights.loading import Loaded
    from stagecraft.trainer_module.parallel.topology import Topology
    from stagecraft.trainer_module.planning.measure import Choice
    from stagecraft.trainer_module.planning.plan import Plan
    from stagecraft.trainer_module.planning.search.result import SearchResult
    from stagecraft.trainer_module.settings import TrainingSettings

FILE_NAME = "record.json"

ENTRIES = frozenset(
    {
        *("steps", "best", "evaluations", "images_per_second", "resumed_from"),
        *("examples", "plan", "settings", "topology", "versions"),
    }
)

FIGURES = frozenset({"steps", "best", "images_per_second"})
"""Entries that become properties of the model artifact."""

START = "start"
"""Entry of the record, and of ``custom_config``: a :class:`Start`."""

_log = logging.getLogger(__name__)


class Start(NamedTuple):
    """The model of an earlier run that a training continues (``train.initial_weights``)."""

    wanted: str
    """The setting."""
    model: str | None = None
    """URI of the model; None: there was none, and the weights are random."""

    def note(self) -> str:
        """A sentence for people."""
        if self.model is None:
            why = f"no earlier run has a model for train.initial_weights: {self.wanted}"
            return f"The weights are random, because {why}."
        return f"The training continues the model {self.model} ({self.wanted})."


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """The results of a training."""

    steps: int
    best: Evaluation | None
    """Evaluation of the engine's final weights; None: there was no evaluation."""
    evaluations: list[Evaluation]
    images_per_second: float
    """Throughput of training steps, without tracing, evaluating and saving."""
    resumed_from: int = 0
    batches: int
    """Number of global batches; greater than ``steps`` if a loss scale skipped some."""
    repeated: int = 0
    """Steps that asynchronous workers applied twice, after a worker was lost."""


def write(
    folder: str | os.PathLike[str],
    *,
    settings: TrainingSettings,
    topology: Topology,
    outcome: Outcome,
    examples: dict[str, int],
    plan: Plan | None = None,
    search: SearchResult | None = None,
    loaded: Loaded | None = None,
    choice: Choice | None = None,
    seconds: dict[str, float] | None = None,
    start: Start | None = None,
) -> None:
    """Writes ``folder/record.json``.

    Args:
        examples: split -> number of examples.
        plan: the prediction for a model in stages.
        search: what ``parallel.strategy: auto`` chose from, the best first; None: it did not.
        choice: the choice of ``parallel.precision: auto``; None: the settings name a precision.
        loaded: the report on ``train.initial_weights``; None: none were loaded.
        seconds: of each phase of the last attempt: train, evaluate, save, export.
        start: the model of an earlier run that the training continues; None: none was wanted.
    """
    versions = {name: importlib.metadata.version(name) for name in ("tensorflow", "keras", "tfx")}
    record = {
        **dataclasses.asdict(outcome),
        "best": outcome.best and outcome.best.flat(),
        "chosen_by": outcome.best and settings.task.found.chooses(outcome.evaluations),
        "evaluations": [each.flat() for each in outcome.evaluations],
        "examples": examples,
        "plan": dataclasses.asdict(plan) if plan else None,
        "search": dataclasses.asdict(search) if search else None,
        "initial_weights": loaded.entry() if loaded else None,
        **({START: {**start._asdict(), "note": start.note()}} if start else {}),
        "precision": choice._asdict() if choice else None,
        "seconds": seconds or {},
        "settings": settings.flat(),
        "topology": dataclasses.asdict(topology),
        "versions": {"python": platform.python_version(), **versions},
    }
    pathlib.Path(folder, FILE_NAME).write_text(json.dumps(record, indent=1))


def add(folder: str | os.PathLike[str], entries: Mapping[str, Any]) -> None:
    """Adds entries to ``folder/record.json``, if there is one."""
    path = pathlib.Path(folder, FILE_NAME)
    with contextlib.suppress(OSError, ValueError):
        path.write_text(json.dumps({**json.loads(path.read_text()), **entries}, indent=1))


def write_for(
    fn_args: Any,
    *,
    steps: int,
    images_per_second: float,
    evaluations: Sequence[Evaluation] = (),
) -> None:
    """Writes the record of a training by your own ``run_fn``.

    The Trainer reads its metrics from the record; TrainingReport its curves, tables and topology.
    The record is optional: the Trainer publishes a model without one, too.

    Args:
        evaluations: ``Evaluation(step, loss, accuracy)`` on the val split, in the order of
            steps. The best one by the task's metric counts as the exported model's.

    Raises:
        UserError: this machine lacks the devices that ``parallel`` names.
    """
    from stagecraft.trainer_module.data import input_data
    from stagecraft.trainer_module.parallel import topology
    from stagecraft.trainer_module.settings import TrainingSettings

    settings = TrainingSettings.from_flat(fn_args.custom_config["settings"])
    os.makedirs(fn_args.model_run_dir, exist_ok=True)
    write(
        fn_args.model_run_dir,
        settings=settings,
        topology=topology.resolve(settings.parallel),
        outcome=Outcome(
            steps=steps,
            best=next(iter(settings.task.found.ranked(evaluations)), None),
            evaluations=list(evaluations),
            images_per_second=images_per_second,
            batches=steps,
        ),
        examples={
            "train": input_data.count_examples(fn_args.train_files),
            "val": input_data.count_examples(fn_args.eval_files),
        },
    )


def metrics_of(evaluation: Mapping[str, float]) -> dict[str, float]:
    """The task's metrics in an entry of ``evaluations``, or in ``best``."""
    return {name: value for name, value in evaluation.items() if name not in ("step", "loss")}


def parse(text: str, where: str, needs: Collection[str] = ENTRIES) -> dict[str, Any] | None:
    """Parses a record; returns None, with a warning, if it lacks a needed entry."""
    try:
        record = json.loads(text)
    except ValueError as error:
        _log.warning("%s: ignored as training record, because it is not JSON: %s", where, error)
        return None
    missing = sorted(set(needs) - set(record) if isinstance(record, dict) else needs)
    if missing:
        _log.warning(
            "%s: ignored as training record, because it lacks %s", where, ", ".join(missing)
        )
        return None
    parsed: dict[str, Any] = record
    return parsed


def find(folder: str | os.PathLike[str], needs: Collection[str] = ENTRIES) -> dict[str, Any] | None:
    """The record of a training; None if its ``run_fn`` wrote none, or an unusable one."""
    path = pathlib.Path(folder, FILE_NAME)
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return parse(path.read_text(), str(path), needs)
    return None


def read(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads the output of :func:`write`; raises FileNotFoundError if the folder has no record."""
    record: dict[str, Any] = json.loads(pathlib.Path(folder, FILE_NAME).read_text())
    return record
