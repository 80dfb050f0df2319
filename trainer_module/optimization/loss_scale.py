"""Dynamic loss scaling for float16 (Micikevicius et al. 2018, "Mixed Precision Training", 3.2).

Small gradients vanish in float16, so the loss is multiplied by a scale before the backward pass,
and gradients are divided by it after. If a gradient is infinite, the engine skips the step and
halves the scale. It doubles the scale after a number of good steps, for all devices together.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

INITIAL = 2.0**15
GROWTH_STEPS = 2000


class LossScale:
    """The scale and its history; variables on the host."""

    def __init__(self) -> None:
        with tf.device("CPU:0"):
            self._scale = tf.Variable(INITIAL, dtype=tf.float32, trainable=False)
            self._good = tf.Variable(0, dtype=tf.int64, trainable=False)
            self._skipped = tf.Variable(0, dtype=tf.int64, trainable=False)

    def variables(self) -> dict[str, tf.Variable]:
        """Its variables, by name in a checkpoint."""
        return {
            "loss_scale/scale": self._scale,
            "loss_scale/good_steps": self._good,
            "loss_scale/skipped_steps": self._skipped,
        }

    @property
    def value(self) -> tf.Tensor:
        """The factor on the loss: float32 scalar, a power of two."""
        return self._scale.read_value()

    @property
    def skipped(self) -> tf.Tensor:
        """Batches that changed nothing: int64 scalar."""
        return self._skipped.read_value()

    def update(self, finite: tf.Tensor) -> tf.Tensor:
        """Adapts the scale after a step; returns whether training can go on (bool scalar)."""
        before = self.value
        good = tf.where(finite, self._good + 1, 0)
        grown = good >= GROWTH_STEPS
        scale = tf.where(finite, tf.where(grown, before * 2, before), tf.maximum(before / 2, 1.0))
        self._scale.assign(scale)
        self._good.assign(tf.where(grown, tf.zeros_like(good), good))
        self._skipped.assign_add(tf.cast(~finite, tf.int64))
        return finite | (before > 1.0)


def all_finite(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Whether no entry of any of them is infinite or not a number: bool scalar."""
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])
