"""Random mirror images."""

from __future__ import annotations

from typing import Any

from stagecraft.trainer_module.data.augmentation import Augmentation


class Flip(Augmentation):
    """Left and right change places, in half of the cases."""

    name = "flip"
    description = "swaps left and right of every second image"
    order = 20
    moves = True
    first_draw = 2

    def apply(self, images: Any, draws: Any) -> Any:
        """Draw 0 decides."""
        import tensorflow as tf

        width = images.shape[2]
        columns = tf.range(width)[tf.newaxis]
        columns = tf.where(draws(0, 2) == 1, width - 1 - columns, columns)
        return tf.gather(images, columns, axis=2, batch_dims=1)


FLIP = Flip()
