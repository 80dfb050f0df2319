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

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.checkpointing import resume
from stagecraft.trainer_module.checkpointing.checkpoint_files import UnreadableCheckpointError
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.checkpointing.evaluations import Evaluation, Evaluations
from stagecraft.trainer_module.engines.engine import Engine
from stagecraft.trainer_module.engines.step_metrics import NonFiniteLossError
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
    where = f" (checkpoints: {checkpoints.root})"
    while True:
        done = {entry.step for entry in results.read()}
        for step in _own(checkpoints, settings):
            if step not in done:
                try:
                    state = checkpoints.load(step).state
                except UnreadableCheckpointError as error:
                    _log.info("Not evaluated: %s", error)
                else:
                    on_phase("evaluate")
                    engine.restore(state)
                    evaluation = evaluate(engine, step, val_data, precision, lambda: where)
                    results.add(evaluation)
                    reporter.evaluation(evaluation)
                    shown = (f"{name} {value:.4f}" for name, value in evaluation.metrics.items())
                    _log.info("Step %d: loss %.4f, %s", step, evaluation.loss, ", ".join(shown))
            if step == settings["train_steps"]:  # even if it is unreadable
                return
        threading.Event().wait(POLL_SECONDS)


def evaluate(
    engine: Engine, step: int, val_data: Any, precision: str, kept: Callable[[], str]
) -> Evaluation:
    """The metrics of the val split with the engine's weights, after a step.

    Args:
        kept: names a checkpoint, for the message of an error.

    Raises:
        DivergedError: the loss is not finite.
    """
    metrics = engine.evaluate(val_data)
    if not math.isfinite(metrics.loss):
        raise in_evaluation(step, metrics.loss, precision, kept())
    return Evaluation(step, metrics.loss, **metrics.values)


def _own(checkpoints: Checkpoints, settings: resume.Flat) -> list[int]:
    """Steps of this training, oldest first; another training's may be there before it starts."""
    own = []
    for step in checkpoints.steps():
        with contextlib.suppress(UnreadableCheckpointError):  # or dropped meanwhile
            if not resume.changes(checkpoints.notes(step)["settings"], settings, step):
                own.append(step)
    return own


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


_RATE = "Lower train.learning_rate, or raise train.warmup_steps."


class DivergedError(UserError):
    """The loss, or a gradient, is infinite or not a number."""

    def __init__(self, what: str, kept: str, *, updates: int, loss: float, precision: str):
        """``what`` is not finite, such as ``the loss is nan at step 3``; ``kept`` is a checkpoint.

        Without weight ``updates``, the learning rate is not the cause. The loss is in nats.
        """
        cause = _cause(updates, loss, precision)
        super().__init__(f"Training stopped: {what}{kept}. {cause}")
        self.updates = updates
        self.loss = loss
        self.precision = precision


def in_training(error: NonFiniteLossError, precision: str, kept: str) -> DivergedError:
    """The error for a training step."""
    what = f"the loss is {error.loss} at step {error.step}"
    if math.isfinite(error.loss):  # with a loss scale, the engine checks the gradients
        what = f"a gradient is not finite at step {error.step} (loss {error.loss:.4g})"
    return DivergedError(what, kept, updates=error.step - 1, loss=error.loss, precision=precision)


def in_evaluation(step: int, loss: float, precision: str, kept: str) -> DivergedError:
    """The error for the val split, after a step."""
    what = f"the loss on the val split is {loss} after step {step}"
    return DivergedError(what, kept, updates=step, loss=loss, precision=precision)


def _cause(updates: int, loss: float, precision: str) -> str:
    half = precision == "mixed_float16"
    if updates and not half:
        return _RATE
    if updates:
        return (
            f"{_RATE} If that does not help, a value exceeds the range of float16 (65,504): use "
            "parallel.precision: mixed_bfloat16 or float32."
        )
    if half:
        where = "a gradient" if math.isfinite(loss) else "a value of the forward pass"
        return (
            f"No weight has changed yet and the loss scale is 1, so {where} exceeds the range of "
            "float16 (65,504). Use parallel.precision: mixed_bfloat16 or float32. If the error "
            "remains, the cause is in the inputs or in an operation of the model."
        )
    return (
        "No weight has changed yet, so train.learning_rate is not the cause. Either the inputs are "
        "not finite, or an operation of the model yields such values, for example a division by 0 "
        "or the logarithm of 0. Check the output of preprocessing_fn, and the model's operations "
        "and initial weights."
    )
