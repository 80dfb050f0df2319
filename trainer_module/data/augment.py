"""Augments images; what happens to one depends on the example, and on nothing around it.

It is a function of (seed, epoch, id): the same in another batch, on another worker and after a
resume. There is no state and no per-example loop.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from stagecraft.trainer_module import registries
from stagecraft.trainer_module.data.augmentation import Augmentation
from stagecraft.trainer_module.data.splitmix import GAMMA, mix, u64


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
