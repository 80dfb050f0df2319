"""The base of learning-rate schedules. Imports no TensorFlow."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any

from stagecraft.common import signatures
from stagecraft.common.registry import Entry
from stagecraft.trainer_module.settings import TrainSettings

ARGS = "train.schedule_args"


class RateSchedule(Entry):
    """The object that ``train.schedule`` names: it gives the learning rate of each step."""

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
        signatures.refuse_any(ARGS, arguments, f"train.schedule: {self.name}")

    @abc.abstractmethod
    def rates(self, train: TrainSettings) -> Callable[[Any, Any, Any], Any]:
        """A function that gives the rate of a step.

        Its arguments are scalar tensors: the factor of the warm-up; the progress, from 0 after the
        warm-up to 1 at the end; and the steps since the warm-up, int64.
        """


class Schedule(RateSchedule):
    """Base of the files in ``schedules/``, and of entry points: a factor by progress."""

    @abc.abstractmethod
    def decay(self, progress: Any) -> Any:
        """Factor on the learning rate after the warm-up, 1 at its start.

        Its file imports TensorFlow inside this method only.

        Args:
            progress: scalar tensor, from 0 after the warm-up to 1 at the end.
        """

    def rates(self, train: TrainSettings) -> Callable[[Any, Any, Any], Any]:
        """``train.learning_rate``, times the factor of the warm-up, times :meth:`decay`."""
        return lambda rising, progress, _: train.learning_rate * rising * self.decay(progress)
