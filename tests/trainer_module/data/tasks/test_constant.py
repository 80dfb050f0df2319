"""The constant answers of tasks, held against NumPy and against small changes of them."""

import numpy as np
import pytest
import tensorflow as tf

from stagecraft.trainer_module import registries
from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.data.tasks.kinds.binary_classification import BinaryClassification
from stagecraft.trainer_module.data.tasks.kinds.classification import Classification
from stagecraft.trainer_module.data.tasks.kinds.regression import Regression

DRAW = np.random.default_rng(0)
COLUMNS = {"x": "numeric"}
COUNT = 3000
CASES = {
    "regression": (Regression(COLUMNS, "y"), DRAW.gamma(2, 3, COUNT).astype(np.float32), "mse"),
    "binary": (
        BinaryClassification(COLUMNS, "y"),
        (DRAW.random(COUNT) < 0.2).astype(np.float32),
        None,
    ),
    "classification": (
        Classification(COLUMNS, "y", num_classes=4),
        DRAW.choice(3, COUNT, p=[0.2, 0.7, 0.1]),  # the last class never occurs
        "accuracy",
    ),
    "segmentation": (
        registries.task("segmentation"),
        DRAW.integers(0, 5, (COUNT, 4, 4)) // 4,
        None,
    ),
    "language_model": (
        registries.task("language_model", {"length": 6, "vocabulary_size": 9}),
        DRAW.integers(1, 5, (COUNT, 6)) * (np.arange(6) < 4),  # the rest is padding
        None,
    ),
}


def found(task, targets, weights):
    """The constant as outputs, from sums over parts."""
    parts = zip(np.array_split(targets, 3), np.array_split(weights, 3), strict=True)
    given = task.constant()
    sums = sum(given.sums(tf.constant(t), tf.constant(w)).numpy() for t, w in parts)
    return given.outputs(sums, tf.constant(targets))


@pytest.mark.parametrize("name", CASES)
def test_no_other_constant_has_a_smaller_loss(name):
    task, targets, _ = CASES[name]
    weights = DRAW.uniform(0, 2, COUNT)
    outputs = tf.cast(found(task, targets, weights), tf.float64)

    def loss(outputs):
        return np.average(
            task.losses(outputs, tf.constant(targets), tf.float64, None), weights=weights
        )

    least = loss(outputs)
    assert np.isfinite(least)
    # Each class counts once more than it occurs.
    tolerance = 1e-5 if name == "regression" else 2e-3
    for index in range(outputs.shape[-1]):
        for step in (-0.3, 0.3):
            change = step * np.eye(outputs.shape[-1])[index]
            assert loss(outputs + change) > least - tolerance


@pytest.mark.parametrize("name", CASES)
def test_the_monitored_mean_decides_or_the_loss(name):
    task, _, decisive = CASES[name]
    judge = task.decisive_metric()
    assert (judge.name if judge else None) == decisive
    assert task.constant().answer


def test_weights_of_classes_count_as_in_the_training():
    task = BinaryClassification(COLUMNS, "y", class_weights=[1, 3])
    batch = Batch({}, tf.constant([0.0, 1.0, 1.0]), tf.constant([1.0, 1.0, 0.5]))
    np.testing.assert_array_equal(task.comparison_weights(batch), [1, 3, 1.5])
    plain = BinaryClassification(COLUMNS, "y")
    np.testing.assert_array_equal(plain.comparison_weights(batch), [1, 1, 0.5])


def test_a_task_has_none_by_default():
    assert registries.task("image_classification").constant() is None
