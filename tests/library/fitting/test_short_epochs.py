"""Epochs that end within the data: processes go on where Keras goes on."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import stagecraft as sc

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("as_before")]

BATCHES, STEPS, EPOCHS = 7, 5, 4

TOPOLOGIES = {
    "multi_worker_mirrored": {"strategy": "multi_worker_mirrored", "workers": 2},
    "parameter_server": {"strategy": "parameter_server", "workers": 1, "ps": 1},
    "virtual devices": {"strategy": "mirrored", "replicas": 2, "virtual_devices": 2},
}


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_all_examples_train(name):
    """The last two of seven batches have other targets, which the first five do not show."""
    tf.constant(0)  # TensorFlow starts here, with one logical device
    x = np.random.default_rng(0).standard_normal((BATCHES * 4, 3)).astype(np.float32)
    y = x.sum(axis=1, keepdims=True)
    y[STEPS * 4 :] += 40
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(4).repeat()
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    twin = keras.models.clone_model(model)
    twin.set_weights(model.get_weights())
    twin.compile(keras.optimizers.SGD(0.05), "mse", jit_compile=False)
    expected = twin.fit(dataset, steps_per_epoch=STEPS, epochs=EPOCHS, verbose=0).history["loss"]
    found = sc.fit(
        model,
        dataset,
        loss="mse",
        optimizer=keras.optimizers.SGD(0.05),
        steps_per_epoch=STEPS,
        epochs=EPOCHS,
        parallel=sc.Parallel(**TOPOLOGIES[name]),
        verbose=0,
    )
    # 20 float32 steps: sums of 12 terms in another order.
    np.testing.assert_allclose(found.history["loss"], expected, rtol=2**-16)
    for one, two in zip(model.get_weights(), twin.get_weights(), strict=True):
        np.testing.assert_allclose(one, two, rtol=2**-16, atol=2**-16)
    assert expected[-1] > 100  # with the first five batches alone, the error would vanish
