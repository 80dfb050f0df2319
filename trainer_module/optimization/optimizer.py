"""The base of optimizers. Imports neither TensorFlow nor Keras."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from stagecraft.common import signatures
from stagecraft.common.errors import SettingError
from stagecraft.common.registry import Entry
from stagecraft.trainer_module.settings import TrainSettings

ARGS = "train.optimizer_args"

TAKEN = MappingProxyType(
    {
        "learning_rate": "train.learning_rate and train.schedule",
        "weight_decay": "train.weight_decay",
        "adam_weight_decay": "train.weight_decay",  # Muon's, of weights that it leaves to AdamW
        "clipnorm": "train.clip_norm, the norm over all gradients",
        "global_clipnorm": "train.clip_norm",
        "clipvalue": "train.clip_value",
        "use_ema": "train.ema_decay",
        "ema_momentum": "train.ema_decay",
        "ema_overwrite_frequency": "train.ema_decay",
        "loss_scale_factor": "parallel.precision: mixed_float16",
        "gradient_accumulation_steps": "parallel.accumulate",
    }
)
"""Arguments of Keras's optimizers that settings stand for, which all engines treat alike."""


def rates(train: TrainSettings) -> dict[str, float]:
    """The values of the arguments that are rates."""
    decay = train.weight_decay
    return {
        "learning_rate": train.learning_rate,
        "weight_decay": decay,
        "adam_weight_decay": decay,
    }


class Optimizer(Entry):
    """Base of the values of ``train.optimizer``: a file in ``optimizers/``, or an entry point."""

    slots = 1
    """Variables that it keeps for each weight, for the memory in a plan."""

    elementwise = False
    """Whether it computes each entry of a weight from the same entries of gradient and slots, as
    ``parallel.zero`` needs it."""

    in_library: Mapping[str, float] = MappingProxyType({})
    """Settings of ``train:`` where code names the optimizer, as in ``stagecraft.fit``."""

    def slots_with(self, train: TrainSettings) -> float:
        """``slots`` under these settings."""
        return self.slots

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Checks the names in ``train.optimizer_args``; imports no Keras.

        Raises:
            SettingError: a name is no argument; by default, none is.
        """
        signatures.refuse_any(ARGS, arguments, f"train.optimizer: {self.name}")

    def check_weights(self, train: TrainSettings, weights: Sequence[Any]) -> None:
        """Checks the arguments against all trained weights of the model; by default not.

        Args:
            weights: variables of Keras.

        Raises:
            SettingError: they do not go together.
        """

    def verify(self, train: TrainSettings) -> None:
        """Checks what only Keras can tell, before a training begins; by default nothing.

        Raises:
            UserError: the optimizer does not go together with ``train``.
        """

    @property
    def decays_all_weights(self) -> bool:
        """Whether ``train.weight_decay`` is for all weights, as in Keras, and not kernels alone."""
        return False

    @abc.abstractmethod
    def make(self, train: TrainSettings) -> Any:
        """A ``keras.optimizers.Optimizer`` with ``train.learning_rate`` and ``weight_decay``.

        Its file imports Keras inside this method only.
        """


class KerasOptimizer(Optimizer):
    """A class of ``keras.optimizers``."""

    class_name: str

    @property
    def taken(self) -> Mapping[str, str]:
        """Arguments that other settings stand for -> these settings."""
        return TAKEN

    def arguments(self, train: TrainSettings) -> dict[str, Any]:
        """Arguments of the class that follow from settings of their own."""
        known = signatures.arguments("keras.optimizers", self.class_name)
        return {name: value for name, value in rates(train).items() if name in known}

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Checks the names against the class's signature, without importing Keras."""
        known = dict(signatures.arguments("keras.optimizers", self.class_name))
        known.pop("name", None)  # checkpoints do not contain it
        signatures.check(ARGS, arguments, known, self.taken)

    def make(self, train: TrainSettings) -> Any:
        """Makes the optimizer.

        Raises:
            SettingError: Keras refuses the value of an argument.
        """
        import keras

        given = train.optimizer_args
        try:
            return getattr(keras.optimizers, self.class_name)(**(self.arguments(train) | given))
        except (TypeError, ValueError) as error:
            raise SettingError(
                ARGS, train.optimizer_args, f"is refused by keras.optimizers: {error}"
            ) from error
