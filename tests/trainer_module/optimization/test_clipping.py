import numpy as np
import pytest
import tensorflow as tf

from stagecraft.trainer_module.optimization.gradients import clip_factor, scaled, squared_norm


def _gradients(scale: float = 1.0) -> list[tf.Tensor]:
    draw = np.random.RandomState(0)
    return [tf.constant(scale * draw.randn(*shape), tf.float32) for shape in ([3, 4], [5], [])]


@pytest.mark.parametrize("clip_norm", [0.5, 100.0])
def test_as_tensorflow_does_it(clip_norm):
    gradients = _gradients()
    # In parts, as they lie on two devices.
    squared = squared_norm(gradients[:1]) + squared_norm(gradients[1:])
    found = scaled(gradients, clip_factor(squared, clip_norm))
    expected, _ = tf.clip_by_global_norm(gradients, clip_norm)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)  # a few roundings of float32


def test_what_is_small_enough_keeps_its_bits():
    gradients = _gradients()
    by = clip_factor(squared_norm(gradients), 100.0)
    for one, other in zip(scaled(gradients, by), gradients, strict=True):
        np.testing.assert_array_equal(one, other)


def test_zero_gradients_stay_zero():
    zeros = [tf.zeros([3])]
    by = clip_factor(squared_norm(zeros), 1.0)
    np.testing.assert_array_equal(scaled(zeros, by)[0], np.zeros(3))


def test_squares_of_float16_do_not_overflow():
    gradients = [tf.constant([1e4, 1e4], tf.float16)]
    squared = squared_norm(gradients)
    assert squared.dtype == tf.float32
    assert float(squared) == 2e8
    assert scaled(gradients, squared)[0].dtype == tf.float16


def test_float64_stays_float64():
    gradients = [tf.constant([3.0, 4.0], tf.float64)]
    by = clip_factor(squared_norm(gradients), 1.0)
    assert by.dtype == tf.float64
    assert float(by) == 0.2
