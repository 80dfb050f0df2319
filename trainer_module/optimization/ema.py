"""Exponential moving average of the weights: *EMA weights*.

Evaluated and exported in place of the weights when ``train.ema_decay`` is on.
The moving statistics of BatchNorm are averages already and have no EMA weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf


def create(variables: Sequence[keras.Variable]) -> list[tf.Variable]:
    """An EMA weight for each variable, on the devices of the current strategy scope."""
    return [tf.Variable(variable.numpy(), trainable=False) for variable in variables]


def decay_at(decay: float, step: tf.Tensor) -> tf.Tensor:
    """``min(decay, (1 + step) / (10 + step))``, float32: EMA weights move faster early on.

    Else they would remember the initial weights for ``1 / (1 - decay)`` steps. The rule
    is ``num_updates`` of ``tf.train.ExponentialMovingAverage``.
    """
    done = tf.cast(step, tf.float32)
    return tf.minimum(tf.constant(decay, tf.float32), (1 + done) / (10 + done))


def move(average: tf.Variable, value: tf.Tensor, decay: tf.Tensor) -> None:
    """``average = decay * average + (1 - decay) * value``."""
    average.assign_sub(tf.cast(1 - decay, average.dtype) * (average - value))


def update(
    strategy: tf.distribute.Strategy,
    ema_weights: Sequence[tf.Variable],
    variables: Sequence[keras.Variable],
    decay: tf.Tensor,
) -> None:
    """:func:`move` on every replica; in cross-replica context."""
    for average, variable in zip(ema_weights, variables, strict=True):
        strategy.extended.update(average, move, args=(variable.value, decay), group=False)
