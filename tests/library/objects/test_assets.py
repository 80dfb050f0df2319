"""Copies of models with layers that have adapted to data."""

from __future__ import annotations

import cloudpickle
import keras
import numpy as np
import pytest
import tensorflow as tf

from stagecraft import pickles
from stagecraft.objects import model

NUMBERS = np.array([[5.0], [7.0], [9.0]], np.float32)
WORDS = tf.constant([["the cat"], ["a dog"], ["two\nlines\r"], ["the end"]])


class Centered(keras.layers.Layer):
    """Derives a tensor from a weight, as ``Normalization`` does."""

    def build(self, shape):
        self.center = self.add_weight(shape=shape[-1:], trainable=False)
        self.shift = 0.0

    def adapt(self, data):
        self.build(data.shape)
        self.built = True
        self.center.assign(data.mean(0))
        self.shift = self.center.numpy()

    def load_own_variables(self, store):
        super().load_own_variables(store)
        self.shift = self.center.numpy()

    def call(self, x):
        return x - self.shift


def _texts(mode: str) -> keras.layers.Layer:
    length = 3 if mode == "int" else None
    return keras.layers.TextVectorization(output_mode=mode, output_sequence_length=length)


def _given_twice() -> keras.layers.Layer:
    """Its configuration has the first vocabulary, which does not count any more."""
    layer = keras.layers.IntegerLookup(vocabulary=[7, 5])
    layer.set_vocabulary([9, 7])
    return layer


def _adapted(layer: keras.layers.Layer, data) -> keras.Model:
    if not getattr(layer, "input_vocabulary", None):
        layer.adapt(data)
    inputs = keras.Input([1], dtype="string" if data is WORDS else "float32")
    inner = keras.Model(inputs, layer(inputs), name="inner")
    return keras.Model(inputs, keras.layers.Rescaling(2.0)(inner(inputs)), name="outer")


@pytest.mark.parametrize(
    ("make", "data"),
    [
        (keras.layers.Normalization, NUMBERS),
        (lambda: keras.layers.Normalization(invert=True), NUMBERS),
        (lambda: keras.layers.Discretization(num_bins=2), NUMBERS),
        (keras.layers.IntegerLookup, NUMBERS),
        (keras.layers.StringLookup, WORDS),
        (lambda: keras.layers.StringLookup(num_oov_indices=2, mask_token=""), WORDS),
        (lambda: keras.layers.StringLookup(output_mode="one_hot"), WORDS),
        (lambda: keras.layers.StringLookup(output_mode="tf_idf"), WORDS),
        (_given_twice, NUMBERS),
        (lambda: _texts("int"), WORDS),
        (lambda: _texts("multi_hot"), WORDS),
        (lambda: _texts("tf_idf"), WORDS),
        (Centered, NUMBERS),
    ],
)
def test_a_copy_has_adapted_too(make, data):
    given = _adapted(make(), data)
    builder = model.builder(given)
    for made in (builder(), cloudpickle.loads(cloudpickle.dumps(builder))()):
        assert np.array_equal(made(data), given(data))


def test_a_vocabulary_is_part_of_the_digest():
    digests = []
    for words in (["owl"], ["owl"], ["ant"]):
        keras.utils.clear_session()
        layer = keras.layers.StringLookup()
        layer.adapt(words)
        digests.append(pickles.digest(model.builder(keras.Sequential([keras.Input([1]), layer]))))
    assert digests[0] == digests[1] != digests[2]
