"""``tf.keras`` as Keras 3, for code of a user's that builds a model."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator


@contextlib.contextmanager
def as_tf_keras() -> Iterator[None]:
    """Makes ``tf.keras`` Keras 3 in the block.

    TensorFlow Transform sets ``TF_USE_LEGACY_KERAS``, so in each process of TFX ``tf.keras`` is
    Keras 2, which no engine here trains. ``from tensorflow import keras`` stays what it was.
    """
    import tensorflow as tf

    before = vars(tf)["keras"]
    # Private, and what TensorFlow itself imports for tf.keras without that variable.
    vars(tf)["keras"] = importlib.import_module("keras._tf_keras.keras")
    try:
        yield
    finally:
        vars(tf)["keras"] = before
