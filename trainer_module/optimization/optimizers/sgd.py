"""Stochastic gradient descent (Sutskever et al. 2013, section 3.1)."""

from __future__ import annotations

from typing import Any

from stagecraft.trainer_module.optimization.optimizer import Optimizer
from stagecraft.trainer_module.settings import TrainSettings


class Sgd(Optimizer):
    """``keras.optimizers.SGD``."""

    name = "sgd"
    description = (
        "stochastic gradient descent with Nesterov momentum (train.momentum) and decoupled weight "
        "decay"
    )
    slots = 1

    def make(self, train: TrainSettings) -> Any:
        """Makes SGD with the settings' learning rate, momentum and weight decay."""
        import keras

        return keras.optimizers.SGD(
            train.learning_rate,
            momentum=train.momentum,
            nesterov=train.momentum > 0,
            weight_decay=train.weight_decay,
        )


SGD = Sgd()
