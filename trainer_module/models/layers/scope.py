"""Scopes for Keras layers: the default float dtype, and assignments to trainable weights.

``SpectralNormalization`` assigns its layer's kernel in each training call. In Keras's own
``train_step``, the gradient is taken at the values that the layer read, and the optimizer updates
the assigned value. In a plain ``keras.StatelessScope``, the assigned value is a tensor computed
from the old one, so the gradient would be that of the old value.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf


class TrainingScope(keras.StatelessScope):
    """Like ``keras.StatelessScope``, but the gradient of an assigned weight is the weight's."""

    def __init__(self, variables: Sequence[keras.Variable], values: Sequence[tf.Tensor]):
        """Takes a value for each variable, for which gradients are taken; collects losses."""
        pairs = list(zip(variables, values, strict=True))
        super().__init__(pairs, collect_losses=True)
        self._values = {id(variable): value for variable, value in pairs if variable.trainable}
        self.foreign: list[keras.Variable] = []
        """Assigned variables that are not among ``variables``."""
        self._known = {id(variable) for variable in variables}

    def add_update(self, update: tuple[keras.Variable, tf.Tensor]) -> None:
        """Stores an assignment, for later reads and for the end of the step."""
        variable, value = update
        if id(variable) not in self._known:
            self.foreign.append(variable)
        if id(variable) in self._values:
            value = assigned_value(self._values[id(variable)], value)
        else:  # assignment to a variable stops gradients
            value = tf.stop_gradient(value)
        super().add_update((variable, value))


@tf.custom_gradient
def assigned_value(weight: tf.Tensor, value: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
    """``value``, whose gradient is the gradient of ``weight``."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        return upstream, None

    return tf.identity(value), gradient


@contextlib.contextmanager
def floatx(dtype: str) -> Iterator[None]:
    """Makes ``dtype`` Keras's default float dtype in the block."""
    before = keras.config.floatx()
    keras.config.set_floatx(dtype)
    try:
        yield
    finally:
        keras.config.set_floatx(before)
