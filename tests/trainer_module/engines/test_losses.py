import keras
import numpy as np
import pytest
import tensorflow as tf

from stagecraft.trainer_module import registries
from stagecraft.trainer_module.settings import TrainSettings

LOGITS = np.random.RandomState(0).randn(7, 10).astype(np.float32) * 5
LABELS = np.arange(7, dtype=np.int64)


def losses(logits, smoothing=0.0):
    task = registries.TASKS.get("image_classification")
    train = TrainSettings(label_smoothing=smoothing)
    return task.losses(logits, tf.constant(LABELS), tf.float32, train)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_is_keras_s_per_example(smoothing):
    expected = keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=smoothing, reduction=None
    )(keras.ops.one_hot(LABELS, 10), LOGITS)
    found = losses(tf.constant(LOGITS), smoothing)
    # Ten summands of up to 30 in float32, in another order.
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "computed"),
    [(tf.bfloat16, tf.float32), (tf.float16, tf.float32), (tf.float64, tf.float64)],
)
def test_is_never_less_precise_than_float32(given, computed):
    logits = tf.cast(LOGITS, given)
    found = losses(logits)
    assert found.dtype == computed
    expected = losses(tf.cast(logits, tf.float64))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
