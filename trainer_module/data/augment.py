"""Random crops, flips and cutouts that depend on the example, and on nothing around it.

What happens to a picture is a function of (seed, epoch, id): the same in another batch, on
another worker and after a resume. There is no state and no per-example loop.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from stagecraft.trainer_module.models.layers.splitmix import GAMMA, mix, u64

# The numbers of the draws: fixed, so that one augmentation being on or off changes no other.
_CROP_ROW, _CROP_COLUMN, _FLIP, _HOLE_ROW, _HOLE_COLUMN = range(5)


def augment(
    images: tf.Tensor,
    ids: tf.Tensor,
    *,
    seed: int,
    epoch: tf.Tensor,
    augmentations: Sequence[str],
) -> tf.Tensor:
    """Augments a batch, each picture in its own way.

    * ``crop``: 4 zeros around a picture of 32, of which 32 are taken (He et al. 2015, section
      4.2); an eighth of the side where it is another. Images are normalised: zero is the mean.
    * ``flip``: left and right changed places, in half of the cases.
    * ``cutout``: a square of zeros of a quarter of the side, its centre anywhere, so that part of
      it may lie outside (DeVries and Taylor 2017, section 3).

    Args:
        images: float32 ``[batch, height, width, channels]``.
        ids: int64 ``[batch]``, the example's id.
        seed: of the training.
        epoch: int64 ``[batch]``, which pass over the data each example belongs to.
        augmentations: names out of ``settings.AUGMENTATIONS``.

    Returns:
        float32 ``[batch, height, width, channels]``.
    """
    draws = _Draws(seed, epoch, ids)
    if "crop" in augmentations or "flip" in augmentations:
        images = _crop_and_flip(images, draws, "crop" in augmentations, "flip" in augmentations)
    if "cutout" in augmentations:
        images = _cutout(images, draws)
    return images


def _crop_and_flip(images: tf.Tensor, draws: _Draws, crop: bool, flip: bool) -> tf.Tensor:
    height, width = images.shape[1], images.shape[2]
    columns = tf.range(width)[tf.newaxis]
    if flip:
        columns = tf.where(draws.integers(_FLIP, 2) == 1, width - 1 - columns, columns)
    if crop:
        top, left = height // 8, width // 8
        images = tf.pad(images, [[0, 0], [top, top], [left, left], [0, 0]])
        rows = tf.range(height)[tf.newaxis] + draws.integers(_CROP_ROW, 2 * top + 1)
        columns += draws.integers(_CROP_COLUMN, 2 * left + 1)
        # Rows first: they are contiguous, and fewer are left for the columns.
        images = tf.gather(images, rows, axis=1, batch_dims=1)
    return tf.gather(images, columns, axis=2, batch_dims=1)


def _cutout(images: tf.Tensor, draws: _Draws) -> tf.Tensor:
    height, width, channels = images.shape[1:]
    rows = _hole(draws.integers(_HOLE_ROW, height), height)
    columns = _hole(draws.integers(_HOLE_COLUMN, width), width)
    # Channels are laid out as columns: a select without broadcasting is twice as fast.
    columns = tf.repeat(columns, channels, axis=1)
    hole = tf.logical_and(rows[:, :, tf.newaxis], columns[:, tf.newaxis, :])
    flat = tf.reshape(images, [-1, height, width * channels])
    return tf.reshape(tf.where(hole, tf.zeros_like(flat), flat), tf.shape(images))


def _hole(center: tf.Tensor, side: int) -> tf.Tensor:
    """The positions of a side that the hole covers: bool ``[batch, side]`` for ``[batch, 1]``."""
    start = center - side // 8
    positions = tf.range(side)[tf.newaxis]
    return tf.logical_and(positions >= start, positions < start + side // 4)


class _Draws:
    """Pseudo-random integers of each example: SplitMix64 from a hash of seed, epoch and id."""

    def __init__(self, seed: int, epoch: tf.Tensor, ids: tf.Tensor) -> None:
        state = mix(u64(tf.constant(seed, tf.int64)))
        state = mix(state + u64(epoch))
        self._state = mix(state + u64(ids))

    def integers(self, draw: int, bound: int) -> tf.Tensor:
        """The numbered draw, uniform over ``0 <= value < bound``: int32 ``[batch, 1]``."""
        bits = mix(self._state + u64(GAMMA * (draw + 1) % 2**64))
        # Multiply and shift (Lemire 2019, "Fast random integer generation in an interval"): the
        # upper 31 bits as a fraction of bound.
        upper = tf.cast(tf.bitwise.right_shift(bits, u64(33)), tf.int64)
        return tf.cast(upper * bound // 2**31, tf.int32)[:, tf.newaxis]
