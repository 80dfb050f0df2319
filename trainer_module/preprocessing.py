"""Raw features to the model's: the same graph in training, evaluation and serving.

Imports nothing of the trainer, so that a change there does not run Transform again.
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
        What lacks in a request (a label, when serving) lacks in the result: Transform's layer
        leaves out the outputs that depend on it.

    Raises:
        MissingFeatureError: the schema that Transform was given lacks one of them.
    """
    missing_features.check(
        "preprocessing_fn: what Transform reads by its schema",
        inputs,
        features.ALL,
        "add it to the schema, or give Transform a preprocessing_fn of your own that makes "
        f"{', '.join(features.ALL)} of what there is",
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
    # The batch dimension is given, not inferred: images of a wrong length are an error even where
    # a number of them would add up to a number of right ones.
    return tf.reshape(pixels, [tf.shape(image)[0], *features.IMAGE_SHAPE])


def _moments(pixels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance of each channel over the whole split, float64 ``[channels]``.

    One analyzer over ``2 * channels + 1`` integers, which TensorFlow sums up over a batch before
    Beam sees them. Integer sums are exact, and so the same in whatever order Beam adds them; the
    one rounding is that of the last lines.
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
    """Mean 0 and variance 1 in each channel; a channel of one single value becomes 0."""
    height, width, _ = features.IMAGE_SHAPE
    scale = tf.where(variance > 0, tf.math.rsqrt(variance), tf.zeros_like(variance))
    # Laid out over a whole image: broadcasting along a dimension of 3 is three times slower.
    mean, scale = (tf.tile(tf.cast(value, tf.float32), [height * width]) for value in (mean, scale))
    flat = tf.reshape(pixels, [-1, mean.shape[0]])
    return tf.reshape((tf.cast(flat, tf.float32) - mean) * scale, tf.shape(pixels))
