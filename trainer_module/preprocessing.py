"""Transforms raw features into the model's, by one graph for training, evaluation and serving.

This module imports nothing of the trainer: a change there does not invalidate Transform.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from stagecraft.schemas import features, missing_features
from stagecraft.trainer_module import hub


def preprocessing_fn(
    inputs: dict[str, tf.Tensor], custom_config: Mapping[str, Any] | None = None
) -> dict[str, tf.Tensor]:
    """Decodes the images and normalises each channel by its mean and variance over the split.

    Args:
        inputs: a batch of raw features: ``image``, bytes ``[n]`` or ``[n, 1]``, each the uint8
            values of one image in HWC order, or a PNG or JPEG; ``label`` and ``id``, int64.
        custom_config: ``image_shape``: height, width, channels, by default those of CIFAR-10;
            ``image_encoded``: whether the images are PNG or JPEG, by default not; ``preset``: of
            KerasHub, whose image converter resizes and scales instead; ``download``: it may be.

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
    config = custom_config or {}
    shape = config.get("image_shape", features.IMAGE_SHAPE)
    pixels = decode(inputs[features.IMAGE], shape, encoded=config.get("image_encoded", False))
    if preset := config.get("preset"):
        converter = hub.image_converter(preset, config.get("download", False))
        image = tf.cast(converter(pixels), tf.float32)
    else:
        image = normalise(pixels, *moments(pixels))
    return {
        features.IMAGE: image,
        features.LABEL: tf.reshape(inputs[features.LABEL], [-1]),
        features.ID: tf.reshape(inputs[features.ID], [-1]),
    }


def decode(image: tf.Tensor, shape: Sequence[int], *, encoded: bool = False) -> tf.Tensor:
    """Bytes ``[n]`` or ``[n, 1]`` to uint8 ``[n, *shape]``; other sizes are an error.

    Args:
        shape: height, width, channels.
        encoded: whether the bytes are PNG or JPEG, instead of values in HWC order.
    """
    image = tf.reshape(image, [-1])
    if encoded:
        return tf.map_fn(
            lambda one: tf.ensure_shape(
                tf.io.decode_image(one, shape[-1], expand_animations=False), shape
            ),
            image,
            fn_output_signature=tf.TensorSpec(shape, tf.uint8),
        )
    pixels = tf.io.decode_raw(image, tf.uint8)
    # With an inferred batch dimension, several images of a wrong length could add up to a valid
    # batch; this way each is an error.
    return tf.reshape(pixels, [tf.shape(image)[0], *shape])


def moments(pixels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance of each channel over the whole split, float64 ``[channels]``.

    One analyzer over ``2 * channels + 1`` integers, which TensorFlow sums over a batch before Beam
    receives them. Integer sums are exact, hence independent of Beam's order; only the last lines
    round.
    """
    height, width, channels = pixels.shape[1:]
    # Per image in int32, if it holds 255 ** 2 for each pixel; over the split in int64.
    dtype = tf.int32 if 255**2 * height * width <= tf.int32.max else tf.int64
    values = tf.cast(pixels, dtype)
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


def normalise(pixels: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """Scales each channel to mean 0 and variance 1; a constant channel becomes 0."""
    height, width, _ = pixels.shape[1:]
    scale = tf.where(variance > 0, tf.math.rsqrt(variance), tf.zeros_like(variance))
    # Tiled over a whole image: broadcasting along a dimension of 3 is three times slower.
    mean, scale = (tf.tile(tf.cast(value, tf.float32), [height * width]) for value in (mean, scale))
    flat = tf.reshape(pixels, [-1, mean.shape[0]])
    return tf.reshape((tf.cast(flat, tf.float32) - mean) * scale, tf.shape(pixels))
