"""Random crops (He et al. 2015, "Deep residual learning", section 4.2)."""

from __future__ import annotations

from typing import Any

from stagecraft.trainer_module.data.augmentation import Augmentation


class Crop(Augmentation):
    """4 zeros around an image of 32, of which 32 are taken; an eighth of any other side."""

    name = "crop"
    description = "moves the image by up to an eighth of its sides; zeros fill the border"
    order = 10
    moves = True
    first_draw = 0

    def apply(self, images: Any, draws: Any) -> Any:
        """Draws 0 and 1 are the row and the column."""
        import tensorflow as tf

        height, width = images.shape[1], images.shape[2]
        top, left = height // 8, width // 8
        padded = tf.pad(images, [[0, 0], [top, top], [left, left], [0, 0]])
        rows = tf.range(height)[tf.newaxis] + draws(0, 2 * top + 1)
        columns = tf.range(width)[tf.newaxis] + draws(1, 2 * left + 1)
        # Rows first: they are contiguous, and fewer are left for the columns.
        cropped = tf.gather(padded, rows, axis=1, batch_dims=1)
        return tf.gather(cropped, columns, axis=2, batch_dims=1)


CROP = Crop()
