"""Transforms windows of a text into ids of tokens, by a vocabulary of the train split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from stagecraft.schemas import features

PADDING, UNKNOWN, FIRST = 0, 1, 2
"""Ids: fills a short window; a token that is not in the vocabulary; the most frequent token."""


def preprocessing_fn(
    inputs: Mapping[str, tf.Tensor], custom_config: Mapping[str, Any]
) -> dict[str, tf.Tensor]:
    """Looks up the tokens of each window.

    Args:
        inputs: a batch of raw features: ``text``, bytes ``[n]`` or ``[n, 1]``, UTF-8; ``id``.
        custom_config: ``unit``: ``characters`` or ``words``; ``window``: number of tokens;
            ``vocabulary_size``: number of ids.

    Returns:
        ``tokens``, int64 ``[n, window]``: a longer text is cut, a shorter one padded with 0;
        ``id``, int64 ``[n]``.

    Raises:
        MissingFeatureError: the schema lacks a feature.
    """
    features.require(
        "preprocessing_fn: the schema of Transform",
        inputs,
        (features.TEXT, features.ID),
        "add it to the schema, as in schemas/text.pbtxt of Stagecraft",
    )
    tokens = split(inputs[features.TEXT], custom_config["unit"])
    ids = tft.compute_and_apply_vocabulary(
        tokens,
        default_value=UNKNOWN - FIRST,
        top_k=custom_config["vocabulary_size"] - FIRST,
        vocab_filename=features.TOKENS,
    )
    window = custom_config["window"]
    padded = (ids + FIRST).to_tensor(default_value=PADDING, shape=[None, window])
    return {
        features.TOKENS: tf.ensure_shape(padded, [None, window]),
        features.ID: tf.reshape(inputs[features.ID], [-1]),
    }


def split(text: tf.Tensor, unit: str) -> tf.RaggedTensor:
    """The tokens of each text: string ``[n, None]``. Any white space counts as one space."""
    text = tf.strings.regex_replace(tf.reshape(text, [-1]), r"\s+", " ")
    return tf.strings.unicode_split(text, "UTF-8") if unit == "characters" else _words(text)


def _words(text: tf.Tensor) -> tf.RaggedTensor:
    return tf.strings.split(tf.strings.strip(text), " ")
