"""The optimizers: SGD with Nesterov momentum and AdamW, with weight decay on kernels only."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from stagecraft.trainer_module.models.layers.floatx import floatx
from stagecraft.trainer_module.settings import TrainSettings


def build(
    settings: TrainSettings, variables: Sequence[keras.Variable]
) -> keras.optimizers.Optimizer:
    """An optimizer whose slots are made for ``variables``, on the devices of the current scope.

    Its ``learning_rate`` is a variable that the training loop assigns before each step; every
    step first takes ``learning_rate * weight_decay * kernel`` off each kernel (decoupled weight
    decay, Loshchilov and Hutter 2017, with the rate as its schedule).

    Args:
        settings: optimizer, momentum (SGD), weight_decay, learning_rate (the initial value).
        variables: the trainable variables that it will be given gradients for.
    """
    in_float64 = any(variable.dtype == "float64" for variable in variables)
    with floatx("float64" if in_float64 else keras.config.floatx()):  # of the learning rate
        optimizer = _make(settings)
    # Keras takes exclusions before build only.
    optimizer.exclude_from_weight_decay([v for v in variables if not is_kernel(v)])
    optimizer.build(variables)
    return optimizer


def _make(settings: TrainSettings) -> keras.optimizers.Optimizer:
    optimizer: keras.optimizers.Optimizer
    if settings.optimizer == "adamw":
        optimizer = keras.optimizers.AdamW(
            settings.learning_rate, weight_decay=settings.weight_decay
        )
    else:
        optimizer = keras.optimizers.SGD(
            settings.learning_rate,
            momentum=settings.momentum,
            nesterov=settings.momentum > 0,
            weight_decay=settings.weight_decay,
        )
    return optimizer


def is_kernel(variable: keras.Variable) -> bool:
    """Whether weight decay is for it: a kernel, rather than a bias or a normalisation's scale."""
    return "kernel" in variable.name
