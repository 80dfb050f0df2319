"""Transforms pictures with a class for each pixel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from stagecraft.schemas import features
from stagecraft.trainer_module import preprocessing


def preprocessing_fn(
    inputs: Mapping[str, tf.Tensor], custom_config: Mapping[str, Any]
) -> dict[str, tf.Tensor]:
    """Decodes pictures and masks, and normalises the pictures.

    Args:
        inputs: a batch of raw features: ``image`` and ``mask``, bytes ``[n]`` or ``[n, 1]``;
            ``id``. The mask is encoded like the image, with one channel: the class of each pixel.
        custom_config: of ``schema_reader.Picture.config``; ``num_classes``: of a pixel.

    Returns:
        ``image``, float32 ``[n, height, width, channels]``; ``mask``, int64 ``[n, height, width]``;
        ``id``, int64 ``[n]``.

    Raises:
        MissingFeatureError: the schema lacks a feature.
    """
    features.require(
        "preprocessing_fn: the schema of Transform",
        inputs,
        (features.IMAGE, features.MASK, features.ID),
        "add it to the schema, as in schemas/sample_masks.pbtxt of Stagecraft",
    )
    pixels = preprocessing.decode(inputs[features.IMAGE], custom_config)
    mask = preprocessing.decode(inputs[features.MASK], custom_config, is_mask=True)[..., 0]
    # An error for a value that is no class; an assertion would also run in a request without mask.
    classes = tf.range(custom_config["num_classes"], dtype=tf.int64)
    return {
        features.IMAGE: preprocessing.normalise(pixels, *preprocessing.moments(pixels)),
        features.MASK: tf.gather(classes, tf.cast(mask, tf.int32)),
        features.ID: tf.reshape(inputs[features.ID], [-1]),
    }
