"""What a learning-rate schedule is. Imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stagecraft.schemas.errors import SettingError
from stagecraft.schemas.registry import Entry
from stagecraft.trainer_module.settings import TrainSettings

ARGS = "train.schedule_args"


class Schedule(Entry):
    """Base of the values of ``train.schedule``: a file in ``schedules/``, or an entry point."""

    default_warmup = 0.0
    """Share of all steps to warm up for, where ``train.warmup_steps`` is 0."""

    depends_on_length = True
    """Whether the rate of a step depends on how many steps the training has."""

    follows_evaluations = False
    """Whether evaluations lower the rate."""

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Checks the names in ``train.schedule_args``; imports neither TensorFlow nor Keras.

        Raises:
            SettingError: a name is no argument; by default, none is.
        """
        if arguments:
            raise SettingError(
                ARGS, ", ".join(arguments), f"is not supported by train.schedule: {self.name}"
            )

    def decay(self, progress: Any) -> Any:
        """Factor on the learning rate after the warm-up, 1 at its start.

        Its file imports TensorFlow inside this method only.

        Args:
            progress: scalar tensor, from 0 after the warm-up to 1 at the end.
        """
        raise NotImplementedError

    def rates(self, train: TrainSettings) -> Callable[[Any, Any, Any], Any]:
        """A function that gives the rate of a step, by default by :meth:`decay`.

        Its arguments are scalar tensors: the factor of the warm-up; the progress, as in
        :meth:`decay`; and the steps since the warm-up, int64.
        """
        return lambda rising, progress, _: train.learning_rate * rising * self.decay(progress)
