"""SplitMix64: random bits as a function of integers alone."""

from __future__ import annotations

import tensorflow as tf

GAMMA = 0x9E3779B97F4A7C15
"""Increment of the state between two outputs: 2 ** 64 divided by the golden ratio."""


def u64(value: tf.Tensor | int) -> tf.Tensor:
    """Converts an int64 tensor, or a number below 2 ** 64, to uint64."""
    return tf.constant(value, tf.uint64) if isinstance(value, int) else tf.bitcast(value, tf.uint64)


def mix(value: tf.Tensor) -> tf.Tensor:
    """The finaliser of SplitMix64: a bijection on uint64 in which every bit affects every other.

    ``mix(state + i * GAMMA)`` for ``i`` of 1, 2, … are the outputs of the generator with the seed
    ``state`` (Steele, Lea and Flood 2014; constants of Stafford's "Mix13"). Integer operations give
    the same bits on every device, in every batch and under every compiler.
    """
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = tf.bitwise.bitwise_xor(value, tf.bitwise.right_shift(value, u64(shift)))
        value = value * u64(factor)
    return tf.bitwise.bitwise_xor(value, tf.bitwise.right_shift(value, u64(31)))
