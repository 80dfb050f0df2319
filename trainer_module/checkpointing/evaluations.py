"""What an evaluator found, beside the checkpoints: for those who train, and for a later attempt.

    root/evaluations.json    a list of step, loss and accuracy; replaced whole each time

Imports no TensorFlow.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib

from stagecraft.trainer_module.atomic_folder import disk_errors


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The val split after a step."""

    step: int
    loss: float
    accuracy: float


class Evaluations:
    """Those of the checkpoints under one folder; one process writes."""

    def __init__(self, root: str | os.PathLike[str]):
        self._path = pathlib.Path(root, "evaluations.json")

    def read(self) -> list[Evaluation]:
        """In the order of the steps."""
        if not self._path.exists():
            return []
        return [Evaluation(**entry) for entry in json.loads(self._path.read_text())]

    def add(self, evaluation: Evaluation) -> None:
        """Writes one more; it takes the place of an earlier one of the same step.

        Raises:
            UserError: the disk is full, or cannot be written.
        """
        found = {entry.step: entry for entry in self.read()} | {evaluation.step: evaluation}
        entries = [dataclasses.asdict(found[step]) for step in sorted(found)]
        aside = self._path.with_suffix(".json.partial")
        with disk_errors(self._path):
            aside.write_text(json.dumps(entries, indent=1))
            aside.replace(self._path)

    def clear(self) -> None:
        """Forgets all: the checkpoints are another training's from now on."""
        self._path.unlink(missing_ok=True)
