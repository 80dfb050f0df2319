import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.data.augment import GAMMA, mix, u64


def test_the_mixer_is_splitmix64():
    """The published first outputs for the seed 1234567."""
    states = np.array([(1234567 + draw * GAMMA) % 2**64 for draw in (1, 2, 3)], np.uint64)
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    np.testing.assert_array_equal(mix(tf.constant(states)), np.array(expected, np.uint64))


def test_numbers_and_tensors_as_64_bits():
    assert int(u64(2**64 - 1)) == int(u64(tf.constant(-1, tf.int64))) == 2**64 - 1
