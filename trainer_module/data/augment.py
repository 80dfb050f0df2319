"""Augments images; what happens to one depends on the example, and on nothing around it.

It is a function of (seed, epoch, id): the same in another batch, on another worker and after a
resume. There is no state and no per-example loop.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from stagecraft.trainer_module import registries
from stagecraft.trainer_module.data.augmentation import Augmentation


def augment(
    images: tf.Tensor, ids: tf.Tensor, *, seed: int, epoch: tf.Tensor, augmentations: Sequence[str]
) -> tf.Tensor:
    """Augments a batch, each image in its own way; the shape stays.

    Args:
        images: float32 ``[batch, height, width, channels]``.
        ids: int64 ``[batch]``, the example's id.
        epoch: int64 ``[batch]``, which pass over the data each example belongs to.
        augmentations: names, in the order of ``train.augment``.
    """
    for name in augmentations:
        entry: Augmentation = registries.AUGMENTATIONS.get(name)
        images = entry.apply(images, Draws(seed, epoch, ids, entry.first_draw))
    return images


class Draws:
    """Pseudo-random integers of each example: SplitMix64 from a hash of seed, epoch and id."""

    def __init__(self, seed: int, epoch: tf.Tensor, ids: tf.Tensor, first: int):
        """``epoch``, ``ids``: int64 ``[batch]``; ``first``: number of the first draw."""
        self.epoch = epoch
        self._seed, self._ids = seed, ids
        state = mix(u64(tf.constant(seed, tf.int64)))
        state = mix(state + u64(epoch))
        self._state = mix(state + u64(ids))
        self._first = first

    def in_all_epochs(self) -> Draws:
        """Draws that depend on seed and id alone: those of the first epoch."""
        return Draws(self._seed, tf.zeros_like(self.epoch), self._ids, self._first)

    def __call__(self, draw: int, bound: int) -> tf.Tensor:
        """The numbered draw, uniform over ``0 <= value < bound``: int32 ``[batch, 1]``."""
        bits = mix(self._state + u64(GAMMA * (self._first + draw + 1) % 2**64))
        # Multiply and shift (Lemire 2019, "Fast random integer generation in an interval"): the
        # upper 31 bits as a fraction of bound.
        upper = tf.cast(tf.bitwise.right_shift(bits, u64(33)), tf.int64)
        return tf.cast(upper * bound // 2**31, tf.int32)[:, tf.newaxis]


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
