"""Transforms raw features into the model's, by one graph for training, evaluation and serving.

This module imports nothing of the trainer: a change there does not invalidate Transform.
"""

from __future__ import annotations

import tensorflow as tf
import tensorflow_transform as tft

from stagecraft.schemas import features, missing_features


def preprocessing_fn(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Decodes the images and normalises each channel by its mean and variance over the split.

    Args:
        inputs: a batch of raw features: ``image``, bytes ``[n]`` or ``[n, 1]``, each the uint8
            values of one image in HWC order; ``label`` and ``id``, int64.

    Returns:
        ``image``, float32 ``[n, height, width, channels]``; ``label`` and ``id``, int64 ``[n]``.
        A feature that a request lacks (the label, when serving) is missing from the result:
        Transform's layer omits the outputs that depend on it.

    Raises:
        MissingFeatureError: the schema lacks one of these features.
    """
    missing_features.check(
        "preprocessing_fn: the schema of Transform",
        inputs,
        features.ALL,
        "add each missing feature to the schema, or use your own preprocessing_fn that returns "
        f"{', '.join(features.ALL)}",
    )
    pixels = _decode(inputs[features.IMAGE])
    mean, variance = _moments(pixels)
    return {
        features.IMAGE: _normalise(pixels, mean, variance),
        features.LABEL: tf.reshape(inputs[features.LABEL], [-1]),
        features.ID: tf.reshape(inputs[features.ID], [-1]),
    }


def _decode(image: tf.Tensor) -> tf.Tensor:
    """Bytes ``[n]`` or ``[n, 1]`` to uint8 ``[n, height, width, channels]``, the batch at once."""
    image = tf.reshape(image, [-1])
    pixels = tf.io.decode_raw(image, tf.uint8)
    # With an inferred batch dimension, several images of a wrong length could add up to a valid
    # batch; this way each is an error.
    return tf.reshape(pixels, [tf.shape(image)[0], *features.IMAGE_SHAPE])


def _moments(pixels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance of each channel over the whole split, float64 ``[channels]``.

    One analyzer over ``2 * channels + 1`` integers, which TensorFlow sums over a batch before Beam
    receives them. Integer sums are exact, hence independent of Beam's order; only the last lines
    round.
    """
    height, width, channels = features.IMAGE_SHAPE
    values = tf.cast(pixels, tf.int32)
    # Per image in int32, which holds 255 ** 2 * 33,025 pixels; over the split in int64.
    per_image = tf.concat(
        [
            tf.reduce_sum(values, axis=[1, 2]),
            tf.reduce_sum(values * values, axis=[1, 2]),
            tf.ones_like(values[:, 0, 0, :1]),
        ],
        axis=1,
    )
    totals = tft.sum(tf.cast(per_image, tf.int64), reduce_instance_dims=False)
    totals = tf.cast(tf.ensure_shape(totals, [2 * channels + 1]), tf.float64)
    count = totals[-1] * height * width
    mean = totals[:channels] / count
    return mean, totals[channels : 2 * channels] / count - mean * mean


def _normalise(pixels: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """Scales each channel to mean 0 and variance 1; a constant channel becomes 0."""
    height, width, _ = features.IMAGE_SHAPE
    scale = tf.where(variance > 0, tf.math.rsqrt(variance), tf.zeros_like(variance))
    # Tiled over a whole image: broadcasting along a dimension of 3 is three times slower.
    mean, scale = (tf.tile(tf.cast(value, tf.float32), [height * width]) for value in (mean, scale))
    flat = tf.reshape(pixels, [-1, mean.shape[0]])
    return tf.reshape((tf.cast(flat, tf.float32) - mean) * scale, tf.shape(pixels))
