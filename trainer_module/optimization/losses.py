"""The loss of an example, from its logits."""

from __future__ import annotations

import tensorflow as tf


def cross_entropy(
    logits: tf.Tensor,
    labels: tf.Tensor,
    smoothing: float = 0.0,
    dtype: tf.DType = tf.float32,
) -> tf.Tensor:
    """Softmax cross entropy of each example, in nats: ``[batch]``.

    With ``smoothing`` the target is ``1 - smoothing`` on the label plus
    ``smoothing / classes`` on every class (Szegedy et al. 2016, section 7).

    Args:
        logits: float ``[batch, classes]``.
        labels: int64 ``[batch]``.
        dtype: float32 or float64: what logits of less precision are cast to.
    """
    if logits.dtype != tf.float64:
        logits = tf.cast(logits, dtype)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    if smoothing:
        uniform = tf.reduce_logsumexp(logits, axis=-1) - tf.reduce_mean(logits, axis=-1)
        losses = (1 - smoothing) * losses + smoothing * uniform
    return losses
