"""How good the weights were after each step, who found it, and which were best."""

from __future__ import annotations

import logging
import threading
import time

from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.checkpointing.evaluations import Evaluation, Evaluations
from stagecraft.trainer_module.training.evaluator import POLL_SECONDS

EVALUATOR_SECONDS = 600.0
"""For the last evaluation of another process, once the training is done."""

_log = logging.getLogger(__name__)


class Scores:
    """Evaluations of this process, or those that another one makes of the checkpoints."""

    def __init__(self, checkpoints: Checkpoints, of_another: Evaluations | None):
        self.evaluations: list[Evaluation] = []
        self._checkpoints = checkpoints
        self._of_another = of_another

    def begin(self) -> None:
        """A training begins: what another process has found is of an earlier one."""
        if self._of_another:
            self._of_another.clear()

    def add(self, evaluation: Evaluation) -> None:
        """This process has found one."""
        self.evaluations.append(evaluation)

    def look(self) -> list[int]:
        """Takes what another process has found; the steps that it has still to look at."""
        if self._of_another is None:
            return []
        self.evaluations = self._of_another.read()
        done = {entry.step for entry in self.evaluations}
        return [step for step in self._checkpoints.steps() if step not in done]

    def wait_for(self, step: int) -> None:
        """Returns when another process, if it is one that evaluates, has looked at a step."""
        deadline = time.monotonic() + EVALUATOR_SECONDS
        while step in self.look():
            if time.monotonic() > deadline:
                _log.warning(
                    "The evaluator has not looked at step %d within %.0f s; the best of the others "
                    "is taken",
                    step,
                    EVALUATOR_SECONDS,
                )
                return
            threading.Event().wait(POLL_SECONDS)

    def ranked(self) -> list[Evaluation]:
        """The highest accuracy first; among equals the lowest loss, then the earliest."""
        return sorted(self.evaluations, key=lambda entry: (-entry.accuracy, entry.loss))
