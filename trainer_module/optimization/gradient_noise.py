"""Noise on gradients (Neelakantan et al. 2015, "Adding Gradient Noise Improves Learning").

Each weight has its own stream of random numbers, by seed, step and path, so the noise is the same
on every topology.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import tensorflow as tf

GAMMA = 0.55
"""Exponent of the annealing (section 3)."""


def added(
    gradients: Sequence[tf.Tensor], paths: Sequence[str], eta: float, seed: int, step: tf.Tensor
) -> list[tf.Tensor]:
    """Each gradient plus Gaussian noise of variance ``eta / (1 + step)^0.55`` (equation 1).

    Args:
        gradients: of the global batch, float; the noise is drawn in float32.
        paths: of their weights.
        step: int64 scalar, counted from 0.
    """
    deviation = tf.sqrt(eta / tf.pow(1 + tf.cast(step, tf.float32), GAMMA))
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
