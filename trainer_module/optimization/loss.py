"""The base of losses. Imports neither TensorFlow nor Keras."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from stagecraft.common import signatures
from stagecraft.common.registry import Entry
from stagecraft.trainer_module.data.tasks.task import Task
from stagecraft.trainer_module.settings import TrainSettings

if TYPE_CHECKING:
    from stagecraft.trainer_module.data.batch import Nest

ARGS = "train.loss_args"

Losses = Callable[["Nest", "Nest", Any, bool], Any]
"""Maps outputs, targets, a dtype, and whether to smooth labels, to the loss of each example:
``[batch]``, at least as precise as the dtype."""


class Loss(Entry):
    """Base of the values of ``train.loss``: a file in ``losses/``, or an entry point."""

    smooths: bool = False
    """Whether ``train.label_smoothing`` has an effect."""

    needs_zero: bool = False
    """Whether the loss makes no sense for targets that are shifted and scaled."""

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Checks the names in ``train.loss_args``; imports no Keras.

        Raises:
            SettingError: a name is no argument; by default, none is.
        """
        signatures.refuse_any(ARGS, arguments, f"train.loss: {self.name}")

    @abc.abstractmethod
    def make(self, task: Task, arguments: Mapping[str, Any], train: TrainSettings) -> Losses:
        """The function that computes the loss of one output.

        Its file imports TensorFlow and Keras inside this method only.

        Raises:
            UserError: the arguments do not fit.
        """
