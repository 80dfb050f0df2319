"""Decisions after evaluations: when to stop early, and how far to lower the learning rate.

Keras's own callbacks decide. Each decision is a function of all evaluations so far, which
checkpoints hold: a resumed training decides as one that was never stopped.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import keras

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.checkpointing.evaluations import Evaluation
from stagecraft.trainer_module.data.tasks.task import Task
from stagecraft.trainer_module.settings import TrainSettings


class Watch:
    """Watches the task's monitored metric."""

    def __init__(self, train: TrainSettings, task: Task):
        """Checks the arguments of the callbacks.

        Raises:
            SettingError: Keras refuses the value of one of ``train.schedule_args``.
        """
        self._train, self._task = train, task
        self._lowers = registries.SCHEDULES.get(train.schedule).follows_evaluations
        self.factor([])

    @property
    def setting(self) -> str:
        """The setting that needs evaluations; empty: none does."""
        if self._train.early_stopping_patience:
            return "train.early_stopping_patience"
        return "train.schedule" if self._lowers else ""

    def stops(self, evaluations: Sequence[Evaluation]) -> bool:
        """Whether training stops after these evaluations, in the order of steps."""
        patience = self._train.early_stopping_patience
        if not patience:
            return False
        callback = keras.callbacks.EarlyStopping(**self._watched(evaluations), patience=patience)
        return bool(self._replayed(callback, evaluations).stop_training)

    def factor(self, evaluations: Sequence[Evaluation]) -> float:
        """The factor on the learning rate after these evaluations."""
        if not self._lowers:
            return 1.0
        arguments = self._train.schedule_args
        try:
            callback = keras.callbacks.ReduceLROnPlateau(**self._watched(evaluations), **arguments)
        except (TypeError, ValueError) as error:
            raise SettingError(
                "train.schedule_args", self._train.schedule_args, f"is refused by Keras: {error}"
            ) from error
        rate = self._replayed(callback, evaluations).optimizer.learning_rate
        return float(rate) / self._train.learning_rate

    def _watched(self, evaluations: Sequence[Evaluation]) -> dict[str, str]:
        """The metric that a callback watches, and its better direction."""
        name = self._task.chooses(evaluations)
        return {"monitor": name, "mode": "max" if self._task.higher_is_better(name) else "min"}

    def _replayed(self, callback: Any, evaluations: Sequence[Evaluation]) -> Any:
        """A stand-in for the model, after the callback has seen each evaluation as an epoch."""
        optimizer = types.SimpleNamespace(learning_rate=self._train.learning_rate)
        model = types.SimpleNamespace(optimizer=optimizer, stop_training=False)
        callback.set_model(model)
        callback.on_train_begin()
        for number, evaluation in enumerate(evaluations):
            callback.on_epoch_end(number, {callback.monitor: evaluation.flat()[callback.monitor]})
        return model
