"""``fit`` adapts layers to its data; ``engine`` has no data to adapt them to."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import stagecraft as sc
from stagecraft.trainer_module.models.layers import adapting
from stagecraft.trainer_module.models.layers.own_layers import Whitening

DRAW = np.random.default_rng(2)
PICTURES = DRAW.standard_normal((20, 5, 5, 1)).cumsum(axis=1).astype(np.float32)
Y = DRAW.standard_normal((20, 2)).astype(np.float32)


pytestmark = pytest.mark.usefixtures("as_before")


def build() -> keras.Model:
    layers = [Whitening(name="whitening"), keras.layers.Flatten(), keras.layers.Dense(2)]
    return keras.Sequential([keras.Input((5, 5, 1)), *layers])


def adapted_to(pictures: np.ndarray) -> np.ndarray:
    layer = Whitening()
    layer.build(pictures.shape)
    layer.adapt(pictures)
    kernel: np.ndarray = layer.kernel.numpy()
    return kernel


def kernel_of(model: keras.Model) -> np.ndarray:
    kernel: np.ndarray = model.get_layer("whitening").kernel.numpy()
    return kernel


def test_a_new_layer_adapts_to_the_arrays_in_their_order():
    model = build()
    sc.fit(model, PICTURES, Y, loss="mse", batch_size=4, verbose=0)
    np.testing.assert_array_equal(kernel_of(model), adapted_to(PICTURES))


def test_a_function_builds_a_model_that_adapts():
    history = sc.fit(build, PICTURES, Y, loss="mse", batch_size=4, verbose=0)
    np.testing.assert_array_equal(kernel_of(history.model), adapted_to(PICTURES))


def test_a_new_layer_adapts_to_as_many_examples_as_in_a_pipeline(monkeypatch):
    monkeypatch.setattr(adapting, "EXAMPLES", 6)
    dataset = tf.data.Dataset.from_tensor_slices((PICTURES, Y)).batch(4)
    for data in ((PICTURES, Y), (dataset,)):
        model = build()
        sc.fit(model, *data, loss="mse", verbose=0)
        np.testing.assert_array_equal(kernel_of(model), adapted_to(PICTURES[:6]))


def test_an_infinite_dataset_gives_the_examples_of_an_epoch():
    dataset = tf.data.Dataset.from_tensor_slices((PICTURES, Y)).batch(4).repeat()
    model = build()
    sc.fit(model, dataset, loss="mse", steps_per_epoch=3, verbose=0)
    np.testing.assert_array_equal(kernel_of(model), adapted_to(PICTURES[:12]))


def test_an_adapted_layer_stays():
    model: Any = build()
    model.get_layer("whitening").adapt(2 * PICTURES)
    sc.fit(model, PICTURES, Y, loss="mse", verbose=0)
    np.testing.assert_array_equal(kernel_of(model), adapted_to(2 * PICTURES))


def test_an_engine_refuses_a_new_layer():
    with pytest.raises(sc.UserError) as caught:
        sc.engine(build(), loss="mse")
    assert caught.value.setting == "model"
