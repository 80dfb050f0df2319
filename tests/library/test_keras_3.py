"""``tf.keras`` in a block, and after it."""

import keras
import tensorflow as tf

from stagecraft import process_state


def test_it_is_put_back():
    before = tf.keras
    with process_state.as_tf_keras():
        assert tf.keras.Model is keras.Model
    assert tf.keras is before
