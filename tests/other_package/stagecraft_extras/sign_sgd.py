"""SGD by the signs of gradients (Bernstein et al. 2018)."""

from __future__ import annotations

from typing import Any

from stagecraft.extend import Optimizer, TrainSettings


class SignSgd(Optimizer):
    """Each weight moves by the learning rate."""

    name = "sign_sgd"
    description = "moves each weight by the learning rate, against the sign of its gradient"
    slots = 0

    def make(self, train: TrainSettings) -> Any:
        """An optimizer without slots."""
        import keras

        class Sign(keras.optimizers.SGD):
            def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
                super().update_step(keras.ops.sign(gradient), variable, learning_rate)

        return Sign(train.learning_rate, weight_decay=train.weight_decay)


SIGN_SGD = SignSgd()
