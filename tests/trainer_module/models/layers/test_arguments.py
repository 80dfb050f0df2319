"""Arguments of layers, and those that their configurations lack."""

from __future__ import annotations

import keras
import pytest

from stagecraft.trainer_module.models.layers import arguments


class Doubled(keras.layers.Conv1DTranspose):
    def __init__(self, filters: int, **others):
        super().__init__(filters, 3, **others)
        self.filters = 2 * filters


@pytest.mark.parametrize(
    ("kind", "layer", "lost"),
    [
        (
            keras.layers.Conv2DTranspose,
            keras.layers.Conv2DTranspose(2, 3, 2, output_padding=1),
            {"output_padding": (1, 1)},
        ),
        (keras.layers.Conv2DTranspose, keras.layers.Conv2DTranspose(2, 3), {}),
        (
            keras.layers.Conv1DTranspose,
            Doubled(2, strides=2, output_padding=1),
            {"output_padding": (1,)},
        ),
        (Doubled, Doubled(2), {}),
        (keras.layers.Dense, keras.layers.Dense(2, use_bias=False), {}),
    ],
)
def test_what_a_configuration_of_keras_lacks(kind, layer, lost):
    config = {name: value for name, value in kind.get_config(layer).items() if name not in lost}
    assert arguments.forgotten(kind, layer, config) == lost


def test_plain_arguments():
    layer = keras.layers.Conv1D(2, 3, activation="relu", name="conv", trainable=False)
    found = arguments.plain(layer)
    assert found["filters"] == 2 and found["kernel_size"] == (3,)
    assert not found.keys() & {"name", "trainable", "activation", "kernel_initializer"}
