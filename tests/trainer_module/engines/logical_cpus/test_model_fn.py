"""A model_fn on one device, on replicas and with accumulation, against the same Keras model."""

import functools

import driving
import keras
import numpy as np
import pytest
import tensorflow as tf
from driving import MIRRORED, ONE, label

import stagecraft as sc
from stagecraft import named_objects
from stagecraft.common.errors import UserError
from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings

BATCH, STEPS = 8, 5
E = sc.estimator
FEATURES = {"a": E.Numeric(), "b": E.Tensor([3])}


def model_fn(features, labels, mode, params):
    """Layers, variables of both kinds, dropout, and a batch normalization."""
    joined = tf.concat([features["a"], features["b"]], axis=1)
    hidden = keras.layers.Dense(params["units"], activation="relu")(joined)
    training = mode == E.ModeKeys.TRAIN
    if params["dropout"] and training:
        hidden = keras.layers.Dropout(params["dropout"])(hidden, training=True)
    if params["norm"]:
        hidden = keras.layers.BatchNormalization(name="norm")(hidden, training=training)
    with tf.compat.v1.variable_scope("head"):
        kernel = tf.compat.v1.get_variable("kernel", [params["units"], 1])
    bias = tf.Variable(tf.zeros([1]), name="bias")
    logits = tf.matmul(hidden, kernel) + bias
    if mode == E.ModeKeys.PREDICT:
        return E.EstimatorSpec(mode, {"logits": logits, "probability": tf.sigmoid(logits)})
    labels = tf.cast(labels[:, None], logits.dtype)
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
    right = tf.equal(logits > 0, labels > 0)[:, 0]
    return E.EstimatorSpec(mode, loss=tf.reduce_mean(losses), eval_metric_ops={"accuracy": right})


def made(parallel, dropout=0.0, norm=False, fn=model_fn):
    params = {"units": 4, "dropout": dropout, "norm": norm}
    found = E.from_model_fn(fn, params, features=FEATURES, labels="y", metrics={"accuracy": "max"})
    asked = ParallelSettings(**{"virtual_devices": 6, "precision": "float64", **parallel})
    settings = TrainingSettings.model_validate(
        {
            "task": {"name": named_objects.put("task", found.task)},
            "train": {
                "model": named_objects.put("model", found.model),
                "optimizer": "sgd",
                "learning_rate": 2.0**-5,
                "momentum": 0,
                "weight_decay": 0,
                "schedule": "constant",
                "batch_size": BATCH,
            },
            "parallel": asked,
        }
    )
    task = found.task
    return driving.engine_of(settings, task.sample_arguments, STEPS, task=task), task


def examples(task, count=BATCH * STEPS):
    inputs, labels = task.noise(task.sample_arguments, count, np.random.default_rng(1))
    return Batch(inputs, labels, np.ones(count, np.float32))


def data(task):
    return tf.data.Dataset.from_tensor_slices(examples(task)).batch(BATCH, True)


@functools.cache
def alone(**options):
    engine, task = made(ONE, **options)
    engine.train(engine.feed(data(task)), STEPS)
    return engine.state()


def test_one_device_is_keras():
    engine, task = made(ONE)
    start = engine.weights()
    assert set(start) == {
        "model_fn/dense/kernel",
        "model_fn/dense/bias",
        "model_fn/head/kernel",
        "model_fn/bias",
    }
    rows = examples(task)
    with tf.device("CPU:0"):
        values = {path: tf.Variable(value) for path, value in start.items()}
        for step in range(STEPS):
            part = slice(step * BATCH, (step + 1) * BATCH)
            with tf.GradientTape() as tape:
                given_ = np.concatenate([rows.inputs["a"][part], rows.inputs["b"][part]], axis=1)
                hidden = tf.nn.relu(
                    given_.astype(np.float64) @ values["model_fn/dense/kernel"]
                    + values["model_fn/dense/bias"]
                )
                logits = hidden @ values["model_fn/head/kernel"] + values["model_fn/bias"]
                labels = rows.targets[part, None].astype(np.float64)
                loss = tf.reduce_mean(
                    tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
                )
            for path, gradient in tape.gradient(loss, values).items():
                values[path].assign_sub(2.0**-5 * gradient)
    engine.train(engine.feed(data(task)), STEPS)
    driving.assert_near(engine.weights(), values, 1e-12)


REPLICAS = {"strategy": "grid", "replicas": 2, "microbatches": 2}
CENTRAL = {"strategy": "central_storage", "replicas": 2}


@pytest.mark.parametrize(
    "parallel",
    [MIRRORED, ONE | {"accumulate": 2}, driving.rare(REPLICAS), driving.rare(CENTRAL)],
    ids=label,
)
def test_parts_of_a_batch_add_up(parallel):
    engine, task = made(parallel, dropout=0.5)
    engine.train(engine.feed(data(task)), STEPS)
    driving.assert_near(engine.state(), alone(dropout=0.5), 1e-12)


def test_a_batch_normalization_learns_its_statistics():
    found = alone(norm=True)
    assert not np.allclose(found["model/model_fn/norm/moving_mean"], 0)
    both = made(MIRRORED, norm=True)[0]
    assert "model/model_fn/norm/moving_mean" in both.state()


@pytest.mark.parametrize("parallel", [ONE, MIRRORED], ids=label)
def test_padding_does_not_count(parallel):
    engine, task = made(parallel)
    five = examples(task, 5)
    padded = tf.nest.map_structure(
        lambda rows: np.concatenate([rows, np.full_like(rows[:3], 7)]), five
    )
    weights = np.array([1] * 5 + [0] * 3, np.float32)
    padded.inputs["_weights"][:] = weights
    batch = padded._replace(weights=weights)
    found = engine.evaluate(tf.data.Dataset.from_tensors(batch))
    expected = made(ONE)[0].evaluate(tf.data.Dataset.from_tensors(five))
    assert found.loss == pytest.approx(expected.loss, rel=1e-12)
    assert found.values == pytest.approx(expected.values, rel=1e-12)


def test_stages_are_refused():
    with pytest.raises(UserError) as caught:
        made(driving.STAGES)
    assert caught.value.setting == "parallel.stages"
