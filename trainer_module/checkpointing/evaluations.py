"""An evaluator's results, next to the checkpoints, for the trainer and for later attempts."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import pathlib
from collections.abc import Mapping

from stagecraft.trainer_module.checkpointing import mirror
from stagecraft.trainer_module.checkpointing.atomic_folder import disk_errors

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, init=False)
class Evaluation:
    """Metrics of the val split after a step: ``Evaluation(391, loss=1.2, accuracy=0.6)``."""

    step: int
    loss: float
    metrics: Mapping[str, float]

    def __init__(self, step: int, loss: float, **metrics: float):
        """``metrics``: the task's, by name."""
        for name, value in (("step", step), ("loss", loss), ("metrics", metrics)):
            object.__setattr__(self, name, value)

    def flat(self) -> dict[str, float]:
        """For JSON: the arguments that make an equal evaluation."""
        return {"step": self.step, "loss": self.loss, **self.metrics}


class Evaluations:
    """The evaluations of the checkpoints in one folder; one process writes."""

    def __init__(self, root: str | os.PathLike[str]):
        self._path = pathlib.Path(root, "evaluations.json")
        self._mirror = mirror.of(self._path.parent)

    def read(self) -> list[Evaluation]:
        """Evaluations by step; empty if the file is unreadable, since they can be recomputed."""
        try:
            return [Evaluation(**entry) for entry in json.loads(self._text())]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError, KeyError) as error:
            _log.warning("%s: cannot be read: %s", self._path, error)
            return []

    def add(self, evaluation: Evaluation) -> None:
        """Adds an evaluation; replaces an earlier one of the same step."""
        known = {entry.step: entry for entry in self.read()} | {evaluation.step: evaluation}
        entries = [known[step].flat() for step in sorted(known)]
        if self._mirror:
            self._mirror.store.write(self._path.name, json.dumps(entries, indent=1).encode())
            return
        aside = self._path.with_suffix(".json.partial")
        with disk_errors(self._path):
            with aside.open("w", encoding="utf-8") as file:
                json.dump(entries, file, indent=1)
                file.flush()
                os.fsync(file.fileno())  # a rename alone may outrun its contents
            aside.replace(self._path)

    def clear(self) -> None:
        """Removes all evaluations, when another training takes over the checkpoints."""
        self._path.unlink(missing_ok=True)
        if self._mirror:
            self._mirror.store.remove(self._path.name)

    def _text(self) -> str | bytes:
        if not self._mirror:
            return self._path.read_text()
        return self._mirror.store.read(self._path.name) or "[]"
