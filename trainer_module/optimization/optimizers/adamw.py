"""AdamW (Loshchilov and Hutter 2017)."""

from __future__ import annotations

from typing import Any

from stagecraft.trainer_module.optimization.optimizer import Optimizer
from stagecraft.trainer_module.settings import TrainSettings


class AdamW(Optimizer):
    """``keras.optimizers.AdamW``."""

    name = "adamw"
    description = "Adam with decoupled weight decay (Loshchilov and Hutter 2017)"
    slots = 2

    def make(self, train: TrainSettings) -> Any:
        """Makes AdamW with the settings' learning rate and weight decay."""
        import keras

        return keras.optimizers.AdamW(train.learning_rate, weight_decay=train.weight_decay)


ADAMW = AdamW()
