"""Evaluates each new checkpoint in a process of its own, on one device.

The evaluator reads the folder of checkpoints and writes its results beside them. It takes no part
in the training, and may be restarted at any time.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Callable
from typing import Any

from stagecraft.trainer_module.checkpointing import resume
from stagecraft.trainer_module.checkpointing.checkpoint_files import UnreadableCheckpointError
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
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
    """Evaluates checkpoints as they appear, oldest first, until the last step's is done.

    Args:
        engine: with the model; its weights are overwritten.
        settings: :func:`resume.resolved`; checkpoints of other settings are ignored.

    Raises:
        DivergedError: the loss on the val split is not finite.
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
        raise diverged.in_evaluation(step, metrics.loss, precision, f" ({checkpoints.root})")
    results.add(Evaluation(step, metrics.loss, metrics.accuracy))
    reporter.evaluation(step, metrics.loss, metrics.accuracy)
    _log.info("Step %d: loss %.4f, accuracy %.4f", step, metrics.loss, metrics.accuracy)
