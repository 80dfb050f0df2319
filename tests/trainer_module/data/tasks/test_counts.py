import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from stagecraft.trainer_module.data.tasks.metric import MeanIoU, Ratio

CLASSES = 4


def _sums(metric, outputs, targets, parts):
    """Added up over parts of a batch."""
    each = [
        metric.sums(part, target, tf.ones([len(part)]), tf.float64)
        for part, target in zip(np.split(outputs, parts), np.split(targets, parts), strict=True)
    ]
    return np.sum(each, axis=0)


@pytest.mark.parametrize("parts", [1, 3])
def test_mean_iou_is_that_of_keras(parts):
    draw = np.random.default_rng(0)
    logits = draw.normal(size=(6, 5, 4, CLASSES))
    logits[..., 3] = -9  # is never predicted, and never occurs
    targets = draw.integers(0, CLASSES - 1, (6, 5, 4))
    metric = MeanIoU(CLASSES)
    found = metric.result(_sums(metric, logits, targets, parts))
    expected = keras.metrics.MeanIoU(CLASSES)
    expected.update_state(targets, logits.argmax(-1))
    assert found == pytest.approx(float(expected.result()), rel=1e-6)


def test_a_mask_that_is_right_has_an_iou_of_one():
    targets = np.arange(8).reshape(2, 2, 2) % 2
    metric = MeanIoU(2)
    assert metric.result(_sums(metric, np.eye(2)[targets], targets, 2)) == 1


def test_a_ratio_weights_examples_by_what_they_count():
    def parts(outputs, targets, dtype):
        return tf.reduce_sum(outputs, 1), tf.reduce_sum(targets, 1)

    metric = Ratio("r", parts, math.exp, higher_is_better=False)
    outputs, targets = np.array([[1.0, 2.0], [9.0, 0.0]]), np.array([[1.0, 1.0], [1.0, 0.0]])
    assert metric.result(_sums(metric, outputs, targets, 2)) == pytest.approx(math.exp(12 / 3))
    assert metric.result(np.array([1e6, 10.0])) == math.inf
