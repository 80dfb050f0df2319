"""Somebody's preprocessing_fn: pixels from -1 to 1."""

import tensorflow as tf


def preprocessing_fn(inputs):
    pixels = tf.reshape(tf.io.decode_raw(inputs["image"], tf.uint8), [-1, 32, 32, 3])
    return {
        "image": tf.cast(pixels, tf.float32) / 127.5 - 1.0,
        "label": tf.reshape(inputs["label"], [-1]),
        "id": tf.reshape(inputs["id"], [-1]),
    }
