import keras
import numpy as np
import pytest
import tensorflow as tf

from stagecraft.trainer_module.optimization import averages


@pytest.mark.parametrize(("step", "decay"), [(0, 0.1), (1, 2 / 11), (10**6, 0.99)])
def test_decay_grows_to_what_was_asked_for(step, decay):
    assert float(averages.ema_decay(0.99, tf.constant(step, tf.int64))) == pytest.approx(decay)


def test_ema_weights_follow():
    weight = keras.Variable(np.asarray([1.0, -2.0]))
    (average,) = averages.create([weight])
    np.testing.assert_array_equal(average, [1.0, -2.0])
    weight.assign([3.0, 2.0])
    averages.update_ema(tf.distribute.get_strategy(), [average], [weight], tf.constant(0.75))
    np.testing.assert_array_equal(average, [1.5, -1.0])
    np.testing.assert_array_equal(weight.numpy(), [3.0, 2.0])
