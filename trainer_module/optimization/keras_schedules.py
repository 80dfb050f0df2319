"""Values of ``train.schedule`` without a file: classes of Keras, and the user's own objects.

Imports neither TensorFlow nor Keras: it reads what there is from Keras's sources.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Callable, Mapping
from typing import Any

from stagecraft.common import signatures, user_objects
from stagecraft.common.errors import SettingError
from stagecraft.common.registry import UserEntry
from stagecraft.trainer_module.optimization.schedule import ARGS, RateSchedule
from stagecraft.trainer_module.settings import TrainSettings

_PACKAGE = "keras.optimizers.schedules"
_INITIAL = "initial_learning_rate"


class _LearningRateSchedule(RateSchedule):
    """A ``keras.optimizers.schedules.LearningRateSchedule``, called with the steps since the
    warm-up."""

    depends_on_length = False

    @abc.abstractmethod
    def make(self, train: TrainSettings) -> Any:
        """Keras's object."""

    def rates(self, train: TrainSettings) -> Callable[[Any, Any, Any], Any]:
        """The rates of Keras's object, times the factor of the warm-up."""
        import tensorflow as tf

        schedule = self.make(train)
        # Keras computes rates in float32, also for weights in float64.
        return lambda rising, _, step: rising * tf.cast(schedule(step), rising.dtype)


class OfKeras(_LearningRateSchedule):
    """A class of ``keras.optimizers.schedules``, found by its name."""

    def __init__(self, class_name: str):
        self.class_name = class_name
        self.name = _snake(class_name)
        self.description = f"{_PACKAGE}.{class_name}"
        self._known = signatures.arguments(_PACKAGE, class_name)

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Checks the names against the class's signature, without importing Keras."""
        known = {name: required for name, required in self._known.items() if name != "name"}
        signatures.check(ARGS, arguments, known, {_INITIAL: "train.learning_rate"})

    def make(self, train: TrainSettings) -> Any:
        """Keras's object; ``train.learning_rate`` is its initial rate, if it has one.

        Raises:
            SettingError: Keras refuses the value of an argument.
        """
        import keras

        initial = {_INITIAL: train.learning_rate} if _INITIAL in self._known else {}
        kind = getattr(keras.optimizers.schedules, self.class_name)
        try:
            return kind(**initial, **train.schedule_args)
        except (TypeError, ValueError) as error:
            raise SettingError(
                ARGS, train.schedule_args, f"is refused by {self.description}: {error}"
            ) from error


class OfUser(UserEntry, _LearningRateSchedule):
    """A schedule of the user's, or a function that returns one."""

    description = "a schedule of your own"

    def make(self, train: TrainSettings) -> Any:
        """The user's object."""
        import keras

        kind = keras.optimizers.schedules.LearningRateSchedule
        return user_objects.made("train.schedule", self.name, kind)


def names() -> list[str]:
    """Names of Keras's schedules, as in ``cosine_decay``."""
    return sorted(map(_snake, _by_key().values()))


def find(name: str) -> RateSchedule | None:
    """The schedule of Keras with this name, or the user's; None: there is none."""
    if user_objects.is_name(name):
        return OfUser(name)
    class_name = _by_key().get(name.replace("_", "").lower(), "")
    return OfKeras(class_name) if class_name else None


def _by_key() -> Mapping[str, str]:
    return {
        name.lower(): name
        for name in signatures.classes(_PACKAGE)
        if signatures.arguments(_PACKAGE, name)
    }


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
