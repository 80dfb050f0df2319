"""Factors on the learning rate of single weights, in an optimizer of Keras.

A factor applies wherever the rate does: to the update, and to the decoupled weight decay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras


def apply(optimizer: keras.optimizers.Optimizer, factors: Sequence[float]) -> None:
    """Multiplies the learning rate of each weight that the optimizer was built for."""
    if all(factor == 1 for factor in factors):
        return
    update_step, apply_weight_decay = optimizer.update_step, optimizer._apply_weight_decay
    current_rate = optimizer._get_current_learning_rate
    of_decay = [1.0]

    def update(gradient: Any, variable: Any, learning_rate: Any) -> Any:
        factor = factors[optimizer._get_variable_index(variable)]
        rate = learning_rate if factor == 1 else learning_rate * factor
        return update_step(gradient, variable, rate)

    def rate() -> Any:
        return current_rate() if of_decay[0] == 1 else current_rate() * of_decay[0]

    def decay(variables: Sequence[Any]) -> None:
        groups: dict[float, list[Any]] = {}
        for variable in variables:
            factor = factors[optimizer._get_variable_index(variable)]
            groups.setdefault(factor, []).append(variable)
        for factor, group in groups.items():
            of_decay[0] = factor
            apply_weight_decay(group)
        of_decay[0] = 1.0

    optimizer.update_step = update
    optimizer._apply_weight_decay = decay
    optimizer._get_current_learning_rate = rate
