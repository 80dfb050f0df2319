"""Random holes (DeVries and Taylor 2017, "Cutout", section 3)."""

from __future__ import annotations

from typing import Any

from stagecraft.trainer_module.data.augmentation import Augmentation


class Cutout(Augmentation):
    """A square of zeros of a quarter of the side; part of it may lie outside."""

    name = "cutout"
    description = "a square of zeros, a quarter of the side, anywhere in the image"
    order = 30
    first_draw = 3

    def apply(self, images: Any, draws: Any) -> Any:
        """Draws 0 and 1 are the row and the column of the centre."""
        import tensorflow as tf

        height, width, channels = images.shape[1:]
        rows = _covered(draws(0, height), height)
        columns = _covered(draws(1, width), width)
        # Channels are laid out as columns: a select without broadcasting is twice as fast.
        columns = tf.repeat(columns, channels, axis=1)
        hole = tf.logical_and(rows[:, :, tf.newaxis], columns[:, tf.newaxis, :])
        flat = tf.reshape(images, [-1, height, width * channels])
        return tf.reshape(tf.where(hole, tf.zeros_like(flat), flat), tf.shape(images))


def _covered(center: Any, side: int) -> Any:
    """The positions of a side that the hole covers: bool ``[batch, side]`` for ``[batch, 1]``."""
    import tensorflow as tf

    start = center - side // 8
    positions = tf.range(side)[tf.newaxis]
    return tf.logical_and(positions >= start, positions < start + side // 4)


CUTOUT = Cutout()
