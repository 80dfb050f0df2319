"""Exponential moving average of the weights: *shadows* that follow them.

Evaluated and exported in place of the weights when ``train.ema_decay`` is on.
The moving statistics of BatchNorm are averages already and have no shadow.
"""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf


def create(variables: Sequence[keras.Variable]) -> list[tf.Variable]:
    """A shadow for each variable, on the devices of the current strategy scope."""
    return [tf.Variable(variable.numpy(), trainable=False) for variable in variables]


def decay_at(decay: float, step: tf.Tensor) -> tf.Tensor:
    """``min(decay, (1 + step) / (10 + step))``, float32: early on the shadows follow faster.

    Else they would remember the initial weights for ``1 / (1 - decay)`` steps. The rule
    is ``num_updates`` of ``tf.train.ExponentialMovingAverage``.
    """
    done = tf.cast(step, tf.float32)
    return tf.minimum(tf.constant(decay, tf.float32), (1 + done) / (10 + done))


def follow(shadow: tf.Variable, value: tf.Tensor, decay: tf.Tensor) -> None:
    """``shadow = decay * shadow + (1 - decay) * value``."""
    shadow.assign_sub(tf.cast(1 - decay, shadow.dtype) * (shadow - value))


def update(
    strategy: tf.distribute.Strategy,
    shadows: Sequence[tf.Variable],
    variables: Sequence[keras.Variable],
    decay: tf.Tensor,
) -> None:
    """:func:`follow` on every replica; in cross-replica context."""
    for shadow, variable in zip(shadows, variables, strict=True):
        strategy.extended.update(shadow, follow, args=(variable.value, decay), group=False)
