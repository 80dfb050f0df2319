"""The process that evaluates each new checkpoint, on one device, while the others train on.

It reads the folder of checkpoints and writes what it finds beside them; it takes no part in the
training, and may be lost and come back.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Callable
from typing import Any

from stagecraft.trainer_module.checkpointing import resume
from stagecraft.trainer_module.checkpointing.checkpoints import (
    Checkpoints,
    UnreadableCheckpointError,
)
from stagecraft.trainer_module.checkpointing.evaluations import Evaluation, Evaluations
from stagecraft.trainer_module.engines.base import Engine
from stagecraft.trainer_module.training import diverged
from stagecraft.trainer_module.training.monitoring.progress import Reporter

POLL_SECONDS = 1.0

_log = logging.getLogger(__name__)


def evaluate_all(
    engine: Engine,
    val_data: Any,
    checkpoints: Checkpoints,
    reporter: Reporter,
    settings: resume.Flat,
    on_phase: Callable[[str], None],
) -> None:
    """Evaluates checkpoints as they come, oldest first, until that of the last step is.

    Args:
        engine: with the model; its weights are overwritten.
        val_data: finite dataset.
        checkpoints: as those that train write them.
        reporter: is told of evaluations.
        settings: :func:`resume.resolved`; checkpoints of other settings are not this training's.
        on_phase: told of what begins.

    Raises:
        DivergedError: the loss on the val split is not finite.
    """
    found = Evaluations(checkpoints.root)
    precision = str(settings.get("parallel_precision", "float32"))
    while True:
        done = {entry.step for entry in found.read()}
        for step in _own(checkpoints, settings):
            if step not in done:
                _evaluate(step, engine, val_data, checkpoints, reporter, on_phase, found, precision)
            if step == settings["train_steps"]:  # also where it cannot be read: it stays so
                return
        threading.Event().wait(POLL_SECONDS)


def _own(checkpoints: Checkpoints, settings: resume.Flat) -> list[int]:
    """Steps of this training, oldest first; there may be another's, until this one begins."""
    own = []
    for step in checkpoints.steps():
        with contextlib.suppress(UnreadableCheckpointError):  # or dropped since it was listed
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
    found: Evaluations,
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
        raise diverged.in_evaluation(step, metrics.loss, precision, f" ({checkpoints.root})")
    found.add(Evaluation(step, metrics.loss, metrics.accuracy))
    reporter.evaluation(step, metrics.loss, metrics.accuracy)
    _log.info("Step %d: loss %.4f, accuracy %.4f", step, metrics.loss, metrics.accuracy)
