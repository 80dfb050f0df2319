"""The evaluations of a training, and their ranking."""

from __future__ import annotations

import logging
import threading
import time

from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.checkpointing.evaluations import Evaluation, Evaluations
from stagecraft.trainer_module.training.evaluator import POLL_SECONDS

EVALUATOR_SECONDS = 600.0
"""Timeout for another process's last evaluation, after the last step."""

_log = logging.getLogger(__name__)


class EvaluationHistory:
    """Evaluations by this process, or by an evaluator process that reads the checkpoints."""

    def __init__(self, checkpoints: Checkpoints, evaluator: Evaluations | None):
        """Starts empty.

        Args:
            evaluator: the evaluator process's results; None: this process evaluates.
        """
        self.evaluations: list[Evaluation] = []
        self._checkpoints = checkpoints
        self._evaluator = evaluator

    def reset(self) -> None:
        """Removes the evaluator's results of an earlier training."""
        if self._evaluator:
            self._evaluator.clear()

    def add(self, evaluation: Evaluation) -> None:
        """Adds an evaluation by this process."""
        self.evaluations.append(evaluation)

    def refresh(self) -> list[int]:
        """Reads the evaluator's results; returns the steps that it has still to evaluate."""
        if self._evaluator is None:
            return []
        self.evaluations = self._evaluator.read()
        done = {entry.step for entry in self.evaluations}
        return [step for step in self._checkpoints.steps() if step not in done]

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
        """Evaluations by accuracy, highest first; ties by loss, then by step."""
        return sorted(self.evaluations, key=lambda entry: (-entry.accuracy, entry.loss))
