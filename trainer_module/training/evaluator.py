"""Evaluates each new checkpoint in a process of its own, on one device; ranks all evaluations.

The evaluator reads the folder of checkpoints and writes its results next to them. It takes no part
in the training, and may be restarted at any time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Any

from stagecraft.trainer_module.checkpointing import resume
from stagecraft.trainer_module.checkpointing.checkpoint_files import UnreadableCheckpointError
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.checkpointing.evaluations import Evaluation, Evaluations
from stagecraft.trainer_module.engines.engine import Engine
from stagecraft.trainer_module.training import callbacks
from stagecraft.trainer_module.training.monitoring.progress import Reporter

POLL_SECONDS = 1.0

EVALUATOR_SECONDS = 600.0
"""Timeout for another process's last evaluation, after the last step."""

_log = logging.getLogger(__name__)


def evaluate_all(
    engine: Engine,
    val_data: Any,
    checkpoints: Checkpoints,
    reporter: Reporter,
    settings: resume.Flat,
    on_phase: Callable[[str], None],
) -> None:
    """Evaluates checkpoints as they appear, oldest first, until the last step's is done.

    Overwrites the engine's weights; ignores checkpoints of other :func:`resume.resolved` settings.
    """
    results = Evaluations(checkpoints.root)
    precision = str(settings.get("parallel_precision", "float32"))
    while True:
        done = {entry.step for entry in results.read()}
        for step in _own(checkpoints, settings):
            if step not in done:
                args = (engine, val_data, checkpoints, reporter, on_phase, results, precision)
                _evaluate(step, *args)
            if step == settings["train_steps"]:  # even if it is unreadable
                return
        threading.Event().wait(POLL_SECONDS)


def _own(checkpoints: Checkpoints, settings: resume.Flat) -> list[int]:
    """Steps of this training, oldest first; another training's may be there before it starts."""
    own = []
    for step in checkpoints.steps():
        with contextlib.suppress(UnreadableCheckpointError):  # or dropped meanwhile
            if not resume.changes(checkpoints.notes(step)["settings"], settings, step):
                own.append(step)
    return own


def _evaluate(
    step: int,
    engine: Engine,
    val_data: Any,
    checkpoints: Checkpoints,
    reporter: Reporter,
    on_phase: Callable[[str], None],
    results: Evaluations,
    precision: str,
) -> None:
    try:
        checkpoint = checkpoints.load(step)
    except UnreadableCheckpointError as error:
        _log.info("Not evaluated: %s", error)
        return
    on_phase("evaluate")
    engine.restore(checkpoint.state)
    metrics = engine.evaluate(val_data)
    if not math.isfinite(metrics.loss):
        raise callbacks.in_evaluation(
            step, metrics.loss, precision, f" (checkpoints: {checkpoints.root})"
        )
    evaluation = Evaluation(step, metrics.loss, **metrics.values)
    results.add(evaluation)
    reporter.evaluation(evaluation)
    shown = ", ".join(f"{name} {value:.4f}" for name, value in metrics.values.items())
    _log.info("Step %d: loss %.4f, %s", step, metrics.loss, shown)


@dataclasses.dataclass
class EvaluationHistory:
    """Evaluations by this process, or by an evaluator process that reads the checkpoints."""

    checkpoints: Checkpoints
    evaluator: Evaluations | None
    rank: Callable[[list[Evaluation]], list[Evaluation]]
    """Sorts evaluations, best first."""
    evaluations: list[Evaluation] = dataclasses.field(default_factory=list)

    def refresh(self) -> list[int]:
        """Reads the evaluator's results; returns the steps that it has still to evaluate."""
        if self.evaluator is None:
            return []
        self.evaluations = self.evaluator.read()
        done = {entry.step for entry in self.evaluations}
        return [step for step in self.checkpoints.steps() if step not in done]

    def wait_for(self, step: int) -> None:
        """Waits until the evaluator, if there is one, has evaluated a step."""
        deadline = time.monotonic() + EVALUATOR_SECONDS
        while step in self.refresh():
            if time.monotonic() > deadline:
                _log.warning(
                    "The evaluator has not evaluated step %d within %.0f s; the export uses the "
                    "best of the other steps",
                    step,
                    EVALUATOR_SECONDS,
                )
                return
            threading.Event().wait(POLL_SECONDS)

    def ranked(self) -> list[Evaluation]:
        """Evaluations, best first."""
        return self.rank(self.evaluations)
