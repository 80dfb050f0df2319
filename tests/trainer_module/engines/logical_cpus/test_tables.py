"""Models with a dictionary of inputs, on one device and on replicas."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from driving import MIRRORED, ONE, STEPS, assert_same_gradients, engine_of, label

from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.models.layers.random_state import floatx
from stagecraft.trainer_module.optimization.make_optimizer import make_optimizer
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings, TrainSettings

BATCH = 8
TABLE = {"features": {"a": "numeric", "b": {"kind": "hashed", "buckets": 5}}, "label": "y"}


def make(parallel, name, **train):
    asked = ParallelSettings(**{"virtual_devices": 5, **parallel})
    settings = TrainingSettings(
        task={"name": name, "args": TABLE},
        train={
            "model": "wide_deep_8",
            "batch_size": BATCH,
            "learning_rate": 0.05,
            "schedule": "constant",
            "weight_decay": 0,
            **train,
        },
        parallel=asked,
    )
    task = settings.task.found
    return engine_of(settings, task.sample_arguments, task=task), task


def examples(task):
    inputs, targets = task.noise(task.sample_arguments, BATCH * STEPS, np.random.default_rng(1))
    weights = np.random.default_rng(2).uniform(0, 2, len(targets)).astype(np.float32)
    return Batch(inputs, targets, weights)


def feed(engine, task):
    return engine.feed(tf.data.Dataset.from_tensor_slices(examples(task)).batch(BATCH, True))


@pytest.mark.parametrize("name", ["regression", "binary_classification"])
@pytest.mark.parametrize("parallel", [MIRRORED, ONE | {"accumulate": 2}], ids=label)
def test_gradients_are_those_of_one_device(parallel, name):
    (one, task), (other, _) = make(ONE, name), make(parallel, name)
    _, expected = one.gradients(next(feed(one, task)))
    _, found = other.gradients(next(feed(other, task)))
    assert_same_gradients(found, expected)


class Dense(keras.Model):
    """Sums the gradients of the rows of an embedding before the optimizer.

    Keras's Adam squares the gradient of each example instead of their sum.
    """

    def train_step(self, data):
        inputs, targets, weights = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(inputs, targets, self(inputs, training=True), weights)
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply(list(map(tf.convert_to_tensor, gradients)), self.trainable_weights)
        return {}


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("name", ["regression", "binary_classification"])
def test_one_device_is_keras(name, optimizer):
    train = {"optimizer": optimizer, "learning_rate": 2.0**-5}  # as exact in float32
    engine, task = make(ONE | {"precision": "float64"}, name, **train)
    own = engine._settings.train
    built = assemble(own, task.sample_arguments, precision="float64", task=task)
    model = Dense(built.input, built.output)
    batches = examples(task)
    with floatx("float64"):
        loss = (
            keras.losses.MeanSquaredError()
            if name == "regression"
            else keras.losses.BinaryCrossentropy(from_logits=True)
        )
        model.compile(
            make_optimizer(TrainSettings(weight_decay=0, **train), model.trainable_variables), loss
        )
        for step in range(5):
            rows = slice(step * BATCH, (step + 1) * BATCH)
            model.train_on_batch(
                {key: value[rows] for key, value in batches.inputs.items()},
                batches.targets[rows, None],
                sample_weight=batches.weights[rows],
            )
    engine.train(feed(engine, task), 5)
    found = engine.weights()
    for variable in model.trainable_variables:
        np.testing.assert_allclose(
            found[variable.path], variable.numpy(), rtol=1e-10, atol=1e-12, err_msg=variable.path
        )


@pytest.mark.parametrize("parallel", [ONE, MIRRORED], ids=label)
def test_evaluation_adds_up(parallel):
    engine, task = make(parallel, "binary_classification")
    data = tf.data.Dataset.from_tensor_slices(examples(task)).batch(BATCH, True)
    metrics = engine.evaluate(data)
    assert metrics.values.keys() == {"accuracy", "auc"}
    assert 0 < metrics.values["auc"] < 1
