"""A loss of Keras, of mixed examples, on every topology, in float64."""

import functools
from typing import Any

import driving
import numpy as np
import pytest
import tensorflow as tf

from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.data.mixing import Mixed

FOCAL = {"loss": "categorical_focal_crossentropy", "loss_args": '{"gamma": 1.5}'}


def mixed() -> tf.data.Dataset:
    """Global batches as mixup makes them."""
    share = tf.linspace(0.1, 0.9, driving.BATCH)

    def mix(batch: Batch) -> Batch:
        part = share[:, tf.newaxis, tf.newaxis, tf.newaxis]
        inputs = part * batch.inputs + (1 - part) * batch.inputs[::-1]
        weights = tf.stack([batch.weights, 2 * batch.weights], axis=1)
        targets = Mixed(batch.targets, batch.targets[::-1], share, weights)
        return Batch(inputs, targets, batch.weights)

    return driving.dataset().map(mix)


@functools.cache
def trained(topology: str = "") -> dict[str, np.ndarray]:
    """The state after some steps of mixed examples, and the loss of an evaluation."""
    parallel: dict[str, Any] = {
        "": driving.ONE,
        "mirrored": driving.MIRRORED,
        "stages": driving.STAGES,
    }[topology]
    engine = driving.make({"precision": "float64", **parallel}, **FOCAL)
    engine.train(engine.feed(mixed()), driving.STEPS)
    evaluated = engine.evaluate(driving.dataset())
    return engine.state() | {"loss": np.array(evaluated.loss)}


@pytest.mark.parametrize("topology", ["mirrored", driving.rare("stages")])
def test_a_loss_of_mixed_examples_on_every_topology(topology):
    driving.assert_near(trained(topology), trained(), 1e-11)
