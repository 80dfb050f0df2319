"""Makes the optimizer of a training: weight decay, and a factor on the learning rate, by weight.

A factor applies wherever the rate does: to the update, and to the decoupled weight decay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from stagecraft.trainer_module import registries
from stagecraft.trainer_module.models import variable_patterns
from stagecraft.trainer_module.models.layers.random_state import floatx
from stagecraft.trainer_module.models.variable_patterns import is_kernel
from stagecraft.trainer_module.optimization import slots
from stagecraft.trainer_module.optimization.optimizer import Optimizer
from stagecraft.trainer_module.settings import TrainSettings


def make_optimizer(
    settings: TrainSettings, variables: Sequence[keras.Variable]
) -> keras.optimizers.Optimizer:
    """An optimizer whose slots are made for ``variables``, on the devices of the current scope.

    The training loop assigns its variable ``learning_rate`` before each step. A step first takes
    ``learning_rate * weight_decay * kernel`` off each kernel (decoupled weight decay, Loshchilov
    and Hutter 2017, with the rate as its schedule); off each weight, if the optimizer says so in
    ``decays_all_weights``. Gradients have the order of ``variables``.

    Raises:
        UserError: the user's optimizer cannot be made, or contradicts ``settings``.
    """
    in_float64 = any(variable.dtype == "float64" for variable in variables)
    with floatx("float64" if in_float64 else keras.config.floatx()):  # of the learning rate
        entry: Optimizer = registries.OPTIMIZERS.get(settings.optimizer)
        optimizer: keras.optimizers.Optimizer = entry.make(settings)
    # Keras takes exclusions before build only.
    every = entry.decays_all_weights
    undecayed = [v for v in variables if not (every or is_kernel(v)) or _excluded(settings, v)]
    optimizer.exclude_from_weight_decay(undecayed)
    slots.build(optimizer, variables)
    apply(optimizer, [variable_patterns.multiplier(settings, v.path) for v in variables])
    return optimizer


def _excluded(settings: TrainSettings, variable: keras.Variable) -> bool:
    return variable_patterns.matches(settings.weight_decay_exclude, variable.path)


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
