"""Stochastic gradient descent (Sutskever et al. 2013, section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stagecraft.trainer_module.optimization.optimizer import TAKEN, KerasOptimizer
from stagecraft.trainer_module.settings import TrainSettings


class Sgd(KerasOptimizer):
    """``keras.optimizers.SGD``."""

    name = "sgd"
    description = (
        "stochastic gradient descent with Nesterov momentum (train.momentum) and decoupled weight "
        "decay"
    )
    class_name = "SGD"
    slots = 1
    elementwise = True

    @property
    def taken(self) -> Mapping[str, str]:
        """Settings that all optimizers take, and the momentum."""
        return {**TAKEN, "momentum": "train.momentum"}

    def arguments(self, train: TrainSettings) -> dict[str, Any]:
        """Learning rate, weight decay, and Nesterov momentum."""
        momentum = {"momentum": train.momentum, "nesterov": train.momentum > 0}
        return super().arguments(train) | momentum


SGD = Sgd()
