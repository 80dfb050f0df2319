"""What an evaluator found, beside the checkpoints: for those who train, and for a later attempt.

    root/evaluations.json    a list of step, loss and accuracy; replaced whole each time

Imports no TensorFlow.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import pathlib

from stagecraft.trainer_module.checkpointing import mirror
from stagecraft.trainer_module.checkpointing.atomic_folder import disk_errors

_log = logging.getLogger(__name__)


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
        self._mirror = mirror.of(self._path.parent)

    def read(self) -> list[Evaluation]:
        """In the order of the steps; none where they cannot be read: they can be made again."""
        try:
            return [Evaluation(**entry) for entry in json.loads(self._text())]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError) as error:
            _log.warning("%s: cannot be read: %s", self._path, error)
            return []

    def add(self, evaluation: Evaluation) -> None:
        """Writes one more; it takes the place of an earlier one of the same step.

        Raises:
            UserError: the disk is full, or cannot be written.
        """
        found = {entry.step: entry for entry in self.read()} | {evaluation.step: evaluation}
        entries = [dataclasses.asdict(found[step]) for step in sorted(found)]
        if self._mirror:
            self._mirror.write(self._path.name, json.dumps(entries, indent=1).encode())
            return
        aside = self._path.with_suffix(".json.partial")
        with disk_errors(self._path):
            with aside.open("w", encoding="utf-8") as file:
                json.dump(entries, file, indent=1)
                file.flush()
                os.fsync(file.fileno())  # a rename alone may outrun its contents
            aside.replace(self._path)

    def clear(self) -> None:
        """Forgets all: the checkpoints are another training's from now on."""
        self._path.unlink(missing_ok=True)
        if self._mirror:
            self._mirror.remove(self._path.name)

    def _text(self) -> str | bytes:
        if not self._mirror:
            return self._path.read_text()
        return self._mirror.read(self._path.name) or "[]"
