"""Gradient clipping by value, and by the norm over all gradients, on any devices.

The norm: Pascanu et al. 2013, "On the difficulty of training recurrent neural networks",
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


def by_value(gradients: Sequence[tf.Tensor], limit: float) -> list[tf.Tensor]:
    """Each gradient with its entries limited to ``-limit <= entry <= limit``."""
    return [tf.clip_by_value(gradient, -limit, limit) for gradient in gradients]


def scaled(gradients: Sequence[tf.Tensor], by: tf.Tensor) -> list[tf.Tensor]:
    """Each gradient times ``by``, in its own dtype."""
    return [gradient * tf.cast(by, gradient.dtype) for gradient in gradients]


def _precise(gradient: tf.Tensor) -> tf.Tensor:
    return gradient if gradient.dtype == tf.float64 else tf.cast(gradient, tf.float32)
