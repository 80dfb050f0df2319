"""What an optimizer is. Imports neither TensorFlow nor Keras."""

from __future__ import annotations

import abc
from typing import Any

from stagecraft.schemas.registry import Entry
from stagecraft.trainer_module.settings import TrainSettings


class Optimizer(Entry):
    """Base of the values of ``train.optimizer``: a file in ``optimizers/``, or an entry point."""

    slots = 1
    """Variables that it keeps for each weight, for the memory in a plan."""

    @abc.abstractmethod
    def make(self, train: TrainSettings) -> Any:
        """A ``keras.optimizers.Optimizer`` with ``train.learning_rate`` and ``weight_decay``.

        Its file imports Keras inside this method only.
        """
