"""Metrics by the names of Keras: the sums give what Keras computes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from stagecraft.common.errors import SettingError
from stagecraft.objects import compiled
from stagecraft.trainer_module.data.tasks.metric import Mean

COUNT = 64
DRAW = np.random.default_rng(0)
SHARES = DRAW.uniform(size=[COUNT, 1]).astype(np.float32)
SOFTMAX = DRAW.dirichlet([1, 1, 1], COUNT).astype(np.float32)
ONE, THREE = DRAW.integers(0, 2, COUNT), DRAW.integers(0, 3, COUNT)


def value(metric: Any, outputs: np.ndarray, targets: np.ndarray) -> float:
    """Of two parts of the examples, added up."""
    total = np.zeros(metric.size)
    for part in (slice(0, 20), slice(20, COUNT)):
        given = tf.constant(outputs[part]), tf.constant(targets[part])
        weights = tf.ones([len(outputs[part])])
        total += np.asarray(metric.sums(*given, weights, tf.float64))
    return float(metric.result(total))


@pytest.mark.parametrize(
    ("name", "outputs", "targets", "expected"),
    [
        ("accuracy", SHARES, ONE, keras.metrics.BinaryAccuracy),
        ("acc", SOFTMAX, THREE, keras.metrics.SparseCategoricalAccuracy),
        ("accuracy", SOFTMAX, np.eye(3)[THREE], keras.metrics.CategoricalAccuracy),
        ("mae", SHARES, ONE, keras.metrics.MeanAbsoluteError),
        ("mean_squared_error", SHARES, ONE, keras.metrics.MeanSquaredError),
        ("auc", SHARES, ONE, keras.metrics.AUC),
        ("binary_crossentropy", SHARES, ONE, keras.metrics.BinaryCrossentropy),
    ],
)
def test_names(name, outputs, targets, expected):
    found = compiled.metric(name)
    theirs = expected()
    theirs.update_state(np.reshape(targets, [COUNT, -1]), outputs)
    # Keras adds up float32 over the examples: 64 roundings of 6e-8 each.
    assert value(found, outputs, targets) == pytest.approx(float(theirs.result()), rel=4e-6)
    assert found.name == name


def test_objects_and_functions():
    def distance(targets: Any, outputs: Any) -> Any:
        return tf.abs(tf.cast(targets, outputs.dtype) - outputs)

    top = keras.metrics.SparseTopKCategoricalAccuracy(k=2, name="top_2")
    found = compiled.metric(top)
    top.update_state(THREE, SOFTMAX)
    assert (found.name, found.higher_is_better) == ("top_2", True)
    assert value(found, SOFTMAX, THREE) == pytest.approx(float(top.result()))
    own = compiled.metric(distance)
    assert (own.name, own.higher_is_better) == ("distance", False)
    assert value(own, SHARES, ONE) == pytest.approx(np.abs(ONE - SHARES[:, 0]).mean(), rel=1e-6)
    ours = Mean("ours", distance)
    assert compiled.metric(ours) is ours


@pytest.mark.parametrize("given", ["nothing", "Precision", 3, keras.metrics.Precision()])
def test_refusals(given):
    with pytest.raises(SettingError) as error:
        compiled.metric(given)
    assert error.value.setting == "task.metrics"


@pytest.mark.slow
def test_names_do_not_start_tensorflow():
    """A worker connects to its peers first, and may import the task of a module before that."""
    script = """
import stagecraft as sc
sc.ExamplesTask("price", loss="mse", metrics=["accuracy", "auc", "mae", "mean_squared_error"])
from tensorflow.python.eager import context
assert not context.context()._initialized
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_names_are_as_in_a_history_of_keras():
    given = ["Accuracy", "ACC", keras.metrics.MeanSquaredError, keras.losses.Huber(delta=2.0)]
    names = [compiled.metric(each).name for each in given]
    assert names == ["accuracy", "acc", "mean_squared_error", "huber_loss"]


def test_a_mean_that_is_reset_otherwise_is_refused():
    class Kept(keras.metrics.MeanMetricWrapper):
        def reset_state(self):
            """Keeps the sums of earlier epochs."""

    with pytest.raises(SettingError) as error:
        compiled.metric(Kept(keras.losses.mean_squared_error, name="kept"))
    assert error.value.value == "kept"


def test_a_loss_as_a_metric():
    outputs, targets = DRAW.normal(size=[2, COUNT, 1]) * 3
    found = value(compiled.metric(keras.losses.Huber(delta=2.0)), outputs, targets)
    assert found == pytest.approx(float(keras.losses.Huber(delta=2.0)(targets, outputs)), rel=1e-6)
