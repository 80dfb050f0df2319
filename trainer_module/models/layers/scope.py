"""A stateless scope in which a layer may assign its own trainable weights.

``SpectralNormalization`` assigns its layer's kernel in each training call. In Keras's own
``train_step`` the variable then holds the assigned value, the gradient is that of the values which
the layer read, and the optimizer goes on from the assigned value. In a plain
``keras.StatelessScope`` the assigned value is a tensor made of the old one, so that the gradient
would be that of the old value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf


class TrainingScope(keras.StatelessScope):
    """As ``keras.StatelessScope``; gradients of an assigned weight are those of the weight."""

    def __init__(self, variables: Sequence[keras.Variable], values: Sequence[tf.Tensor]):
        """Takes a value for each variable; collects losses.

        Args:
            variables: of a model.
            values: one for each of them, which the gradients are taken of.
        """
        pairs = list(zip(variables, values, strict=True))
        super().__init__(pairs, collect_losses=True)
        self._given = {id(variable): value for variable, value in pairs if variable.trainable}
        self.foreign: list[keras.Variable] = []
        """Variables that were assigned and are not among ``variables``."""
        self._known = {id(variable) for variable in variables}

    def add_update(self, update: tuple[keras.Variable, tf.Tensor]) -> None:
        """Keeps what a layer assigns, for the reads that follow and for the end of the step."""
        variable, value = update
        if id(variable) not in self._known:
            self.foreign.append(variable)
        if id(variable) in self._given:
            value = _assigned(self._given[id(variable)], value)
        else:  # no gradient goes through a variable
            value = tf.stop_gradient(value)
        super().add_update((variable, value))


@tf.custom_gradient
def _assigned(weight: tf.Tensor, value: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
    """``value``, whose gradient is the gradient of ``weight``."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        return upstream, None

    return tf.identity(value), gradient
