"""Gradient clipping by the norm over all gradients, on any devices.

Pascanu et al. 2013, "On the difficulty of training recurrent neural networks",
section 3.2, as ``tf.clip_by_global_norm`` on one device. Each device adds up its own squares;
only these sums are sent.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf


def squared_norm(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Sum of the squares of all entries: a scalar, float32 or more precise."""
    return tf.add_n([tf.reduce_sum(tf.square(_precise(gradient))) for gradient in gradients])


def factor(squared: tf.Tensor, clip_norm: float) -> tf.Tensor:
    """The factor on gradients that limits their norm to ``clip_norm``, which is greater than 0."""
    norm = tf.sqrt(squared)
    limit = tf.constant(clip_norm, norm.dtype)
    return limit / tf.maximum(norm, limit)


def scaled(gradients: Sequence[tf.Tensor], by: tf.Tensor) -> list[tf.Tensor]:
    """Each gradient times ``by``, in its own dtype."""
    return [gradient * tf.cast(by, gradient.dtype) for gradient in gradients]


def _precise(gradient: tf.Tensor) -> tf.Tensor:
    return gradient if gradient.dtype == tf.float64 else tf.cast(gradient, tf.float32)
