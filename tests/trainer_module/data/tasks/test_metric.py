import numpy as np
import pytest
import tensorflow as tf

from stagecraft.trainer_module.data.tasks.metric import Mean

ERROR = Mean("mae", lambda outputs, targets: tf.abs(outputs - targets), higher_is_better=False)


def _sums(outputs, targets, weights):
    return ERROR.sums(tf.constant(outputs), tf.constant(targets), tf.constant(weights), tf.float64)


@pytest.mark.parametrize("shape", [(6,), (6, 3), (6, 2, 5)])
def test_parts_add_up_to_the_weighted_mean(shape):
    draw = np.random.RandomState(0)
    outputs, targets = draw.randn(*shape), draw.randn(*shape)
    weights = np.array([1.0, 2.0, 0.5, 1.0, 1.0, 0.0])
    parts = [_sums(outputs[p], targets[p], weights[p]) for p in (slice(2), slice(2, 6))]
    of_examples = np.abs(outputs - targets).reshape(6, -1).mean(axis=1)
    expected = (of_examples * weights).sum() / weights.sum()
    assert ERROR.result(np.sum(parts, axis=0)) == pytest.approx(expected, rel=1e-12)
