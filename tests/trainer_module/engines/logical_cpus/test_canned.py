"""Canned models of stagecraft.estimator on every topology, in float64."""

import functools

import driving
import numpy as np
import pytest
import tensorflow as tf
from driving import GRID, MIRRORED, ONE, label

import stagecraft as sc
from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.settings import ParallelSettings

BATCH, STEPS = 8, 5
E = sc.estimator
JOB = E.Listed(["teacher", "nurse", "cook"])
WIDE = {"job": JOB, "town": E.Hashed(5), "age": E.Numeric()}
DEEP = {"job": E.Embedding(JOB, 2), "age": E.Numeric(), "size": E.Numeric()}
SHARED = {
    "age": E.Numeric(),
    "from": E.Embedding(E.Hashed(5), 2, shared="towns"),
    "to": E.Embedding(E.Hashed(5), 2, shared="towns"),
}


MODELS = {
    "linear": E.LinearClassifier(WIDE, label="y", weight_column="w"),
    "shared": E.DNNRegressor([6, 4], SHARED, label="y", dropout=0.2),
    "both": E.DNNLinearCombinedClassifier(
        WIDE,
        dnn_feature_columns=DEEP,
        dnn_hidden_units=[6, 4],
        dnn_dropout=0.2,
        n_classes=3,
        label="y",
    ),
}


@functools.cache
def alone(name):
    return trained(name, ONE)


def trained(name, parallel):
    model = MODELS[name]
    asked = ParallelSettings(**{"virtual_devices": 6, "precision": "float64", **parallel})
    settings = model.settings(asked, batch_size=BATCH)
    task = model.task
    engine = driving.engine_of(settings, task.sample_arguments, STEPS, task=task)
    inputs, labels = task.noise(task.sample_arguments, BATCH * STEPS, np.random.default_rng(1))
    weights = np.random.default_rng(2).uniform(0, 2, len(labels)).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices(Batch(inputs, labels, weights)).batch(BATCH, True)
    engine.train(engine.feed(data), STEPS)
    return engine.state()


@pytest.mark.parametrize("parallel", [driving.rare(MIRRORED), GRID], ids=label)
@pytest.mark.parametrize("name", ["both", driving.rare("linear"), driving.rare("shared")])
def test_every_topology_is_one_device(name, parallel):
    # As in test_optimizers: FTRL divides by small slots.
    driving.assert_near(trained(name, parallel), alone(name), 1e-10)
