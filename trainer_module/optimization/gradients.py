"""Clips gradients, and adds noise to them, on any devices.

The norm over all gradients: Pascanu et al. 2013, "On the difficulty of training recurrent neural
networks", section 3.2, as ``tf.clip_by_global_norm`` on one device. Each device adds up its own
squares; only these sums are sent.

The noise: Neelakantan et al. 2015, "Adding Gradient Noise Improves Learning". Each weight has its
own stream of random numbers, by seed, step and path, so the noise is the same on every topology.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import tensorflow as tf

_NOISE_GAMMA = 0.55
"""Exponent of the annealing (Neelakantan et al. 2015, section 3)."""


def squared_norm(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """Sum of the squares of all entries: a scalar, float32 or more precise."""
    return tf.add_n([tf.reduce_sum(tf.square(_precise(gradient))) for gradient in gradients])


def clip_factor(squared: tf.Tensor, clip_norm: float) -> tf.Tensor:
    """The factor on gradients that limits their norm to ``clip_norm``, which is greater than 0."""
    norm = tf.sqrt(squared)
    limit = tf.constant(clip_norm, norm.dtype)
    return limit / tf.maximum(norm, limit)


def clip_by_value(gradients: Sequence[tf.Tensor], limit: float) -> list[tf.Tensor]:
    """Each gradient with its entries limited to ``-limit <= entry <= limit``."""
    return [tf.clip_by_value(gradient, -limit, limit) for gradient in gradients]


def scaled(gradients: Sequence[tf.Tensor], by: tf.Tensor) -> list[tf.Tensor]:
    """Each gradient times ``by``, in its own dtype."""
    return [gradient * tf.cast(by, gradient.dtype) for gradient in gradients]


def add_noise(
    gradients: Sequence[tf.Tensor], paths: Sequence[str], eta: float, seed: int, step: tf.Tensor
) -> list[tf.Tensor]:
    """Each gradient plus Gaussian noise of variance ``eta / (1 + step)^0.55`` (equation 1).

    Args:
        gradients: of the global batch, float; the noise is drawn in float32.
        paths: of their weights.
        step: int64 scalar, counted from 0.
    """
    deviation = tf.sqrt(eta / tf.pow(1 + tf.cast(step, tf.float32), _NOISE_GAMMA))
    return [
        gradient + tf.cast(deviation * _normal(gradient, f"{seed}/{path}", step), gradient.dtype)
        for gradient, path in zip(gradients, paths, strict=True)
    ]


def _normal(gradient: tf.Tensor, name: str, step: tf.Tensor) -> tf.Tensor:
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    key = tf.constant(int.from_bytes(digest, "little", signed=True), tf.int64)
    # Philox, since the default algorithm depends on the device.
    return tf.random.stateless_normal(
        tf.shape(gradient), tf.stack([key, tf.cast(step, tf.int64)]), alg="philox"
    )


def _precise(gradient: tf.Tensor) -> tf.Tensor:
    return gradient if gradient.dtype == tf.float64 else tf.cast(gradient, tf.float32)
