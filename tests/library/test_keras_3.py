"""``tf.keras`` in a block, and after it."""

import keras
import tensorflow as tf

from stagecraft import keras_3


def test_it_is_put_back():
    before = tf.keras
    with keras_3.as_tf_keras():
        assert tf.keras.Model is keras.Model
    assert tf.keras is before
