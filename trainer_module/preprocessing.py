"""Transforms raw features into the model's, by one graph for training, evaluation and serving.

Of the trainer, this module imports the decoding of pictures and the presets of KerasHub alone: a
change elsewhere does not invalidate Transform.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from stagecraft.schemas import features
from stagecraft.trainer_module import decoding, hub


def preprocessing_fn(
    inputs: dict[str, tf.Tensor], custom_config: Mapping[str, Any] | None = None
) -> dict[str, tf.Tensor]:
    """Decodes the images and normalises each channel by its mean and variance over the split.

    Args:
        inputs: a batch of raw features: ``image``, bytes ``[n]`` or ``[n, 1]``, each the uint8
            values of one image in HWC order, or a file; ``label`` and ``id``, int64.
        custom_config: of ``labels.Picture.config``, by default pictures as in CIFAR-10; and
            ``preset``: of KerasHub, whose image converter resizes and scales instead; ``download``:
            it may be.

    Returns:
        ``image``, float32 ``[n, height, width, channels]``; ``label`` and ``id``, int64 ``[n]``.
        A feature that a request lacks (the label, when serving) is missing from the result:
        Transform's layer omits the outputs that depend on it.

    Raises:
        MissingFeatureError: the schema lacks one of these features.
    """
    features.require(
        "preprocessing_fn: the schema of Transform",
        inputs,
        features.ALL,
        "add each missing feature to the schema, or use your own preprocessing_fn that returns "
        f"{', '.join(features.ALL)}",
    )
    config = custom_config or {}
    pixels = decode(inputs[features.IMAGE], config)
    if preset := config.get("preset"):
        converter = hub.image_converter(preset, config.get("download", False))
        if pixels.dtype == tf.uint16:  # a converter takes values from 0 to 255
            pixels = tf.cast(pixels, tf.float32) / 257
        image = tf.cast(converter(pixels), tf.float32)
    else:
        image = normalise(pixels, *moments(pixels))
    return {
        features.IMAGE: image,
        features.LABEL: tf.reshape(inputs[features.LABEL], [-1]),
        features.ID: tf.reshape(inputs[features.ID], [-1]),
    }


def decode(image: tf.Tensor, config: Mapping[str, Any], *, is_mask: bool = False) -> tf.Tensor:
    """Bytes ``[n]`` or ``[n, 1]`` to ``[n, height, width, channels]``; a mask has one channel.

    Args:
        config: ``image_shape``: height, width, channels; ``image_encoded``: whether the bytes are
            files, instead of uint8 values in HWC order; of files, ``image_fit``: how they get this
            shape, without which other sizes are an error, and ``image_bits``: of a value.

    Returns:
        uint8; uint16 if ``image_bits`` is 16 and this is no mask.
    """
    image = tf.reshape(image, [-1])
    height, width, channels = config.get("image_shape", features.IMAGE_SHAPE)
    shape = [height, width, 1 if is_mask else channels]
    if config.get("image_encoded", False):
        fit = config.get("image_fit")
        if is_mask:
            return decoding.decode_masks(image, shape, fit=fit)
        dtype = tf.uint16 if config.get("image_bits") == 16 else tf.uint8
        return decoding.decode(image, shape, fit=fit, dtype=dtype)
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
    if pixels.dtype == tf.uint16:  # int64 holds the squares of 12 bits of any number of pictures
        mean, variance = moments(tf.cast(pixels, tf.int32) // 16)
        return 16 * mean, 256 * variance
    # Per image in int32, if it holds a square for each pixel; over the split in int64.
    largest = 255 if pixels.dtype == tf.uint8 else 4095
    dtype = tf.int32 if largest**2 * height * width <= tf.int32.max else tf.int64
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
